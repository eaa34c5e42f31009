import { assert, assertEquals, assertMatch } from "@std/assert";
import { healthyMachine } from "../../tests/fake/healthy_machine.ts";
import { failure, type FakeMachine, type FakePool, newUuid, ok } from "../../tests/fake/machine.ts";
import { type Diagnosis, type DoctorOptions, examine } from "./doctor.ts";
import { diagnosisJson, diagnosisText } from "./text.ts";
import { StorageError } from "../error.ts";
import { type Command, describeCommand } from "../exec.ts";
import { CHECKS } from "./finding.ts";
import { anyMatcherOf, exactMatcher } from "../model/groups.ts";
import { snapshotIdOf, snapshotLvName, volumeIdOf, volumeLvName } from "../ids.ts";
import { usedTag } from "../model/tags.ts";

const DRIVER = "lvm.denolith.dev";
const id = volumeIdOf("one");
const snapshotId = snapshotIdOf("cut");
const uuid = "11111111-2222-3333-4444-555555555555";

type HealthyMachine = ReturnType<typeof healthyMachine>;

function diagnose(machine: FakeMachine, options: Partial<DoctorOptions> = {}): Promise<Diagnosis> {
  return examine({ exec: machine, driver: DRIVER, socket: { path: "/run/x.sock", state: "listening" }, ...options });
}

Deno.test("examine() finds nothing wrong on a healthy machine, asks once for each thing and changes nothing", async () => {
  const { machine } = healthyMachine();
  const commands: Command[] = [];
  machine.fault = (command) => void commands.push(command);
  const { level, checks, findings } = await diagnose(machine);
  assertEquals([level, findings], ["ok", []]);
  assertEquals(checks.map(({ check }) => check), [...CHECKS]);
  assertEquals(commands.filter(({ mutates }) => mutates), []);
  assert(commands.length <= 11, commands.map(describeCommand).join("\n"));
  assert(commands.every(({ deadlineMs }) => deadlineMs !== undefined && deadlineMs <= 20_000));
});

/** Adds a thin pool of the driver that has room. */
function addPool({ machine, group, lv }: HealthyMachine): FakePool {
  const thinPool: FakePool = {
    ...{ metadataSize: 4n << 20n, dataPercent: 40, metadataPercent: 10.84, zeroes: true },
    ...{ health: "", monitored: false, residualData: new Set<string>() },
  };
  const tags = new Set([`denolith=${DRIVER}`, "denolith.pool=made"]);
  group.lvs.push({ ...lv, name: "data_thinpool", uuid: newUuid(), minor: machine.nextMinor(), tags, thinPool });
  return thinPool;
}

/** What makes the machine sick; and all that is found then: check, level, on what, a part of what, a part of the remedy. */
const PROBLEMS: Record<
  string,
  [(parts: HealthyMachine) => unknown, ...[string, string, string | RegExp, RegExp, RegExp?][]]
> = {
  "a program of every volume is missing": [
    ({ machine }) => machine.host.missing.add("resize2fs"),
    ["tools", "error", "resize2fs", /not installed/, /apt-get install e2fsprogs/],
  ],
  "the programs of one filesystem are missing": [
    ({ machine }) => machine.host.missing.add("mkfs.xfs").add("xfs_growfs"),
    ["tools", "warning", "mkfs.xfs, xfs_growfs", /no volumes with xfs/, /install xfsprogs/],
  ],
  "a program that only the doctor uses is missing": [
    ({ machine }) => machine.host.missing.add("udevadm"),
    ["tools", "info", "udevadm", /doctor cannot see/, /install udev .*systemd-udev/],
  ],
  "LVM is too old": [
    ({ machine }) => machine.host.lvmVersion = "2.02.98",
    ["tools", "error", "lvm", /2\.02\.98 is too old: 2\.02\.158/, /install lvm2/],
  ],
  "LVM is absent": [
    ({ machine }) => machine.host.missing.add("lvm"),
    ["tools", "error", "lvm", /not installed/, /install lvm2/],
    ["locks", "info", "lvm", /settings/],
    ["filters", "info", "lvm", /settings/],
    ["groups", "info", "lvm", /does not report/],
    ["metadata", "info", "lvm", /does not report/],
    ["pools", "info", "lvm", /does not report/],
    ["leftovers", "info", "lvm", /does not report/],
  ],
  "the user is not root": [
    ({ machine }) => [machine.host.root = false, machine.host.udev = "Connection refused"],
    ["tools", "error", "user", /not root/, /sudo denolith doctor/],
    ["kernel", "info", "device-mapper", /root/],
    ["groups", "info", "lvm", /does not report/],
    ["metadata", "info", "lvm", /does not report/],
    ["pools", "info", "lvm", /does not report/],
    ["leftovers", "info", "lvm", /does not report/],
  ],
  "the kernel's device-mapper cannot be reached": [
    ({ machine }) =>
      machine.fault = ({ program, args }) =>
        program === "dmsetup"
          ? failure(1, "Failure to communicate with kernel device-mapper driver.")
          : args[0] === "version"
          ? ok("  LVM version:     2.03.16(2) (2022-05-18)\n")
          : undefined,
    ["kernel", "error", "device-mapper", /cannot be reached/, /modprobe dm-mod/],
  ],
  "a module is not loaded yet": [
    ({ machine }) => ["snapshot", "snapshot-origin"].map((name) => machine.host.targets.delete(name)),
    ["kernel", "info", "dm-snapshot", /not loaded yet \(snapshot, snapshot-origin\)/, /modprobe dm-snapshot/],
  ],
  "a module is not there": [
    ({ machine }) => [machine.host.targets.delete("snapshot"), machine.host.modules.delete("dm-snapshot")],
    ["kernel", "error", "dm-snapshot", /there can be no snapshots/, /modprobe dm-snapshot; .*install/],
  ],
  "modules cannot be seen, as in a container": [
    ({ machine }) => [machine.host.targets.delete("snapshot"), machine.host.modules.clear()],
    ["kernel", "warning", "dm-snapshot", /modules are not here/, /modprobe dm-snapshot/],
  ],
  "a stuck command holds a lock": [
    ({ machine }) =>
      machine.fault = ({ args }) =>
        args.includes("--foreign") && !args.includes("--nolocking") ? throwNoAnswer() : undefined,
    ["locks", "error", "lvm", /only without locks/, /lslocks/],
  ],
  "LVM does not answer at all": [
    ({ machine }) => machine.fault = ({ args }) => args.includes("--foreign") ? throwNoAnswer() : undefined,
    ["locks", "error", "lvm", /with locks or without/, /dmsetup info/],
    ["groups", "info", "lvm", /does not report/],
    ["metadata", "info", "lvm", /does not report/],
    ["pools", "info", "lvm", /does not report/],
    ["leftovers", "info", "lvm", /does not report/],
  ],
  "LVM's settings are broken": [
    ({ machine }) =>
      machine.fault = ({ program, args }) =>
        program === "lvm" && args[0] !== "version"
          ? failure(
            4,
            "  Parse error at byte 21 (line 2): expected a value\n  Failed to load config file /etc/lvm/lvmlocal.conf",
          )
          : undefined,
    ["locks", "error", "lvm", /Parse error .*lvmlocal.conf/, /lvmconfig --validate/],
    ["filters", "info", "lvm", /settings/],
    ["groups", "error", "lvm", /^lvm fullreport: exit 4: Parse error/, /vgs/],
    ["metadata", "info", "lvm", /does not report/],
    ["pools", "info", "lvm", /does not report/],
    ["leftovers", "info", "lvm", /does not report/],
  ],
  "LVM does not lock": [
    ({ machine }) => machine.host.settings.set("locking_type", "0").set("wait_for_locks", "0").set("use_lvmlockd", "1"),
    ["locks", "error", "global/locking_type", /do not exclude each other/, /locking_type = 1 in the section global/],
    ["locks", "warning", "global/wait_for_locks", /fails at once/, /wait_for_locks = 1/],
    ["locks", "info", "global/use_lvmlockd", /lvmlockd/],
  ],
  "the folder of locks is read-only": [
    ({ machine }) => machine.mounts.push(tmpfs("/run/lock", true)),
    ["locks", "error", "/run/lock/lvm", /\/run\/lock is mounted read-only/, /remount,rw \/run\/lock/],
  ],
  "the folder of locks is a container's own": [
    ({ machine }) => machine.mounts.push({ ...tmpfs("/", false), fsType: "overlay", source: "overlay" }),
    ["locks", "warning", "/run/lock/lvm", /do not see each other/, /mount the host's \/run\/lock\/lvm/],
  ],
  "a filter hides a disk of no group": [
    ({ machine }) => {
      machine.host.hiddenPvs.push({ path: "/dev/vdz", uuid: "a-b" });
      machine.host.settings.set("filter", '["r|/dev/vdz|", "a|.*|"]');
    },
    [
      "filters",
      "warning",
      "/dev/vdz",
      /does not use it: devices\/filter = \["r\|\/dev\/vdz\|"/,
      /devices\/filter in .*lvm\.conf/,
    ],
  ],
  "a filter hides the missing disk of a group": [
    ({ machine, group }) => {
      machine.host.hiddenPvs.push(...group.pvs);
      machine.host.settings.set("global_filter", '"r|.*|"');
      group.missingPvs = 1;
    },
    ["filters", "error", "/dev/vdb", /missing disk of group data/, /devices\/global_filter/],
    ["groups", "error", "data", /1 of its 1 disks are missing .*on them are vol-/, /vgextend --restoremissing data/],
  ],
  "a disk is not in the devices file": [
    ({ machine }) => {
      machine.host.hiddenPvs.push({ path: "/dev/vdz", uuid: "a-b" });
      machine.host.settings.set("use_devicesfile", "1");
    },
    ["filters", "warning", "/dev/vdz", /devices file system\.devices/, /lvmdevices --adddev \/dev\/vdz/],
  ],
  "a disk is hidden by no filter": [
    ({ machine }) => machine.host.hiddenPvs.push({ path: "/dev/vdz", uuid: "a-b" }),
    ["filters", "warning", "/dev/vdz", /no filter says so/, /pvck/],
  ],
  "thin pools can be neither made nor mended, and there are none": [
    ({ machine }) => {
      machine.host.targets.delete("thin-pool");
      machine.host.modules.delete("dm-thin-pool");
      machine.host.missing.add("thin_check").add("thin_dump").add("thin_repair");
    },
    ["pools", "warning", "dm-thin-pool", /no such module: there can be no thin volumes/, /modprobe dm-thin-pool; /],
    [
      ...["pools", "info", "thin_check, thin_dump, thin_repair"] as const,
      /without a look at their metadata; damaged metadata .* cannot be repaired$/,
      /install thin-provisioning-tools .*device-mapper-persistent-data/,
    ],
  ],
  "thin pools can be neither activated nor mended, and there are some": [
    (parts) => {
      addPool(parts);
      parts.machine.host.targets.delete("thin-pool");
      parts.machine.host.modules.delete("dm-thin-pool");
      parts.machine.host.missing.add("thin_repair");
      parts.machine.host.settings.set("thin_check_executable", '""');
    },
    ["pools", "error", "dm-thin-pool", /no such module/, /modprobe/],
    ["pools", "warning", "global/thin_check_executable", /^empty: /, /lvm\.conf/],
    ["pools", "warning", "thin_repair", /not installed: damaged metadata/, /thin-provisioning-tools/],
  ],
  "modules cannot be seen, and there is a pool": [
    (parts) => {
      addPool(parts);
      parts.machine.host.targets.delete("thin-pool");
      parts.machine.host.modules.clear();
    },
    ["pools", "warning", "dm-thin-pool", /modules are not here/, /modprobe/],
  ],
  "a pool is nearly full": [
    (parts) => addPool(parts).dataPercent = 85,
    ["pools", "warning", "data/data_thinpool", /^nearly full: it grows by itself/],
  ],
  "a pool is full": [
    (parts) => addPool(parts).metadataPercent = 100,
    ["pools", "error", "data/data_thinpool", /^full: /],
  ],
  "a pool is damaged": [
    (parts) => addPool(parts).needsCheck = true,
    ["pools", "error", "data/data_thinpool", /lvconvert --repair/],
  ],
  "no cgroup v2, and no limits": [
    ({ machine }) => machine.mounts.splice(machine.mounts.findIndex(({ fsType }) => fsType === "cgroup2"), 1),
    ["limits", "info", "cgroup v2", /not mounted: limits of IO would only be recorded/, /unified_cgroup_hierarchy=1/],
  ],
  "no io controller, and a volume with limits": [
    ({ machine, lv }) => {
      machine.host.controllers = "cpu memory";
      lv.tags.add("denolith.io=ri500");
    },
    ["limits", "warning", "/sys/fs/cgroup", /\(it has cpu, memory\).*: the limits of 1 volume do not hold/, /unified/],
  ],
  "what cgroup v2 has cannot be read": [
    ({ machine }) => machine.host.controllers = undefined,
    ["limits", "info", "cgroup v2", /^dd if=\S+: exit 1: .*No such file/],
  ],
  "disks and mounts cannot be listed": [
    ({ machine }) =>
      machine.fault = ({ program, args }) =>
        program === "findmnt" || args.includes("--all") ? failure(1, "failed") : undefined,
    ["filters", "warning", "disks", /lsblk --json: exit 1: failed/],
    ["leftovers", "warning", "mounts", /findmnt --json: exit 1: failed/],
  ],
  "volume_list keeps the group inactive": [
    ({ machine }) => machine.host.settings.set("volume_list", '["fast","other/lv","@tag"]'),
    [
      "filters",
      "error",
      "data",
      /volume_list = \["fast", "other\/lv", "@tag"\]/,
      /add "data" to activation\/volume_list/,
    ],
  ],
  "volume_list names a tag of hosts": [
    ({ machine }) => machine.host.settings.set("volume_list", '"@*"'),
    ["filters", "warning", "data", /unless it carries a tag of this host/, /add "data"/],
  ],
  "read_only_volume_list names the driver's tag": [
    ({ machine }) => machine.host.settings.set("read_only_volume_list", `["@denolith=${DRIVER}"]`),
    ["filters", "error", "data", /read-only/, /read_only_volume_list/],
  ],
  "what was removed cannot be brought back": [
    ({ machine }) =>
      machine.host.settings.set("issue_discards", "1").set("archive", "0").set("snapshot_autoextend_threshold", "70")
        .set("thin_pool_autoextend_threshold", "70"),
    ["filters", "info", "devices/issue_discards", /gone at once/, /issue_discards = 0 in the section devices/],
    ["filters", "info", "backup/archive", /vgcfgrestore/, /archive = 1 in the section backup/],
    ["filters", "info", "activation/snapshot_autoextend_threshold", /70: dmeventd/],
    [
      "filters",
      "warning",
      "activation/thin_pool_autoextend_threshold",
      /70: dmeventd/,
      /thin-pool-autoextend-threshold/,
    ],
  ],
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
      /host otherhost, and this one is this-host/,
      /system_id="otherhost".*--systemid "this-host" data/,
    ],
  ],
  "a group is full": [
    ({ group }) => group.size = 80n << 20n,
    ["groups", "warning", "data", /full/, /vgextend data/],
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
    ["groups", "warning", "lvm", /^it warns: Not using device \/dev\/vde for PV x\.$/],
  ],
  "metadata is nearly full": [
    ({ group }) => group.metadataFree = 6_200n,
    ["metadata", "warning", "data", /about 10 more volumes/, /vgextend --metadatasize 16m data/],
  ],
  "metadata is full": [
    ({ group }) => group.metadataFree = 512n,
    ["metadata", "error", "data", /is full: 512 B free/, /metadatasize/],
  ],
  "udev is dead": [
    ({ machine }) => machine.host.udev = "Connection refused",
    ["udev", "error", "udev", /waits for it for ever/, /systemctl restart systemd-udevd/],
  ],
  "udev was never there": [
    ({ machine }) => machine.host.udev = "No such file or directory",
    ["udev", "error", "udev", /no volume can be made/, /udev_sync = 0/],
  ],
  "udev was never there, and LVM knows": [
    ({ machine }) => {
      machine.host.udev = "No such file or directory";
      machine.host.settings.set("udev_sync", "0").set("udev_rules", "0");
    },
    ["udev", "info", "udev", /makes device nodes itself/],
  ],
  "LVM does not wait for udev": [
    ({ machine }) => machine.host.settings.set("udev_sync", "0"),
    ["udev", "info", "activation/udev_sync", /In a container this is right/],
  ],
  "a device node is not there": [
    ({ machine, snapshot }) => machine.host.missingDeviceNodes.add(snapshot),
    ["udev", "error", /^\/dev\/mapper\/data-snap--/, /no block device is there/, /dmsetup mknodes data-snap--/],
  ],
  "all device nodes are gone": [
    ({ machine, lv, snapshot }) => machine.host.missingDeviceNodes.add(snapshot).add(lv),
    ["udev", "error", /data-vol--/, /no block device is there/, /mknodes/],
    ["udev", "error", /data-snap--/, /no block device is there/, /mknodes/],
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
    ["udev", "error", /data-vol--/, /device 253:77, but LVM has 253:0/, /mknodes/],
  ],
  "a device is suspended": [
    ({ machine, device }) => {
      machine.host.orphanDevices.set("somebody-elses", "CRYPT-1");
      machine.host.suspended.add(device).add("somebody-elses");
    },
    ["leftovers", "error", /^data-vol--/, /suspended/, /^dmsetup resume data-vol--/],
  ],
  "a disk was pulled and came back": [
    ({ machine, lv }) => machine.host.onPulledDisk.add(lv),
    [
      "leftovers",
      "error",
      /^data-vol--/,
      /on a disk that is gone \(254:240\)/,
      /lvchange --activate n \/dev\/mapper\/data-vol--/,
    ],
  ],
  "a disk was pulled, and its group with it": [
    ({ machine }) => {
      const name = `fast-vol--${"9".repeat(32)}`;
      machine.host.orphanDevices.set(name, `LVM-${"x".repeat(64)}`);
      machine.host.orphanDevicesOn = "254:240";
    },
    ["leftovers", "error", /^fast-vol--/, /on a disk that is gone/, /with the disk back/],
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
    ["leftovers", "error", id, /has taken its place/, /docs\/guides\/volume-repair.md/],
  ],
  "two LVs claim to be one volume": [
    ({ group, lv }) => group.lvs.push({ ...lv, name: "copy", uuid: newUuid(), active: false }),
    ["leftovers", "error", `data/${volumeLvName(id)}`, /several that claim to be v1-/, /lvchange --deltag/],
    ["leftovers", "error", "data/copy", /several/, new RegExp(`--deltag denolith.volume=${id} data/copy`)],
  ],
  "two LVs claim to be one snapshot": [
    ({ group, snapshot }) => group.lvs.push({ ...snapshot, name: "copy", uuid: newUuid(), active: false }),
    ["leftovers", "error", `data/${snapshotLvName(snapshotId)}`, /several/, /denolith.snapshot=/],
    ["leftovers", "error", "data/copy", /several/, /denolith.snapshot=/],
  ],
  "tags cannot be read": [
    ({ lv }) => lv.tags.delete(`denolith.fs=formatted:ext4:${uuid}`),
    ["leftovers", "error", `data/${volumeLvName(id)}`, /tags cannot be read: denolith=/, /lvchange --deltag denolith=/],
  ],
  "an id cannot be read": [
    ({ group, lv }) => group.lvs.push({ ...lv, name: "odd", active: false, tags: new Set([`denolith=${DRIVER}`]) }),
    ["leftovers", "error", "data/odd", /cannot be read/, /--deltag denolith=lvm.denolith.dev data\/odd/],
  ],
  "an LV has a name of ours and no tags": [
    ({ group, lv }) => group.lvs.push({ ...lv, name: volumeLvName(volumeIdOf("two")), active: false, tags: new Set() }),
    ["leftovers", "info", /^data\/vol-/, /none of its tags/],
  ],
  "a record cannot be read": [
    ({ group }) => group.tags.add(`denolith.used=${DRIVER}:odd`),
    ["leftovers", "warning", "data", /cannot be read/, /^vgchange --deltag denolith.used=lvm.denolith.dev:odd data$/],
  ],
  "a record is left of an earlier LV of a volume": [
    ({ group }) => group.tags.add(usedTag(DRIVER, id, "old-uuid")),
    ["leftovers", "warning", "data", /names a logical volume that is gone/, /:old-uuid data$/],
  ],
  "a mkfs was not finished": [
    ({ lv }) => {
      lv.tags.delete(`denolith.fs=formatted:ext4:${uuid}`);
      lv.tags.add(`denolith.fs=formatting:ext4:${uuid}`);
    },
    ["leftovers", "info", id, /begun and not finished/],
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
    ["leftovers", "warning", `data-vol--${"9".repeat(32)}-real`, /LVM knows no such/, /^dmsetup remove data-vol--/],
  ],
  "a mount's device is gone": [
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
    ["leftovers", "warning", "/stale", /device is gone/, /^umount \/stale$/],
    ["leftovers", "warning", "/block", /device is gone/, /^umount \/block$/],
  ],
};

for (const [name, [make, ...expected]] of Object.entries(PROBLEMS)) {
  Deno.test(`examine(): ${name}`, async () => {
    const parts = healthyMachine();
    make(parts);
    const { level, checks, findings } = await diagnose(parts.machine);
    assertEquals(checks.map(({ check }) => check), [...CHECKS]);
    const summary = findings.map(({ check, level, subject, message }) => `${check} ${level} ${subject}: ${message}`)
      .join("\n");
    assertEquals(
      findings.map(({ check, level }) => `${check} ${level}`),
      expected.map(([check, level]) => `${check} ${level}`),
      summary,
    );
    for (const [index, [, , on, found, remedy]] of expected.entries()) {
      const finding = findings[index]!;
      if (typeof on === "string") assertEquals(finding.subject, on);
      else assertMatch(finding.subject, on);
      assertMatch(finding.message, found);
      if (remedy === undefined) assertEquals(finding.remedy, undefined);
      else assertMatch(finding.remedy ?? "", remedy);
    }
    const levels = findings.map((finding) => finding.level);
    assertEquals(level, levels.includes("error") ? "error" : levels.includes("warning") ? "warning" : "info");
  });
}

/** What looks like a sickness and is none. */
const NO_PROBLEMS: Record<string, (parts: HealthyMachine) => unknown> = {
  "a disk of a guest in a volume": ({ lv }) => lv.content.signatures = [{ type: "LVM2_member", uuid: "guest" }],
  "a disk of LVM's in no group": ({ machine }) => machine.host.unusedPvs.push({ path: "/dev/vdz", uuid: "spare" }),
  "volume_list names the group": ({ machine }) => machine.host.settings.set("volume_list", '["data"]'),
  "volume_list names the driver's tag": ({ machine }) =>
    machine.host.settings.set("volume_list", `["@denolith=${DRIVER}"]`),
  "volume_list names a tag of the group": ({ machine, group }) => {
    group.tags.add("local");
    machine.host.settings.set("volume_list", '["@local"]');
  },
  "groups of this host, and of none": ({ machine, group, lv }) => {
    group.systemId = "this-host";
    const tags = new Set([...lv.tags].map((tag) => tag.replace(id, volumeIdOf("two"))));
    machine.addGroup("fast", 1n << 30n).lvs.push({ ...lv, name: "two", uuid: newUuid(), tags, active: false });
  },
  "a thin module that is loaded when it is needed": ({ machine }) => machine.host.targets.delete("thin-pool"),
  "thin programs of another place": ({ machine }) => {
    machine.host.missing.add("thin_check");
    machine.host.settings.set("thin_check_executable", '"/opt/bin/thin_check"');
  },
  "a full pool of somebody else": (parts) => {
    addPool(parts).dataPercent = 100;
    parts.group.lvs.at(-1)!.tags.clear();
  },
  "a pool with room": (parts) => addPool(parts),
  "an LV of another driver with a name as ours": ({ group, lv }) =>
    group.lvs.push({
      ...lv,
      name: volumeLvName(volumeIdOf("two")),
      uuid: newUuid(),
      active: false,
      tags: new Set(["denolith=x"]),
    }),
  "a read-only mount that another hides": ({ machine }) =>
    machine.mounts.push(tmpfs("/run/lock", true), tmpfs("/run", false)),
};

for (const [name, make] of Object.entries(NO_PROBLEMS)) {
  Deno.test(`examine() finds nothing wrong: ${name}`, async () => {
    const healthy = healthyMachine();
    make(healthy);
    assertEquals((await diagnose(healthy.machine)).findings, []);
  });
}

/** What the exec seam does when a command does not answer in time. */
function throwNoAnswer(): never {
  throw new StorageError("Unavailable", "lvm fullreport: no answer within 20 s");
}

function tmpfs(target: string, readOnly: boolean) {
  return { target, source: "tmpfs", fsType: "tmpfs", root: "/", readOnly, deviceNumber: "0:23" };
}

Deno.test("examine(): a nearly full store is a warning, unless it cannot overflow", async () => {
  const { machine, snapshot } = healthyMachine();
  snapshot.cowPercent = 81.5;
  const { findings: [finding] } = await diagnose(machine);
  assertEquals([finding?.level, finding?.subject], ["warning", `data/${snapshot.name}`]);
  assertMatch(finding!.message, /81\.5 % full/);
  snapshot.size = 68n << 20n;
  assertEquals((await diagnose(machine)).findings, []);
});

Deno.test("examine(): groups are those that were asked for and those in use; without either, all", async () => {
  const { machine } = healthyMachine();
  machine.addGroup("idle", 1n << 30n);
  const named = async (groups?: string) => {
    const { checks } = await diagnose(machine, groups === undefined ? {} : { groups: exactMatcher(groups) });
    return checks.find(({ check }) => check === "groups")!.summary.match(/data|idle/g);
  };
  assertEquals([await named(), await named("idle")], [["data"], ["data", "idle"]]);
  machine.groups.shift();
  machine.mounts.pop();
  assertEquals(await named(), ["idle"]);

  const summaries = (await diagnose(machine, { groups: exactMatcher("nope") })).checks.map(({ summary }) => summary);
  assertEquals(summaries.slice(4, 6), ["none", "no group"]);
  const { findings } = await diagnose(machine, { groups: anyMatcherOf([exactMatcher("idle"), exactMatcher("nope")]) });
  assertEquals(findings.map(({ check, level, subject }) => [check, level, subject]), [["groups", "error", "nope"]]);
  assertMatch(findings[0]!.message, /this host has idle/);
  assertMatch(findings[0]!.remedy!, /vgcreate/);
});

Deno.test("examine() sums up how many disks are hidden", async () => {
  const { machine } = healthyMachine();
  const summary = async () => (await diagnose(machine)).checks.find(({ check }) => check === "filters")!.summary;
  assertEquals(await summary(), "LVM sees all of its disks");
  machine.host.hiddenPvs.push({ path: "/dev/vdz", uuid: "a-b" });
  assertEquals(await summary(), "LVM does not see 1 of its disks");
});

Deno.test("examine(): a socket that nobody answers on is a note", async () => {
  const { machine } = healthyMachine();
  const { level, findings } = await diagnose(machine, { socket: { path: "/run/x.sock", state: "stale" } });
  assertEquals([level, findings.map(({ subject }) => subject)], ["info", ["/run/x.sock"]]);
  assertEquals((await diagnose(machine, { socket: { path: "/run/x.sock", state: "absent" } })).level, "ok");
});

Deno.test("examine() never fails, whatever does not answer, and a driver of another name has nothing here", async () => {
  const { machine } = healthyMachine();
  assertEquals(
    (await diagnose(machine, { driver: "other.driver" })).checks.at(-1)?.summary,
    "0 volumes, 0 snapshots; a driver is serving",
  );
  machine.fault = () => {
    throw new Deno.errors.PermissionDenied("Permission denied (os error 13)");
  };
  assertMatch((await diagnose(machine)).findings.find(({ check }) => check === "groups")!.message, /Permission denied/);
  machine.fault = () => throwNoAnswer();
  const { level, findings } = await diagnose(machine);
  assertEquals(level, "error");
  assert(findings.some(({ check }) => check === "locks") && findings.some(({ check }) => check === "tools"));
});

Deno.test("a diagnosis as text: a line for each check, findings with their remedies below, no line of prose too long", async () => {
  const { machine, group, device } = healthyMachine();
  assertMatch(
    diagnosisText(await diagnose(machine)),
    /^✓ tools +lvm 2\.03\.16, 26 of 26 programs\n(?:✓ .*\n){9}\nNothing is wrong\.$/,
  );
  group.exported = true;
  group.metadataFree = 6_200n;
  machine.host.suspended.add(device);
  machine.host.missing.add("modinfo");
  const text = diagnosisText(await diagnose(machine));
  assertMatch(text, /\n✗ groups +data \(.*\n {4}✗ data: it is exported: no host uses it\n {6}→ vgimport data\n/);
  assertMatch(text, /\n2 errors, 1 warning, 1 note\.$/);
  const prose = text.split("\n").filter((line) => !line.includes("→"));
  assertEquals(prose.filter((line) => line.length > 100), []);
});

Deno.test("a diagnosis as JSON has the level, the checks and the findings", async () => {
  const { machine, group } = healthyMachine();
  group.exported = true;
  const { level, checks, findings } = JSON.parse(diagnosisJson(await diagnose(machine)));
  assertEquals([level, checks.length], ["error", CHECKS.length]);
  assertEquals(findings, [{
    check: "groups",
    level: "error",
    subject: "data",
    message: "it is exported: no host uses it",
    remedy: "vgimport data",
  }]);
});
