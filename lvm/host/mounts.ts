/**
 * The kernel's mount table, and changing it.
 *
 * @module
 */

import { basename, dirname, join, relative } from "@std/path";
import { StorageError } from "../error.ts";
import { type Command, commandError, type Exec, type Output, runOk } from "../exec.ts";
import { isDriverDeviceName } from "../ids.ts";
import { asArray, asObject, asString, parseJson } from "../json.ts";
import type { LogicalVolume } from "../model/report.ts";

/** A mount of this mount namespace. */
export interface Mount {
  /** Where. */
  readonly target: string;
  /** What: a device, or for a bind mount the filesystem and the path in it, as findmnt(8) writes it. */
  readonly source: string;
  /** The filesystem's type. */
  readonly fsType: string;
  /** Which path of the filesystem is mounted: `/`, or for a device node `/dm-3`. */
  readonly root: string;
  /** Whether this mount, whatever others of the filesystem are, is read-only. */
  readonly readOnly: boolean;
  /**
   * Whether the filesystem itself takes writes. After an error, the kernel makes one read-only without touching the flags of
   * its mounts (ext4(5), `errors=remount-ro`; btrfs likewise).
   */
  readonly filesystemWritable: boolean;
  /** The device number of the filesystem; for btrfs, one of its own. */
  readonly deviceNumber: string;
}

/**
 * `--canonicalize`, since btrfs tells the name by which udev saw the device first: `/dev/dm-4` of a clone, `/dev/data/x` of
 * what somebody else has mounted.
 */
const LIST_MOUNTS: Command = {
  program: "findmnt",
  args: [
    "--json",
    "--list",
    "--kernel",
    "--canonicalize",
    "--output",
    "TARGET,SOURCE,FSTYPE,FSROOT,VFS-OPTIONS,FS-OPTIONS,MAJ:MIN",
  ],
  mutates: false,
};

/** What the options of a filesystem say when it takes no writes: ext4 of Linux 6.15 and later has words for why, of 6.12 to 6.14 none. */
const READ_ONLY_OPTIONS = ["ro", "emergency_ro", "shutdown"];

/**
 * All mounts, in the order in which they were made.
 *
 * @throws {StorageError} `CommandFailed` when the table cannot be read.
 */
export async function readMounts(exec: Exec): Promise<Mount[]> {
  const answer = parseJson("findmnt", await runOk(exec, LIST_MOUNTS));
  return asArray(asObject(answer).filesystems).map((value) => {
    const mount = asObject(value);
    return {
      target: asString(mount.target),
      source: asString(mount.source ?? ""),
      fsType: asString(mount.fstype),
      root: asString(mount.fsroot),
      readOnly: asString(mount["vfs-options"]).split(",").includes("ro"),
      filesystemWritable: !asString(mount["fs-options"] ?? "").split(",").some((option) =>
        READ_ONLY_OPTIONS.includes(option)
      ),
      deviceNumber: asString(mount["maj:min"]),
    };
  });
}

/** The mounts of an LV's filesystem. */
export function filesystemMounts(mounts: readonly Mount[], lv: LogicalVolume): Mount[] {
  return mounts.filter((mount) => sourceDevice(mount) === lv.devicePath || mount.deviceNumber === lv.deviceNumber);
}

/** The bind mounts of an LV's device node. */
export function deviceMounts(mounts: readonly Mount[], lv: LogicalVolume): Mount[] {
  const minor = lv.deviceNumber?.split(":")[1];
  const roots = [`/mapper/${basename(lv.devicePath)}`, ...(minor === undefined ? [] : [`/dm-${minor}`])];
  return mounts.filter((mount) => isDeviceNodeMount(mount) && roots.includes(mount.root));
}

/** Whether the mount is of a device-mapper node instead of a filesystem. */
export function isDeviceNodeMount(mount: Mount): boolean {
  return /^\/(?:dm-\d+|mapper\/[^/]+)$/.test(mount.root) && /^(?:devtmpfs|tmpfs)$/.test(mount.fsType);
}

/**
 * Whether the mount is of an LV of the name, in whatever group, judged by the device's name alone: device-mapper joins
 * group and LV by `-` and doubles the hyphens within (dmsetup(8), lvm's mangling).
 */
export function isMountOfLv(mount: Mount, lvName: string): boolean {
  return isDeviceOfLv(basename(sourceDevice(mount)), lvName);
}

/** Whether the mount is of a device that has a name as the driver's LVs have, whether there is such an LV or not. */
export function isDriverVolumeMount(mount: Mount): boolean {
  return isDriverDeviceName(basename(sourceDevice(mount)));
}

/** Whether the mount is of a device-mapper node that was removed meanwhile (proc(5), mountinfo: `//deleted`). */
export function isDeletedNodeMount(mount: Mount): boolean {
  return /^\/(?:dm-\d+|mapper\/[^/]+)\/\/deleted$/.test(mount.root);
}

/** The source without the path within the filesystem that findmnt(8) appends in brackets. */
function sourceDevice(mount: Mount): string {
  return mount.source.replace(/\[.*\]$/, "");
}

/** Whether the device-mapper name is that of an LV of the name, in whatever group. */
export function isDeviceOfLv(deviceName: string, lvName: string): boolean {
  const mangled = lvName.replaceAll("-", "--");
  if (!deviceName.endsWith(mangled)) return false;
  // of the hyphens before it, the last joins if their number is odd; pairs of them belong to a name
  const hyphens = /-*$/.exec(deviceName.slice(0, -mangled.length))![0].length;
  return hyphens % 2 === 1;
}

/** Whether the path, absolute and normalized, is below one of the directories. */
export function isBelow(path: string, directories: readonly string[]): boolean {
  return directories.some((directory) => path.startsWith(`${directory}/`));
}

/**
 * The directories, and with them those that links in their paths lead to.
 *
 * @throws {StorageError} `FailedPrecondition` when one leads to the root directory, or nowhere.
 */
export async function withRealPaths(directories: readonly string[]): Promise<readonly string[]> {
  const real = await Promise.all(directories.map((directory) => realPath(directory)));
  if (real.includes("/")) {
    throw new StorageError("FailedPrecondition", `one of ${directories.join(", ")} is a link to the root directory`);
  }
  return [...new Set([...directories, ...real.filter((path) => path !== undefined)])];
}

/**
 * The path as the mount table has it: links in its parents are resolved. What does not exist yet is taken as it is.
 *
 * @throws {StorageError} `FailedPrecondition` when the path is not below one of the roots, a link leads it out of them, or
 * it is a link itself: mount(8) would follow it.
 */
export async function canonicalizePath(path: string, roots: readonly string[]): Promise<string> {
  const resolved = isBelow(path, roots) ? await resolveParents(path, roots) : path;
  if (isBelow(resolved, roots) && !await isLink(resolved)) return resolved;
  throw new StorageError(
    "FailedPrecondition",
    `using ${path}: it is a link, or not below ${roots.join(", ")}, where volumes may be mounted`,
  );
}

/** Follows the links in the parents of a path, from the lowest one that exists, without leaving the roots upwards. */
async function resolveParents(path: string, roots: readonly string[]): Promise<string> {
  for (let parent = dirname(path);; parent = dirname(parent)) {
    const real = await realPath(parent);
    if (real !== undefined) return join(real, relative(parent, path));
    if (!isBelow(parent, roots)) return path;
  }
}

/** Whether the path is a link. What cannot be looked at, such as the mount of a dead disk, is none. */
async function isLink(path: string): Promise<boolean> {
  return await Deno.lstat(path).then((info) => info.isSymlink, () => false);
}

/** The path without links; `undefined` when it does not exist. @throws {StorageError} `FailedPrecondition` when it is none. */
async function realPath(path: string): Promise<string | undefined> {
  try {
    return await Deno.realPath(path);
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return undefined;
    throw new StorageError("FailedPrecondition", `resolving ${path}: ${String(error)}`, { cause: error });
  }
}

/** Mounts a device. */
export async function mountDevice(
  exec: Exec,
  device: string,
  path: string,
  options: { type: string; flags: readonly string[] },
): Promise<void> {
  const flags = options.flags.length === 0 ? [] : ["-o", options.flags.join(",")];
  await runOk(exec, { program: "mount", args: ["-t", options.type, ...flags, device, path], mutates: true });
}

/** Mounts what is at one path at another as well, with flags of its own. */
export async function bindMount(exec: Exec, source: string, target: string, flags: readonly string[]): Promise<void> {
  await runOk(exec, { program: "mount", args: ["-o", ["bind", ...flags].join(","), source, target], mutates: true });
}

/**
 * Takes the topmost mount off a path.
 *
 * @throws {StorageError} `InUse` while something uses it.
 */
export async function unmount(exec: Exec, path: string): Promise<void> {
  await runOk(exec, { program: "umount", args: [path], mutates: true }, classifyUnmountFailure);
}

function classifyUnmountFailure(output: Output): StorageError["kind"] {
  return /target is busy/.test(output.stderr) ? "InUse" : "CommandFailed";
}

/** Bytes and inodes of the filesystem mounted at a path. */
export interface Usage {
  /** Bytes in all, in use, and free for ordinary users. */
  readonly bytes: { total: bigint; used: bigint; available: bigint };
  /** Inodes, where the filesystem counts them: btrfs does not. */
  readonly inodes?: { total: bigint; used: bigint; available: bigint };
}

/**
 * How full the filesystem at the path is.
 *
 * @throws {StorageError} `CommandFailed` when it cannot be told.
 */
export async function readUsage(exec: Exec, path: string): Promise<Usage> {
  const command: Command = {
    program: "df",
    args: ["--block-size=1", "--output=size,used,avail,itotal,iused,iavail", path],
    mutates: false,
  };
  const stdout = await runOk(exec, command);
  const usage = parseUsage(stdout.trim().split("\n").at(-1)!.trim().split(/\s+/));
  if (usage === undefined) throw commandError(command, { code: 0, stdout, stderr: "" });
  return usage;
}

/** How full the filesystems at the paths are, by path; one that cannot be told is left out. */
export async function readUsages(exec: Exec, paths: readonly string[]): Promise<ReadonlyMap<string, Usage>> {
  if (paths.length === 0) return new Map(); // df would tell all
  const { stdout } = await exec.run({
    program: "df",
    args: ["--block-size=1", "--output=size,used,avail,itotal,iused,iavail,file", ...paths],
    mutates: false,
  });
  const usages = new Map<string, Usage>();
  for (const line of stdout.split("\n")) {
    const [, numbers, path] = /^\s*((?:(?:\d+|-)\s+){6})(\/.*)$/.exec(line) ?? [];
    const usage = parseUsage(numbers?.trim().split(/\s+/) ?? []);
    if (usage !== undefined) usages.set(path!, usage);
  }
  return usages;
}

/** Reads df(1)'s size, used, avail, itotal, iused and iavail, where `-` stands for what a filesystem does not count. */
function parseUsage(numbers: readonly string[]): Usage | undefined {
  if (numbers.length !== 6 || !numbers.every((number) => /^(?:\d+|-)$/.test(number))) return undefined;
  const [total, used, available, itotal, iused, iavail] = numbers.map((number) => number === "-" ? 0n : BigInt(number));
  return {
    bytes: { total: total!, used: used!, available: available! },
    ...(itotal === 0n ? {} : { inodes: { total: itotal!, used: iused!, available: iavail! } }),
  };
}
