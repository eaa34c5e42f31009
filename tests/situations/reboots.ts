/**
 * Situations of reboots, power cuts and upgrades.
 *
 * @module
 */

import { assert } from "@std/assert";
import { fakeMultiPvHost } from "../contract/helpers/fake_host.ts";
import { assertFails, blockCapability } from "../contract/helpers/host.ts";
import { failure } from "../fake/machine/machine.ts";
import { onMachine } from "./play.ts";
import { by, type Situation } from "./situation.ts";

/** The situations. */
export const REBOOTS: readonly Situation[] = [
  {
    seen: ["topolvm#965", "minikube#3908", "carina#182", "rook#4757", "rook#2591"],
    happened: "After a reboot the host activates no logical volumes.",
    here: "The agent activates each one when a pod needs it.",
    shown: [
      by("tests/cluster/suite/chaos_node_suite.ts", "a node that lost its power, and activates no LVs by itself"),
      by("tests/contract/staging_suite.ts", "as after a reboot, is activated and not formatted"),
    ],
  },
  {
    seen: ["longhorn#8009", "harvester/docs#519"],
    happened: "After a reboot, a stale file is at the path of a block volume.",
    here: "The device takes its place.",
    shown: onMachine(async ({ harness, machine, lv }) => {
      const volumeCapability = blockCapability();
      const volumeId = await harness.create({ volumeCapabilities: [volumeCapability] });
      await harness.stage(volumeId, volumeCapability);
      lv().active = false;
      await Deno.writeTextFile(`${harness.folder}/device`, "");
      const target = await harness.publish(volumeId, "device", { volumeCapability });
      assert(lv().active && machine.mounts.some((mount) => mount.target === target));
    }),
  },
  {
    seen: ["linstor-server#39"],
    happened: "Thin snapshots stay inactive, as LVM skips their activation.",
    here: "They are created without that mark.",
    shown: [by("lvm/model/command_lines_test.ts", "--setactivationskip n")],
  },
  {
    seen: ["lvm2#174", "lvm2#29"],
    happened: "One missing disk keeps the host from activating a whole group.",
    here: "The agent activates the volumes that are on other disks.",
    shown: onMachine(async ({ harness, machine, lv }) => {
      const volumeId = await harness.create({ parameters: { volumeGroup: "disks-narrow" } });
      const [group] = machine.groups;
      lv().pvSegments = [{ subLv: "", pvUuid: group!.pvs[1]!.uuid, size: lv().size }];
      group!.missingPvs = 1;
      lv().active = false;
      await harness.stage(volumeId);
      assert(lv().active);
    }, fakeMultiPvHost),
  },
  {
    seen: ["lvm2#152", "lvm2#161"],
    happened: "Activation fails on a busy machine, and works seconds later.",
    here: "Staging fails with LVM's words, and succeeds later.",
    shown: onMachine(async ({ harness, machine }) => {
      const volumeId = await harness.create();
      await harness.runAsAdmin("lvm", "lvchange", "--activate", "n", (await harness.singleLv()).path);
      const isActivation = (args: readonly string[]) => args.includes("lvchange") && args.includes("--activate");
      machine.fault = ({ args }) => isActivation(args) ? failure(5, "  /dev/mapper/v: open failed") : undefined;
      await assertFails("INTERNAL", harness.stage(volumeId), "open failed");
      machine.fault = undefined;
      await harness.stage(volumeId);
    }),
  },
  {
    seen: ["systemd#34289"],
    happened: "A command of LVM is cut off, and a device stays suspended.",
    here: "The agent resumes it when it starts.",
    shown: [
      by("tests/contract/safety_suite.ts", "a device that a crash left suspended is resumed when the driver starts"),
    ],
  },
  {
    seen: ["linstor-server#398", "piraeus-operator#647"],
    happened: "Nodes in /dev/mapper are missing or mixed up after a reboot.",
    here: "Missing ones are made, and numbers are compared with LVM's.",
    shown: [
      by("lvm/staging/staging_test.ts", "make the node of an active device that has none"),
      by("lvm/host/device_test.ts", "verifyDevice() refuses another device, and another size"),
    ],
  },
  {
    seen: ["lvm2#66"],
    happened: "A device gets the number of a removed one, and a link still leads there.",
    here: "Another logical volume of that number is not published.",
    shown: [
      by("lvm/staging/staged_volumes_test.ts", "publishes no other LV that got the number of the volume's device"),
    ],
  },
  {
    seen: ["csi-driver-lvm#157"],
    happened: "An upgrade of Talos needs the disks of the volumes closed.",
    here: "They may be deactivated; each is activated again for its pod.",
    shown: [by("lvm/staging/preparation_test.ts", "an LV that is known and not active is activated by a report")],
  },
  {
    seen: ["kubernetes#51431"],
    happened: "A node comes back under its name with other disks.",
    here: "Its volumes are Lost, and none is made again.",
    shown: [
      by("lvm/inventory/clones_test.ts", "a lost volume or snapshot whose whole group is not there says so"),
    ],
  },
  {
    seen: ["vdsm#466", "blivet-gui#479", "microshift#157"],
    happened: "A volume group vanishes, by a reboot without its loop device or by a devices file.",
    here: "Volumes are Lost, and Ready when it is back.",
    shown: [
      by("lvm/inventory/clones_test.ts", "a lost volume or snapshot whose whole group is not there says so"),
      by("tests/cluster/suite/runbooks_suite.ts", "a missing disk: what was on it is back with it"),
    ],
  },
  {
    seen: ["longhorn#10971", "lvm-localpv#242", "sds-node-configurator#303", "k3os#359"],
    happened: "A kernel module is not loaded or not there, and snapshots fail.",
    here: "The doctor names the module, and how to load it.",
    shown: [by("lvm/doctor/machine_problems_test.ts", "dm-snapshot")],
  },
  {
    seen: ["thin-provisioning-tools#226"],
    happened: "After a power cut, LVM and the thin pool have different transactions.",
    here: "The driver completes the last transaction.",
    shown: [
      by(
        "tests/contract/thin_suite.ts",
        "a power cut in the transaction of a thin clone leaves a pool that can be changed",
      ),
    ],
  },
  {
    seen: ["nixpkgs#255783", "rancher/elemental#587"],
    happened: "At shutdown, filesystems go before the containers have ended.",
    here: "That is a power cut: what was synced is there.",
    shown: [by("tests/lvm/power_cuts_suite.ts", "the power may fail at any write")],
  },
  {
    seen: ["topolvm#607"],
    happened: "A new version does not know the volumes of the other one, and deletes them.",
    here: "What a version does not know stays.",
    shown: [by("tests/cluster_fake/newer_objects_test.ts", "fields that only a newer version knows stay in an object")],
  },
  {
    seen: ["ankhmorpork#1465", "longhorn#5453"],
    happened: "helm uninstall deletes the definitions, and so the volumes.",
    here: "They stay, and a deletion of objects alone deletes no data.",
    shown: [
      by("tests/cluster_fake/volume_faults_test.ts", "deleting only the object does not delete the data"),
      by("tests/cluster/suite/chart_suite.ts", "and keeps them when the release is uninstalled"),
    ],
  },
  {
    seen: ["helm#8163", "lws#880", "zfs-localpv#517", "argo-cd#17819"],
    happened: "Definitions leave a chart, and all objects go with them.",
    here: "Helm and Argo CD keep them.",
    shown: [
      by("deploy/chart_test.ts", "the definitions come with the chart unless values say otherwise, and stay"),
      by("tests/cluster/suite/chart_suite.ts", "and keeps what leaves a release"),
    ],
  },
  {
    seen: ["openebs#3768", "unifi-reactor#72", "adm-controller#1829", "spark-operator#2785"],
    happened: "Helm refuses definitions of kubectl, of crds/ or of another release.",
    here: "A flag of Helm takes them over, and nothing is deleted.",
    shown: [
      by("tests/cluster/suite/chart_suite.ts", "Helm takes over definitions of a chart that only installed them"),
    ],
  },
  {
    seen: ["osm#5117", "temporal-worker-controller#312"],
    happened: "helm rollback makes definitions older, and fields of objects are lost.",
    here: "A policy denies it; the rest is rolled back.",
    shown: [
      by("deploy/crds_test.ts", "the policy lets a definition of version"),
      by("tests/cluster/suite/chart_suite.ts", "no rollback and no kubectl makes definitions older"),
    ],
  },
  {
    seen: ["prometheus-community/helm-charts#250", "kubeai#213"],
    happened: "An upgrade leaves definitions old, and the API server drops new fields.",
    here: "They are upgraded with the chart. With old ones, the driver names them, and creates nothing.",
    shown: [
      by("tests/cluster_fake/definitions_test.ts", "a claim waits while definitions are too old"),
      by("tests/cluster_fake/plugin_definitions_test.ts", "the plugin requests nothing while definitions are older"),
    ],
  },
  {
    seen: ["csi-sanlock-lvm#10", "lustre-csi-driver#69", "vsphere-csi-driver#315"],
    happened: "The agent is evicted from a node, and nothing can be unmounted.",
    here: "It tolerates all taints, and has the priority system-node-critical.",
    shown: [by("deploy/manifests_test.ts", "the agent has the host's paths that LVM needs, kubelet's for its mounts")],
  },
];
