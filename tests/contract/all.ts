/**
 * The whole contract.
 *
 * @module
 */

import { bindMountsContract } from "./bind_mounts.ts";
import { cautionContract } from "./caution.ts";
import { copiesContract } from "./copies.ts";
import { thinCopiesContract } from "./copies_thin.ts";
import { cowSnapshotsContract } from "./cow_snapshots.ts";
import { encryptionContract } from "./encryption.ts";
import { erasureContract } from "./erasure.ts";
import { groupSnapshotsContract } from "./group_snapshots.ts";
import { healthContract } from "./health.ts";
import { hostileContract } from "./hostile.ts";
import { hostileSecretsContract } from "./hostile_secrets.ts";
import type { Host } from "./host.ts";
import { importsContract } from "./imports.ts";
import { interruptedPassphraseContract } from "./interrupted_passphrases.ts";
import { limitsContract, standaloneLimitsContract } from "./limits.ts";
import { locksContract } from "./locks.ts";
import { passphraseContract } from "./passphrases.ts";
import { programsContract } from "./programs.ts";
import { reencryptionContract } from "./reencryption.ts";
import { safetyContract } from "./safety.ts";
import { snapshotsContract } from "./snapshots.ts";
import { spareSpaceContract } from "./spare_space.ts";
import { snapshotAutoextendContract } from "./snapshot_autoextend.ts";
import { stagingContract } from "./staging.ts";
import { staleMountsContract } from "./stale_mounts.ts";
import { thinContract } from "./thin.ts";
import { trimmingContract } from "./trimming.ts";
import { toolsContract } from "./tools.ts";
import { volumesContract } from "./volumes.ts";

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
