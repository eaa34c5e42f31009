/**
 * Situations of nodes: reboots, kubelet, disks, nodes that are gone.
 *
 * @module
 */

import { by, type Situation } from "./situation.ts";

/** The situations. */
export const NODES: readonly Situation[] = [
  {
    seen: ["longhorn#8009"],
    happened: "After a reboot, kubelet publishes a volume whose logical volume is inactive.",
    here: "The logical volume is activated, and is not formatted.",
    shown: [by("tests/contract/staging.ts", "as after a reboot, is activated and not formatted")],
  },
  {
    seen: ["kubernetes#120853"],
    happened: "A volume is published without being staged, so that pods write into an empty directory of the node.",
    here: "It is refused, and no target is left.",
    shown: [by("tests/contract/staging.ts", "nodePublishVolume() of a volume that is not staged is refused")],
  },
  {
    seen: ["kubernetes#133725", "kubernetes#118317"],
    happened: "kubelet rejects a driver once, as while the API server is away, and never registers it again.",
    here: "The agent shows kubelet another socket, later and later, until the driver is registered.",
    shown: [by("csi/registration_test.ts", "a driver that kubelet has rejected shows it another socket")],
  },
  {
    seen: ["aws-fsx-csi-driver#495"],
    happened: "umount hangs, and keeps the lock of the driver for ever.",
    here: "Calls for this volume are ABORTED, those for others succeed, and it goes on when the command ends.",
    shown: [by("tests/machine_fake/faults_test.ts", "keeps its volume locked until it is over, and no other")],
  },
  {
    seen: ["hwameistor#982"],
    happened: "Names of devices change after a reboot.",
    here: "Physical volumes are known by LVM's UUIDs, and disks by their names in /dev/disk/by-id.",
    shown: [by("lvm/disks/judgement_test.ts", "prefers a name that says what the disk is")],
  },
  {
    seen: ["piraeus-operator#675"],
    happened: "LVM reads one leg of a multipath device, and not its map.",
    here: "A disk with several paths is never proposed.",
    shown: [by("lvm/disks/judgement_test.ts", "refuses both paths of a disk that no multipath device has yet")],
  },
  {
    seen: ["topolvm#692", "zfs-localpv#304", "openebs#3094"],
    happened: "A node is replaced, and its disks are carried to another one.",
    here: "Once the first node is forgotten, adopt lets its volumes follow their disks.",
    shown: [
      by("tests/cluster/suite/adopt.ts", "volumes follow disks that are carried to another node"),
      by("tests/cluster_fake/plugin_adopt_test.ts", "volumes follow their disks, once their node is forgotten"),
    ],
  },
  {
    seen: ["harvester#11128"],
    happened: "Logical volumes without an object are never found.",
    here: "They are reported by a condition, an event and a metric, and removed when an administrator names them.",
    shown: [
      by("tests/cluster/suite/orphans.ts", "an orphan is reported and kept, and is removed when an administrator"),
    ],
  },
  {
    seen: ["kubernetes#109132"],
    happened: "The device of a block volume vanishes, and it can never be unpublished.",
    here: "A volume whose device node is gone is unpublished, and published again.",
    shown: [by("tests/contract/stale_mounts.ts", "whose device node was removed while it was published")],
  },
  {
    seen: ["microk8s#5125", "directpv#816", "spiffe-csi#196"],
    happened: "The directory of kubelet is elsewhere, or a link.",
    here: "Paths outside of the mount roots are refused, and the answer names the flag.",
    shown: [
      by("tests/contract/hostile.ts", "paths outside the mount roots are refused, and the answer names the flag"),
    ],
  },
  {
    seen: ["openebs#1276"],
    happened: "Tools of the node are older than those that made a filesystem.",
    here: "The image has its own tools, with the settings of a release that all kernels read.",
    shown: [by("lvm/spec/mkfs_defaults_test.ts", "xfsKernelOptions() switches off what the kernel does not know")],
  },
  {
    seen: ["longhorn#9908", "kubernetes#30240"],
    happened: "mkfs lasts longer than the call.",
    here: "It goes on, runs once, and is recorded when it ends.",
    shown: [
      by(
        "tests/contract/safety.ts",
        "a mkfs that takes longer than its call is recorded when it ends, and runs only once",
      ),
    ],
  },
  {
    seen: ["local-csi-driver#193"],
    happened: "lvcreate is killed halfway.",
    here: "Commands that change something are never killed, and what a crash left is completed or removed.",
    shown: [by("tests/crash/crash_test.ts", "a driver may crash at any moment")],
  },
  {
    seen: ["lvmsystemid(7)"],
    happened: "A volume group belongs to another system, and the host does not see it.",
    here: "The chart sets the system id, and the doctor names the command.",
    shown: [by("tests/lvm/hosts.ts", "a group with a system id is used with that id alone")],
  },
  {
    seen: ["lvm2#137", "lvm2#130", "libstorage-ng#812"],
    happened: "LVM prints other texts between the lines of its JSON, or its settings change the form of the report.",
    here: "Reports ask for the settings that they rely on, and other texts are read past.",
    shown: [
      by(
        "lvm/model/report_parser_test.ts",
        "parseReport() reads past the messages that LVM prints between the lines of a report",
      ),
    ],
  },
  {
    seen: ["drakvuf-sandbox#464"],
    happened: "A logical volume has no time of its creation.",
    here: "It is read without one; a row that cannot be read costs that row alone.",
    shown: [
      by("lvm/model/report_parser_test.ts", "parseReport() reads an LV without a time of its creation"),
      by("lvm/model/report_parser_test.ts", "marks an LV as unreadable for anything that LVM does not write there"),
    ],
  },
];
