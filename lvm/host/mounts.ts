/**
 * The kernel's mount table, mounts and unmounts, and the files and directories on which volumes are mounted.
 *
 * @module
 */

import { asString, parseRows } from "../../base/json.ts";
import { basename, dirname, join, relative } from "@std/path";
import { lateCompletion, messageOf, StorageError } from "../../base/error.ts";
import { type Command, commandError, type Exec, type Output, runOk } from "../exec.ts";
import { defined } from "../../base/defined.ts";
import { inDeviceName, isDriverDeviceName } from "../../base/ids.ts";
import type { LogicalVolume } from "../model/report.ts";
import { contextIn, isSameContext, requestedContext } from "../settings/selinux.ts";
import { readSignatures } from "./device.ts";
import { type Disk, readDisks } from "./disks.ts";
import { parseMountInfo } from "./mount_info.ts";

/** A mount of this mount namespace. */
export interface Mount {
  /** The path at which it is mounted. */
  readonly target: string;
  /** The device; for a bind mount the filesystem and the path in it, as findmnt(8) writes it. */
  readonly source: string;
  /** The type of the filesystem. */
  readonly fsType: string;
  /** The path within the filesystem that is mounted: `/`, or `/dm-3` for a device node. */
  readonly root: string;
  /** True if this mount is read-only, whatever other mounts of the filesystem are. */
  readonly readOnly: boolean;
  /** The flags of this mount, such as `ro`, `nosuid` and `relatime`. */
  readonly flags: readonly string[];
  /**
   * True if the filesystem itself accepts writes. After an error the kernel makes a filesystem read-only, but does not
   * change the flags of its mounts (ext4(5), `errors=remount-ro`; the same for btrfs).
   */
  readonly filesystemWritable: boolean;
  /** The device number of the filesystem. btrfs has a number of its own. */
  readonly deviceNumber: string;
  /** The SELinux context with which the filesystem is mounted; absent where its files have their own. */
  readonly seLinuxContext?: string;
}

/**
 * `--canonicalize`, because btrfs reports the first name under which udev saw the device: `/dev/dm-4` of a clone,
 * `/dev/data/x` of a device that another program has mounted.
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

/**
 * Options of a filesystem that accepts no writes. ext4 of Linux 6.15 and later shows the cause, ext4 of 6.12 to 6.14
 * does not.
 */
const READ_ONLY_OPTIONS = ["ro", "emergency_ro", "shutdown"];

/**
 * Sources that `--canonicalize` does not change: what is no path, device-mapper's names, and the kernel's names of other
 * disks. `/dev/dm-4`, `/dev/data/x` and other paths may be links, or names, of volumes.
 */
const CANONICAL_SOURCE =
  /^(?:(?!\/).*|\/\/.*|\/dev\/mapper\/[^/]+|\/dev\/(?:sd|hd|vd|xvd|ubd|nvme|mmcblk|md|loop|zram|nbd|sr|pmem|ram|root|fuse)[a-z\d]*)$/s;

/**
 * Reads all mounts, in the order in which they were created: from the mount table itself if the exec can read it and each
 * source in it is canonical, and otherwise by findmnt(8).
 *
 * @throws {StorageError} `CommandFailed` when the mount table cannot be read
 */
export async function readMounts(exec: Exec): Promise<Mount[]> {
  const table = await exec.readMountTable?.();
  return (table === undefined ? undefined : parseMounts(table)) ?? await listMounts(exec);
}

/**
 * Reads all mounts, as {@linkcode readMounts} does, with what the mount table does not show: an XFS that the kernel has
 * shut down fails each access.
 *
 * @throws {StorageError} `CommandFailed` when the mount table cannot be read
 */
export async function readMountStates(exec: Exec): Promise<Mount[]> {
  return await Promise.all((await readMounts(exec)).map(async (mount) => {
    if (mount.fsType !== "xfs" || !mount.source.startsWith("/dev/mapper/")) return mount;
    const error = await Deno.lstat(mount.target).then(
      () => undefined,
      (error: Error & { code?: string }) => error.code,
    );
    return error === "EIO" ? { ...mount, filesystemWritable: false } : mount;
  }));
}

/** Parses the mount table as findmnt(8) shows it. @returns `undefined` when only findmnt(8) can tell */
export function parseMounts(table: string): Mount[] | undefined {
  const mounts = parseMountInfo(table);
  if (mounts === undefined || !mounts.every(({ source }) => CANONICAL_SOURCE.test(source))) return undefined;
  return mounts.map(({ target, source, fsType, root, deviceNumber, options, filesystemOptions }) => ({
    target,
    source: root === "/" ? source : `${source}[${root}]`,
    fsType,
    root,
    deviceNumber,
    ...accessOf(options, filesystemOptions),
  }));
}

/** Returns what the options of a mount and of its filesystem say about access. */
function accessOf(
  flags: readonly string[],
  filesystemOptions: readonly string[],
): Pick<Mount, "flags" | "readOnly" | "filesystemWritable" | "seLinuxContext"> {
  const filesystemWritable = !filesystemOptions.some((option) => READ_ONLY_OPTIONS.includes(option));
  const seLinuxContext = contextIn(filesystemOptions.join());
  return { flags, readOnly: flags.includes("ro"), filesystemWritable, ...defined({ seLinuxContext }) };
}

async function listMounts(exec: Exec): Promise<Mount[]> {
  return parseRows("findmnt", await runOk(exec, LIST_MOUNTS), "filesystems").map((mount) => ({
    target: asString(mount.target),
    source: asString(mount.source ?? ""),
    fsType: asString(mount.fstype),
    root: asString(mount.fsroot),
    deviceNumber: asString(mount["maj:min"]),
    ...accessOf(asString(mount["vfs-options"]).split(","), asString(mount["fs-options"] ?? "").split(",")),
  }));
}

/** A device that may be mounted, by the path of its node and, if it is known, its number. */
export type MountedDevice = Pick<LogicalVolume, "devicePath" | "deviceNumber">;

/** Returns the mounts of a device's filesystem. */
export function filesystemMounts(mounts: readonly Mount[], lv: MountedDevice): Mount[] {
  return mounts.filter((mount) => sourceDevice(mount) === lv.devicePath || mount.deviceNumber === lv.deviceNumber);
}

/**
 * Returns the bind mounts of a device's node. One of a node that was removed counts when the LV has its number now:
 * the mounted node leads to whatever device has the number.
 */
export function deviceMounts(mounts: readonly Mount[], lv: MountedDevice): Mount[] {
  const minor = lv.deviceNumber?.split(":")[1];
  const roots = [
    `/mapper/${basename(lv.devicePath)}`,
    ...(minor === undefined ? [] : [`/dm-${minor}`, `/dm-${minor}//deleted`]),
  ];
  return mounts.filter((mount) =>
    (isDeviceNodeMount(mount) || isDeletedNodeMount(mount)) && roots.includes(mount.root)
  );
}

/** Returns the mounts of a device's filesystem, and the bind mounts of its node. */
export function mountsOf(mounts: readonly Mount[], device: MountedDevice): Mount[] {
  return [...filesystemMounts(mounts, device), ...deviceMounts(mounts, device)];
}

/** Reports whether a mount is of an existing device-mapper node instead of a filesystem. */
export function isDeviceNodeMount(mount: Mount): boolean {
  return /^\/(?:dm-\d+|mapper\/[^/]+)$/.test(mount.root) && /^(?:devtmpfs|tmpfs)$/.test(mount.fsType);
}

/**
 * Reports whether a mount is of an LV with the name, in any group. Only the name of the device decides: device-mapper
 * joins group and LV by `-` and doubles the hyphens within them (dmsetup(8), lvm's mangling).
 */
export function isMountOfLv(mount: Mount, lvName: string): boolean {
  return isDeviceOfLv(basename(sourceDevice(mount)), lvName);
}

/**
 * Reports whether a mount is of a device whose name has the form of the driver's LV names, whether such an LV exists or
 * not.
 */
export function isDriverVolumeMount(mount: Mount): boolean {
  return isDriverDeviceName(basename(sourceDevice(mount)));
}

/**
 * Reports whether a mount is of a device-mapper node that was removed after the mount (proc(5), mountinfo:
 * `//deleted`).
 */
export function isDeletedNodeMount(mount: Mount): boolean {
  return /^\/(?:dm-\d+|mapper\/[^/]+)\/\/deleted$/.test(mount.root);
}

/**
 * Returns the source without the path within the filesystem, which findmnt(8) appends in brackets; nothing for FUSE without a
 * device: every user may mount it, and names the source (fusermount3(1), fsname).
 */
function sourceDevice(mount: Mount): string {
  return /^fuse(?:\.|$)/.test(mount.fsType) ? "" : mount.source.replace(/\[.*\]$/, "");
}

/**
 * Reports whether a device-mapper name is that of an LV with the name, in any group. The LV may have a number after its
 * name, because a deleted LV still had the name.
 */
export function isDeviceOfLv(deviceName: string, lvName: string): boolean {
  const mangled = inDeviceName(lvName);
  return [deviceName, deviceName.replace(/\.\d+$/, "")].some((name) => {
    // an odd number of hyphens before the name: the last one joins, the pairs before belong to the group's name
    return name.endsWith(mangled) && /-*$/.exec(name.slice(0, -mangled.length))![0].length % 2 === 1;
  });
}

/** Reports whether this process is in a container: the root filesystem is made of the layers of an image. */
export function isInContainer(mounts: readonly Mount[]): boolean {
  return mountAbove(mounts, "/")?.fsType === "overlay";
}

/** Returns the mount that contains a path: the last one at or above the path, since it hides earlier ones. */
export function mountAbove(mounts: readonly Mount[], path: string): Mount | undefined {
  return mounts.findLast(({ target }) => target === "/" || path === target || path.startsWith(`${target}/`));
}

/** Reports whether a path is below one of the directories. All paths are absolute and normalized. */
export function isBelow(path: string, directories: readonly string[]): boolean {
  return directories.some((directory) => path.startsWith(`${directory}/`));
}

/**
 * Returns the directories, and the real paths of those that have links in their paths.
 *
 * @throws {StorageError} `FailedPrecondition` when a directory leads to the root directory, or cannot be resolved
 */
export async function withRealPaths(directories: readonly string[]): Promise<readonly string[]> {
  const real = await Promise.all(directories.map((directory) => realPath(directory)));
  if (real.includes("/")) {
    throw new StorageError("FailedPrecondition", `one of ${directories.join(", ")} is a link to the root directory`);
  }
  return [...new Set([...directories, ...real.filter((path) => path !== undefined)])];
}

/**
 * Returns a path as the mount table shows it: links in its parents are resolved. Parts that do not exist yet are
 * unchanged.
 *
 * @throws {StorageError} `FailedPrecondition` when the path is not below one of the roots, when a link leads out of the
 * roots, or when the path itself is a link: mount(8) would follow it
 */
export async function canonicalizePath(path: string, roots: readonly string[]): Promise<string> {
  const resolved = isBelow(path, roots) ? await resolveParents(path, roots) : path;
  if (isBelow(resolved, roots) && !await isLink(resolved)) return resolved;
  throw new StorageError(
    "FailedPrecondition",
    `using ${path}: it is a link, or not below ${roots.join(", ")}, where volumes may be mounted`,
  );
}

/** Resolves the links in the parents of a path, from the lowest parent that exists, without leaving the roots. */
async function resolveParents(path: string, roots: readonly string[]): Promise<string> {
  for (let parent = dirname(path);; parent = dirname(parent)) {
    const real = await realPath(parent);
    if (real !== undefined) return join(real, relative(parent, path));
    if (!isBelow(parent, roots)) return path;
  }
}

/** Reports whether a path is a link. A path that cannot be read, such as the mount of a failed disk, is not. */
async function isLink(path: string): Promise<boolean> {
  return await Deno.lstat(path).then((info) => info.isSymlink, () => false);
}

/**
 * Returns a path without links, or `undefined` when it does not exist.
 *
 * @throws {StorageError} `FailedPrecondition` when it cannot be resolved
 */
async function realPath(path: string): Promise<string | undefined> {
  try {
    return await Deno.realPath(path);
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return undefined;
    throw new StorageError("FailedPrecondition", `resolving ${path}: ${String(error)}`, { cause: error });
  }
}

/**
 * Mounts a device. A mount(8) that fails may have mounted it: when it is killed, or fails in a step after that. After an error
 * kubelet does not unstage, so the mount is undone.
 *
 * @throws {StorageError} `FailedPrecondition` when mount(8) left an SELinux context out, or the kernel mounts another device
 */
export async function mountDevice(
  exec: Exec,
  device: string,
  path: string,
  options: { type: string; flags: readonly string[] },
): Promise<void> {
  const flags = options.flags.length === 0 ? [] : ["-o", options.flags.join(",")];
  const context = requestedContext(options.flags);
  const command: Command = { program: "mount", args: ["-t", options.type, ...flags, device, path], mutates: true };
  try {
    await (options.type === "btrfs" ? mountBtrfs(exec, command, { device, path }) : runOk(exec, command));
    if (context !== undefined) await requireContext(exec, path, context);
  } catch (error) {
    if (lateCompletion(error) !== undefined) throw error;
    const there = (await readMounts(exec)).findLast(({ target }) => target === path);
    const isMounted = there !== undefined && filesystemMounts([there], { devicePath: device }).length > 0;
    throw isMounted ? await undoMount(exec, path, error) : error;
  }
}

/**
 * Mounts the btrfs of a device, and no other one. The kernel knows a btrfs by its UUID. Linux before 6.7 mounts another device in
 * place of the named one, or none, if that has the same UUID and a higher generation, and udev has found it
 * (64-btrfs.rules). A pod can read the UUID in /sys/fs/btrfs, and write such a btrfs on a block volume. So the kernel forgets the
 * others before the second attempt.
 *
 * @throws {StorageError} `FailedPrecondition` when the kernel mounts another device still
 */
async function mountBtrfs(
  exec: Exec,
  command: Command,
  { device, path }: { readonly device: string; readonly path: string },
): Promise<void> {
  const tryMount = async () => {
    try {
      await runOk(exec, command);
    } catch (error) {
      if (lateCompletion(error) !== undefined) throw error;
      return error;
    }
    const there = (await readMounts(exec)).findLast(({ target }) => target === path);
    if (there === undefined || filesystemMounts([there], { devicePath: device }).length > 0) return undefined;
    await unmount(exec, path);
    const reason = `the kernel mounts ${there.source} in its place, which has a btrfs of the same UUID`;
    return new StorageError("FailedPrecondition", `mounting ${device}: ${reason}`);
  };
  const error = await tryMount();
  if (error === undefined) return;
  const again = await forgetTwins(exec, device) ? await tryMount() : error;
  if (again !== undefined) throw again;
}

/** Has the kernel forget other devices with the UUID of a btrfs. @returns whether there are any */
async function forgetTwins(exec: Exec, device: string): Promise<boolean> {
  const uuid = (await readSignatures(exec, device)).find(({ type }) => type === "btrfs")?.uuid;
  const isTwin = ({ path, content }: Disk) => path !== device && content?.type === "btrfs" && content.uuid === uuid;
  const twins = (await readDisks(exec)).filter(isTwin);
  if (twins.length === 0) return false;
  // it refuses mounted ones, which are none of these
  await exec.run({
    program: "btrfs",
    args: ["device", "scan", "--forget", ...twins.map(({ path }) => path)],
    mutates: true,
  });
  return true;
}

/** Makes sure that a new mount has an SELinux context: mount(8) leaves it out where it does not see /sys/fs/selinux. */
async function requireContext(exec: Exec, path: string, context: string): Promise<void> {
  const mount = (await readMounts(exec)).findLast(({ target }) => target === path);
  if (isSameContext(mount?.seLinuxContext, context)) return;
  throw new StorageError(
    "FailedPrecondition",
    `mounting ${path} with the SELinux context ${context}: mount(8) left it out, because it does not see that SELinux is ` +
      "enabled; an agent needs the host's /sys/fs/selinux and /etc/selinux (seLinux.mount of the chart)",
    { reason: "SELinuxNotSeen" },
  );
}

/**
 * Mounts the directory or file at one path at another path, with its own flags.
 *
 * mount(8) binds by one mount(2) and sets the flags by a second one, so a mount without the flags may be left when it is
 * killed in between or fails ("bind mount operation"). {@linkcode setMountFlags} completes it.
 */
export async function bindMount(exec: Exec, source: string, target: string, flags: readonly string[]): Promise<void> {
  await runOk(exec, { program: "mount", args: ["-o", ["bind", ...flags].join(","), source, target], mutates: true });
}

/**
 * Sets flags of a bind mount, beside those that it has.
 *
 * @throws {StorageError} `InUse` when it would become read-only, but a file on it is open for writing
 */
export async function setMountFlags(exec: Exec, target: string, flags: readonly string[]): Promise<void> {
  const options = ["remount", "bind", ...flags].join(",");
  await runOk(exec, { program: "mount", args: ["-o", options, target], mutates: true }, classifyMountFailure);
}

/**
 * Unmounts the topmost mount at a path.
 *
 * @throws {StorageError} `InUse` while the mount is in use
 */
export async function unmount(exec: Exec, path: string): Promise<void> {
  await runOk(exec, { program: "umount", args: [path], mutates: true }, classifyMountFailure);
}

/**
 * Unmounts after an error.
 *
 * @param error the error
 * @returns the error to tell: the first one. While the umount is still running, so is the operation, and its lock is held
 */
export async function undoMount(exec: Exec, path: string, error: unknown): Promise<unknown> {
  try {
    await unmount(exec, path);
  } catch (late) {
    const completion = lateCompletion(late);
    if (completion !== undefined) {
      return new StorageError("StillRunning", messageOf(error), { cause: error, completion });
    }
  }
  return error;
}

function classifyMountFailure(output: Output): StorageError["kind"] {
  return /(?:target|mount point) is busy/.test(output.stderr) ? "InUse" : "CommandFailed";
}

/** Usage of a mounted filesystem. */
export interface Usage {
  /** Bytes: in total, used, and available to ordinary users. */
  readonly bytes: { total: bigint; used: bigint; available: bigint };
  /** Inodes; absent where the filesystem does not count them, as btrfs. */
  readonly inodes?: { total: bigint; used: bigint; available: bigint };
}

/** Returns the used share of what ordinary users can use, in percent, rounded up, as df(1) does. */
export function usedPercent({ used, available }: Pick<Usage["bytes"], "used" | "available">): number {
  const all = used + available;
  return all === 0n ? 0 : Number((used * 100n + all - 1n) / all);
}

/**
 * Reads the usage of the filesystem at a path.
 *
 * @throws {StorageError} `CommandFailed` when df(1) fails, or its output cannot be parsed
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

/**
 * Reads the usage of the filesystems at several paths.
 *
 * @returns the usage by path; a path whose usage cannot be read is left out
 */
export async function readUsages(exec: Exec, paths: readonly string[]): Promise<ReadonlyMap<string, Usage>> {
  if (paths.length === 0) return new Map(); // without paths, df would list all filesystems
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

/** Parses df(1)'s size, used, avail, itotal, iused and iavail. `-` is what a filesystem does not count. */
function parseUsage(numbers: readonly string[]): Usage | undefined {
  if (numbers.length !== 6 || !numbers.every((number) => /^(?:\d+|-)$/.test(number))) return undefined;
  const [total, used, available, itotal, iused, iavail] = numbers.map((number) => number === "-" ? 0n : BigInt(number));
  return {
    bytes: { total: total!, used: used!, available: available! },
    ...defined({ inodes: itotal === 0n ? undefined : { total: itotal!, used: iused!, available: iavail! } }),
  };
}

/**
 * Creates the file or directory to mount on.
 *
 * @returns whether it did not exist before
 * @throws {StorageError} `FailedPrecondition` when it cannot be created
 */
export async function createMountPoint(target: string, isFile: boolean): Promise<boolean> {
  try {
    if (isFile) await Deno.writeFile(target, new Uint8Array(), { createNew: true, mode: 0o660 });
    else await Deno.mkdir(target, { mode: 0o750 });
    return true;
  } catch (error) {
    if (error instanceof Deno.errors.AlreadyExists) return false;
    throw new StorageError("FailedPrecondition", `creating the target ${target}: ${String(error)}`, { cause: error });
  }
}

/**
 * Removes the file or directory on which a volume was mounted, if it is empty. One that does not exist is removed
 * already.
 *
 * @throws {StorageError} `FailedPrecondition` when it is not empty or cannot be removed
 */
export async function removeMountPoint(target: string): Promise<void> {
  try {
    const { isDirectory, isFile, size } = await Deno.lstat(target);
    if (!isDirectory && !(isFile && size === 0)) throw new Error("it is not an empty file or directory");
    await Deno.remove(target);
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return;
    throw new StorageError("FailedPrecondition", `removing the target ${target}: ${String(error)}`, { cause: error });
  }
}
