/**
 * Situations of LVM: its reports, settings and locks, and other programs that use it.
 *
 * @module
 */

import { assert, assertEquals } from "@std/assert";
import { assertFails } from "../contract/helpers/host.ts";
import { onMachine } from "./play.ts";
import { by, type Situation } from "./situation.ts";

const MiB = 1n << 20n;
const EIGHT_MIB = `${8n * MiB}b`;

/** The situations. */
export const LVM: readonly Situation[] = [
  {
    seen: ["lvm2#137", "lvm2#130", "libstorage-ng#812", "prometheus-lvm-exporter#76"],
    happened: "Other texts are between the lines of LVM's JSON.",
    here: "They are read past, and settings do not matter.",
    shown: [
      by("lvm/model/report_parser_test.ts", "parseReport() reads past the messages that LVM prints between the lines"),
    ],
  },
  {
    seen: ["prometheus-lvm-exporter#92", "topolvm#559", "drakvuf-sandbox#464"],
    happened: "LVM reports control characters, -1, or no time.",
    here: "They are read; a row that cannot be costs that row alone.",
    shown: [
      by("lvm/model/report_parser_test.ts", "parseReport() reads an LV without a time of its creation"),
      by("lvm/model/report_parser_test.ts", "marks an LV as unreadable for anything that LVM does not write there"),
    ],
  },
  {
    seen: ["pmem-csi#218"],
    happened: "LVM prints warnings about a resized disk beside its report.",
    here: "They are ignored.",
    shown: onMachine(async ({ harness, machine }) => {
      machine.host.warnings.push(
        "  WARNING: Device /dev/sda has size of 2 sectors which is smaller than corresponding PV size.",
      );
      const volumeId = await harness.create();
      assert(volumeId.startsWith("v1-"));
    }),
  },
  {
    seen: ["apl-core#3607", "lxd#6435"],
    happened: "A group or a logical volume is renamed while volumes are in use.",
    here: "They are known by UUIDs and tags.",
    shown: [
      by(
        "tests/contract/staging_suite.ts",
        "a volume whose LV was renamed is staged, measured and removed as others are",
      ),
      by("lvm/staging/staging_test.ts", "of a volume whose LV an administrator has renamed"),
    ],
  },
  {
    seen: ["e2fsprogs#173", "e2scrub(8)"],
    happened: "e2scrub of the host takes a snapshot of each ext4.",
    here: "Until it is gone, expansion and deletion are refused with its name.",
    shown: onMachine(async ({ harness }) => {
      const volumeId = await harness.create();
      const { path, name } = await harness.singleLv();
      await harness.stage(volumeId);
      const snapshot = `${name}.e2scrub`;
      await harness.runAsAdmin("lvm", "lvcreate", "--yes", "--snapshot", "--name", snapshot, "--size", EIGHT_MIB, path);
      const expansion = { volumeId, capacityRange: { requiredBytes: 64n * MiB } };
      await assertFails("FAILED_PRECONDITION", harness.csi.controller.controllerExpandVolume(expansion), snapshot);
      await harness.csi.node.nodeUnstageVolume({ volumeId, stagingTargetPath: `${harness.folder}/staging` });
      await assertFails("FAILED_PRECONDITION", harness.csi.controller.deleteVolume({ volumeId }), snapshot);
      await harness.runAsAdmin("lvm", "lvremove", "--yes", `${path}.e2scrub`);
      await harness.csi.controller.deleteVolume({ volumeId });
    }),
  },
  {
    seen: ["vgsplit(8)"],
    happened: "vgsplit makes a group of its own of a disk with volumes.",
    here: "They are found there.",
    shown: [by("lvm/deletion/reaper_test.ts", "removes the record of use that vgsplit left in another group")],
  },
  {
    seen: ["lvconvert(8)"],
    happened: "An administrator makes a linear volume a raid1.",
    here: "It is used and expanded as one.",
    shown: [by("tests/machine_fake/missing_pvs_test.ts", "also while an administrator's lvconvert is interrupted")],
  },
  {
    seen: ["lvchange(8)"],
    happened: "An administrator makes a logical volume read-only.",
    here: "Staging says so, and how to permit writes.",
    shown: [
      by("tests/contract/bind_mounts_suite.ts", "says of an LV to which LVM permits no writes how to permit them"),
    ],
  },
  {
    seen: ["lvmsystemid(7)"],
    happened: "A volume group belongs to another system.",
    here: "The chart sets the system id, and the doctor names the command.",
    shown: [by("tests/lvm/hosts_suite.ts", "a group with a system id is used with that id alone")],
  },
  {
    seen: ["lvm2#70"],
    happened: "lvcreate in a container waits for udev for ever.",
    here: "LVM of an agent does not wait for udev.",
    shown: [by("deploy/manifests_test.ts", "LVM of an agent does not wait for udev")],
  },
  {
    seen: ["flatcar/Flatcar#1440", "rear#2044", "wyng-backup#49"],
    happened: "lvmetad of the host is wrong about the groups.",
    here: "The doctor warns of it, with the remedy.",
    shown: [by("lvm/doctor/machine_problems_test.ts", "global/use_lvmetad")],
  },
  {
    seen: ["lvm2#27", "linstor-server#333"],
    happened: "A command of LVM hangs on a disk, and the driver with it.",
    here: "The group of that disk waits, and no other.",
    shown: [
      by("tests/machine_fake/faults_test.ts", "a disk that hangs stops its group, and no other"),
      by("tests/lvm/faults_suite.ts", "a disk that hangs stops its group within bounds, and no other"),
    ],
  },
  {
    seen: ["rsnapshot#162"],
    happened: "Another program holds LVM's lock, and commands fail or run twice.",
    here: "The driver waits, and creates one logical volume.",
    shown: [by("tests/contract/locks_suite.ts", "waits while another program holds LVM's lock of a volume group")],
  },
  {
    seen: ["lxd#3942", "sds-replicated-volume#435", "lxd#19091"],
    happened: "LVM's archives fill /etc.",
    here: "A value of the chart puts them elsewhere.",
    shown: [by("deploy/chart_test.ts", "where /etc is read-only, LVM's settings and archives can be elsewhere")],
  },
  {
    seen: ["incus#1066", "lvm2#74"],
    happened: "The metadata area of a group is full.",
    here: "Creation is RESOURCE_EXHAUSTED, and a runbook makes it larger.",
    shown: [
      by(
        "tests/machine_fake/faults_test.ts",
        "whose metadata area is full refuses new volumes with RESOURCE_EXHAUSTED",
      ),
      by("tests/contract/tools_suite.ts", "deletes a volume that was in use also when the metadata area is full"),
    ],
  },
  {
    seen: [
      "sds-node-configurator#334",
      "hwameistor#1437",
      "kubernetes#110163",
      "coreos/fedora-coreos-tracker#1517",
      "chef-cookbooks#520",
      "vexxhost/atmosphere#2377",
    ],
    happened: "A pod makes a volume group on its volume, and the node uses it.",
    here: "What lies over a logical volume is no disk of the node.",
    shown: [
      by("tests/contract/stacked_devices_suite.ts", "is no group of the machine"),
      by("tests/cluster/suite/stacked_devices_suite.ts", "gives the node no group, and takes none"),
      by("tests/lvm/hostile_tenants_suite.ts", "whatever a pod writes on its block volume"),
    ],
  },
  {
    seen: ["lvm2#63", "mdadm.conf(5)"],
    happened: "LVM or mdadm of the host opens what is on volumes, and keeps them busy.",
    here: "The doctor names the missing filter or rules of udev.",
    shown: [
      by("lvm/doctor/machine_problems_test.ts", "the host's LVM reads the loop device over it"),
      by("lvm/doctor/machine_problems_test.ts", "a pod made a member of an array of its block volume"),
    ],
  },
  {
    seen: ["csi-driver-lvm#37"],
    happened: "The operating system's group is filled by volumes.",
    here: "Only who names such a group gets volumes there.",
    shown: [
      by(
        "tests/contract/stacked_devices_suite.ts",
        "a group with a mounted filesystem of the host is used only by who names",
      ),
    ],
  },
  {
    seen: ["lvm-operator#446"],
    happened: "Volumes of an earlier installation are still in the group of a new one.",
    here: "They are left alone; those of the driver are orphans.",
    shown: onMachine(async ({ harness }) => {
      const [group] = harness.groups;
      await harness.runAsAdmin("lvm", "lvcreate", "--yes", "--name", "old", "--size", EIGHT_MIB, group);
      const volumeId = await harness.create();
      await harness.csi.controller.deleteVolume({ volumeId });
      assertEquals((await harness.lvs()).map(({ name }) => name), ["old"]);
    }),
  },
];
