/**
 * Situations of filesystems.
 *
 * @module
 */

import { assertEquals } from "@std/assert";
import { assertFails, mountCapability } from "../contract/helpers/host.ts";
import { failure } from "../fake/machine/machine.ts";
import { onMachine, type Stage } from "./play.ts";
import { by, type Situation } from "./situation.ts";

const MiB = 1n << 20n;

/** Creates a volume with the filesystem, and uses it once. @returns its id */
async function usedVolume({ harness }: Stage, fsType = ""): Promise<string> {
  const volumeCapabilities = [mountCapability(fsType)];
  const volumeId = await harness.create({ volumeCapabilities, capacityRange: { requiredBytes: 320n * MiB } });
  const stagingTargetPath = await harness.stage(volumeId, volumeCapabilities[0]);
  await harness.csi.node.nodeUnstageVolume({ volumeId, stagingTargetPath });
  return volumeId;
}

/** The situations. */
export const FILESYSTEMS: readonly Situation[] = [
  {
    seen: ["lvm-localpv#339"],
    happened: "A cluster's objects are lost, and written again over the same logical volumes.",
    here: "What was recorded as formatted is never formatted again.",
    shown: [
      by("tests/contract/safety_suite.ts", "a formatted volume whose filesystem is gone is not formatted again"),
      by("tests/contract/safety_suite.ts", "a formatted volume with another filesystem in its place is an error"),
    ],
  },
  {
    seen: ["util-linux#4031", "util-linux#3897", "util-linux#4170"],
    happened: "A file, such as an image of a CD, looks like a second filesystem.",
    here: "The recorded filesystem is mounted, with a warning.",
    shown: [by("tests/contract/caution_suite.ts", "keeps a volume from being formatted, and not from being mounted")],
  },
  {
    seen: ["topolvm#522"],
    happened: "A copy of a filesystem is taken for none, and formatted.",
    here: "A device with any filesystem is never formatted.",
    shown: [by("tests/contract/safety_suite.ts", "a device with a foreign filesystem is never formatted")],
  },
  {
    seen: ["container-storage-interface/spec#482", "azuredisk-csi-driver#954", "longhorn#8796"],
    happened: "A copy of an XFS cannot be mounted beside its source, as their UUID is the same.",
    here: "Copies get a UUID of their own.",
    shown: [by("tests/contract/copies_suite.ts", "volume is larger, and is mounted beside it")],
  },
  {
    seen: ["lxc#1909", "systemd#22182"],
    happened: "The kernel mounts another btrfs of the same UUID, or refuses it.",
    here: "The driver has it forget the other one.",
    shown: [by("lvm/staging/staging_test.ts", "mounts its own btrfs while one of the same UUID on a block volume")],
  },
  {
    seen: ["syzkaller#599", "singularity#180"],
    happened: "A user's filesystem stops the machine by its `errors=panic`.",
    here: "A copy goes on after errors.",
    shown: [by("tests/lvm/hostile_tenants_suite.ts", "can break neither the node nor a terminal")],
  },
  {
    seen: ["fedora-coreos-tracker#735"],
    happened: "The clock of the machine went back, and tune2fs refuses to change a UUID.",
    here: "e2fsck repairs the times first.",
    shown: onMachine(async (stage) => {
      const { harness } = stage;
      const volumeId = await usedVolume(stage);
      const volumeContentSource = { type: { case: "volume" as const, value: { volumeId } } };
      const capacityRange = { requiredBytes: 320n * MiB };
      const commands = await harness.exec.recordCommands(() => harness.create({ volumeContentSource, capacityRange }));
      const options = commands.map((command) => command.split(" ").slice(0, 2).join(" "));
      assertEquals(options.filter((words) => /^(?:e2fsck|tune2fs) /.test(words)), ["e2fsck -f", "tune2fs -U"]);
    }),
  },
  {
    seen: ["topolvm#511", "topolvm#900"],
    happened: "A snapshot is restored with a class of another filesystem, and the pod hangs.",
    here: "Creation names the filesystem to set.",
    shown: onMachine(async (stage) => {
      const { harness } = stage;
      const sourceVolumeId = await usedVolume(stage, "xfs");
      const { snapshot } = await harness.csi.controller.createSnapshot({ sourceVolumeId, name: "s" });
      const snapshotId = snapshot!.snapshotId;
      const volumeContentSource = { type: { case: "snapshot" as const, value: { snapshotId } } };
      const capacityRange = { requiredBytes: 320n * MiB };
      const copy = harness.create({ volumeContentSource, capacityRange, volumeCapabilities: [mountCapability("")] });
      await assertFails("INVALID_ARGUMENT", copy, "set fsType to xfs");
    }),
  },
  {
    seen: ["seagate-exos-x-csi#139"],
    happened: "A filesystem that is not clean is never mounted again.",
    here: "e2fsck repairs what is safe, and it is mounted.",
    shown: onMachine(async (stage) => {
      const volumeId = await usedVolume(stage);
      const commands = await stage.harness.exec.recordCommands(() => stage.harness.stage(volumeId));
      assertEquals(commands.filter((command) => command.startsWith("e2fsck")).map((c) => c.split(" ")[1]), ["-p"]);
    }),
  },
  {
    seen: ["kubernetes/utils#141", "ceph-csi#859", "democratic-csi#39"],
    happened: "xfs_repair before each mount fails on a log that only a mount replays.",
    here: "An XFS is mounted without it.",
    shown: onMachine(async (stage) => {
      const volumeId = await usedVolume(stage, "xfs");
      const staged = () => stage.harness.stage(volumeId, mountCapability("xfs"));
      const commands = await stage.harness.exec.recordCommands(staged);
      assertEquals(commands.filter((command) => command.startsWith("xfs_repair")), []);
    }),
  },
  {
    seen: ["e2fsprogs#147", "simplyblock-csi#438"],
    happened: "An older e2fsck does not know a feature of the filesystem.",
    here: "Staging fails with its words, and nothing is written.",
    shown: onMachine(async (stage) => {
      const { harness, machine } = stage;
      const volumeId = await usedVolume(stage);
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
    seen: ["openebs#1276", "rauc#1190", "e2b-dev/infra#2192"],
    happened: "Tools of the node are older than a filesystem.",
    here: "The image has its own.",
    shown: [by("lvm/settings/mkfs_defaults_test.ts", "xfsKernelOptions() switches off what the kernel does not know")],
  },
  {
    seen: ["vsphere-csi-driver#3168", "kubernetes/utils#322", "hetznercloud/csi-driver#747"],
    happened: "mkfs.xfs is newer than the kernel, which cannot mount what it made.",
    here: "What the kernel does not know is switched off.",
    shown: [by("lvm/staging/staging_test.ts", "stage() makes an xfs that an old kernel mounts")],
  },
  {
    seen: ["fstransform#36", "mdadm#187", "qubes-issues#9293"],
    happened: "A filesystem moves from sectors of 512 bytes to 4096.",
    here: "New ones fit both; a copy that does not is refused.",
    shown: [
      by("tests/contract/staging_suite.ts", "a new filesystem can be copied to a disk with larger sectors"),
      by("tests/cluster_fake/move_test.ts", "could not be mounted fails before the volume is held"),
    ],
  },
  {
    seen: ["longhorn#8473"],
    happened: "A check takes hours, and kubelet repeats its call.",
    here: "One check runs, and the volume is staged after it.",
    shown: [by("tests/machine_fake/faults_test.ts", "a change that hangs keeps its volume locked until it is over")],
  },
  {
    seen: ["longhorn#9908", "kubernetes#30240"],
    happened: "mkfs lasts longer than the call.",
    here: "It goes on, runs once, and is recorded when it ends.",
    shown: [by("tests/contract/safety_suite.ts", "a mkfs that takes longer than its call is recorded when it ends")],
  },
  {
    seen: ["local-csi-driver#458"],
    happened: "mkfs is killed for want of memory.",
    here: "It is run again with the UUID that was recorded for it.",
    shown: [
      by(
        "tests/contract/safety_suite.ts",
        "a crash between mkfs and its record is redone, with the UUID that was recorded",
      ),
    ],
  },
  {
    seen: ["longhorn#8604"],
    happened: "mkfs fails halfway, and half a filesystem is mounted.",
    here: "The next try makes it again before the mount.",
    shown: onMachine(async ({ harness, machine }) => {
      const volumeId = await harness.create();
      machine.fault = ({ program }) => program === "mke2fs" ? failure(1, "mke2fs: Input/output error") : undefined;
      await assertFails("INTERNAL", harness.stage(volumeId), "Input/output error");
      machine.fault = undefined;
      const commands = await harness.exec.recordCommands(() => harness.stage(volumeId));
      const names = commands.map((command) => command.split(" ")[0]!).filter((name) => /^(?:mke2fs|mount)$/.test(name));
      assertEquals(names, ["mke2fs", "mount"]);
    }),
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
    happened: "A class has mount flags that nobody can apply, or two in one entry.",
    here: "Creation refuses them by their names.",
    shown: onMachine(async ({ harness }) => {
      for (const [flag, words] of [["_netdev", "_netdev"], ["noatime,nodiratime", "each flag is an entry"]] as const) {
        const volumeCapabilities = [mountCapability("", [flag])];
        await assertFails("INVALID_ARGUMENT", harness.create({ volumeCapabilities }), words);
      }
    }),
  },
  {
    seen: ["soleur#7197", "coreos/bugs#1691", "minikube#17991"],
    happened: "A class has prjquota without the features of ext4 for it.",
    here: "Creation names the mkfs options that are missing.",
    shown: onMachine(async ({ harness }) => {
      const volumeCapabilities = [mountCapability("ext4", ["prjquota"])];
      await assertFails("INVALID_ARGUMENT", harness.create({ volumeCapabilities }), "project");
    }),
  },
  {
    seen: ["ydb-platform/nbs#2936", "btrfs-progs#774"],
    happened: "The kernel makes a filesystem read-only, and nobody notices.",
    here: "Event, condition and alert tell of it; it is checked for the next pod.",
    shown: [
      by(
        "tests/cluster/suite/health_suite.ts",
        "a filesystem that the kernel made read-only is reported, and accepts writes",
      ),
    ],
  },
  {
    seen: ["kubernetes#73513", "kubernetes#66868", "kubernetes#67072", "longhorn#11936", "node-problem-detector#845"],
    happened: "An XFS is shut down after a disk error, and can be neither unmounted nor mounted.",
    here: "Event and condition tell of it; it is unmounted, and back with the disk.",
    shown: [by("tests/lvm/faults_suite.ts", "a volume whose disk fails in use is unmounted, and has its data")],
  },
  {
    seen: ["lvm2#48", "rook#3832", "rawfile-localpv#18"],
    happened: "Deleted files free nothing in the thin pool.",
    here: "A class has them mounted with discard, or trimmed.",
    shown: [by("tests/contract/trimming_suite.ts", "mounted with discard, and trimmed while it is staged")],
  },
  {
    seen: ["cloudnative-pg#7216", "harbor-helm#330", "kubernetes#130192"],
    happened: "A pod that is not root cannot write, or waits for changes of millions of files.",
    here: "fsGroup works, also with OnRootMismatch.",
    shown: [by("tests/cluster/suite/pods_suite.ts", "a pod has its group on the files")],
  },
];
