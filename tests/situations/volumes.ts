/**
 * Situations of the creation and deletion of volumes.
 *
 * @module
 */

import { assertEquals } from "@std/assert";
import { VolumeCapability_AccessMode_Mode as Mode } from "../../csi/proto/csi_pb.ts";
import { assertFails, mountCapability } from "../contract/helpers/host.ts";
import { failure } from "../fake/machine/machine.ts";
import { onMachine } from "./play.ts";
import { by, type Situation } from "./situation.ts";

/** The situations. */
export const VOLUMES: readonly Situation[] = [
  {
    seen: ["kubevirt#12801", "truenas-csp#58", "containerized-data-importer#4180"],
    happened: "Live migration or CDI asks for a volume of several nodes.",
    here: "Creation refuses it.",
    shown: onMachine(async ({ harness }) => {
      const volumeCapabilities = [mountCapability("", [], Mode.MULTI_NODE_MULTI_WRITER)];
      await assertFails("INVALID_ARGUMENT", harness.create({ volumeCapabilities }), "is for one node");
    }),
  },
  {
    seen: ["csi-driver-lvm#64", "lvm-localpv#216"],
    happened: "A node has no volume group, or the class names a wrong one.",
    here: "Creation names the groups that there are.",
    shown: onMachine(async ({ harness }) => {
      const parameters = { volumeGroup: "absent" };
      await assertFails("RESOURCE_EXHAUSTED", harness.create({ parameters }), "none matches");
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
    seen: ["cloudnative-pg#7566", "cloudnative-pg#8178", "velero#7223"],
    happened: "Storage is made again, and empty, under a claim that had data.",
    here: "The volume is Lost, and never made again.",
    shown: [by("tests/contract/safety_suite.ts", "is Lost: no new one is created, and nothing is formatted")],
  },
  {
    seen: ["topolvm#827"],
    happened: "Repeated requests leave several logical volumes for one object.",
    here: "One request has one logical volume, whoever dies in between.",
    shown: [
      by("tests/cluster_fake/volume_faults_test.ts", "finds the volume, and creates it once"),
      by("tests/machine_fake/faults_test.ts", "two drivers of the same name create one LV for one request"),
    ],
  },
  {
    seen: ["lvm2#50"],
    happened: "lvcreate does not find its new device, and fails.",
    here: "The error quotes LVM, and the next call creates the volume.",
    shown: onMachine(async ({ harness, machine }) => {
      const name = "claim";
      machine.fault = ({ args }) =>
        args.includes("lvcreate") ? failure(5, "  /dev/data/v: not found: device not cleared") : undefined;
      await assertFails("INTERNAL", harness.create({ name }), "device not cleared");
      machine.fault = undefined;
      await harness.create({ name });
      assertEquals((await harness.lvs()).length, 1);
    }),
  },
  {
    seen: ["local-csi-driver#193"],
    happened: "lvcreate is killed halfway.",
    here: "The driver kills none; what a crash left is completed or removed.",
    shown: [by("tests/crash/crash_test.ts", "a driver may crash at any moment")],
  },
  {
    seen: ["zfs-localpv#130"],
    happened: "A claim whose volume cannot be created is deleted, and leaves an object.",
    here: "Nothing is left of it.",
    shown: [
      by("k8s/provisioner/provisioner_races_test.ts", "leaves nothing behind"),
      by("k8s/provisioner/garbage_collector_test.ts", "removes a pending volume of a deleted claim"),
    ],
  },
  {
    seen: ["cloudnative-pg#10985"],
    happened: "An operator makes a claim again while the old one is being deleted.",
    here: "The new claim has a volume of its own at once.",
    shown: [by("tests/contract/erasure_suite.ts", "a deleted volume's name can be used again at once")],
  },
  {
    seen: ["incus#1560", "xen-tools#39", "osism/documentation#356", "lxd#14761", "topolvm#1150"],
    happened: "A new or grown volume shows the data of a deleted one.",
    here: "Data is overwritten before its space is free.",
    shown: [by("tests/contract/erasure_suite.ts", "no data of a deleted volume can be read from a new one")],
  },
  {
    seen: ["openebs#1424"],
    happened: "Overwriting a deleted volume holds everything up for hours.",
    here: "It runs in the background, small volumes first.",
    shown: [
      by("lvm/deletion/removal_test.ts", "lets no erased volume wait for the erasure of a large one"),
      by("lvm/deletion/reaper_test.ts", "continues at the offset that an earlier process recorded"),
    ],
  },
  {
    seen: ["qubes-issues#5077"],
    happened: "The space of a deleted volume is not discarded on the SSD.",
    here: "`erase: discard` does that.",
    shown: [by("tests/contract/erasure_suite.ts", "with erase: discard is discarded and removed")],
  },
  {
    seen: ["lvm2#49", "lxd#17382"],
    happened: "A logical volume is open although nothing is mounted.",
    here: "Deletion fails until it is closed.",
    shown: [by("tests/contract/tools_suite.ts", "a volume whose device a process has open is not deleted")],
  },
  {
    seen: ["kubernetes#102408", "rook#4185"],
    happened: "A loop device or a container keeps the volume open after its pod.",
    here: "Deletion waits until it is closed.",
    shown: [
      by("tests/cluster_fake/deletion_in_use_test.ts", "whose device another program has open is checked again"),
    ],
  },
  {
    seen: ["csi-driver-host-path#178", "external-snapshotter#336"],
    happened: "Objects with the policy Retain never go, or go with their data.",
    here: "The policy at the time of deletion decides.",
    shown: [
      by("k8s/snapshotter/snapshotter_test.ts", "with the policy Retain the snapshot stays"),
      by("k8s/provisioner/reclaimer_test.ts", "a policy that just became Retain keeps the volume"),
    ],
  },
  {
    seen: ["deckhouse#21698"],
    happened: "A PersistentVolume with Retain is deleted, and the object of its volume cannot be.",
    here: "It can, and leaves an orphan.",
    shown: [
      by("tests/cluster_fake/volume_faults_test.ts", "deleting only the object does not delete the data"),
      by("tests/cluster_fake/orphans_test.ts", "an orphan that the annotation names is removed, and no other"),
    ],
  },
  {
    seen: ["external-provisioner#546", "sig-storage-lib-external-provisioner#42"],
    happened: "A PersistentVolume is deleted before its claim, and something stays for ever.",
    here: "Both go when the claim goes.",
    shown: [by("k8s/provisioner/reclaimer_test.ts", "deleted before its claim waits for the claim")],
  },
  {
    seen: ["external-provisioner#1217", "sig-storage-lib-external-provisioner#87"],
    happened: "A conflict on a finalizer leaves a PersistentVolume Terminating.",
    here: "The removal is repeated until nothing is left.",
    shown: [by("k8s/provisioner/provisioner_races_test.ts", "a removal that fails is repeated until nothing is left")],
  },
  {
    seen: ["harvester#11128"],
    happened: "Logical volumes without an object are never found.",
    here: "Condition, event and metric tell of such orphans.",
    shown: [
      by(
        "tests/cluster/suite/orphans_suite.ts",
        "an orphan is reported and kept, and is removed when an administrator",
      ),
    ],
  },
  {
    seen: ["carina#213"],
    happened: "Each logical volume without an object is deleted.",
    here: "An orphan is kept until an administrator names it.",
    shown: [by("tests/cluster_fake/orphans_test.ts", "orphans of a node without any objects are only removed after")],
  },
];
