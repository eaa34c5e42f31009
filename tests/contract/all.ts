/**
 * The whole contract.
 *
 * @module
 */

import { bindMountsContract } from "./bind_mounts_suite.ts";
import { cautionContract } from "./caution_suite.ts";
import { copiesContract } from "./copies_suite.ts";
import { thinCopiesContract } from "./copies_thin_suite.ts";
import { cowSnapshotsContract } from "./cow_snapshots_suite.ts";
import { encryptionContract } from "./encryption_suite.ts";
import { erasureContract } from "./erasure_suite.ts";
import { groupSnapshotsContract } from "./group_snapshots_suite.ts";
import { healthContract } from "./health_suite.ts";
import { hostileContract } from "./hostile_suite.ts";
import { hostileSecretsContract } from "./hostile_secrets_suite.ts";
import type { Host } from "./helpers/host.ts";
import { importsContract } from "./imports_suite.ts";
import { interruptedPassphraseContract } from "./interrupted_passphrases_suite.ts";
import { limitsContract, standaloneLimitsContract } from "./limits_suite.ts";
import { locksContract } from "./locks_suite.ts";
import { passphraseContract } from "./passphrases_suite.ts";
import { programsContract } from "./programs_suite.ts";
import { reencryptionContract } from "./reencryption_suite.ts";
import { safetyContract } from "./safety_suite.ts";
import { snapshotsContract } from "./snapshots_suite.ts";
import { spareSpaceContract } from "./spare_space_suite.ts";
import { snapshotAutoextendContract } from "./snapshot_autoextend_suite.ts";
import { stagingContract } from "./staging_suite.ts";
import { staleMountsContract } from "./stale_mounts_suite.ts";
import { thinContract } from "./thin_suite.ts";
import { trimmingContract } from "./trimming_suite.ts";
import { toolsContract } from "./tools_suite.ts";
import { volumesContract } from "./volumes_suite.ts";

/** Registers all tests of the contract on a machine. */
export function contractTests(host: Host): void {
  lifecycleContract(host);
  erasureContract(host);
}

/** Registers all of them but those that read whole devices, which take long on an emulated machine. */
export function lifecycleContract(host: Host): void {
  volumesContract(host);
  programsContract(host);
  snapshotsContract(host);
  thinContract(host);
  snapshotAutoextendContract(host);
  spareSpaceContract(host);
  groupSnapshotsContract(host);
  copiesContract(host);
  thinCopiesContract(host);
  cowSnapshotsContract(host);
  stagingContract(host);
  cautionContract(host);
  encryptionContract(host);
  passphraseContract(host);
  interruptedPassphraseContract(host);
  reencryptionContract(host);
  staleMountsContract(host);
  bindMountsContract(host);
  trimmingContract(host);
  limitsContract(host);
  standaloneLimitsContract(host);
  safetyContract(host);
  importsContract(host);
  healthContract(host);
  hostileContract(host);
  hostileSecretsContract(host);
  locksContract(host);
  toolsContract(host);
}
