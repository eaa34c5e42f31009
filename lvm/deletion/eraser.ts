/**
 * Erases the data of deleted LVs.
 *
 * An LV is erased in parts, so that each command is short and the driver stops soon. A command that outlasts its
 * deadline continues, and its part counts as erased when it has ended: a slow disk is not erased again and again.
 *
 * @module
 */

import { max, min } from "../../base/size.ts";
import { destroyKeySlots } from "../encryption/header.ts";
import { StorageError } from "../../base/error.ts";
import { type Command, commandError, type Exec, runThen } from "../exec.ts";
import { allowWrites, verifyDevice } from "../host/device.ts";
import { flushDisks, type Lvm } from "../client/client.ts";
import type { DeletedLv } from "../inventory/leftovers.ts";
import { lvchange } from "../model/command_lines.ts";
import { type LocatedLv, lvPath } from "../model/report.ts";
import { eraseNoneArguments, markErased } from "../model/tags.ts";
import { describePool, findPool, isDamaged, unzeroedReason } from "../pools/pool.ts";

/** Options of {@linkcode Eraser}. */
export interface EraserOptions {
  /** LVM on this machine. */
  readonly lvm: Lvm;
  /** Reports whether something else is to be done. Then an erasure ends after its running command, and continues later. */
  readonly isInterrupted: () => boolean;
  /** Called with the error of a discard, which is not repeated, and of a command that failed after its deadline. */
  readonly onError: (error: unknown) => void;
  /** Called when a command has ended that had outlasted its deadline. */
  readonly onLateEnd: () => void;
}

/** The bytes that one command erases. It takes a few seconds: discards are faster than writes. */
const CHUNK_BYTES = { zero: 1n << 30n, discard: 16n << 30n };

/**
 * The bytes after which the progress is recorded. After a crash at most this much is overwritten again. What was
 * overwritten before a command outlasted its deadline or failed is recorded as well: it may have taken hours.
 */
const RECORD_INTERVAL_BYTES = 32n << 30n;

/** The number of commands in a group, which outlasted their deadlines, from which no other LV of it is erased. */
const MAX_HANGING = 3;

/** A part of an LV to erase. */
interface Chunk {
  /** How it is erased. */
  readonly erase: "zero" | "discard";
  /** Its first byte. */
  readonly offset: bigint;
  /** Its length in bytes. */
  readonly length: bigint;
  /** The number of bytes of the LV that are erased in all. */
  readonly total: bigint;
}

/** The bytes of an LV that are erased. */
export interface ByteRange {
  /** The first one; that of the LV by default. */
  readonly from?: bigint;
  /** The end; that of the LV by default. */
  readonly to?: bigint;
}

/** Erases deleted LVs of one driver. */
export class Eraser {
  readonly #options: EraserOptions;
  readonly #exec: Exec;
  /** The bytes that are erased, by {@linkcode keyOf}. Only overwriting is recorded in tags. */
  readonly #erased = new Map<string, bigint>();
  /** The UUIDs of the LVs that commands still erase which outlasted their deadlines, by the UUIDs of their groups. */
  readonly #busy = new Map<string, Set<string>>();

  /** Creates an eraser. */
  constructor(options: EraserOptions) {
    this.#options = options;
    this.#exec = options.lvm.exec;
  }

  /**
   * Reports whether an LV must wait for commands that outlasted their deadlines: one erases a part of it, or as many hang in its
   * group that its disks may be slow.
   */
  isBusy({ lv, group }: LocatedLv): boolean {
    const lvs = this.#busy.get(group.uuid);
    return lvs !== undefined && (lvs.has(lv.uuid) || lvs.size >= MAX_HANGING);
  }

  /** Forgets how far LVs are erased that are not deleted any more: they may get data again before they are deleted again. */
  forget(lvs: readonly LocatedLv[]): void {
    for (const located of lvs) {
      for (const erase of ["zero", "discard"] as const) this.#erased.delete(keyOf(located, erase));
    }
  }

  /**
   * Erases an active LV, or a part of it, in the way that its tags name. The key slots of an encrypted one come first.
   *
   * A discard that fails is only reported: not every physical volume supports discards.
   *
   * @returns false when it was interrupted. The next call continues there, one command at least
   * @throws {StorageError} `StillRunning` when a command outlasted its deadline; `FailedPrecondition` when another device
   * is at the LV's path
   */
  async erase({ lv, group, tags }: DeletedLv, { from = 0n, to = lv.size }: ByteRange = {}): Promise<boolean> {
    const erase = tags.erase === "discard" ? "discard" : "zero";
    const key = keyOf({ lv, group }, erase);
    let recorded = erase === "zero" ? tags.erased : 0n;
    const start = max(recorded, this.#erased.get(key) ?? from);
    if (tags.encrypted && start === 0n) await this.destroyKeySlots({ lv, group });
    else await this.#allowWrites({ lv, group });
    let offset = start;
    while (offset < to) {
      if (offset > start && this.#options.isInterrupted()) return false;
      if (offset > start) await verifyDevice(this.#exec, lv);
      const isDue = offset - recorded >= RECORD_INTERVAL_BYTES || (offset === start && start > recorded);
      if (erase === "zero" && isDue) {
        await flushDisks(this.#exec, [lv.devicePath]);
        await this.#options.lvm.changeTags({ lv, group }, markErased(recorded, offset));
        recorded = offset;
      }
      const length = min(to - offset, CHUNK_BYTES[erase]);
      await this.#eraseChunk({ lv, group }, { erase, offset, length, total: to });
      offset = this.#erased.get(key)!;
    }
    if (erase === "zero") await flushDisks(this.#exec, [lv.devicePath]);
    this.#erased.delete(key);
    return true;
  }

  /** Destroys the key slots of an active encrypted LV. @throws {StorageError} `CommandFailed` */
  async destroyKeySlots({ lv, group }: LocatedLv): Promise<void> {
    await this.#allowWrites({ lv, group });
    await destroyKeySlots(this.#exec, lv.devicePath);
  }

  /** Makes the device of an LV writable. A device is read-only by its permission in LVM, or by blockdev(8), or by both. */
  async #allowWrites({ lv, group }: LocatedLv): Promise<void> {
    const permit = () => this.#options.lvm.change(group, lvchange({ permission: "rw" }, lvPath({ lv, group })));
    if (lv.readOnly) await permit();
    if (!(await verifyDevice(this.#exec, lv)).readOnly) return;
    await allowWrites(this.#exec, lv.devicePath);
    if (!(await verifyDevice(this.#exec, lv)).readOnly) return;
    await permit();
  }

  async #eraseChunk({ lv, group }: LocatedLv, { erase, offset, length, total }: Chunk): Promise<void> {
    const range = ["--offset", `${offset}`, "--length", `${length}`, lv.devicePath];
    const args = erase === "zero" ? ["--zeroout", ...range] : range;
    const command: Command = { program: "blkdiscard", args, mutates: true };
    const record = (erased: bigint) => void this.#erased.set(keyOf({ lv, group }, erase), erased);
    try {
      await runThen(this.#exec, command, (output) => {
        if (output.code === 0) return Promise.resolve(record(offset + length));
        const error = commandError(command, output);
        if (erase === "zero") return Promise.reject(error);
        this.#options.onError(error);
        return Promise.resolve(record(total));
      });
    } catch (error) {
      if (error instanceof StorageError && error.kind === "StillRunning") {
        this.#waitForEnd({ lv, group }, error.completion);
      }
      throw error;
    }
  }

  #waitForEnd({ lv, group }: LocatedLv, completion: Promise<unknown> | undefined): void {
    const lvs = this.#busy.get(group.uuid) ?? new Set();
    this.#busy.set(group.uuid, lvs.add(lv.uuid));
    void Promise.resolve(completion).then(() => {}, this.#options.onError).then(() => {
      lvs.delete(lv.uuid);
      if (lvs.size === 0) this.#busy.delete(group.uuid);
      this.#options.onLateEnd();
    });
  }
}

/** Returns what tells erasures apart: a clone in an imported group has the UUID of its LV, and a discard is no overwriting. */
function keyOf({ lv, group }: LocatedLv, erase: Chunk["erase"]): string {
  return `${group.uuid} ${lv.uuid} ${erase}`;
}

/**
 * Requires that the pool of a deleted LV can read its metadata. If it cannot, LVM removes the LV, and ignores that the pool
 * does not: the pool gives its data to another LV later, which gets its number.
 *
 * @throws {StorageError} `FailedPrecondition` until the pool is repaired
 */
export function requireSoundPool(deleted: DeletedLv): void {
  const pool = findPool(deleted.group, deleted.lv.pool);
  if (pool === undefined || !isDamaged(pool)) return;
  throw new StorageError("FailedPrecondition", `removing ${lvPath(deleted)}: ${describePool(deleted.group, pool)}`);
}

/**
 * Requires that the data of a deleted LV that is not overwritten cannot be read later, if it is to be erased.
 *
 * @throws {StorageError} `FailedPrecondition` while its pool does not zero new blocks
 */
export function requireZeroingPool(deleted: DeletedLv): void {
  const reason = deleted.tags.erase === "zero" ? unzeroedReason(deleted.group, deleted.lv) : undefined;
  if (reason !== undefined) throw notErasableError(deleted, reason);
}

/**
 * Requires that all of a deleted LV can be overwritten. What is written while a disk is missing does not reach that disk,
 * and the data on it could be read when it is back.
 *
 * @throws {StorageError} `FailedPrecondition` with what is missing.
 */
export function requireErasable(deleted: DeletedLv): void {
  const { lv, group } = deleted;
  const path = lvPath(deleted);
  const reason = lv.health === "partial"
    ? `physical volumes of it are missing; attach them (vgextend --restoremissing ${group.name})`
    : lv.health === "refresh needed"
    ? `the kernel does not write to one of its disks; inspect the disk, and let it be used again (lvchange --refresh ${path})`
    : lv.raid?.action === "recover"
    ? "one of its images is being synchronized"
    : lv.cache === undefined && /cache$/.test(lv.segment.type)
    ? `a cache pool is attached, which may keep its data; detach it (lvconvert --uncache ${path})`
    : undefined;
  if (reason !== undefined) throw notErasableError(deleted, reason);
}

function notErasableError({ lv, group, tags }: DeletedLv, reason: string): StorageError {
  const path = lvPath({ lv, group });
  return new StorageError(
    "FailedPrecondition",
    `erasing ${path}: ${reason}. It is removed when all of it is erased. If its data may stay on the disks, give the ` +
      `erasure up (lvchange ${eraseNoneArguments(tags.erase).join(" ")} ${path})`,
  );
}
