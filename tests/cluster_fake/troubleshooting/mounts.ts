/**
 * The cases of the chapter "Pod cannot mount its volume".
 *
 * @module
 */

import { persistentVolumes } from "../../../k8s/api/objects.ts";
import { newUuid } from "../../fake/machine/machine.ts";
import { machineWith, MiB, waitUntilFormatted } from "../../fake/cluster/volume_cluster.ts";
import type { ClaimFixture } from "../../fake/cluster/whole_cluster.ts";
import { type Chapter, once, type Play } from "./case.ts";
import type { Stage } from "./stage.ts";

/** Starts a cluster of two volume groups with a claim in `data`, prepares it, and starts a pod. */
function mounting(prepare: (stage: Stage) => unknown, claim: ClaimFixture = {}): Play {
  return async (stage) => {
    await stage.start({ machines: { n1: machineWith({ data: 256n * MiB, other: 64n * MiB }) } });
    await stage.bindClaim(claim);
    await waitUntilFormatted(stage.machine);
    await prepare(stage);
    await stage.startPod();
  };
}

/** Starts a pod, and ends it. */
async function useOnce(stage: Stage): Promise<void> {
  await stage.startPod();
  await stage.endPod();
}

/** Starts a pod before the one that cannot start, whose volume is then used. */
function second(prepare: (stage: Stage) => void, claim: ClaimFixture): Play {
  return async (stage) => {
    await stage.start();
    prepare(stage);
    await stage.bindClaim(claim);
    await stage.startPod("first");
    await stage.startPod();
  };
}

/** Starts a pod of an encrypted volume, after a preparation. */
function encrypted(prepare: (stage: Stage) => unknown): Play {
  return async (stage) => {
    await stage.start();
    const parameters = { volumeGroup: "data", encryption: "luks2" };
    stage.cluster.addClass("encrypted", { volumeBindingMode: "Immediate", parameters });
    await stage.bindClaim({ className: "encrypted" });
    await prepare(stage);
    await stage.startPod();
  };
}

/** Another filesystem than the driver has created. */
const FOREIGN = [{ type: "xfs", uuid: "11111111-2222-3333-4444-555555555555" }];

/** The cases of unexpected data. */
export const UNEXPECTED_DATA: readonly Play[] = [
  mounting(({ lv }) => lv.content.signatures = FOREIGN),
  mounting(async (stage) => {
    const tags = [...stage.lv.tags].filter((tag) => !tag.startsWith("denolith.fs="));
    stage.lv.tags = new Set([...tags, "denolith.fs=wanted:ext4"]); // what an administrator sets to have it formatted again
    await stage.report(); // before a report, it is staged as it is known
  }),
  mounting(async (stage) => {
    await useOnce(stage);
    stage.lv.content.signatures = FOREIGN;
  }),
];

/** The chapter. */
export const MOUNTS: Chapter = {
  asks: ["why", "data"],
  cases: {
    "The pod has no node, and its event has had volume node affinity conflict": once("Unschedulable", async (stage) => {
      await stage.start();
      await stage.bindClaim();
      stage.addUnschedulablePod("0/2 nodes are available: 1 node(s) had volume node affinity conflict.");
    }),
    "kubelet reports driver name lvm.denolith.dev not found in the list of registered CSI drivers": once(
      "DriverNotRegistered",
      async (stage) => {
        await stage.start();
        await stage.bindClaim();
        stage.addPod({ spec: { nodeName: "n1" } });
        const cause = "driver name lvm.denolith.dev not found in the list of registered CSI drivers";
        const message = `MountVolume.MountDevice failed for volume "pv" : kubernetes.io/csi: ${cause}`;
        stage.addEvent("FailedMount", message, "Pod", "web");
      },
    ),
    "MountVolume.NodeAffinity check failed": once("VolumeOnOtherNode", async (stage) => {
      await stage.start();
      await stage.bindClaim();
      stage.addPod({ spec: { nodeName: "n0" } });
      const message = 'MountVolume.NodeAffinity check failed for volume "pv" : no matching NodeSelectorTerms';
      stage.addEvent("FailedMount", message, "Pod", "web");
    }),
    Lost: mounting((stage) => stage.machine.groups[0]!.lvs.splice(0)),
    Replaced: mounting(({ lv }) => lv.uuid = newUuid()),
    UnexpectedData: UNEXPECTED_DATA,
    NotShared: second(({ cluster }) => {
      const parameters = { volumeGroup: "data", shared: "no" };
      cluster.addClass("alone", { volumeBindingMode: "Immediate", parameters });
    }, { className: "alone" }),
    UsedByAnotherPod: second(() => {}, { spec: { accessModes: ["ReadWriteOncePod"] } }),
    OtherSELinuxContext: async (stage) => {
      await stage.start();
      stage.machine.host.seLinux = true;
      await stage.bindClaim();
      await stage.startPod("first", "system_u:object_r:container_file_t:s0:c1,c3");
      await stage.startPod("web", "system_u:object_r:container_file_t:s0:c2,c4");
    },
    SELinuxNotSeen: async (stage) => {
      await stage.start();
      await stage.bindClaim();
      await stage.startPod("web", "system_u:object_r:container_file_t:s0:c1,c3");
    },
    WrongFilesystemType: mounting(async (stage) => {
      await useOnce(stage);
      const { name } = stage.volume()!.metadata;
      const at = { name, namespace: undefined };
      stage.cluster.api.collection(persistentVolumes).patch({ spec: { csi: { fsType: "xfs" } } }, at);
    }),
    NoPassphrase: encrypted(() => {}),
    WrongPassphrase: encrypted(async (stage) => {
      stage.secrets = { passphrase: "the first one" };
      await useOnce(stage);
      stage.secrets = { passphrase: "another one" };
    }),
    WrongPassphrases: encrypted(async (stage) => {
      stage.secrets = { passphrase: "the first one" };
      await useOnce(stage);
      stage.secrets = { passphrase: "another one", previousPassphrase: "a third one" };
    }),
    PassphraseChangeInterrupted: encrypted(async (stage) => {
      stage.secrets = { passphrase: "the first one" };
      await useOnce(stage);
      const name = stage.lv.name.replace("vol-", "hdr-");
      const owner = [...stage.lv.tags].find((tag) => tag.startsWith("denolith="))!;
      const tags = [owner, `denolith.header=${stage.lv.name.replace("vol-", "v1-")}:0:0=0000000a:0248ab34`];
      const options = ["--yes", "--wipesignatures", "y", "--zero", "y", "--name", name, "--size", "16777216b"];
      const addTags = tags.flatMap((tag) => ["--addtag", tag]);
      const args = ["lvcreate", ...options, ...addTags, "data"];
      await stage.machine.run({ program: "lvm", args, mutates: true });
      stage.secrets = { passphrase: "another one" };
    }),
    CannotEncryptAgain: encrypted(async (stage) => {
      stage.secrets = { passphrase: "the first one" };
      await useOnce(stage);
      const args = ["lvcreate", "--yes", "--snapshot", "--permission", "r", "--name", "mine", "--size", "8388608b"];
      await stage.machine.run({ program: "lvm", args: [...args, `data/${stage.lv.name}`], mutates: true });
      stage.secrets = { passphrase: "the first one", volumeKey: "next" };
    }),
    CheckKilled: mounting(async (stage) => {
      await useOnce(stage);
      stage.lv.content.checkStatus = 137;
    }),
    FilesystemDamaged: mounting(async (stage) => {
      await useOnce(stage);
      stage.lv.content.checkStatus = 4;
    }),
    VolumeGroupUnresponsive: mounting(async (stage) => {
      stage.machine.hungPvs.set("/dev/vdb", Promise.withResolvers());
      await stage.report(); // before that, a change of the group would hang
    }),
    VolumeGroupUnreadable: mounting(({ machine }) => {
      machine.hungPvs.set("/dev/vdc", Promise.withResolvers()); // LVM reads each group on its own then
      machine.fault = ({ program, args }) =>
        program === "lvm" && args.includes("data")
          ? { code: 5, stdout: "", stderr: "  Cannot process volume group data" }
          : undefined;
    }),
    VolumeUnreadable: mounting(async (stage) => {
      stage.lv.createdAt = -1;
      await stage.report();
    }),
    WrongMkfsOptions: async (stage) => {
      await stage.start();
      stage.machine.host.mke2fsConf.set("ext4", []);
      await stage.bindClaim();
      await stage.startPod();
    },
    NotActive: mounting(async (stage) => {
      await useOnce(stage);
      stage.lv.active = false;
      stage.machine.fault = ({ args }) => args.includes("--activate") ? { code: 0, stdout: "", stderr: "" } : undefined;
    }),
  },
};
