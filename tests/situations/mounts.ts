/**
 * Situations of mounts, kubelet and containers' runtimes.
 *
 * @module
 */

import { assert, assertEquals, assertRejects } from "@std/assert";
import { assertFails, mountCapability } from "../contract/helpers/host.ts";
import { onMachine } from "./play.ts";
import { by, type Situation } from "./situation.ts";

/** The situations. */
export const MOUNTS: readonly Situation[] = [
  {
    seen: ["kubernetes#120853"],
    happened: "A volume is published unstaged, and pods write to the node's disk.",
    here: "It is refused, and no target is left.",
    shown: [by("tests/contract/staging_suite.ts", "nodePublishVolume() of a volume that is not staged is refused")],
  },
  {
    seen: ["kubernetes#109955", "kubernetes#114652"],
    happened: "A container writes into the target while nothing is mounted there.",
    here: "The volume is mounted over the files, which stay.",
    shown: onMachine(async ({ harness }) => {
      const volumeId = await harness.create();
      await harness.stage(volumeId);
      const targetPath = `${harness.folder}/pod`;
      await Deno.mkdir(targetPath);
      await Deno.writeTextFile(`${targetPath}/early`, "written too early");
      await harness.publish(volumeId);
      await assertFails("FAILED_PRECONDITION", harness.csi.node.nodeUnpublishVolume({ volumeId, targetPath }));
      assertEquals(await Deno.readTextFile(`${targetPath}/early`), "written too early");
    }),
  },
  {
    seen: ["longhorn#30", "nexus-operator#203", "csi-digitalocean#375"],
    happened: "A rolling update waits for ever, as the old pod has the volume.",
    here: "Both pods of the node have it.",
    shown: onMachine(async ({ harness, machine }) => {
      const volumeId = await harness.create();
      await harness.stage(volumeId);
      const [old, next] = [await harness.publish(volumeId, "old"), await harness.publish(volumeId, "new")];
      await harness.csi.node.nodeUnpublishVolume({ volumeId, targetPath: old });
      assert(machine.mounts.some(({ target }) => target === next));
    }),
  },
  {
    seen: ["kubernetes#26567"],
    happened: "Two pods write to a volume that only one may have.",
    here: "ReadWriteOncePod, or `shared: no`, refuses the second.",
    shown: [by("tests/cluster/suite/pods_suite.ts", "a volume for one pod refuses the second, which says why")],
  },
  {
    seen: ["moosefs-csi#34"],
    happened: "umount succeeds, and the mount is still there.",
    here: "Unpublishing fails, and the next try unmounts it.",
    shown: [by("tests/contract/stale_mounts_suite.ts", "a volume that is mounted more than once at its places")],
  },
  {
    seen: ["containerd#4020", "csi-driver-smb#603"],
    happened: "A process of a dead container keeps the target busy.",
    here: "FAILED_PRECONDITION, and a later try unmounts it.",
    shown: [by("tests/machine_fake/faults_test.ts", "a busy mount is FAILED_PRECONDITION, and is unmounted when")],
  },
  {
    seen: ["aws-fsx-csi-driver#495", "ceph-csi#6418"],
    happened: "umount, or a look at a mount, hangs, and the driver with it.",
    here: "Only this volume waits until the command ends.",
    shown: [by("tests/machine_fake/faults_test.ts", "keeps its volume locked until it is over, and no other")],
  },
  {
    seen: ["kubernetes#139535", "kubernetes#72604"],
    happened: "kubelet leaves a mount of a subPath, and never unmounts the volume.",
    here: "That mount stays; deletion waits until it is gone.",
    shown: [
      by(
        "tests/contract/staging_suite.ts",
        "nodeUnpublishVolume() and nodeUnstageVolume() leave mounts of others alone",
      ),
    ],
  },
  {
    seen: ["deckhouse#6130"],
    happened: "A volume is still mounted at the staging path of another version.",
    here: "It is staged at the new place, too.",
    shown: onMachine(async ({ harness, machine }) => {
      const volumeId = await harness.create();
      await harness.stage(volumeId);
      const stagingTargetPath = `${harness.folder}/other`;
      await Deno.mkdir(stagingTargetPath);
      await harness.csi.node.nodeStageVolume({ volumeId, stagingTargetPath, volumeCapability: mountCapability() });
      assert(machine.mounts.some(({ target }) => target === stagingTargetPath));
    }),
  },
  {
    seen: ["linstor-csi#381", "linstor-csi#385"],
    happened: "A filesystem is checked while it is mounted.",
    here: "It is not.",
    shown: onMachine(async ({ harness }) => {
      const volumeId = await harness.create();
      await harness.stage(volumeId);
      const stagingTargetPath = `${harness.folder}/other`;
      await Deno.mkdir(stagingTargetPath);
      const volumeCapability = mountCapability();
      const commands = await harness.exec.recordCommands(() =>
        harness.csi.node.nodeStageVolume({ volumeId, stagingTargetPath, volumeCapability })
      );
      assertEquals(commands.filter((command) => command.startsWith("e2fsck")), []);
    }),
  },
  {
    seen: ["gcp-compute-persistent-disk-csi-driver#1657", "node_exporter#602"],
    happened: "A container has a copy of the host's mounts, and e2fsck finds the volume in use.",
    here: "It is mounted unchecked, with an event.",
    shown: [
      by("tests/contract/caution_suite.ts", "a filesystem that another mount namespace still has is mounted again"),
    ],
  },
  {
    seen: ["topolvm#955"],
    happened: "Another driver mounted the volume by another name of its device.",
    here: "The mount is known by the number of the device.",
    shown: [by("lvm/host/mount_info_test.ts", "leaves sources to findmnt that may be other names of volumes")],
  },
  {
    seen: ["kubernetes#109132"],
    happened: "The device of a block volume vanishes, and it can never be unpublished.",
    here: "It is unpublished, and published again.",
    shown: [by("tests/contract/stale_mounts_suite.ts", "whose device node was removed while it was published")],
  },
  {
    seen: ["rook#5075", "containerized-data-importer#2638"],
    happened: "A pod makes an OSD, or the disk of a guest, of a block volume.",
    here: "What is on a block volume is not judged.",
    shown: [by("tests/contract/staging_suite.ts", "a block volume is published as a device, for reading and writing")],
  },
  {
    seen: ["kubernetes#133725", "kubernetes#118317"],
    happened: "kubelet rejects a driver once, and never registers it again.",
    here: "The agent shows it another socket, until it is registered.",
    shown: [by("csi/registration_test.ts", "a driver that kubelet has rejected shows it another socket")],
  },
  {
    seen: ["kubernetes#119919", "kubernetes#111933", "kubernetes#105536", "kubernetes#60645"],
    happened: "A pod is deleted while its node reboots, and its directories stay.",
    here: "Unpublishing what is not mounted removes the directory.",
    shown: onMachine(async ({ harness, machine, lv }) => {
      const volumeId = await harness.create();
      const stagingTargetPath = await harness.stage(volumeId);
      const targetPath = await harness.publish(volumeId);
      machine.mounts.length = 0;
      lv().active = false;
      await harness.csi.node.nodeUnpublishVolume({ volumeId, targetPath });
      await harness.csi.node.nodeUnstageVolume({ volumeId, stagingTargetPath });
      await assertRejects(() => Deno.lstat(targetPath), Deno.errors.NotFound);
      await harness.csi.controller.deleteVolume({ volumeId });
    }),
  },
  {
    seen: ["node-driver-registrar#206"],
    happened: "A socket from before a reboot keeps the driver from being registered.",
    here: "It is replaced, unless a process answers on it.",
    shown: [by("csi/server_test.ts", "a socket that a crash left is replaced, but not one on which a process answers")],
  },
  {
    seen: ["node-driver-registrar#139", "datashim#83", "fluid#2088"],
    happened: "The registrar or the driver loses its socket, and waits for ever.",
    here: "One process has both; an old one leaves those of the new one.",
    shown: [by("csi/server_test.ts", "a driver that stops late leaves the socket of its successor")],
  },
  {
    seen: ["kubernetes#122342"],
    happened: "kubelet is restarted, and cannot unmount what it mounted before.",
    here: "Pods keep running, and start and end as before.",
    shown: [by("tests/cluster/suite/chaos_node_suite.ts", "kubelet can be restarted: pods keep running")],
  },
  {
    seen: ["microk8s#3253", "canonical/k8s-snap#3", "cstor-operators#140"],
    happened: "Mounts of the driver do not reach kubelet, and pods have empty volumes.",
    here: "kubelet's directory is mounted with propagation both ways.",
    shown: [by("deploy/manifests_test.ts", "the agent has the host's paths that LVM needs, kubelet's for its mounts")],
  },
  {
    seen: ["microk8s#5125", "directpv#816", "spiffe-csi#196", "cert-manager/csi-driver#134"],
    happened: "The directory of kubelet is elsewhere, or a link.",
    here: "A value of the chart sets it; other paths are refused.",
    shown: [
      by("deploy/chart_test.ts", "another kubelet directory is everywhere: in the flag, the mount and the volume"),
      by("tests/contract/hostile_suite.ts", "paths outside the mount roots are refused, and the answer names the flag"),
    ],
  },
  {
    seen: ["topolvm#223", "kubernetes#127229"],
    happened: "Inline volumes of pods are left behind by a reboot.",
    here: "They are refused; an ephemeral claim goes with its pod.",
    shown: [
      by("tests/contract/trimming_suite.ts", "a volume that is written into its pod is refused, with a remedy"),
      by("tests/cluster/suite/ephemeral_suite.ts", "an ephemeral volume is created and deleted with its pod"),
    ],
  },
];
