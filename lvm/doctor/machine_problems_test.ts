import { failure, ok } from "../../tests/fake/machine/machine.ts";
import { addKubeletLoop } from "../../tests/fake/machine/stacked_devices.ts";
import {
  addPool,
  DRIVER,
  type Problems,
  testProblems,
  throwNoAnswer,
  tmpfs,
} from "../../tests/fake/machine/doctor_machine.ts";

const MACHINE_PROBLEMS: Problems = {
  "a program of every volume is missing": [
    ({ machine }) => machine.host.missing.add("resize2fs"),
    ["tools", "error", "resize2fs", /not installed/, /apt-get install e2fsprogs/],
  ],
  "the programs of one filesystem are missing": [
    ({ machine }) => machine.host.missing.add("mkfs.xfs").add("xfs_growfs"),
    ["tools", "warning", "mkfs.xfs, xfs_growfs", /volumes with xfs are not available/, /install xfsprogs/],
  ],
  "a program that only the doctor uses is missing": [
    ({ machine }) => machine.host.missing.add("udevadm"),
    ["tools", "info", "udevadm", /doctor cannot check everything/, /install udev .*systemd-udev/],
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
  "a module is missing": [
    ({ machine }) => [machine.host.targets.delete("snapshot"), machine.host.modules.delete("dm-snapshot")],
    ["kernel", "error", "dm-snapshot", /snapshots are not available/, /modprobe dm-snapshot; .*install/],
  ],
  "the module of raidIntegrity is not loaded yet": [
    ({ machine }) => [machine.host.targets.delete("integrity"), machine.host.modules.add("dm-integrity")],
    [
      "kernel",
      "info",
      "dm-integrity",
      /not loaded yet \(integrity\): .*RAID volumes with checksums/,
      /modprobe dm-integrity/,
    ],
  ],
  "the kernel has no module for raidIntegrity": [
    ({ machine }) => machine.host.targets.delete("integrity"),
    [
      "kernel",
      "info",
      "dm-integrity",
      /RAID volumes with checksums are not available/,
      /modprobe dm-integrity; .*install/,
    ],
  ],
  "modules cannot be listed, as in a container": [
    ({ machine }) => [machine.host.targets.delete("snapshot"), machine.host.modules.clear()],
    ["kernel", "warning", "dm-snapshot", /modules cannot be listed here/, /modprobe dm-snapshot/],
  ],
  "the kernel is older than features of xfs": [
    ({ machine }) => machine.host.kernel = "5.4.0-150-generic",
    ["kernel", "info", "xfs", /kernel 5.4.0-150-generic does not know bigtime, inobtcount, nrext64/],
  ],
  "a stuck command holds a lock": [
    ({ machine }) =>
      machine.fault = ({ args }) =>
        args.includes("--foreign") && !args.includes("--nolocking") ? throwNoAnswer() : undefined,
    ["locks", "error", "lvm", /only without locks/, /lslocks/],
  ],
  "LVM does not respond at all": [
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
  "the directory of locks is read-only": [
    ({ machine }) => machine.mounts.push(tmpfs("/run/lock", true)),
    ["locks", "error", "/run/lock/lvm", /\/run\/lock is mounted read-only/, /remount,rw \/run\/lock/],
  ],
  "the directory of locks is a container's own": [
    ({ machine }) => machine.mounts.push({ ...tmpfs("/", false), fsType: "overlay", source: "overlay" }),
    ["locks", "warning", "/run/lock/lvm", /do not exclude each other/, /mount the host's \/run\/lock\/lvm/],
  ],
  "the directory of locks is another user's": [
    ({ machine }) => machine.host.lockFolder = "1000 755 d",
    ["locks", "warning", "/run/lock/lvm", /user with the number 1000, who can keep LVM waiting/, /install -d -m 0700/],
  ],
  "the directory of locks can be written by all": [
    ({ machine }) => machine.host.lockFolder = "0 1777 d",
    ["locks", "warning", "/run/lock/lvm", /its mode is 1777: any user, or a group, can keep LVM waiting/, /install -d/],
  ],
  "the directory of locks is a link": [
    ({ machine }) => machine.host.lockFolder = "0 777 l",
    ["locks", "warning", "/run/lock/lvm", /it is a link, which whoever made it can lead elsewhere$/, /rm -r/],
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
    ["filters", "error", "/dev/vdb", /missing physical volume of volume group data/, /devices\/global_filter/],
    [
      "groups",
      "error",
      "data",
      /1 of its 1 physical volumes are missing .*are on them: vol-/,
      /vgextend --restoremissing data/,
    ],
  ],
  "an old LVM of the host works with a cache": [
    ({ machine }) => machine.host.settings.set("use_lvmetad", "1"),
    ["locks", "warning", "global/use_lvmetad", /cached metadata/, /lvm2-lvmetad\.socket; use_lvmetad = 0/],
  ],
  "LVM cannot archive its metadata, because /etc is read-only": [
    ({ machine }) => machine.mounts.push(tmpfs("/etc", true)),
    ["filters", "error", "/etc/lvm/archive", /\/etc is read-only: .* changes no volume group/, /lvm\.archiveDir/],
  ],
  "LVM cannot archive its metadata, because the filesystem of its settings is read-only": [
    ({ machine }) => machine.mounts.push({ ...tmpfs("/etc/lvm", false), filesystemReadOnly: true }),
    ["filters", "error", "/etc/lvm/archive", /\/etc\/lvm is read-only/, /archive_dir = "DIRECTORY"/],
  ],
  "LVM keeps no archives, and /etc is read-only": [
    ({ machine }) => [machine.mounts.push(tmpfs("/etc", true)), machine.host.settings.set("archive", "0")],
    ["filters", "info", "backup/archive", /keeps no previous metadata/, /archive = 1/],
  ],
  "a disk is not in the devices file": [
    ({ machine }) => {
      machine.host.hiddenPvs.push({ path: "/dev/vdz", uuid: "a-b" });
      machine.host.settings.set("use_devicesfile", "1");
    },
    ["filters", "warning", "/dev/vdz", /devices file system\.devices/, /lvmdevices --adddev \/dev\/vdz/],
  ],
  "a pod has a block volume, and the host's LVM reads the loop device over it": [
    ({ machine, lv }) => addKubeletLoop(machine, lv),
    [
      "filters",
      "info",
      "devices/global_filter",
      /\/dev\/loop0.*what pods write/,
      /global_filter = \["r\|\^\/dev\/\(loop\|/,
    ],
  ],
  "one filter of the host is in use": [
    ({ machine, lv }) => [
      addKubeletLoop(machine, lv),
      machine.host.settings.set("global_filter", '["r|/dev/.*/by-id/.*|", "a|.*|"]'),
    ],
    ["filters", "info", "devices/filter", /\/dev\/loop0.*what pods write/, /^filter = \["r\|[^"]*"\] in the section/],
  ],
  "both filters of the host are in use, and one rejects names that all disks have": [
    ({ machine, lv }) => [
      addKubeletLoop(machine, lv),
      machine.host.settings.set("filter", '["r|/dev/cdrom|"]'),
      machine.host.settings.set("global_filter", '["r|/dev/.*/by-id/.*|", "a|.*|"]'),
    ],
    ["filters", "info", "devices/global_filter", /\/dev\/loop0/, /, "r\|\/dev\/\.\*\/by-id\/\.\*\|", "a\|\.\*\|"\]/],
  ],
  "a pod made a physical volume of its block volume": [
    ({ machine, lv }) => [
      machine.host.hiddenPvs.push({ path: addKubeletLoop(machine, lv), uuid: "a-b" }),
      machine.host.settings.set("filter", '["r|/dev/cdrom|"]'),
      machine.host.settings.set("global_filter", '["r|/dev/sr0|"]'),
    ],
    ["filters", "warning", "/dev/loop0", /physical volume of it \(a-b\)/, /global_filter = \[.*"r\|\/dev\/sr0\|"\]/],
  ],
  "a pod made a member of an array of its block volume": [
    ({ machine, lv }) => [
      addKubeletLoop(machine, lv),
      machine.host.loops.at(-1)!.found = "linux_raid_member",
      machine.host.settings.set("global_filter", '["r|^/dev/loop|"]'),
    ],
    [
      "filters",
      "warning",
      "/dev/loop0",
      /wrote linux_raid_member on it: udev/,
      /^printf '%s\\n' 'SUBSYSTEM==.*--reload$/,
    ],
  ],
  "the host itself uses a volume group": [
    ({ machine, lv }) => {
      const root = { ...lv, name: "root", uuid: "r", tags: new Set<string>(), minor: 77 };
      machine.addGroup("system", 1n << 30n).lvs.push(root);
      machine.host.swapLvs.add(root);
    },
    ["groups", "info", "system", /this host uses root \(swap\) of it/, /--volume-groups/],
  ],
  "the host's LVM reads what is on volumes": [
    ({ machine }) => machine.host.settings.set("scan_lvs", "1"),
    ["filters", "warning", "devices/scan_lvs", /LVM of this host reads/, /scan_lvs = 0/],
  ],
  "a disk is hidden by no filter": [
    ({ machine }) => machine.host.hiddenPvs.push({ path: "/dev/vdz", uuid: "a-b" }),
    ["filters", "warning", "/dev/vdz", /no filter rejects it/, /pvck/],
  ],
  "thin pools can be neither created nor repaired, and there are none": [
    ({ machine }) => {
      machine.host.targets.delete("thin-pool");
      machine.host.modules.delete("dm-thin-pool");
      machine.host.missing.add("thin_check").add("thin_dump").add("thin_repair");
    },
    ["pools", "warning", "dm-thin-pool", /nor this module: thin volumes are not available/, /modprobe dm-thin-pool; /],
    [
      ...["pools", "info", "thin_check, thin_dump, thin_repair"] as const,
      /without a check of their metadata; damaged metadata .* cannot be repaired$/,
      /install thin-provisioning-tools .*device-mapper-persistent-data/,
    ],
  ],
  "thin pools can be neither activated nor repaired, and there are some": [
    (parts) => {
      addPool(parts);
      parts.machine.host.targets.delete("thin-pool");
      parts.machine.host.modules.delete("dm-thin-pool");
      parts.machine.host.missing.add("thin_repair");
      parts.machine.host.settings.set("thin_check_executable", '""');
    },
    ["pools", "error", "dm-thin-pool", /nor this module/, /modprobe/],
    ["pools", "warning", "global/thin_check_executable", /^empty: /, /lvm\.conf/],
    ["pools", "warning", "thin_repair", /not installed: damaged metadata/, /thin-provisioning-tools/],
  ],
  "modules cannot be listed, and there is a pool": [
    (parts) => {
      addPool(parts);
      parts.machine.host.targets.delete("thin-pool");
      parts.machine.host.modules.clear();
    },
    ["pools", "warning", "dm-thin-pool", /modules cannot be listed here/, /modprobe/],
  ],
  "the programs of thin pools cannot be looked up": [
    (parts) => {
      addPool(parts);
      parts.machine.host.missing.add("thin_repair").add("whereis");
    },
    ["tools", "warning", "whereis", /./],
  ],
  "a pool is nearly full": [
    (parts) => addPool(parts).dataPercent = 85,
    ["pools", "warning", "data/data_thinpool", /^nearly full: the driver extends it only while/],
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
    [
      "limits",
      "info",
      "cgroup v2",
      /not mounted, as on a host with cgroup v1: IO limits would be recorded, but would not apply/,
      /unified_cgroup_hierarchy=1/,
    ],
  ],
  "no io controller, and a volume with limits": [
    ({ machine, lv }) => {
      machine.host.controllers = "cpu memory";
      lv.tags.add("denolith.io=ri500");
    },
    [
      "limits",
      "warning",
      "/sys/fs/cgroup",
      /\(it has cpu, memory\).*: the IO limits of 1 volume do not apply/,
      /unified/,
    ],
  ],
  "the controllers of cgroup v2 cannot be read": [
    ({ machine }) => machine.host.controllers = undefined,
    ["limits", "info", "cgroup v2", /^dd if=\S+: exit 1: .*No such file/],
  ],
  "disks and mounts cannot be listed": [
    ({ machine }) => {
      machine.hasMountTable = false;
      machine.fault = ({ program, args }) =>
        program === "findmnt" || args.includes("--all") ? failure(1, "failed") : undefined;
    },
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
    ["filters", "warning", "data", /unless it has a tag of this host/, /add "data"/],
  ],
  "read_only_volume_list names the driver's tag": [
    ({ machine }) => machine.host.settings.set("read_only_volume_list", `["@denolith=${DRIVER}"]`),
    ["filters", "error", "data", /read-only/, /read_only_volume_list/],
  ],
  "removed LVs cannot be restored": [
    ({ machine }) =>
      machine.host.settings.set("issue_discards", "1").set("archive", "0").set("snapshot_autoextend_threshold", "70")
        .set("thin_pool_autoextend_threshold", "70"),
    ["filters", "info", "devices/issue_discards", /lost at once/, /issue_discards = 0 in the section devices/],
    ["filters", "info", "backup/archive", /vgcfgrestore/, /archive = 1 in the section backup/],
    ["filters", "info", "activation/snapshot_autoextend_threshold", /70: dmeventd/],
    [
      "filters",
      "warning",
      "activation/thin_pool_autoextend_threshold",
      /70: dmeventd/,
      /^thin_pool_autoextend_threshold = 100 in the section activation .*--thin-pool-autoextend-threshold 100$/,
    ],
  ],
};

testProblems(MACHINE_PROBLEMS);
