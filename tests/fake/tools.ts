/**
 * The fake machine's other tools: util-linux 2.38, coreutils, diffutils, and the filesystems' own programs.
 *
 * @module
 */

import type { Output } from "../../lvm/exec.ts";
import { btrfstune, copyPiece, tune2fs, xfsDb } from "./copying.ts";
import { dmsetup, lsblk, modinfo, udevadm, whereis } from "./lookers.ts";
import {
  blank,
  CGROUP_ROOT,
  expectArgs,
  type FakeLv,
  type FakeMachine,
  ok,
  refuse,
  type Tool,
  type Tools,
} from "./machine.ts";
import { isCowOf, overwritePool } from "./thin.ts";

/** The tools by program. */
export const TOOLS: Tools = {
  blkdiscard,
  blockdev,
  btrfs,
  btrfstune,
  cmp,
  dd,
  df,
  dmsetup,
  e2fsck,
  findmnt,
  fstrim,
  lsblk,
  mke2fs,
  "mkfs.btrfs": newFilesystem("btrfs", 114294784n, (args) => after(args, "-U")),
  "mkfs.xfs": newFilesystem("xfs", 300n << 20n, (args) => after(args, "-m").replace(/^uuid=/, "")),
  modinfo,
  mount,
  resize2fs: (machine, args) => growDevice(machine, args.at(-1)!, /^ext[234]$/),
  tune2fs,
  udevadm,
  umount,
  whereis,
  wipefs,
  xfs_db: xfsDb,
  xfs_growfs: (machine, args) => growMounted(machine, args, "xfs"),
};

function findmnt(machine: FakeMachine, args: readonly string[]): Output {
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
      "vfs-options": mount.readOnly ? "ro,relatime" : "rw,relatime",
      "fs-options": mount.stopped ? "ro" : "rw",
      "maj:min": mount.deviceNumber,
    })),
  }));
}

function fstrim(machine: FakeMachine, args: readonly string[]): Output {
  expectArgs(args, /^--verbose \/\S+$/);
  const mount = machine.mounts.findLast(({ target }) => target === args[1]);
  if (mount?.lv === undefined) return refuse(1, `fstrim: cannot open ${args[1]}: No such file or directory`);
  if (mount.readOnly) return refuse(1, `fstrim: ${args[1]}: FITRIM ioctl failed: Read-only file system`);
  if (!machine.host.discards) return refuse(1, `fstrim: ${args[1]}: the discard operation is not supported`);
  const bytes = mount.lv.content.filesystemBytes - 4096n;
  return ok(`${args[1]}: ${bytes >> 20n} MiB (${bytes} bytes) trimmed\n`);
}

function wipefs(machine: FakeMachine, args: readonly string[]): Output {
  expectArgs(args, /^(?:--no-act --json|--all) \/\S+$/);
  const path = args.at(-1)!;
  const lv = machine.lvAt(path);
  if (lv === undefined) return noDevice("wipefs: error", path);
  if (args.includes("--all")) {
    lv.content.signatures = [];
    return ok();
  }
  return ok(JSON.stringify({
    signatures: lv.content.signatures.map((signature) => ({ device: "x", offset: "0x438", ...signature, label: null })),
  }));
}

function cmp(machine: FakeMachine, args: readonly string[]): Output {
  expectArgs(args, /^--bytes=\d+ \/\S+ \/\S+$/);
  const path = args.at(-1)!;
  const lv = machine.lvAt(path);
  if (lv === undefined) return refuse(2, `cmp: ${path}: No such file or directory`);
  if (lv.content.unreadable) return refuse(2, `cmp: ${path}: Input/output error`);
  if (args[1] !== "/dev/zero") {
    const { data, signatures } = machine.lvAt(args[1]!)!.content;
    const is = JSON.stringify([[...lv.content.data].sort(), lv.content.signatures]);
    if (is === JSON.stringify([[...data].sort(), signatures])) return ok();
    return { code: 1, stdout: `${args.slice(1).join(" ")} differ: char 1, line 1\n`, stderr: "" };
  }
  const whole = args[0] !== "--bytes=4096";
  return lv.content.zeroHead && !(whole && lv.content.data.size > 0)
    ? ok()
    : { code: 1, stdout: `/dev/zero ${path} differ: char 1, line 1\n`, stderr: "" };
}

function dd(machine: FakeMachine, args: readonly string[]): Output {
  const values = new Map(args.map((arg) => arg.split("=", 2) as [string, string]));
  if (values.get("if") === `${CGROUP_ROOT}/cgroup.controllers`) return controllers(machine);
  const target = values.get("of")!;
  if (values.get("conv")?.startsWith("fsync,nocreat,notrunc")) return copyPiece(machine, values);
  const lv = machine.lvAt(target === "/dev/null" ? values.get("if")! : target);
  if (lv === undefined || lv.content.unreadable) {
    return refuse(1, `dd: error reading '${values.get("if")}': Input/output error`);
  }
  if (target !== "/dev/null") {
    if (lv.readOnly) return refuse(1, `dd: failed to open '${target}': Operation not permitted`);
    lv.content.zeroHead = false;
    lv.content.data.add(values.get("if")!);
    lv.zeroedTo = 0n;
    fillStores(machine, lv, values);
  }
  return ok();
}

function controllers({ host }: FakeMachine): Output {
  if (host.controllers !== undefined) return ok(`${host.controllers}\n`);
  return refuse(1, `dd: failed to open '${CGROUP_ROOT}/cgroup.controllers': No such file or directory`);
}

/** Copies what dd overwrites of an origin into the stores of its snapshots, chunk by chunk, as far as they have room. */
function fillStores(machine: FakeMachine, lv: FakeLv, values: ReadonlyMap<string, string>): void {
  const { lvs } = machine.groups.find((group) => group.lvs.includes(lv))!;
  const block = Number((values.get("bs") ?? "512").replace(/M$/, "")) * (values.get("bs")?.endsWith("M") ? 1 << 20 : 1);
  const from = Number(values.get("seek") ?? "0") * block;
  const to = Math.min(from + Number(values.get("count") ?? "1") * block, Number(lv.size));
  for (const snapshot of lvs.filter((other) => isCowOf(other, lv) && other.active)) {
    const stored = snapshot.stored ??= new Set();
    const before = stored.size;
    for (let chunk = Math.floor(from / CHUNK); chunk * CHUNK < Math.min(to, Number(snapshot.origin!.size)); chunk++) {
      stored.add(chunk);
    }
    const bytes = (stored.size - before) * CHUNK * (1 + 1 / 256); // with their share of its table
    snapshot.storePercent += 100 * bytes / Number(snapshot.size);
    if (snapshot.storePercent > 100) snapshot.invalid = true;
  }
}

/** The size of a chunk of a snapshot (lvcreate(8), --chunksize), in bytes. */
const CHUNK = 4096;

function df(machine: FakeMachine, args: readonly string[]): Output {
  expectArgs(args, /^--block-size=1 --output=size,used,avail,itotal,iused,iavail(?:,file)? \//);
  const named = args[1]!.endsWith(",file");
  const rows = args.slice(2).map((path) => {
    const lv = machine.mounts.findLast((mount) => mount.target === path)?.lv;
    if (lv === undefined) return { row: "", error: `df: ${path}: No such file or directory\n` };
    const { filesystemBytes, signatures: [signature] } = lv.content;
    const inodes = signature?.type === "btrfs" ? "     0     0     0" : "  8192    11  8181";
    return {
      row: `${filesystemBytes} 4096 ${filesystemBytes - 4096n} ${inodes}${named ? ` ${path}` : ""}\n`,
      error: "",
    };
  });
  const title = ` 1B-blocks  Used  Avail Inodes IUsed IFree${named ? " File" : ""}\n`;
  const stderr = rows.map(({ error }) => error).join("");
  const stdout = rows.some(({ row }) => row !== "") ? title + rows.map(({ row }) => row).join("") : "";
  return { code: stderr === "" ? 0 : 1, stdout, stderr };
}

function blockdev(machine: FakeMachine, args: readonly string[]): Output {
  expectArgs(args, /^--set(?:ro|rw) \/\S+$/);
  const lv = machine.lvAt(args[1]!);
  if (lv === undefined) return noDevice("blockdev", args[1]!);
  lv.readOnly = args[0] === "--setro";
  return ok();
}

function blkdiscard(machine: FakeMachine, args: readonly string[]): Output {
  expectArgs(args, /^(?:--zeroout --offset \d+ --length \d+ )?\/\S+$/);
  const path = args.at(-1)!;
  const lv = machine.lvAt(path);
  if (lv === undefined) return refuse(1, `blkdiscard: cannot open ${path}: No such file or directory`);
  if (lv.content.unreadable) return refuse(1, `blkdiscard: ${path}: BLKZEROOUT ioctl failed: Input/output error`);
  if (machine.mounts.some((mount) => mount.lv === lv)) {
    return refuse(1, `blkdiscard: cannot open ${path}: Device or resource busy`);
  }
  if (lv.readOnly) return refuse(1, `blkdiscard: ${path}: BLKZEROOUT ioctl failed: Operation not permitted`);
  // what is left after a discard is for the disk to say: here, everything
  if (args.length === 1) return ok();
  const [offset, length] = [BigInt(after(args, "--offset")), BigInt(after(args, "--length"))];
  if (offset % 512n !== 0n || length % 512n !== 0n || offset + length > lv.size) {
    return refuse(1, `blkdiscard: ${path}: length value or offset is not good`);
  }
  if (offset <= lv.zeroedTo && offset + length > lv.zeroedTo) lv.zeroedTo = offset + length;
  if (lv.zeroedTo === lv.size) Object.assign(lv.content, blank());
  overwritePool(machine, lv);
  return ok();
}

function mke2fs(machine: FakeMachine, args: readonly string[]): Output {
  const make = newFilesystem(after(args, "-t"), 0n, () => after(args, "-U"));
  const lv = machine.lvAt(args.at(-1)!);
  if (lv !== undefined) lv.content.signatures = []; // without a terminal it overwrites without asking
  return make(machine, args);
}

/** A mkfs that refuses a device with something on it. */
function newFilesystem(type: string, minimum: bigint, uuidOf: (args: readonly string[]) => string): Tool {
  return (machine, args) => {
    const path = args.at(-1)!;
    const lv = machine.lvAt(path);
    if (lv === undefined) return noDevice(`mkfs.${type}`, path);
    const [existing] = lv.content.signatures;
    if (existing !== undefined) {
      return refuse(1, `mkfs.${type}: ${path} appears to contain an existing filesystem (${existing.type}).`);
    }
    if (lv.size < minimum) return refuse(1, `mkfs.${type}: '${path}' is too small to make a usable filesystem`);
    const uuid = uuidOf(args);
    if (!/^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/.test(uuid)) {
      throw new Error(`mkfs.${type}: an odd UUID ${uuid}`);
    }
    const made = { zeroHead: type === "ext4", signatures: [{ type, uuid }], filesystemBytes: lv.size };
    Object.assign(lv.content, { ...made, atRest: true, torn: false });
    return ok();
  };
}

function e2fsck(machine: FakeMachine, args: readonly string[]): Output {
  expectArgs(args, /^(?:-f )?-p \/\S+$/);
  const path = args.at(-1)!;
  const lv = machine.lvAt(path);
  if (lv === undefined || !/^ext/.test(lv.content.signatures[0]?.type ?? "")) {
    return refuse(8, `e2fsck: Bad magic number in super-block while trying to open ${path}`);
  }
  if (machine.mounts.some((mount) => mount.lv === lv)) {
    return refuse(8, `${path} is mounted.\ne2fsck: Cannot continue, aborting.`);
  }
  if (lv.content.torn) throw new Error(`e2fsck of ${path}, which a program left half-changed`);
  const code = lv.content.checkStatus;
  if (code <= 1 && args[0] === "-f") lv.content.atRest = true;
  return code === 0
    ? ok(`${path}: clean, 11/8192 files\n`)
    : refuse(code, `${path}: UNEXPECTED INCONSISTENCY; RUN fsck MANUALLY.`);
}

function btrfs(machine: FakeMachine, args: readonly string[]): Output {
  if (args[1] === "sync") return syncMounted(machine, args);
  expectArgs(args, /^filesystem resize max \//);
  return growMounted(machine, args, "btrfs");
}

function syncMounted(machine: FakeMachine, args: readonly string[]): Output {
  expectArgs(args, /^filesystem sync \//);
  const mount = machine.mounts.findLast(({ target }) => target === args[2]);
  return mount?.fsType === "btrfs" ? ok() : refuse(1, `ERROR: not a btrfs filesystem: ${args[2]}`);
}

function growMounted(machine: FakeMachine, args: readonly string[], type: string): Output {
  const mount = machine.mounts.findLast((mount) => mount.target === args.at(-1));
  if (mount?.lv === undefined || mount.fsType !== type) {
    return refuse(1, `${args.at(-1)} is not a mounted ${type} filesystem`);
  }
  if (mount.readOnly) return refuse(1, `${type}: Read-only file system`);
  mount.lv.content.filesystemBytes = mount.lv.size;
  return ok();
}

function growDevice(machine: FakeMachine, path: string, type: RegExp): Output {
  const lv = machine.lvAt(path);
  if (lv === undefined) return noDevice("resize2fs", path);
  if (!type.test(lv.content.signatures[0]?.type ?? "")) return refuse(1, `resize2fs: Bad magic number in super-block`);
  lv.content.filesystemBytes = lv.size;
  return ok();
}

function mount(machine: FakeMachine, args: readonly string[]): Output {
  const flags = args.includes("-o") ? after(args, "-o").split(",") : [];
  const [source, target] = args.slice(-2) as [string, string];
  if (!exists(target)) return refuse(32, `mount: ${target}: mount point does not exist.`);
  const readOnly = flags.includes("ro");
  if (flags.includes("bind")) return bind(machine, source, target, readOnly);
  const type = after(args, "-t");
  const lv = machine.lvAt(source);
  if (lv === undefined) return refuse(32, `mount: ${target}: special device ${source} does not exist.`);
  if (lv.content.signatures.length !== 1 || lv.content.signatures[0]!.type !== type) {
    return refuse(
      32,
      `mount: ${target}: wrong fs type, bad option, bad superblock on ${source}, missing codepage or helper program, or other error.`,
    );
  }
  const twin = machine.mounts.find((mount) =>
    mount.lv !== undefined && mount.lv !== lv && mount.root === "/" &&
    mount.lv.content.signatures[0]?.uuid === lv.content.signatures[0]!.uuid
  );
  if (lv.content.torn || (twin !== undefined && type === "btrfs")) {
    throw new Error(`mounting ${source}, which is torn, or has the UUID of ${twin?.source}`);
  }
  if (twin !== undefined && type === "xfs" && !flags.includes("nouuid")) {
    return refuse(32, `mount: ${target}: wrong fs type, bad option, bad superblock on ${source}, missing codepage.`);
  }
  lv.content.atRest = false;
  const deviceNumber = type === "btrfs" ? "0:42" : `253:${lv.minor}`;
  machine.mounts.push({ target, source, fsType: type, root: "/", readOnly, deviceNumber, lv });
  return ok();
}

function bind(machine: FakeMachine, source: string, target: string, readOnly: boolean): Output {
  const lv = machine.lvAt(source);
  if (lv !== undefined) {
    const root = `/dm-${lv.minor}`;
    machine.mounts.push({
      target,
      source: `devtmpfs[${root}]`,
      fsType: "devtmpfs",
      root,
      readOnly,
      deviceNumber: "0:5",
      lv,
    });
    return ok();
  }
  const mounted = machine.mounts.findLast((mount) => mount.target === source);
  if (mounted === undefined) return refuse(32, `mount: ${target}: special device ${source} does not exist.`);
  machine.mounts.push({ ...mounted, target, readOnly });
  return ok();
}

function umount(machine: FakeMachine, args: readonly string[]): Output {
  expectArgs(args, /^\/\S*$/);
  const [target] = args as [string];
  if (machine.busy.has(target)) return refuse(32, `umount: ${target}: target is busy.`);
  const index = machine.mounts.findLastIndex((mount) => mount.target === target);
  if (index < 0) return refuse(32, `umount: ${target}: not mounted.`);
  const [gone] = machine.mounts.splice(index, 1);
  if (gone?.fsType === "xfs" && !machine.mounts.some(({ lv }) => lv === gone.lv)) gone.lv!.content.atRest = true;
  return ok();
}

/** The argument after a flag. */
export function after(args: readonly string[], flag: string): string {
  const value = args[args.indexOf(flag) + 1];
  if (!args.includes(flag) || value === undefined) throw new Error(`expected ${flag} in ${args.join(" ")}`);
  return value;
}

function exists(path: string): boolean {
  try {
    Deno.lstatSync(path);
    return true;
  } catch {
    return false;
  }
}

/** What a tool says of a path without a device. */
export function noDevice(tool: string, path: string): Output {
  return refuse(1, `${tool}: ${path}: No such file or directory`);
}
