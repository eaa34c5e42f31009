/**
 * The fake machine's other tools: util-linux 2.38, coreutils, diffutils, and the filesystems' own programs.
 *
 * @module
 */

import type { Output } from "../../../lvm/exec.ts";
import { fillCache } from "./cache.ts";
import { noteDiscard, noteWrites, readBlocks, thinDelta } from "./block_tools.ts";
import { btrfstune, copyChunk, tune2fs, xfsDb } from "./copy_tools.ts";
import { diskSignatures } from "./disks.ts";
import { deviceNotFound, notPermitted, optionValue } from "./tool_text.ts";
import { mke2fs, mkfsBtrfs, mkfsXfs } from "./mkfs.ts";
import { findmnt, mount, umount } from "./mount_tools.ts";
import { dmsetup, lsblk, modinfo, udevadm, whereis } from "./read_only_tools.ts";
import {
  CGROUP_ROOT,
  expectArgs,
  failure,
  type FakeLv,
  type FakeMachine,
  isMounted,
  isReadOnly,
  ok,
  type Tools,
} from "./machine.ts";
import { blankContent, type DeviceContent } from "./device_content.ts";
import { FOREIGN_SIGNATURES } from "./foreign_signatures.ts";
import { HEADER_BYTES, ownerOf } from "./luks.ts";
import { canActivateDegraded, lvHealthStatus } from "./pvs.ts";
import { losetup } from "./stacked_devices.ts";
import { allocateChunks, deviceBytes, discardOverwrittenData, freeChunks, isCowSnapshotOf } from "./thin.ts";

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
  losetup,
  lsblk,
  mke2fs,
  "mkfs.btrfs": mkfsBtrfs,
  "mkfs.xfs": mkfsXfs,
  modinfo,
  mount,
  resize2fs,
  sync,
  thin_delta: thinDelta,
  tune2fs,
  udevadm,
  umount,
  whereis,
  wipefs,
  xfs_db: xfsDb,
  xfs_growfs: (machine, args) => resizeMounted(machine, args, "xfs"),
};

function fstrim(machine: FakeMachine, args: readonly string[]): Output {
  expectArgs(args, /^--verbose \/\S+$/);
  const mount = machine.mounts.findLast(({ target }) => target === args[1]);
  if (mount?.lv === undefined) return failure(1, `fstrim: cannot open ${args[1]}: No such file or directory`);
  if (mount.readOnly) return failure(1, `fstrim: ${args[1]}: FITRIM ioctl failed: Read-only file system`);
  if (!machine.host.discards) return failure(1, `fstrim: ${args[1]}: the discard operation is not supported`);
  const bytes = mount.lv.content.filesystemBytes - 4096n;
  return ok(`${args[1]}: ${bytes >> 20n} MiB (${bytes} bytes) trimmed\n`);
}

function sync(machine: FakeMachine, args: readonly string[]): Output {
  expectArgs(args, /^(?:--file-system )?\/\S+(?: \/\S+)*$/);
  const missing = args.find((path) => path.startsWith("/dev/mapper/") && machine.lvAt(path) === undefined);
  if (missing !== undefined) return failure(1, `sync: error opening '${missing}': No such file or directory`);
  return ok();
}

function wipefs(machine: FakeMachine, args: readonly string[]): Output {
  expectArgs(args, /^(?:--no-act --json|--all) \/\S+$/);
  const path = args.at(-1)!;
  const lv = machine.lvAt(path);
  if (lv === undefined) return diskSignatures(machine, path) ?? deviceNotFound("wipefs: error", path);
  // it says nothing of a disk that fails, and reads none of a snapshot that overflowed
  const signatures = lv.content.unreadable || lv.invalid ? [] : lv.content.signatures;
  if (args.includes("--all")) {
    if (isMounted(machine, lv)) {
      return failure(1, `wipefs: error: ${path}: probing initialization failed: Device or resource busy`);
    }
    if (isReadOnly(lv) && signatures.length > 0) return notPermitted("wipefs: error", path);
    lv.content.signatures = []; // it wipes magic strings alone: a LUKS header that is written back has its key slots
    return ok();
  }
  return ok(JSON.stringify({
    signatures: signatures.map((signature) => ({ device: "x", offset: "0x438", ...signature, label: null })),
  }));
}

function cmp(machine: FakeMachine, args: readonly string[]): Output {
  expectArgs(args, /^--bytes=\d+ \/\S+ \/\S+$/);
  const path = args.at(-1)!;
  const lv = machine.lvAt(path);
  if (lv === undefined) return failure(2, `cmp: ${path}: No such file or directory`);
  if (lv.content.unreadable || lv.invalid) return failure(2, `cmp: ${path}: Input/output error`);
  if (args[1] !== "/dev/zero") {
    const { data, signatures } = machine.lvAt(args[1]!)!.content;
    const actual = JSON.stringify([[...lv.content.data].sort(), lv.content.signatures]);
    if (actual === JSON.stringify([[...data].sort(), signatures])) return ok();
    return { code: 1, stdout: `${args.slice(1).join(" ")} differ: char 1, line 1\n`, stderr: "" };
  }
  const isWholeDevice = args[0] !== "--bytes=4096";
  return lv.content.zeroHead && !(isWholeDevice && lv.content.data.size > 0)
    ? ok()
    : { code: 1, stdout: `/dev/zero ${path} differ: char 1, line 1\n`, stderr: "" };
}

function dd(machine: FakeMachine, args: readonly string[]): Output {
  const values = new Map(args.map((arg) => arg.split("=", 2) as [string, string]));
  if (values.get("if") === `${CGROUP_ROOT}/cgroup.controllers`) return controllers(machine);
  if (values.get("if") === "/proc/sys/kernel/osrelease") return ok(`${machine.host.kernel}\n`);
  if (values.get("iflag")?.endsWith("count_bytes")) return readBlocks(machine, values);
  const target = values.get("of")!;
  if (values.get("conv")?.startsWith("fsync,nocreat,notrunc")) return copyChunk(machine, values);
  const lv = machine.lvAt(target === "/dev/null" ? values.get("if")! : target);
  if (lv === undefined || lv.content.unreadable) {
    return failure(1, `dd: error reading '${values.get("if")}': Input/output error`);
  }
  if (target !== "/dev/null") {
    if (isReadOnly(lv)) return failure(1, `dd: error writing '${target}': Operation not permitted`);
    const [from, to] = writtenBytes(lv, values);
    if (!allocateChunks(machine, lv, from, to)) {
      return failure(1, `dd: error writing '${target}': No space left on device`);
    }
    if (from === 0) Object.assign(lv.content, { signatures: [], luks: undefined });
    if (from < 4096) lv.content.zeroHead = false;
    lv.content.signatures.push(...writtenSignatures(values.get("if")!));
    lv.content.data.add(values.get("if")!);
    noteWrites(lv, from, to, values.get("if")!);
    lv.zeroedTo = 0n;
    const { lv: own } = ownerOf(machine, lv);
    const header = own === lv ? 0 : Number(HEADER_BYTES);
    if (own !== lv) noteWrites(own, from + header, to + header, values.get("if")!);
    copyToCow(machine, own, [from + header, to + header]);
  }
  return ok();
}

/** Returns the signatures in a file that dd writes; of other sources, nothing is known. */
function writtenSignatures(source: string): DeviceContent["signatures"] {
  if (source.startsWith("/dev/") || !isFile(source)) return [];
  const text = [...Deno.readFileSync(source)].join();
  return FOREIGN_SIGNATURES.filter(({ bytes }) => bytes.join() === text).map(({ type }) => ({ type, uuid: "" }));
}

function isFile(path: string): boolean {
  try {
    return Deno.statSync(path).isFile;
  } catch {
    return false; // what a pod wrote has a name alone
  }
}

function controllers({ host }: FakeMachine): Output {
  if (host.controllers !== undefined) return ok(`${host.controllers}\n`);
  return failure(1, `dd: failed to open '${CGROUP_ROOT}/cgroup.controllers': No such file or directory`);
}

/** Returns where dd begins to write on an LV, and where it ends. */
function writtenBytes(lv: FakeLv, values: ReadonlyMap<string, string>): [from: number, to: number] {
  const block = Number((values.get("bs") ?? "512").replace(/M$/, "")) * (values.get("bs")?.endsWith("M") ? 1 << 20 : 1);
  const from = Number(values.get("seek") ?? "0") * block;
  return [from, Math.min(from + Number(values.get("count") ?? "1") * block, Number(lv.size))];
}

/**
 * Copies what dd overwrites of an origin into the COW space of its snapshots, chunk by chunk, as far as it has space.
 */
function copyToCow(machine: FakeMachine, own: FakeLv, [from, to]: readonly [from: number, to: number]): void {
  const { group: { lvs } } = ownerOf(machine, own);
  for (const snapshot of lvs.filter((other) => isCowSnapshotOf(other, own) && other.active)) {
    const cowChunks = snapshot.cowChunks ??= new Set();
    const before = cowChunks.size;
    for (
      let chunk = Math.floor(from / CHUNK_BYTES);
      chunk * CHUNK_BYTES < Math.min(to, Number(snapshot.origin!.size));
      chunk++
    ) {
      cowChunks.add(chunk);
    }
    const bytes = (cowChunks.size - before) * CHUNK_BYTES * (1 + 1 / 256); // with their share of its table
    snapshot.cowPercent += 100 * bytes / Number(snapshot.size);
    if (snapshot.cowPercent > 100) snapshot.invalid = true;
  }
}

/** The size of a chunk of a snapshot (lvcreate(8), --chunksize), in bytes. */
const CHUNK_BYTES = 4096;

function df(machine: FakeMachine, args: readonly string[]): Output {
  expectArgs(args, /^--block-size=1 --output=size,used,avail,itotal,iused,iavail(?:,file)? \//);
  const hasFileColumn = args[1]!.endsWith(",file");
  const rows = args.slice(2).map((path) => {
    const lv = machine.mounts.findLast((mount) => mount.target === path)?.lv;
    if (lv === undefined) return { row: "", error: `df: ${path}: No such file or directory\n` };
    const { filesystemBytes, signatures: [signature] } = lv.content;
    const inodes = signature?.type === "btrfs" ? "     0     0     0" : "  8192    11  8181";
    return {
      row: `${filesystemBytes} 4096 ${filesystemBytes - 4096n} ${inodes}${hasFileColumn ? ` ${path}` : ""}\n`,
      error: "",
    };
  });
  const title = ` 1B-blocks  Used  Avail Inodes IUsed IFree${hasFileColumn ? " File" : ""}\n`;
  const stderr = rows.map(({ error }) => error).join("");
  const stdout = rows.some(({ row }) => row !== "") ? title + rows.map(({ row }) => row).join("") : "";
  return { code: stderr === "" ? 0 : 1, stdout, stderr };
}

function blockdev(machine: FakeMachine, args: readonly string[]): Output {
  expectArgs(args, /^--set(?:ro|rw) \/\S+$/);
  const lv = machine.lvAt(args[1]!);
  if (lv === undefined) return deviceNotFound("blockdev", args[1]!);
  lv.setReadOnly = args[0] === "--setro";
  return ok();
}

function blkdiscard(machine: FakeMachine, args: readonly string[]): Output {
  expectArgs(args, /^(?:(?:--zeroout )?--offset \d+ --length \d+ )?\/\S+$/);
  const path = args.at(-1)!;
  const lv = machine.lvAt(path);
  if (lv === undefined) return failure(1, `blkdiscard: cannot open ${path}: No such file or directory`);
  const { group, lv: own } = ownerOf(machine, lv);
  if (lv.content.unreadable || !canActivateDegraded(group, own)) {
    return failure(1, `blkdiscard: ${path}: BLKZEROOUT ioctl failed: Input/output error`);
  }
  if (isMounted(machine, lv)) {
    return failure(1, `blkdiscard: cannot open ${path}: Device or resource busy`);
  }
  const ioctl = args.includes("--zeroout") ? "BLKZEROOUT" : "BLKDISCARD";
  if (isReadOnly(lv)) {
    const failed = machine.host.debian === 12 ? `${path}: ${ioctl}` : `${ioctl}: ${path}`;
    return failure(1, `blkdiscard: ${failed} ioctl failed: Operation not permitted`);
  }
  if (args.length === 1) return ok();
  const [offset, length] = [BigInt(optionValue(args, "--offset")), BigInt(optionValue(args, "--length"))];
  const size = deviceBytes(lv);
  if (offset % 512n !== 0n || length % 512n !== 0n || offset > size) {
    return failure(1, `blkdiscard: ${path}: length value or offset is not good`);
  }
  const end = offset + length < size ? offset + length : size; // blkdiscard(8) stops at the end of the device
  if (!args.includes("--zeroout")) {
    freeChunks(machine, lv, Number(offset), Number(end));
    if (lv.pool !== undefined) noteDiscard(lv, Number(offset), Number(end));
    return ok(); // A disk may keep data after a discard. Here it keeps all of it.
  }
  if (!allocateChunks(machine, lv, Number(offset), Number(end))) {
    return failure(1, `blkdiscard: ${path}: BLKZEROOUT ioctl failed: Input/output error`);
  }
  fillCache(lv);
  if (offset === 0n && end >= SIGNATURES_BYTES) {
    Object.assign(lv.content, { zeroHead: true, signatures: [], luks: undefined });
  }
  if (offset <= lv.zeroedTo && end > lv.zeroedTo) lv.zeroedTo = end;
  if (lv.zeroedTo === size) {
    if (lv.raid !== undefined && ["partial", "refresh needed"].includes(lvHealthStatus(group, lv))) {
      lv.raid.staleData = lv.content.data; // on the image that is missing
    }
    Object.assign(lv.content, blankContent());
  }
  discardOverwrittenData(machine, lv);
  return ok();
}

/** Up to where the signatures of the filesystems are, in bytes: btrfs has its first superblock at 64 KiB. */
const SIGNATURES_BYTES = 68n << 10n;

function e2fsck(machine: FakeMachine, args: readonly string[]): Output {
  expectArgs(args, /^(?:-f )?-p \/\S+$/);
  const path = args.at(-1)!;
  const lv = machine.lvAt(path);
  if (lv === undefined || !lv.content.signatures.some(({ type }) => type.startsWith("ext"))) {
    return failure(8, `e2fsck: Bad magic number in super-block while trying to open ${path}`);
  }
  const mount = machine.mounts.find((mount) => mount.lv === lv && mount.root === "/");
  // with -f, it checks what is mounted read-only
  if (mount !== undefined && !(args[0] === "-f" && mount.readOnly)) {
    return failure(8, `${path} is mounted.\ne2fsck: Cannot continue, aborting.`);
  }
  if (machine.host.mountedElsewhere.has(lv)) {
    return { code: 8, stdout: `${path} is in use.\n`, stderr: "e2fsck: Cannot continue, aborting.\n\n\n" };
  }
  if (isReadOnly(lv)) {
    return failure(
      8,
      `e2fsck: Operation not permitted while trying to open ${path}\nYou must have r/w access to the filesystem or be root`,
    );
  }
  if (lv.content.isInconsistent) throw new Error(`e2fsck of ${path}, which a program left half-changed`);
  const code = lv.content.checkStatus;
  if (code > 128) return { code, stdout: "", stderr: "" };
  if (code <= 1 && args[0] === "-f") lv.content.isClean = true;
  return code === 0
    ? ok(`${path}: clean, 11/8192 files, 1024/${lv.content.filesystemBytes / lv.content.blockBytes} blocks\n`)
    : failure(code, `${path}: UNEXPECTED INCONSISTENCY; RUN fsck MANUALLY.`);
}

function btrfs(machine: FakeMachine, args: readonly string[]): Output {
  if (args[1] === "sync") return syncMounted(machine, args);
  if (args[1] === "scan") return forgetScanned(machine, args);
  expectArgs(args, /^filesystem resize max \//);
  return resizeMounted(machine, args, "btrfs");
}

function forgetScanned(machine: FakeMachine, args: readonly string[]): Output {
  expectArgs(args, /^device scan --forget( \/\S+)+$/);
  for (const path of args.slice(3)) machine.host.scannedBtrfs.delete(machine.lvAt(path)!);
  return ok();
}

function syncMounted(machine: FakeMachine, args: readonly string[]): Output {
  expectArgs(args, /^filesystem sync \//);
  const mount = machine.mounts.findLast(({ target }) => target === args[2]);
  return mount?.fsType === "btrfs" ? ok() : failure(1, `ERROR: not a btrfs filesystem: ${args[2]}`);
}

function resizeMounted(machine: FakeMachine, args: readonly string[], type: string): Output {
  const mount = machine.mounts.findLast((mount) => mount.target === args.at(-1));
  if (mount?.lv === undefined || mount.fsType !== type) {
    return failure(1, `${args.at(-1)} is not a mounted ${type} filesystem`);
  }
  if (mount.readOnly) return failure(1, `${type}: Read-only file system`);
  if (machine.host.balancing.has(mount.lv)) {
    return failure(1, `ERROR: unable to start resize, another exclusive operation 'balance' in progress`);
  }
  mount.lv.content.filesystemBytes = mount.lv.size;
  return ok();
}

/** Resizes a filesystem through its device: a mounted one, or one that was checked since it was mounted. */
function resize2fs(machine: FakeMachine, args: readonly string[]): Output {
  const path = args.at(-1)!;
  const lv = machine.lvAt(path);
  if (lv === undefined) return deviceNotFound("resize2fs", path);
  const { content } = lv;
  if (!content.signatures.some(({ type }) => /^ext[234]$/.test(type))) {
    return failure(1, "resize2fs: Bad magic number in super-block");
  }
  const mounts = machine.mounts.filter((mount) => mount.lv === lv && mount.root === "/");
  if (mounts.length === 0 && !content.isClean) return failure(1, `Please run 'e2fsck -f ${path}' first.\n`);
  if (isReadOnly(lv)) return failure(1, `resize2fs: Operation not permitted While trying to open ${path}`);
  const length = `${lv.size / content.blockBytes} (${content.blockBytes >> 10n}k) blocks long.`;
  if (content.filesystemBytes === lv.size) {
    return { ...ok(), stderr: `The filesystem is already ${length}  Nothing to do!\n` };
  }
  if (mounts.length > 0 && mounts.every(({ readOnly }) => readOnly)) {
    return failure(1, "resize2fs: Read-only file system");
  }
  if (mounts.length > 0 && content.features?.includes("sparse_super2")) {
    return failure(1, "resize2fs: Operation not supported While checking for on-line resizing support");
  }
  content.filesystemBytes = lv.size;
  return ok(`The filesystem on ${path} is now ${length}\n`);
}
