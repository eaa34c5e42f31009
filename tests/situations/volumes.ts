/**
 * Situations of creation, size and deletion of volumes.
 *
 * @module
 */

import { assert, assertEquals } from "@std/assert";
import { VolumeCapability_AccessMode_Mode as Mode } from "../../csi/proto/csi_pb.ts";
import { assertFails, mountCapability } from "../contract/host.ts";
import { onMachine } from "./play.ts";
import { by, type Situation } from "./situation.ts";

const MiB = 1n << 20n;

/** The situations. */
export const VOLUMES: readonly Situation[] = [
  {
    seen: ["kubevirt/kubevirt#12801", "truenas-csp#58"],
    happened: "Live migration asks for a volume that several nodes can write.",
    here: "Creation refuses it, and says that a volume of this kind is for one node.",
    shown: onMachine(async ({ harness }) => {
      const volumeCapabilities = [mountCapability("", [], Mode.MULTI_NODE_MULTI_WRITER)];
      await assertFails("INVALID_ARGUMENT", harness.create({ volumeCapabilities }), "is for one node");
    }),
  },
  {
    seen: ["hwameistor#688"],
    happened: "A claim asks for an XFS filesystem that is smaller than mkfs.xfs accepts.",
    here: "The volume gets the 300 MiB that XFS needs; a limit below that is OUT_OF_RANGE.",
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
    seen: ["csi-driver-lvm#125"],
    happened: "A PersistentVolume whose logical volume is gone cannot be deleted.",
    here: "The volume is Lost for pods, and its deletion succeeds.",
    shown: onMachine(async ({ harness }) => {
      const volumeId = await harness.create();
      const { path } = await harness.singleLv();
      const stagingTargetPath = await harness.stage(volumeId);
      await harness.csi.node.nodeUnstageVolume({ volumeId, stagingTargetPath });
      await harness.runAsAdmin("lvm", "lvremove", "--yes", path);
      await assertFails("FAILED_PRECONDITION", harness.stage(volumeId), "Lost");
      await harness.csi.controller.deleteVolume({ volumeId });
      assertEquals(await harness.lvs(), []);
    }),
  },
  {
    seen: ["lvm2#49"],
    happened: "A logical volume is open although nothing is mounted.",
    here: "Deletion says that the volume is in use, and succeeds when it is closed.",
    shown: [by("tests/contract/tools.ts", "a volume whose device a process has open is not deleted")],
  },
  {
    seen: ["csi-driver-lvm#64"],
    happened: "A node has no volume group.",
    here: "Creation says which groups the class asks for, and that there are none.",
    shown: onMachine(async ({ harness }) => {
      await assertFails(
        "RESOURCE_EXHAUSTED",
        harness.create({ parameters: { volumeGroup: "absent" } }),
        "none matches",
      );
    }),
  },
  {
    seen: ["lvm-localpv#31"],
    happened: "The node that the scheduler chose is full.",
    here: "Creation is RESOURCE_EXHAUSTED, and the scheduler chooses again.",
    shown: [
      by(
        "k8s/provisioner/provisioner_failures_test.ts",
        "the selected node is withdrawn when the scheduler knows that it has no free capacity",
      ),
    ],
  },
  {
    seen: ["linode/apl-core#3607", "lxd#6435"],
    happened: "A storage object is renamed while volumes on it are in use.",
    here: "Volumes are known by UUIDs and tags: a renamed group or logical volume changes nothing for them.",
    shown: [
      by("tests/contract/staging.ts", "a volume whose LV was renamed is staged, measured and removed as others are"),
      by("lvm/staging/staging_test.ts", "of a volume whose LV an administrator has renamed"),
    ],
  },
  {
    seen: ["csi-driver-host-path#178", "external-snapshotter#336"],
    happened: "Objects with the policy Retain never go, or go with their data.",
    here: "The policy at the time of deletion decides, and a last look at the object precedes each removal.",
    shown: [
      by("k8s/snapshotter/snapshotter_test.ts", "with the policy Retain the snapshot stays"),
      by("k8s/provisioner/reclaimer_test.ts", "a policy that just became Retain keeps the volume"),
    ],
  },
  {
    seen: ["backsnap#5"],
    happened: "A snapshot reports the size 0, so that no claim can be restored from it.",
    here: "A snapshot reports the size of its volume.",
    shown: onMachine(async ({ harness }) => {
      const sourceVolumeId = await harness.create();
      const { snapshot } = await harness.csi.controller.createSnapshot({ sourceVolumeId, name: "s" });
      assertEquals(snapshot?.sizeBytes, 32n * MiB);
    }),
  },
  {
    seen: ["pmem-csi#218"],
    happened: "LVM prints warnings about a resized disk beside its report.",
    here: "Warnings are ignored, and volumes are created.",
    shown: onMachine(async ({ harness, machine }) => {
      machine.host.warnings.push(
        "  WARNING: Device /dev/sda has size of 2 sectors which is smaller than corresponding PV size.",
      );
      const volumeId = await harness.create();
      assert(volumeId.startsWith("v1-"));
    }),
  },
  {
    seen: ["kubernetes#132859", "external-resizer#607", "Kubernetes-Volume-Autoscaler#38"],
    happened:
      "A driver rounds a size up, and kubelet expands the filesystem again and again, since the claim shows what was asked for.",
    here: "allocatedResources is what the volume got.",
    shown: [
      by("k8s/resizer/resizer_test.ts", "allocatedResources is what the volume got, with and without a filesystem"),
      by("k8s/resizer/resizer_test.ts", "an expansion that ended below the size of the PersistentVolume is completed"),
    ],
  },
];
