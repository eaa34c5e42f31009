/**
 * Situations of sizes and expansion.
 *
 * @module
 */

import { assertEquals } from "@std/assert";
import { assertFails, mountCapability } from "../contract/helpers/host.ts";
import { onMachine } from "./play.ts";
import { by, type Situation } from "./situation.ts";

const MiB = 1n << 20n;

/** The situations. */
export const SIZES: readonly Situation[] = [
  {
    seen: ["hwameistor#688"],
    happened: "A claim asks for an XFS smaller than mkfs.xfs accepts.",
    here: "The volume gets 300 MiB; a limit below that is OUT_OF_RANGE.",
    shown: onMachine(async ({ harness }) => {
      const volumeCapabilities = [mountCapability("xfs")];
      const capacityRange = { requiredBytes: 100n * MiB };
      await harness.create({ volumeCapabilities, capacityRange });
      assertEquals((await harness.singleLv()).size, 300n * MiB);
      const limited = { ...capacityRange, limitBytes: 200n * MiB };
      await assertFails("OUT_OF_RANGE", harness.create({ volumeCapabilities, capacityRange: limited }));
    }),
  },
  {
    seen: ["sched-ops#264", "Kubernetes-Volume-Autoscaler#32"],
    happened: "A client asks for 1500m or 23.625G.",
    here: "It is rounded up to whole extents.",
    shown: [by("k8s/api/quantity_test.ts", "quantityToBytes() parses quantities of Kubernetes, and rounds up")],
  },
  {
    seen: ["borgbackupserver#498"],
    happened: "lvcreate refuses a size that is no multiple of 512.",
    here: "A volume of any size has whole extents.",
    shown: onMachine(async ({ harness }) => {
      await harness.create({ capacityRange: { requiredBytes: 32n * MiB + 1n } });
      assertEquals((await harness.singleLv()).size, 36n * MiB);
    }),
  },
  {
    seen: ["CSI 1.13, CapacityRange"],
    happened: "A claim asks for the largest number.",
    here: "OUT_OF_RANGE, and nothing is created.",
    shown: onMachine(async ({ harness }) => {
      await assertFails("OUT_OF_RANGE", harness.create({ capacityRange: { requiredBytes: (1n << 63n) - 1n } }));
      assertEquals(await harness.lvs(), []);
    }),
  },
  {
    seen: ["kubernetes#132859", "external-resizer#607", "Kubernetes-Volume-Autoscaler#38"],
    happened: "A size is rounded up, and kubelet expands the filesystem again and again.",
    here: "allocatedResources is what the volume got.",
    shown: [
      by("k8s/resizer/resizer_test.ts", "allocatedResources is what the volume got, with and without a filesystem"),
      by("k8s/resizer/resizer_test.ts", "an expansion that ended below the size of the PersistentVolume is completed"),
    ],
  },
  {
    seen: ["lvresize(8)", "kubernetes#83392"],
    happened: "An administrator extends a logical volume by hand.",
    here: "The volume has that size, and its filesystem when it is staged.",
    shown: [by("tests/contract/staging_suite.ts", "a volume whose LV an administrator grew has that size")],
  },
  {
    seen: ["lvextend(8)"],
    happened: "An expansion asks for less than the volume has.",
    here: "It succeeds, and nothing shrinks.",
    shown: onMachine(async ({ harness }) => {
      const volumeId = await harness.create({ capacityRange: { requiredBytes: 64n * MiB } });
      const { capacityBytes } = await harness.csi.controller.controllerExpandVolume({
        ...{ volumeId, capacityRange: { requiredBytes: 32n * MiB } },
      });
      assertEquals(capacityBytes, 64n * MiB);
    }),
  },
  {
    seen: ["topolvm#655"],
    happened: "An expansion fails for ever, since the node has no space.",
    here: "An event tells the free space; a smaller request, or a disk, mends it.",
    shown: [
      by("tests/cluster/suite/expansion_suite.ts", "has an event that says so, and a smaller request recovers from it"),
      by("k8s/resizer/resizer_test.ts", "an infeasible request is tried again when there is said to be more space"),
    ],
  },
  {
    seen: ["hwameistor#358", "hwameistor#750", "kubernetes#84030", "vsphere-csi-driver#2752"],
    happened: "A claim has the new size, and its filesystem the old one.",
    here: "It grows under its pod, or before the next pod starts.",
    shown: [
      by("tests/cluster/suite/expansion_suite.ts", "volumes grow under a writer; without a pod they grow halfway"),
      by(
        "tests/contract/staging_suite.ts",
        "a volume expanded while it was not in use has the new size when it is staged",
      ),
    ],
  },
  {
    seen: ["lvm-localpv#53", "rawfile-localpv#34", "hammer-space/csi-plugin#72"],
    happened: "An XFS does not grow: its tool is missing, or gets a device.",
    here: "It grows, at its mount point.",
    shown: [by("tests/contract/staging_suite.ts", "staged, published, expanded while in use, and back")],
  },
  {
    seen: ["strimzi-kafka-operator#11279", "strimzi-kafka-operator#7484"],
    happened: "A filesystem is full, and cannot be expanded for that.",
    here: "It grows.",
    shown: [by("tests/lvm/faults_suite.ts", "a volume that is full grows in use")],
  },
  {
    seen: ["kubernetes#80208"],
    happened: "The expansion of a block volume never ends.",
    here: "It ends when the volume is larger.",
    shown: [by("k8s/resizer/resizer_test.ts", "the expansion of a volume without a filesystem is complete")],
  },
  {
    seen: ["longhorn#5171"],
    happened: "A node restarts during an expansion, and its pod never starts again.",
    here: "The expansion goes on, and staging resizes the filesystem.",
    shown: [
      by("lvm/staging/staging_test.ts", "activates a block volume that an interrupted expansion left inactive"),
      by("k8s/resizer/resizer_test.ts", "a restart after the volume grew goes on to the node"),
    ],
  },
  {
    seen: ["democratic-csi#349", "democratic-csi#392", "e2fsprogs#98", "e2fsprogs#117"],
    happened: "A filesystem refuses to grow, and cannot be mounted any more.",
    here: "It is mounted as it is, and an event says why.",
    shown: [
      by(
        "tests/contract/caution_suite.ts",
        "cannot be resized while it is mounted is mounted with the size that it has",
      ),
    ],
  },
  {
    seen: ["btrfs-progs#865", "btrfs-progs#279"],
    happened: "btrfs refuses to be resized while a balance runs.",
    here: "The same.",
    shown: [by("lvm/staging/staging_test.ts", "a balance that was interrupted")],
  },
  {
    seen: ["strimzi-kafka-operator#5234"],
    happened: "A volume can only be expanded without its pods.",
    here: "Only a thick volume with snapshots needs that; the message names them.",
    shown: [
      by("tests/cluster/suite/chaos_guides_suite.ts", "the guide of offline expansion: a volume with snapshots grows"),
    ],
  },
  {
    seen: ["cloudnative-pg#7997"],
    happened: "An operator waits for the resize, and the resize for a pod.",
    here: "why says that the filesystem grows when a pod uses it.",
    shown: [by("tests/cluster_fake/troubleshooting/expansion.ts", "FileSystemResizePending")],
  },
  {
    seen: ["external-resizer#482", "external-resizer#514"],
    happened: "A claim whose VolumeAttributesClass was refused cannot go back.",
    here: "It can, or go to another class.",
    shown: [
      by("k8s/resizer/modifier_test.ts", "what is refused is Infeasible, is not repeated, and is mended"),
      by("k8s/resizer/modifier_test.ts", "a refused modification that is no longer requested is canceled"),
    ],
  },
  {
    seen: ["local-path-provisioner#190", "SREGym#537"],
    happened: "A volume takes more of the disk than its claim says.",
    here: "A volume has its size, and a pod sees that.",
    shown: [by("tests/contract/sizes_suite.ts", "a volume has one size in every call, and an equal request copies it")],
  },
];
