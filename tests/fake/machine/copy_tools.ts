/**
 * The fake machine's tools for copies: dd from device to device, and what gives filesystems another UUID, after coreutils 9.1,
 * e2fsprogs 1.47, xfsprogs 6.1 and btrfs-progs 6.2.
 *
 * @module
 */

import type { Output } from "../../../lvm/exec.ts";
import { copyOf } from "./device_content.ts";
import { copyHeader } from "./luks.ts";
import { expectArgs, failure, type FakeLv, type FakeMachine, isReadOnly, ok } from "./machine.ts";
import { deviceBytes } from "./thin.ts";

/** Copies a chunk. The first chunk copies the signatures; the data is complete when all chunks came from one source. */
export function copyChunk(machine: FakeMachine, values: ReadonlyMap<string, string>): Output {
  const [source, target] = [values.get("if")!, values.get("of")!];
  const [from, to] = [machine.lvAt(source), machine.lvAt(target)];
  const missing = from === undefined ? source : to === undefined ? target : undefined;
  if (missing !== undefined) return failure(1, `dd: failed to open '${missing}': No such file or directory`);
  if (machine.mounts.some(({ lv }) => lv === to)) throw new Error(`dd over ${target}, which is mounted`);
  if (values.get("conv")!.endsWith(",sparse") && !zeroesNewBlocks(machine, to!)) {
    throw new Error(`${target} keeps what it has`);
  }
  if (isReadOnly(to!)) return failure(1, `dd: error writing '${target}': Operation not permitted`);
  if (from!.invalid || from!.content.unreadable) return failure(1, `dd: error reading '${source}': Input/output error`);
  if ([from!, to!].some(({ name }) => name.startsWith("hdr-"))) {
    copyHeader(from!, to!);
    return ok();
  }
  const block = BigInt(values.get("bs")!);
  const offset = BigInt(values.get("skip")!) * block;
  if (values.get("seek") !== values.get("skip")) throw new Error(`dd to another place: ${[...values].join(" ")}`);
  const size = deviceBytes(from!);
  const requestedEnd = offset + BigInt(values.get("count")!) * block;
  applyChunk(from!, to!, { offset, end: requestedEnd < size ? requestedEnd : size, size });
  return ok();
}

/** Reports whether unwritten blocks of a new LV read as zeros. */
export function zeroesNewBlocks(machine: FakeMachine, lv: FakeLv): boolean {
  return machine.allLvs().some((each) =>
    each.lv.name === lv.pool && each.lv.thinPool?.zeroes && each.group.lvs.includes(lv)
  );
}

function applyChunk(
  from: FakeLv,
  to: FakeLv,
  { offset, end, size }: { offset: bigint; end: bigint; size: bigint },
): void {
  const { content } = from;
  if (offset === 0n) {
    const { zeroHead, filesystemBytes, blockBytes, checkStatus, isClean } = content;
    const signatures = content.signatures.map((signature) => ({ ...signature }));
    const copied = { zeroHead, filesystemBytes, blockBytes, checkStatus, isClean, signatures };
    Object.assign(to.content, { ...copied, luks: copyOf(content).luks, isInconsistent: false });
    to.copied = { from, to: end };
  } else if (to.copied?.from === from && to.copied.to >= offset) {
    if (end > to.copied.to) to.copied.to = end;
  } else delete to.copied;
  to.content.data.add(`a piece of ${from.name}`);
  if (to.copied?.to === size) to.content.data = new Set(content.data);
}

/**
 * Runs tune2fs: only for the UUID, and only of a filesystem that was just checked, as one with metadata checksums must
 * be.
 */
export function tune2fs(machine: FakeMachine, args: readonly string[]): Output {
  expectArgs(args, /^-U [0-9a-f-]{36} -e continue \/\S+$/);
  const lv = filesystemAt(machine, args.at(-1)!, /^ext[234]$/);
  if (lv === undefined) {
    return failure(1, `tune2fs: Bad magic number in super-block while trying to open ${args.at(-1)}`);
  }
  if (isReadOnly(lv)) return failure(1, `tune2fs: Operation not permitted while trying to open ${args.at(-1)}`);
  if (!lv.content.isClean) {
    return failure(
      1,
      "\nThis operation requires a freshly checked filesystem.\n\nPlease run e2fsck -f on the filesystem.",
    );
  }
  return setUuid(lv, /^ext/, args[1]!);
}

/** Runs xfs_db: only the command for the UUID. It prints its refusals, and exits with 0. */
export function xfsDb(machine: FakeMachine, args: readonly string[]): Output {
  expectArgs(args, /^-x -c uuid [0-9a-f-]{36} \/\S+$/);
  const lv = filesystemAt(machine, args.at(-1)!, /^xfs$/);
  if (lv === undefined) return failure(1, `xfs_db: ${args.at(-1)} is not a valid XFS filesystem`);
  if (!lv.content.isClean) {
    return ok("ERROR: The filesystem has valuable metadata changes in a log which needs to\nbe replayed.\n");
  }
  setUuid(lv, /^xfs$/, args[2]!.split(" ")[1]!);
  return ok("Clearing log and setting UUID\nwriting all SBs\n");
}

/** Runs btrfstune: only for the UUID in the superblock. */
export function btrfstune(machine: FakeMachine, args: readonly string[]): Output {
  expectArgs(args, /^-M [0-9a-f-]{36} \/\S+$/);
  const lv = filesystemAt(machine, args.at(-1)!, /^btrfs$/);
  return lv === undefined ? failure(1, "ERROR: open ctree failed") : setUuid(lv, /^btrfs$/, args[1]!);
}

function filesystemAt(machine: FakeMachine, path: string, type: RegExp): FakeLv | undefined {
  const lv = machine.lvAt(path);
  if (lv === undefined || !lv.content.signatures.some((signature) => type.test(signature.type))) return undefined;
  if (lv.content.isInconsistent || machine.mounts.some((mount) => mount.lv === lv)) {
    throw new Error(`changing ${path}, which is mounted, or which a program left half-changed`);
  }
  return lv;
}

function setUuid(lv: FakeLv, type: RegExp, uuid: string): Output {
  lv.content.signatures.find((signature) => type.test(signature.type))!.uuid = uuid;
  return ok();
}
