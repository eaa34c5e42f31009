/**
 * Situations of thin pools.
 *
 * @module
 */

import { assertEquals } from "@std/assert";
import { onMachine } from "./play.ts";
import { by, type Situation } from "./situation.ts";

/** The situations. */
export const THIN: readonly Situation[] = [
  {
    seen: ["lvm-localpv#210"],
    happened: "An empty thin pool counts as if it were full, or its space twice.",
    here: "A pool offers what it can still allocate.",
    shown: [
      by("lvm/pools/pool_test.ts", "returns the available virtual size of pools, also of a new one"),
      by("k8s/scheduling/free_capacity_test.ts", "subtracts a thin volume from the available virtual size of its pool"),
    ],
  },
  {
    seen: ["lvm-localpv#47"],
    happened: "A thin volume that is larger than the group is Pending for ever.",
    here: "It is refused, or allowed by the ratio of its pool.",
    shown: [
      by("tests/contract/thin_suite.ts", "a pool allocates no more than its size, also for many requests at once"),
    ],
  },
  {
    seen: ["container-storage-setup#169"],
    happened: "A pool takes all of its group, and its metadata and the spare have no space.",
    here: "A new pool leaves space for both.",
    shown: [by("lvm/pools/pool_test.ts", "a new pool leaves space for its metadata and the spare")],
  },
  {
    seen: ["container-storage-setup#13", "topolvm#595", "topolvm#994"],
    happened: "Volumes take space that was to be kept free.",
    here: "Spare space of a group is given to nothing.",
    shown: [by("tests/contract/spare_space_suite.ts", "get none of a group's spare space")],
  },
  {
    seen: ["lvm-localpv#93"],
    happened: "Nobody extends the pool, since dmeventd is not reached from a container.",
    here: "The agent extends its pools itself.",
    shown: [by("tests/cluster/suite/thin_suite.ts", "a pool of the driver that fills is extended before it is full")],
  },
  {
    seen: ["moby#20707", "docker/for-linux#731"],
    happened: "A pool is full, and writes hang.",
    here: "Conditions and an alert tell of it before; a disk more lets writes go on.",
    shown: [
      by("tests/cluster/suite/runbooks_suite.ts", "a thin pool that fills: the commands show it, and with a disk more"),
    ],
  },
  {
    seen: ["thin-provisioning-tools#244", "thin-provisioning-tools#265", "qubes-issues#10492"],
    happened: "thin_check fails, and LVM activates nothing in the pool.",
    here: "The error names the repair; new volumes are made elsewhere.",
    shown: [
      by("lvm/client/refusals_test.ts", "Check of pool"),
      by("tests/machine_fake/faults_test.ts", "a volume is created elsewhere than in a damaged thin pool"),
    ],
  },
  {
    seen: ["thin-provisioning-tools#242"],
    happened: "lvconvert --repair leaves the old metadata as a logical volume.",
    here: "It stays until it is removed by hand.",
    shown: onMachine(async ({ harness }) => {
      const volumeId = await harness.create({ parameters: { thinProvision: "yes" } });
      const name = "pool_meta0";
      await harness.runAsAdmin("lvm", "lvcreate", "--yes", "--name", name, "--size", `${4 << 20}b`, harness.groups[0]);
      await harness.csi.controller.deleteVolume({ volumeId });
      assertEquals((await harness.lvs()).map(({ name }) => name).includes(name), true);
    }),
  },
  {
    seen: ["kubernetes#30230"],
    happened: "cAdvisor reserves the metadata snapshot of a pool.",
    here: "It is left to it.",
    shown: [by("tests/contract/metadata_snapshots_suite.ts", "is left to another program that has reserved it")],
  },
];
