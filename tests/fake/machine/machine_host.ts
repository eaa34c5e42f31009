/**
 * The state of the fake machine apart from its volume groups: settings, versions, kernel, devices.
 *
 * @module
 */

import { THIN_TOOLS, type ThinTool } from "../../../lvm/doctor/pools.ts";
import type { Program } from "../../../lvm/exec.ts";
import type { FakeDisk } from "./disks.ts";
import type { FakeLv } from "./machine.ts";
import type { FakeLoop } from "./stacked_devices.ts";

/** The state of the machine apart from its groups, by which a healthy machine differs from one with problems. */
export interface FakeHost {
  /** True if commands run as root. */
  root: boolean;
  /** The Debian whose tools it has. They differ in words, and in what they refuse. */
  debian: 12 | 13;
  /** The release of the kernel. */
  kernel: string;
  /** The version of LVM. */
  lvmVersion: string;
  /** The settings, as lvmconfig prints them after the names. */
  settings: Map<string, string>;
  /** What find prints of the directory of LVM's locks: its owner, its mode and its kind. */
  lockFolder: string;
  /** The warnings that LVM prints. */
  warnings: string[];
  /** The device-mapper targets of the kernel, with their versions. */
  targets: Map<string, string>;
  /** The modules that the kernel can load. */
  modules: Set<string>;
  /** Names of devices that are suspended, beside those of LVs that are. */
  suspended: Set<string>;
  /** LVs that are swap space. */
  swapLvs: Set<FakeLv>;
  /** Paths of devices that are built on LVs. */
  holders: Map<FakeLv, string>;
  /** Devices of device-mapper that no LV has, by name, with their UUIDs. */
  orphanDevices: Map<string, string>;
  /** The number of the device that those are on, if any. */
  orphanDevicesOn: string;
  /** LVs that are active on a disk that was pulled since. */
  onPulledDisk: Set<FakeLv>;
  /** LVs whose filesystems another mount namespace has mounted. */
  mountedElsewhere: Set<FakeLv>;
  /**
   * LVs whose btrfs udev has found: the kernel mounts one of them in place of another with the same UUID (Linux before 6.7), or
   * nothing at all.
   */
  scannedBtrfs: Map<FakeLv, "mounted" | "refused">;
  /** LVs with a btrfs in which a balance runs while it is mounted. */
  balancing: Set<FakeLv>;
  /** LVs whose device node is not there. */
  missingDeviceNodes: Set<FakeLv>;
  /** Disks that LVM does not see, with the UUIDs on their labels. */
  hiddenPvs: { path: string; uuid: string }[];
  /** Disks that are prepared for LVM, but in no group. */
  unusedPvs: { path: string; uuid: string }[];
  /** Whole disks beside those of the groups that a test adds. */
  disks: FakeDisk[];
  /** Loop devices. */
  loops: FakeLoop[];
  /** The paths of mappings of other programs, by the paths of the devices that they are made of. */
  mappings: Map<string, string>;
  /** Paths below kubelet's folders at which pods have devices, with the paths of the disks. */
  podDevices: Map<string, string>;
  /** The features that mke2fs adds for types and usage types, as mke2fs.conf(5) has them. */
  mke2fsConf: Map<string, string[]>;
  /** The error of udevadm; empty when all is well. */
  udev: "" | "No such file or directory" | "Connection refused";
  /** True if its disks support discards. */
  discards: boolean;
  /** True if mount(8) sees that SELinux is enabled. */
  seLinux: boolean;
  /** Programs that are not installed. */
  missing: Set<Program | ThinTool>;
  /** The controllers of cgroup v2; `undefined` when they cannot be read. */
  controllers: string | undefined;
}

/** What lvmconfig prints of a filter that is not set. */
export const DEFAULT_FILTER = '["a|.*|"]';

/** What a host with Debian 13 has instead of the tools of Debian 12. */
export const DEBIAN_13: Partial<FakeHost> = { debian: 13, lvmVersion: "2.03.31" };

/** Returns a host without problems: settings and versions of Debian 12. */
export function healthyHost(): FakeHost {
  return {
    root: true,
    debian: 12,
    kernel: "6.1.0-44-amd64",
    lvmVersion: "2.03.16",
    settings: new Map([
      ["locking_type", "1"],
      ["use_lvmlockd", "0"],
      ["wait_for_locks", "1"],
      ["locking_dir", '"/run/lock/lvm"'],
      ["system_id_source", '"none"'],
      ["filter", DEFAULT_FILTER],
      ["global_filter", DEFAULT_FILTER],
      ["use_devicesfile", "0"],
      ["devicesfile", '"system.devices"'],
      ["scan_lvs", "0"],
      ["issue_discards", "0"],
      ["udev_sync", "1"],
      ["udev_rules", "1"],
      ["monitoring", "1"],
      ["snapshot_autoextend_threshold", "100"],
      ["thin_pool_autoextend_threshold", "100"],
      ["archive", "1"],
      ["archive_dir", '"/etc/lvm/archive"'],
      ...THIN_TOOLS.map((tool) => [`${tool}_executable`, `"/usr/sbin/${tool}"`] as const),
    ]),
    lockFolder: "0 700 d",
    warnings: [],
    targets: new Map([
      ["snapshot-merge", "1.5.0"],
      ["snapshot-origin", "1.9.0"],
      ["snapshot", "1.16.0"],
      ["striped", "1.6.0"],
      ["raid", "1.15.1"],
      ["cache", "2.2.0"],
      ["writecache", "1.6.0"],
      ["crypt", "1.28.0"],
      ["integrity", "1.13.0"],
      ["linear", "1.4.0"],
      ["error", "1.5.0"],
      ["thin-pool", "1.22.0"],
      ["thin", "1.22.0"],
    ]),
    modules: new Set(["dm-mod", "dm-snapshot", "dm-thin-pool"]),
    suspended: new Set(),
    swapLvs: new Set(),
    holders: new Map(),
    orphanDevices: new Map(),
    orphanDevicesOn: "",
    onPulledDisk: new Set(),
    mountedElsewhere: new Set(),
    scannedBtrfs: new Map(),
    balancing: new Set(),
    missingDeviceNodes: new Set(),
    hiddenPvs: [],
    unusedPvs: [],
    disks: [],
    loops: [],
    mappings: new Map(),
    podDevices: new Map(),
    mke2fsConf: new Map([
      ["ext3", ["has_journal"]],
      ["ext4", "has_journal,extent,huge_file,flex_bg,metadata_csum,64bit,dir_nlink,extra_isize".split(",")],
    ]),
    udev: "",
    discards: true,
    seLinux: false,
    missing: new Set(),
    controllers: "cpuset cpu io memory hugetlb pids rdma misc",
  };
}
