/**
 * Situations of disks.
 *
 * @module
 */

import { assertEquals } from "@std/assert";
import { assertFails } from "../contract/helpers/host.ts";
import { failure, FakeMachine } from "../fake/machine/machine.ts";
import { FakeCluster } from "../fake/cluster/node_cluster.ts";
import { namedRequest } from "../fake/request.ts";
import { onMachine } from "./play.ts";
import { by, type Situation } from "./situation.ts";

const GiB = 1n << 30n;

/** The situations. */
export const DISKS: readonly Situation[] = [
  {
    seen: ["hwameistor#982", "container-storage-setup#278", "gravity#1585"],
    happened: "Disks have other names after a reboot.",
    here: "LVM's UUIDs count, and links in /dev/disk/by-id.",
    shown: [
      by("lvm/disks/judgement_test.ts", "prefers a name that says what the disk is"),
      by("lvm/disks/taking_test.ts", "runs nothing when the name of the disk leads to another one"),
    ],
  },
  {
    seen: ["lvm-operator#776", "nativestor#30", "cstor-operators#417", "openebs#3133"],
    happened: "The disk of the operating system is taken for storage.",
    here: "A disk with partitions, mounts or a signature is never proposed.",
    shown: [by("lvm/disks/judgement_test.ts", "a disk with partitions")],
  },
  {
    seen: ["lvm-operator#104", "metalk8s#323", "talos#11727"],
    happened: "vgcreate fails on a disk that was in use before.",
    here: "It is listed with what is on it, for an administrator to wipe.",
    shown: [by("lvm/disks/judgement_test.ts", "a partition table without partitions")],
  },
  {
    seen: ["lvm-operator#113", "rook#7206"],
    happened: "Loop devices are taken for disks.",
    here: "They are never proposed; an administrator's group on one is used.",
    shown: [
      by("lvm/disks/judgement_test.ts", "a loop device"),
      by("tests/contract/stacked_devices_suite.ts", "a group on a loop device of a file is a group of the machine"),
    ],
  },
  {
    seen: ["piraeus-operator#675", "longhorn#1210", "openshift/svt#402"],
    happened: "LVM reads one path of a disk, and multipathd claims the disk.",
    here: "A disk with several paths is never proposed.",
    shown: [by("lvm/disks/judgement_test.ts", "refuses both paths of a disk that no multipath device has yet")],
  },
  {
    seen: ["hwameistor#613", "open-local#250", "lvm-operator#105"],
    happened: "The driver does not see that a disk was enlarged, or space was freed.",
    here: "After pvresize, the space can be used.",
    shown: onMachine(async ({ harness, machine }) => {
      const free = async () => (await harness.csi.controller.getCapacity({})).availableCapacity;
      const before = await free();
      const [group] = machine.groups;
      group!.size += GiB;
      assertEquals(await free() - before, GiB);
    }),
  },
  {
    seen: ["topolvm#692", "zfs-localpv#304", "openebs#3094", "sig-storage-local-static-provisioner#127"],
    happened: "A node is replaced, and its disks go to another one.",
    here: "adopt lets their volumes follow when the first node is forgotten.",
    shown: [
      by("tests/cluster/suite/adopt_suite.ts", "volumes follow disks that are carried to another node"),
      by("tests/cluster_fake/plugin_adopt_test.ts", "volumes follow their disks, once their node is forgotten"),
    ],
  },
  {
    seen: ["lvm2#103"],
    happened: "A clone of a group's disks is imported on the same node.",
    here: "The UUID of the group that was recorded decides.",
    shown: [by("lvm/inventory/clones_test.ts", "of a volume and its clone in an imported group, the recorded group")],
  },
  {
    seen: ["kubermatic#8238", "terraform-provider-proxmox#377"],
    happened: "Nodes are cloned from one machine, and their groups have the same UUIDs.",
    here: "Each agent sees its own node alone.",
    shown: async () => {
      const machines = { a: new FakeMachine(), b: new FakeMachine() };
      for (const machine of Object.values(machines)) machine.addGroup("data", GiB);
      await using cluster = await FakeCluster.start(machines);
      const { id } = await cluster.volumes.create(namedRequest("one", GiB / 8n), { preferred: [] });
      const [clone, from] = Object.values(machines).sort((a, b) => a.allLvs().length - b.allLvs().length);
      const [copy, group] = [clone!.groups[0]!, from!.groups[0]!];
      copy.uuid = group.uuid;
      copy.lvs = group.lvs.map((lv) => ({ ...lv, tags: new Set(lv.tags) }));
      await cluster.volumes.delete(id);
      assertEquals([from!.allLvs().length, clone!.allLvs().length], [0, 1]);
    },
  },
  {
    seen: ["csi-baremetal#489"],
    happened: "A disk is pulled out and put back, and its volumes return errors.",
    here: "The doctor names the volumes, and how to activate them again.",
    shown: [by("lvm/doctor/group_problems_test.ts", "a disk was pulled and came back")],
  },
  {
    seen: ["liteio#20"],
    happened: "A missing disk of one volume group stops the driver in all of them.",
    here: "Other groups do not notice.",
    shown: [by("tests/machine_fake/faults_test.ts", "a group with a missing disk gets no new volumes")],
  },
  {
    seen: ["resource-agents#225"],
    happened: "vgreduce --removemissing runs by itself, and a late disk loses its volumes.",
    here: "What is on a missing disk waits for it.",
    shown: [by("tests/machine_fake/missing_pvs_test.ts", "deleted volumes are removed when it is back")],
  },
  {
    seen: ["lvm2#120", "lvm2#143"],
    happened: "Disks of a RAID come back, and stay marked as failed.",
    here: "The volume says so, and is redundant again after a refresh.",
    shown: [by("tests/cluster/suite/raid_suite.ts", "a raid1 volume that loses a disk keeps working under its pod")],
  },
  {
    seen: ["lvm2#35", "lvm2#141", "thin-provisioning-tools#164"],
    happened: "The disk of a cache fails, and the volume with it.",
    here: "It is not used without its cache; a runbook says what can be saved.",
    shown: [
      by("tests/contract/caches_suite.ts", "is on a missing disk is not used, and is erased when the disk is back"),
      by("lvm/health/health_test.ts", "reports a cache that fails, by LVM's words"),
    ],
  },
  {
    seen: ["rear#1958", "ganeti#149"],
    happened: "Names of disks have colons, which LVM reads as ranges of extents.",
    here: "They are escaped.",
    shown: [by("tests/machine_fake/pv_names_test.ts", "on disks whose names have colons")],
  },
  {
    seen: ["udisks#1228", "lvmdevices(8)"],
    happened: "LVM's devices file lacks a disk, or has one that is gone.",
    here: "The doctor names it, and the command that adds it.",
    shown: [by("tests/lvm/hosts_suite.ts", "the doctor names a disk that is not in the devices file")],
  },
  {
    seen: ["lvm-operator#698", "lvm2#157"],
    happened: "pvmove moves volumes between disks while pods use them.",
    here: "They are used as before; an expansion waits until LVM permits it.",
    shown: onMachine(async ({ harness, machine }) => {
      const volumeId = await harness.create();
      await harness.stage(volumeId);
      machine.fault = ({ args }) =>
        args.includes("lvextend") ? failure(5, "  Can't extend locked logical volume data/v.") : undefined;
      await harness.publish(volumeId);
      const expansion = { volumeId, capacityRange: { requiredBytes: GiB / 8n } };
      await assertFails("FAILED_PRECONDITION", harness.csi.controller.controllerExpandVolume(expansion), "locked");
      machine.fault = undefined;
      await harness.csi.controller.controllerExpandVolume(expansion);
    }),
  },
];
