/**
 * The fake machine's tools for mounts: findmnt, mount and umount of util-linux 2.38.
 *
 * @module
 */

import type { Output } from "../../../lvm/exec.ts";
import { optionValue } from "./tool_text.ts";
import { ownerOf } from "./luks.ts";
import {
  devicePath,
  expectArgs,
  failure,
  type FakeLv,
  type FakeMachine,
  type FakeMount,
  isReadOnly,
  ok,
} from "./machine.ts";

/** The flags of a mount, not of its filesystem, that the mount table shows by their names. */
const PER_MOUNT_FLAGS = ["nosuid", "nodev", "noexec", "noatime", "nodiratime", "nosymfollow"];

export function findmnt(machine: FakeMachine, args: readonly string[]): Output {
  expectArgs(
    args,
    /^--json --list --kernel --canonicalize --output TARGET,SOURCE,FSTYPE,FSROOT,VFS-OPTIONS,FS-OPTIONS,MAJ:MIN$/,
  );
  return ok(JSON.stringify({
    filesystems: machine.mounts.map((mount) => ({
      target: mount.target,
      source: mount.source,
      fstype: mount.fsType,
      fsroot: mount.root,
      "vfs-options": shownFlags(mount),
      "fs-options": filesystemOptions(machine, mount, []),
      "maj:min": mount.deviceNumber,
    })),
  }));
}

/** Returns the mount table as the kernel writes it (proc_pid_mountinfo(5)). */
export function mountTable(machine: FakeMachine): string {
  return machine.mounts.map((mount, index) =>
    [
      ...[`${index + 30}`, "29", mount.deviceNumber, escapeField(mount.root), escapeField(mount.target)],
      ...[shownFlags(mount), ...index % 2 === 0 ? ["shared:7", "master:3"] : [], "-", mount.fsType],
      ...[escapeField(mount.source.replace(/\[.*\]$/, "")), filesystemOptions(machine, mount, ["discard"])],
    ].join(" ") + "\n"
  ).join("");
}

/** Returns the options of a filesystem: with SELinux, its context, in quotes if that has commas, or that files have labels. */
function filesystemOptions({ host }: FakeMachine, mount: FakeMount, more: readonly string[]): string {
  const { context } = mount;
  const label = context === undefined ? "seclabel" : `context=${context.includes(",") ? `"${context}"` : context}`;
  const access = isFilesystemReadOnly(mount) ? ["ro"] : ["rw"];
  return [...access, ...host.seLinux ? [label] : [], ...access[0] === "ro" ? [] : more].join();
}

function shownFlags(mount: FakeMount): string {
  return [mount.readOnly ? "ro" : "rw", ...mount.flags ?? [], "relatime"].join(",");
}

function escapeField(text: string): string {
  return text.replace(/[ \t\n\\#]/g, (character) => `\\${character.charCodeAt(0).toString(8).padStart(3, "0")}`);
}

export function mount(machine: FakeMachine, args: readonly string[]): Output {
  const flags = args.includes("-o") ? splitOptions(optionValue(args, "-o")) : [];
  const [source, target] = args.slice(-2) as [string, string];
  if (!pathExists(target)) return failure(32, `mount: ${target}: mount point does not exist.`);
  const ownFlags = flags.filter((flag) => !["bind", "remount"].includes(flag));
  if (flags.includes("remount")) {
    expectArgs(args, /^-o remount,bind,\S+ \/\S+$/);
    return remount(machine, target, ownFlags);
  }
  if (flags.includes("bind")) return bindMount(machine, source, target, ownFlags);
  let readOnly = isReadOnlyMount(flags);
  const type = optionValue(args, "-t");
  const named = machine.lvAt(source);
  if (named === undefined) return failure(32, `mount: ${target}: special device ${source} does not exist.`);
  const twin = type === "btrfs" ? scannedTwin(machine, named) : undefined;
  const lv = twin ?? named;
  if (machine.host.scannedBtrfs.get(lv) === "refused") {
    return failure(32, `mount: ${target}: wrong fs type, bad option, bad superblock on ${source}, missing codepage.`);
  }
  if (lv.invalid) return failure(32, `mount: ${target}: can't read superblock on ${source}.`);
  const isOfKernel = !lv.content.needsNewKernel || !/^(?:[0-4]|5\.\d\.)/.test(machine.host.kernel);
  const filesystem = lv.content.signatures.find((signature) => signature.type === type);
  if (filesystem === undefined || !isOfKernel) {
    return failure(
      32,
      `mount: ${target}: wrong fs type, bad option, bad superblock on ${source}, missing codepage or helper program, or other error.`,
    );
  }
  const duplicate = machine.mounts.find((mount) =>
    mount.lv !== undefined && mount.lv !== lv && mount.root === "/" &&
    mount.lv.content.signatures.some(({ uuid }) => uuid === filesystem.uuid)
  );
  if (lv.content.isInconsistent || (duplicate !== undefined && type === "btrfs")) {
    throw new Error(`mounting ${source}, which is torn, or has the UUID of ${duplicate?.source}`);
  }
  if (duplicate !== undefined && type === "xfs" && !flags.includes("nouuid")) {
    return failure(32, `mount: ${target}: wrong fs type, bad option, bad superblock on ${source}, missing codepage.`);
  }
  if (isReadOnly(lv)) readOnly = true; // mount(8) warns: "source write-protected, mounted read-only"
  const mounts = machine.mounts.filter((mount) => mount.lv === lv && mount.root === "/");
  // mount(8) leaves contexts out where it does not see SELinux
  const context = machine.host.seLinux ? contextOf(flags) : undefined;
  if (mounts.some((mount) => mount.context !== context)) {
    return failure(32, `mount: ${target}: wrong fs type, bad option, bad superblock on ${source}, missing codepage.`);
  }
  // from util-linux 2.39 on, mount(8) uses calls of the kernel that do not refuse this
  const isThere = machine.host.debian === 12 &&
    mounts.includes(machine.mounts.findLast((mount) => mount.target === target)!);
  // The kernel has one access for a filesystem, but for btrfs. For reading alone, mount(8) tries again by itself.
  const isFixed = mounts.length > 0 && type !== "btrfs";
  if (isThere || (isFixed && readOnly && !isFilesystemReadOnly(mounts[0]!))) {
    return failure(32, `mount: ${target}: ${source} already mounted on ${mounts.at(-1)!.target}.`);
  }
  if (isFixed && isFilesystemReadOnly(mounts[0]!)) readOnly = true;
  if (!readOnly) { for (const mount of mounts) mount.filesystemReadOnly = false; }
  lv.content.isClean = false;
  for (const signature of lv.content.signatures) signature.wasMounted = true;
  const filesystemReadOnly = readOnly && mounts.every(isFilesystemReadOnly);
  const deviceNumber = type === "btrfs" ? "0:42" : `253:${lv.minor}`;
  const shownSource = twin === undefined ? source : devicePath(ownerOf(machine, twin).group, twin);
  machine.mounts.push({
    ...{ target, source: shownSource, fsType: type, root: "/", readOnly, filesystemReadOnly, deviceNumber, lv },
    flags: flags.filter((flag) => PER_MOUNT_FLAGS.includes(flag)),
    ...context !== undefined && { context },
  });
  return ok();
}

/** Returns the LV that the kernel takes for the btrfs of another one. */
function scannedTwin({ host, mounts }: FakeMachine, lv: FakeLv): FakeLv | undefined {
  if (mounts.some((mount) => mount.lv === lv)) return undefined;
  const uuid = lv.content.signatures[0]?.uuid;
  return [...host.scannedBtrfs.keys()].find((other) => other !== lv && other.content.signatures[0]?.uuid === uuid);
}

/** Splits options at their commas, but for those in quotes. */
function splitOptions(text: string): string[] {
  return text.match(/(?:[^,"]|"[^"]*")+/g) ?? [];
}

function contextOf(flags: readonly string[]): string | undefined {
  return flags.find((flag) => flag.startsWith("context="))?.slice("context=".length).replaceAll('"', "");
}

/**
 * Binds in two steps, as mount(8) of util-linux 2.38 does: mount(2) binds with the flags of the source, and a second one
 * sets the flags of the command, if it has any, in place of those.
 */
function bindMount(machine: FakeMachine, source: string, target: string, flags: readonly string[]): Output {
  const lv = machine.lvAt(source);
  const root = `/dm-${lv?.minor}`;
  const mounted: FakeMount | undefined = lv === undefined
    ? machine.mounts.findLast((mount) => mount.target === source)
    : { target, source: `devtmpfs[${root}]`, fsType: "devtmpfs", root, readOnly: false, deviceNumber: "0:5", lv };
  if (mounted === undefined) return failure(32, `mount: ${target}: special device ${source} does not exist.`);
  machine.mounts.push({ ...mounted, target });
  if (flags.length > 0) setMountFlags(machine.mounts.at(-1)!, flags);
  return ok();
}

/** Sets flags of a mount beside those that it has, since mount(8) reads these when it is given the target alone. */
function remount(machine: FakeMachine, target: string, flags: readonly string[]): Output {
  const mount = machine.mounts.findLast((mount) => mount.target === target);
  if (mount === undefined) return failure(32, `mount: ${target}: mount point not mounted or bad option.`);
  if (flags.includes("ro") && !mount.readOnly && machine.busyTargets.has(target)) {
    return failure(32, `mount: ${target}: mount point is busy.`);
  }
  setMountFlags(mount, [...mount.flags ?? [], ...mount.readOnly ? ["ro"] : [], ...flags]);
  return ok();
}

/** Reports whether flags make a mount read-only: of `ro` and `rw`, the last one applies. */
function isReadOnlyMount(flags: readonly string[]): boolean {
  return flags.findLast((flag) => flag === "ro" || flag === "rw") === "ro";
}

/** Reports whether the kernel writes nothing to the filesystem of a mount. A bind mount can be read-only for itself. */
function isFilesystemReadOnly({ filesystemReadOnly, remountedReadOnly }: FakeMount): boolean {
  return filesystemReadOnly === true || remountedReadOnly === true;
}

function setMountFlags(mount: FakeMount, flags: readonly string[]): void {
  mount.readOnly = isReadOnlyMount(flags);
  mount.flags = [...new Set(flags)].filter((flag) => flag !== "ro" && flag !== "rw");
}

export function umount(machine: FakeMachine, args: readonly string[]): Output {
  expectArgs(args, /^\/[^]*$/);
  const [target] = args as [string];
  if (machine.busyTargets.has(target)) return failure(32, `umount: ${target}: target is busy.`);
  const index = machine.mounts.findLastIndex((mount) => mount.target === target);
  if (index < 0) return failure(32, `umount: ${target}: not mounted.`);
  const [unmounted] = machine.mounts.splice(index, 1);
  if (unmounted?.fsType === "xfs" && !machine.mounts.some(({ lv }) => lv === unmounted.lv)) {
    unmounted.lv!.content.isClean = true;
  }
  return ok();
}

function pathExists(path: string): boolean {
  try {
    Deno.lstatSync(path);
    return true;
  } catch {
    return false;
  }
}
