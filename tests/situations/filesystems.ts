/**
 * Situations of filesystems and of how they are mounted.
 *
 * @module
 */

import { assertEquals } from "@std/assert";
import { assertFails, mountCapability } from "../contract/host.ts";
import { failure } from "../fake/machine.ts";
import { onMachine } from "./play.ts";
import { by, type Situation } from "./situation.ts";

const MiB = 1n << 20n;

/** The situations. */
export const FILESYSTEMS: readonly Situation[] = [
  {
    seen: ["seagate-exos-x-csi#139"],
    happened: "A driver checks each filesystem so that an unclean one is never mounted again.",
    here: "e2fsck repairs what it can repair safely, and the volume is mounted.",
    shown: onMachine(async ({ harness }) => {
      const volumeId = await harness.create();
      const stagingTargetPath = await harness.stage(volumeId);
      await harness.csi.node.nodeUnstageVolume({ volumeId, stagingTargetPath });
      const commands = await harness.exec.recordCommands(() => harness.stage(volumeId));
      assertEquals(commands.filter((command) => command.startsWith("e2fsck")).map((c) => c.split(" ")[1]), ["-p"]);
    }),
  },
  {
    seen: ["e2fsprogs#147", "simplyblock-csi#438"],
    happened: "An older e2fsck does not know a feature of the filesystem.",
    here: "Staging fails with the words of e2fsck, and nothing is written.",
    shown: onMachine(async ({ harness, machine }) => {
      const volumeId = await harness.create();
      const stagingTargetPath = await harness.stage(volumeId);
      await harness.csi.node.nodeUnstageVolume({ volumeId, stagingTargetPath });
      machine.fault = ({ program }) =>
        program === "e2fsck" ? failure(8, "filesystem has unsupported feature(s): FEATURE_C12") : undefined;
      const writes = (await harness.exec.recordCommands(() =>
        assertFails("FAILED_PRECONDITION", harness.stage(volumeId), "unsupported feature")
      )).filter((command) =>
        /^(?:mke2fs|mount|tune2fs|resize2fs) /.test(command)
      );
      assertEquals(writes, []);
    }),
  },
  {
    seen: ["longhorn#8473"],
    happened: "A check of the filesystem takes hours, and kubelet repeats its call meanwhile.",
    here: "The repeated call is ABORTED, one check runs, and the volume is staged after it.",
    shown: [by("tests/machine_fake/faults_test.ts", "a change that hangs keeps its volume locked until it is over")],
  },
  {
    seen: ["kata-containers#11206"],
    happened: "A class has mkfs options or mount flags of another filesystem.",
    here: "Creation refuses them by their names.",
    shown: onMachine(async ({ harness }) => {
      const volumeCapabilities = [mountCapability("xfs", ["data=journal"])];
      await assertFails("INVALID_ARGUMENT", harness.create({ volumeCapabilities }), "data=journal");
    }),
  },
  {
    seen: ["kubernetes#126634"],
    happened: "A class has mount flags that no driver can apply, such as _netdev.",
    here: "Creation refuses them by their names, so that no pod waits for its mount.",
    shown: [
      by("tests/contract/staging.ts", "mount flags and mkfs options are applied, and those that are not on the list"),
    ],
  },
  {
    seen: ["lvm-localpv#339"],
    happened: "The objects of a cluster are lost and written again, and the logical volumes are still there.",
    here: "A volume whose filesystem was recorded is never formatted again.",
    shown: [
      by("tests/contract/safety.ts", "a formatted volume whose filesystem is gone is not formatted again"),
      by("tests/contract/safety.ts", "a formatted volume with another filesystem in its place is an error"),
    ],
  },
  {
    seen: ["kubernetes#109955"],
    happened: "A container writes into the target before the volume is mounted there.",
    here: "The volume is mounted over the files, and unpublishing leaves them.",
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
    seen: ["local-csi-driver#458"],
    happened: "A tool is killed for want of memory.",
    here: "A killed mkfs is run again with the UUID that was recorded for it.",
    shown: [
      by("tests/contract/safety.ts", "a crash between mkfs and its record is redone, with the UUID that was recorded"),
    ],
  },
  {
    seen: ["topolvm#955"],
    happened: "Another driver mounted the volume by another name of its device.",
    here: "The mount is known by the number of the device.",
    shown: [by("lvm/host/mount_info_test.ts", "leaves sources to findmnt that may be other names of volumes")],
  },
  {
    seen: ["linstor-csi#381", "linstor-csi#385"],
    happened: "A filesystem is checked that a pod of the node has mounted.",
    here: "A volume that is mounted on the node is not checked.",
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
    seen: ["lvresize(8)"],
    happened: "An administrator extends a logical volume by hand.",
    here: "The volume has that size, and its filesystem grows when it is staged.",
    shown: [by("tests/contract/staging.ts", "a volume whose LV an administrator grew has that size")],
  },
  {
    seen: ["sched-ops#264"],
    happened: "A client asks for a size that is not whole, such as 1500m or 23.625G.",
    here: "The size is parsed, and rounded up to whole extents.",
    shown: [by("k8s/api/quantity_test.ts", "quantityToBytes() parses quantities of Kubernetes, and rounds up")],
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
    seen: ["fstransform#36", "mdadm#187", "QubesOS/qubes-issues#9293"],
    happened:
      "A filesystem made on disks with sectors of 512 bytes comes onto disks with sectors of 4096, and cannot be mounted.",
    here: "New filesystems have sectors or blocks of 4 KiB, which any disk takes.",
    shown: [
      by("tests/contract/staging.ts", "a new filesystem can be copied to a disk with larger sectors"),
      by("lvm/spec/mkfs_defaults_test.ts", "extDefaults() sets blocks of 4 KiB"),
    ],
  },
  {
    seen: ["vsphere-csi-driver#3168", "kubernetes/utils#322", "hetznercloud/csi-driver#747"],
    happened: "mkfs.xfs is newer than the kernel of the node, which then cannot mount what it made.",
    here: "What the kernel does not know is switched off.",
    shown: [
      by("lvm/staging/staging_test.ts", "stage() makes an xfs that an old kernel mounts"),
    ],
  },
];
