import { contractTests } from "./all.ts";
import { bindMountsContract } from "./bind_mounts_suite.ts";
import { cowSnapshotsContract } from "./cow_snapshots_suite.ts";
import { erasureContract } from "./erasure_suite.ts";
import {
  fakeDebian13,
  fakeFaultyDisks,
  fakeHost,
  fakeHostWithFindmnt,
  fakeMultiPvHost,
  fakeOddReports,
  fakeSeLinux,
  fakeSeLinuxWithFindmnt,
} from "./helpers/fake_host.ts";
import { faultsContract } from "./faults_suite.ts";
import { copiesContract } from "./copies_suite.ts";
import { groupSnapshotsContract } from "./group_snapshots_suite.ts";
import { healthContract } from "./health_suite.ts";
import { importsContract } from "./imports_suite.ts";
import { passphraseContract } from "./passphrases_suite.ts";
import { programsContract } from "./programs_suite.ts";
import { safetyContract } from "./safety_suite.ts";
import { snapshotsContract } from "./snapshots_suite.ts";
import { thinContract } from "./thin_suite.ts";
import { volumesContract } from "./volumes_suite.ts";
import { cachesContract } from "./caches_suite.ts";
import { layoutSpaceContract } from "./layout_space_suite.ts";
import { encryptedLayoutsContract } from "./encrypted_layouts_suite.ts";
import { layoutsContract } from "./layouts_suite.ts";
import { hiddenSeLinuxContract, seLinuxContract } from "./selinux_suite.ts";
import { staleMountsContract } from "./stale_mounts_suite.ts";
import { stagingContract } from "./staging_suite.ts";
import { drawer } from "../rig/sample.ts";
import { toolsContract } from "./tools_suite.ts";

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
