import { contractTests } from "./all.ts";
import { bindMountsContract } from "./bind_mounts.ts";
import { cowSnapshotsContract } from "./cow_snapshots.ts";
import { erasureContract } from "./erasure.ts";
import {
  fakeDebian13,
  fakeFaultyDisks,
  fakeHost,
  fakeHostWithFindmnt,
  fakeMultiPvHost,
  fakeOddReports,
  fakeSeLinux,
  fakeSeLinuxWithFindmnt,
} from "./fake_host.ts";
import { faultsContract } from "./faults.ts";
import { copiesContract } from "./copies.ts";
import { groupSnapshotsContract } from "./group_snapshots.ts";
import { healthContract } from "./health.ts";
import { importsContract } from "./imports.ts";
import { passphraseContract } from "./passphrases.ts";
import { programsContract } from "./programs.ts";
import { safetyContract } from "./safety.ts";
import { snapshotsContract } from "./snapshots.ts";
import { thinContract } from "./thin.ts";
import { volumesContract } from "./volumes.ts";
import { cachesContract } from "./caches.ts";
import { layoutSpaceContract } from "./layout_space.ts";
import { encryptedLayoutsContract } from "./encrypted_layouts.ts";
import { layoutsContract } from "./layouts.ts";
import { hiddenSeLinuxContract, seLinuxContract } from "./selinux.ts";
import { staleMountsContract } from "./stale_mounts.ts";
import { stagingContract } from "./staging.ts";
import { drawer } from "../rig/sample.ts";
import { toolsContract } from "./tools.ts";

/** One in so many of the tests that other hosts repeat runs in `task test`; all run in `task test:crashes`. */
const isDrawn = await drawer(6);

contractTests(fakeHost);
for (const contract of [cowSnapshotsContract, erasureContract, stagingContract, staleMountsContract, toolsContract]) {
  contract({ ...fakeDebian13, isDrawn });
}
for (const contract of [bindMountsContract, stagingContract, staleMountsContract]) {
  contract({ ...fakeHostWithFindmnt, isDrawn });
}
layoutsContract(fakeMultiPvHost);
encryptedLayoutsContract(fakeMultiPvHost);
layoutSpaceContract(fakeMultiPvHost);
cachesContract(fakeMultiPvHost);
faultsContract(fakeFaultyDisks());
for (
  const contract of [
    volumesContract,
    programsContract,
    snapshotsContract,
    thinContract,
    groupSnapshotsContract,
    copiesContract,
    stagingContract,
    safetyContract,
    importsContract,
    healthContract,
    passphraseContract,
  ]
) {
  contract({ ...fakeOddReports, isDrawn });
}
for (const host of [fakeSeLinux, fakeSeLinuxWithFindmnt]) seLinuxContract(host);
hiddenSeLinuxContract(fakeHost);
