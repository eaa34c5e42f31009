/**
 * The cases of the chapter "Pod cannot mount its volume".
 *
 * @module
 */

import { persistentVolumes } from "../../../k8s/api/objects.ts";
import { machineWith, MiB } from "../../fake/volume_cluster.ts";
import type { ClaimFixture } from "../../fake/whole_cluster.ts";
import { type Case, type Chapter, once, type Play } from "./case.ts";
import type { Stage } from "./stage.ts";

/** Starts a cluster of two volume groups with a claim in `data`, prepares it, and starts a pod. */
function mounting(prepare: (stage: Stage) => unknown, claim: ClaimFixture = {}): Play {
  return async (stage) => {
    await stage.start({ machines: { n1: machineWith({ data: 256n * MiB, other: 64n * MiB }) } });
    await stage.bindClaim(claim);
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

/** Returns a case with one message. */
function says(reason: string, quote: string, play: Play): Case {
  return { reason, plays: { [quote]: play } };
}

/** Another filesystem than the driver has created. */
const FOREIGN = [{ type: "xfs", uuid: "11111111-2222-3333-4444-555555555555" }];

/** The cases of unexpected data, by what the page quotes. */
export const UNEXPECTED_DATA: Readonly<Record<string, Play>> = {
  "it holds …": mounting(({ lv }) => lv.content.signatures.push(...FOREIGN)),
  "its first 4 KiB are not zeros, though it was never formatted": mounting(({ lv }) => lv.content.zeroHead = false),
  "it should hold … with the UUID …, but holds …": mounting(async (stage) => {
    await useOnce(stage);
    stage.lv.content.signatures = FOREIGN;
  }),
};

/** The chapter. */
export const MOUNTS: Chapter = {
  asks: ["why", "data"],
  cases: {
    "The pod has no node, and its event has had volume node affinity conflict": once("Unschedulable", async (stage) => {
      await stage.start();
      await stage.bindClaim();
      stage.addUnschedulablePod("0/2 nodes are available: 1 node(s) had volume node affinity conflict.");
    }),
    "kubelet reports driver name lvm.denolith.dev not found in the list of registered CSI drivers": {
      reason: "DriverNotRegistered",
      plays: {
        "driver name lvm.denolith.dev not found in the list of registered CSI drivers": async (stage) => {
          await stage.start();
          await stage.bindClaim();
          stage.addPod({ spec: { nodeName: "n1" } });
          const cause = "driver name lvm.denolith.dev not found in the list of registered CSI drivers";
          const message = `MountVolume.MountDevice failed for volume "pv" : kubernetes.io/csi: ${cause}`;
          stage.addEvent("FailedMount", message, "Pod", "web");
        },
      },
    },
    "MountVolume.NodeAffinity check failed": {
      reason: "VolumeOnOtherNode",
      plays: {
        "MountVolume.NodeAffinity check failed": async (stage) => {
          await stage.start();
          await stage.bindClaim();
          stage.addPod({ spec: { nodeName: "n0" } });
          const message = 'MountVolume.NodeAffinity check failed for volume "pv" : no matching NodeSelectorTerms';
          stage.addEvent("FailedMount", message, "Pod", "web");
        },
      },
    },
    "Lost: … was the logical volume … in volume group …": says(
      "Lost",
      "Lost: … was the logical volume … in volume group …",
      mounting((stage) => stage.machine.groups[0]!.lvs.splice(0)),
    ),
    "it holds …, it should hold … with the UUID …, but holds …": {
      reason: "UnexpectedData",
      plays: {
        "it holds …": UNEXPECTED_DATA["it holds …"]!,
        "it should hold … with the UUID …, but holds …":
          UNEXPECTED_DATA["it should hold … with the UUID …, but holds …"]!,
      },
    },
    "it was created with shared: no": says(
      "NotShared",
      "it was created with shared: no",
      second(({ cluster }) => {
        const parameters = { volumeGroup: "data", shared: "no" };
        cluster.addClass("alone", { volumeBindingMode: "Immediate", parameters });
      }, { className: "alone" }),
    ),
    "the access mode allows one target": says(
      "UsedByAnotherPod",
      "the access mode allows one target",
      second(() => {}, { spec: { accessModes: ["ReadWriteOncePod"] } }),
    ),
    "it is staged at … with …, and can have one at a time": says(
      "OtherSELinuxContext",
      "it is staged at … with …, and can have one at a time",
      async (stage) => {
        await stage.start();
        stage.machine.host.seLinux = true;
        await stage.bindClaim();
        await stage.startPod("first", "system_u:object_r:container_file_t:s0:c1,c3");
        await stage.startPod("web", "system_u:object_r:container_file_t:s0:c2,c4");
      },
    ),
    "mount(8) left it out, because it does not see that SELinux is enabled": says(
      "SELinuxNotSeen",
      "mount(8) left it out, because it does not see that SELinux is enabled",
      async (stage) => {
        await stage.start();
        await stage.bindClaim();
        await stage.startPod("web", "system_u:object_r:container_file_t:s0:c1,c3");
      },
    ),
    "mounting volume … as …: it was created for …": says(
      "WrongFilesystemType",
      "mounting volume … as …: it was created for …",
      mounting(async (stage) => {
        await useOnce(stage);
        const { name } = stage.volume()!.metadata;
        const at = { name, namespace: undefined };
        stage.cluster.api.collection(persistentVolumes).patch({ spec: { csi: { fsType: "xfs" } } }, at);
      }),
    ),
    "it is encrypted, and the request has no secret with the key passphrase": says(
      "NoPassphrase",
      "it is encrypted, and the request has no secret with the key passphrase",
      encrypted(() => {}),
    ),
    "the passphrase in its secret opens none of its key slots": says(
      "WrongPassphrase",
      "the passphrase in its secret opens none of its key slots",
      encrypted(async (stage) => {
        stage.secrets = { passphrase: "the first one" };
        await useOnce(stage);
        stage.secrets = { passphrase: "another one" };
      }),
    ),
    "neither the passphrase nor the previousPassphrase in its secret opens one of its key slots": says(
      "WrongPassphrases",
      "neither the passphrase nor the previousPassphrase in its secret opens one of its key slots",
      encrypted(async (stage) => {
        stage.secrets = { passphrase: "the first one" };
        await useOnce(stage);
        stage.secrets = { passphrase: "another one", previousPassphrase: "a third one" };
      }),
    ),
    "a change of its passphrase was interrupted": says(
      "PassphraseChangeInterrupted",
      "a change of its passphrase was interrupted",
      encrypted(async (stage) => {
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
    ),
    "encrypting volume … again, as the volumeKey in its secret requests: …": says(
      "CannotEncryptAgain",
      "encrypting volume … again, as the volumeKey in its secret requests: …",
      encrypted(async (stage) => {
        stage.secrets = { passphrase: "the first one" };
        await useOnce(stage);
        const args = ["lvcreate", "--yes", "--snapshot", "--permission", "r", "--name", "mine", "--size", "8388608b"];
        await stage.machine.run({ program: "lvm", args: [...args, `data/${stage.lv.name}`], mutates: true });
        stage.secrets = { passphrase: "the first one", volumeKey: "next" };
      }),
    ),
    "e2fsck …: exit 137 (SIGKILL, as when memory runs out)": says(
      "CheckKilled",
      "e2fsck …: exit 137 (SIGKILL, as when memory runs out)",
      mounting(async (stage) => {
        await useOnce(stage);
        stage.lv.content.checkStatus = 137;
      }),
    ),
    "e2fsck …: exit …": says(
      "FilesystemDamaged",
      "e2fsck …: exit …",
      mounting(async (stage) => {
        await useOnce(stage);
        stage.lv.content.checkStatus = 4;
      }),
    ),
    "volume group … does not respond; look for a disk among …": says(
      "VolumeGroupUnresponsive",
      "volume group … does not respond; look for a disk among …",
      mounting(({ machine }) => machine.hungPvs.set("/dev/vdb", Promise.withResolvers())),
    ),
    "volume group … cannot be read: …; look at its disks … (dmesg)": says(
      "VolumeGroupUnreadable",
      "volume group … cannot be read: …; look at its disks … (dmesg)",
      mounting(({ machine }) => {
        machine.hungPvs.set("/dev/vdc", Promise.withResolvers()); // LVM reads each group on its own then
        machine.fault = ({ program, args }) =>
          program === "lvm" && args.includes("data")
            ? { code: 5, stdout: "", stderr: "  Cannot process volume group data" }
            : undefined;
      }),
    ),
    "LVM's report of … cannot be read (…)": says(
      "VolumeUnreadable",
      "LVM's report of … cannot be read (…)",
      mounting((stage) => stage.lv.createdAt = -1),
    ),
    "… created …, but … was requested, and it would not be mounted as that again; …": says(
      "WrongMkfsOptions",
      "… created …, but … was requested, and it would not be mounted as that again; …",
      mounting(({ machine }) => machine.host.mke2fsConf.set("ext4", [])),
    ),
    "LVM reported success, but … is not active (see volume_list in lvm.conf)": says(
      "NotActive",
      "LVM reported success, but … is not active (see volume_list in lvm.conf)",
      mounting(async (stage) => {
        await useOnce(stage);
        stage.lv.active = false;
        stage.machine.fault = ({ args }) =>
          args.includes("--activate") ? { code: 0, stdout: "", stderr: "" } : undefined;
      }),
    ),
  },
};
