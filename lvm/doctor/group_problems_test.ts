import { freeBytes } from "../../tests/fake/machine/pvs.ts";
import { newUuid, ok } from "../../tests/fake/machine/machine.ts";
import { leaveMetadataFree } from "../../tests/fake/machine/metadata_area.ts";
import { snapshotLvName, volumeIdOf, volumeLvName } from "../../base/ids.ts";
import { usedTag } from "../model/tags.ts";
import {
  DRIVER,
  id,
  inContainer,
  type Problems,
  snapshotId,
  testProblems,
  uuid,
} from "../../tests/fake/machine/doctor_machine.ts";

const GROUP_PROBLEMS: Problems = {
  "a group is exported": [
    ({ group }) => group.exported = true,
    ["groups", "error", "data", /exported/, /^vgimport data$/],
  ],
  "a group is read-only": [({ group }) => group.readOnly = true, ["groups", "error", "data", /read-only/]],
  "a group is shared": [
    ({ group }) => group.lockType = "sanlock",
    ["groups", "error", "data", /shared between hosts \(sanlock\)/, /^vgchange --lock-type none --lock-opt force data/],
  ],
  "a group belongs to another host": [
    ({ group }) => group.systemId = "otherhost",
    [
      "groups",
      "error",
      "data",
      /host otherhost, and this host has the system id this-host/,
      /system_id="otherhost".*--systemid "this-host" data/,
    ],
  ],
  "the host's system id is its name, which is another one in a container": [
    ({ machine, group }) => {
      group.systemId = "worker-1";
      machine.host.settings.set("system_id_source", '"uname"');
      inContainer(machine);
    },
    [
      "groups",
      "error",
      "data",
      /host worker-1, and this container has the system id this-host, by system_id_source = "uname"/,
      /^lvm\.systemId=\$\(NODE_NAME\) of the Helm chart/,
    ],
  ],
  "the host's system id is its machine id, which a container does not have": [
    ({ machine, group }) => {
      group.systemId = "worker-1";
      machine.host.settings.set("system_id_source", '"appmachineid"');
      inContainer(machine);
    },
    ["groups", "error", "data", /by system_id_source = "appmachineid"/, /^hostPaths\.machineId=\/etc\/machine-id/],
  ],
  "a group belongs to another host, seen from a container": [
    ({ machine, group }) => {
      group.systemId = "otherhost";
      inContainer(machine);
    },
    ["groups", "error", "data", /host otherhost, and this host has/, /--systemid "this-host" data/],
  ],
  "a group is full": [
    ({ group }) => group.size = 80n << 20n,
    ["groups", "warning", "data", /full/, /vgextend data/],
  ],
  "a group has nothing free beside its spare space": [
    ({ group }) => group.tags.add("denolith.spare=944Mi"),
    ["groups", "warning", "data", /full: .*; the other 944 MiB are its spare space/, /vgextend data/],
  ],
  "the spare space of a group is used": [
    ({ group }) => group.tags.add("denolith.spare=1000Mi"),
    ["groups", "warning", "data", /full/, /vgextend data/],
    ["groups", "warning", "data", /only 944 MiB of its spare space of 1000 MiB are left/, /vgextend data/],
  ],
  "the spare space of a group cannot be read": [
    ({ group }) => group.tags.add("denolith.spare=10GB"),
    ["groups", "warning", "data", /full/, /vgextend data/],
    [
      "groups",
      "error",
      "data",
      /its tag denolith\.spare=10GB cannot be read/,
      /vgchange --deltag denolith\.spare=10GB --addtag denolith\.spare=10Gi data/,
    ],
  ],
  "a group has one free extent": [
    ({ group }) => group.size -= freeBytes(group) - group.extentSize,
  ],
  "two groups have one name": [
    ({ machine, group }) => Object.assign(machine.addGroup("data", 1n << 30n), { uuid: "other-uuid" }) && group,
    ["groups", "error", "data", /2 groups have this name: .*other-uuid/, /vgrename other-uuid data-other/],
  ],
  "LVM warns of something": [
    ({ machine }) =>
      machine.host.warnings.push(
        "VG data is missing PV x (last written to /dev/vdb).",
        "Not using device /dev/vde for PV x.",
      ),
    ["groups", "warning", "lvm", /^LVM warns: Not using device \/dev\/vde for PV x\.$/],
  ],
  "metadata is nearly full": [
    ({ group }) => leaveMetadataFree(group, 6_200n),
    ["metadata", "warning", "data", /about 10 more volumes/, /vgextend --metadatasize 16m data/],
  ],
  "metadata is full": [
    ({ group }) => leaveMetadataFree(group, 512n),
    ["metadata", "error", "data", /is full: 512 B of .* is free/, /metadatasize/],
  ],
  "udev is dead": [
    ({ machine }) => machine.host.udev = "Connection refused",
    ["udev", "error", "udev", /wait for it forever/, /systemctl restart systemd-udevd/],
  ],
  "udev was never there": [
    ({ machine }) => machine.host.udev = "No such file or directory",
    ["udev", "error", "udev", /no volume can be created/, /udev_sync = 0/],
  ],
  "udev was never there, and LVM is configured for that": [
    ({ machine }) => {
      machine.host.udev = "No such file or directory";
      machine.host.settings.set("udev_sync", "0").set("udev_rules", "0");
    },
    ["udev", "info", "udev", /creates device nodes itself/],
  ],
  "LVM does not wait for udev": [
    ({ machine }) => machine.host.settings.set("udev_sync", "0"),
    ["udev", "info", "activation/udev_sync", /correct in a container/],
  ],
  "a device node is not there": [
    ({ machine, snapshot }) => machine.host.missingDeviceNodes.add(snapshot),
    ["udev", "error", /^\/dev\/mapper\/data-snap--/, /no block device, although/, /dmsetup mknodes data-snap--/],
  ],
  "all device nodes are gone": [
    ({ machine, lv, snapshot }) => machine.host.missingDeviceNodes.add(snapshot).add(lv),
    ["udev", "error", /data-vol--/, /no block device, although/, /mknodes/],
    ["udev", "error", /data-snap--/, /no block device, although/, /mknodes/],
  ],
  "a device node is another device": [
    ({ machine, device }) =>
      machine.fault = ({ program, args }) =>
        program === "lsblk" && args.includes("--nodeps")
          ? ok(JSON.stringify({
            blockdevices: [
              { name: device, "maj:min": "253:77", size: 1, ro: false },
              {
                name: device.replace(/vol--.*/, `snap--${snapshotId.slice(3)}`),
                "maj:min": "253:1",
                size: 1,
                ro: false,
              },
            ],
          }))
          : undefined,
    ["udev", "error", /data-vol--/, /device 253:77, but LVM reports 253:0/, /mknodes/],
  ],
  "a device is suspended": [
    ({ machine, device }) => {
      machine.host.orphanDevices.set("somebody-elses", "CRYPT-1");
      machine.host.suspended.add(device).add("somebody-elses");
    },
    ["leftovers", "error", /^data-vol--/, /suspended/, /^dmsetup clear data-vol--\w+ && dmsetup resume data-vol--\w+$/],
  ],
  "a disk was pulled and came back": [
    ({ machine, lv }) => machine.host.onPulledDisk.add(lv),
    [
      "leftovers",
      "error",
      /^data-vol--/,
      /disk was removed \(254:240\)/,
      /lvchange --activate n \/dev\/mapper\/data-vol--/,
    ],
  ],
  "a disk was pulled, and its group with it": [
    ({ machine }) => {
      const name = `fast-vol--${"9".repeat(32)}`;
      machine.host.orphanDevices.set(name, `LVM-${"x".repeat(64)}`);
      machine.host.orphanDevicesOn = "254:240";
    },
    ["leftovers", "error", /^fast-vol--/, /disk was removed/, /attach the disk/],
  ],
  "a volume's LV is gone": [
    ({ machine, group }) => {
      group.lvs = [];
      machine.mounts.pop();
    },
    ["leftovers", "error", id, /^Lost: /, /vgcfgrestore --list data .*vgchange --deltag denolith.used=\S+ data/],
  ],
  "another LV has taken a volume's place": [
    ({ lv }) => lv.uuid = newUuid(),
    [
      "leftovers",
      "error",
      id,
      /has taken its place/,
      /^vgchange --deltag denolith.used=\S+ data +\(if it is the right one/,
    ],
  ],
  "two LVs have the tags of one volume": [
    ({ group, lv }) => group.lvs.push({ ...lv, name: "copy", uuid: newUuid(), active: false }),
    [
      "leftovers",
      "error",
      `data/${volumeLvName(id)}`,
      /several logical volumes with the tags of v1-/,
      /lvchange --deltag/,
    ],
    ["leftovers", "error", "data/copy", /several/, new RegExp(`--deltag denolith.volume=${id} data/copy`)],
  ],
  "two LVs have the tags of one snapshot": [
    ({ group, snapshot }) => group.lvs.push({ ...snapshot, name: "copy", uuid: newUuid(), active: false }),
    ["leftovers", "error", `data/${snapshotLvName(snapshotId)}`, /several/, /denolith.snapshot=/],
    ["leftovers", "error", "data/copy", /several/, /denolith.snapshot=/],
  ],
  "tags cannot be parsed": [
    ({ lv }) => lv.tags.delete(`denolith.fs=formatted:ext4:${uuid}`),
    [
      "leftovers",
      "error",
      `data/${volumeLvName(id)}`,
      /tags cannot be parsed: denolith=/,
      /lvchange --deltag denolith=/,
    ],
  ],
  "an id cannot be parsed": [
    ({ group, lv }) => group.lvs.push({ ...lv, name: "odd", active: false, tags: new Set([`denolith=${DRIVER}`]) }),
    ["leftovers", "error", "data/odd", /cannot be parsed/, /--deltag denolith=lvm.denolith.dev data\/odd/],
  ],
  "an LV has a name of the driver and no tags": [
    ({ group, lv }) => group.lvs.push({ ...lv, name: volumeLvName(volumeIdOf("two")), active: false, tags: new Set() }),
    ["leftovers", "info", /^data\/vol-/, /no tags of it/],
  ],
  "a record cannot be parsed": [
    ({ group }) => group.tags.add(`denolith.used=${DRIVER}:odd`),
    ["leftovers", "warning", "data", /cannot be parsed/, /^vgchange --deltag denolith.used=lvm.denolith.dev:odd data$/],
  ],
  "a record is left of an earlier LV of a volume": [
    ({ group }) => group.tags.add(usedTag(DRIVER, id, "old-uuid")),
    ["leftovers", "warning", "data", /names a logical volume that does not exist/, /:old-uuid data$/],
  ],
  "a mkfs was not finished": [
    ({ lv }) => {
      lv.tags.delete(`denolith.fs=formatted:ext4:${uuid}`);
      lv.tags.add(`denolith.fs=formatting:ext4:${uuid}`);
    },
    ["leftovers", "info", id, /was interrupted/],
  ],
  "a snapshot overflowed": [
    ({ snapshot }) => snapshot.invalid = true,
    ["leftovers", "warning", /^data\/snap-/, /overflowed/, /lvremove data\/snap-/],
  ],
  "a device has no LV any more": [
    ({ machine }) =>
      machine.host.orphanDevices.set(`data-vol--${"9".repeat(32)}-real`, `LVM-${"x".repeat(64)}-real`).set(
        "crypt",
        "CRYPT-1",
      ),
    ["leftovers", "warning", `data-vol--${"9".repeat(32)}-real`, /LVM has no such/, /^dmsetup remove data-vol--/],
  ],
  "a logical volume was renamed after it was mounted": [
    ({ machine }) => Object.assign(machine.mounts.at(-1)!, { source: `/dev/mapper/data-vol--${"9".repeat(32)}` }),
  ],
  "a mount's device does not exist any more": [
    ({ machine, lv }) => {
      machine.mounts.pop();
      machine.mounts.push({
        ...machine.mounts[1]!,
        target: "/stale",
        source: `/dev/mapper/data-vol--${"9".repeat(32)}`,
      });
      machine.mounts.push({
        ...machine.mounts[0]!,
        target: "/block",
        source: "dev[/dm-9//deleted]",
        root: "/dm-9//deleted",
      });
      lv.active = true;
    },
    ["leftovers", "warning", "/stale", /device does not exist/, /^umount \/stale$/],
    ["leftovers", "warning", "/block", /device does not exist/, /^umount \/block$/],
  ],
};

testProblems(GROUP_PROBLEMS);
