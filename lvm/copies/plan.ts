/**
 * Decides the next step of a copy from a report and from the progress in this process.
 *
 * The only persistent state of a copy are the tags of the volume that is being filled: its source, and how many bytes
 * are certainly copied. So a copy continues wherever the driver died. Data that a killed program may have changed is
 * copied again. A thin clone that was interrupted is created again, because that takes no time.
 *
 * @module
 */

import { formatBytes, min } from "../../base/size.ts";
import { StorageError } from "../../base/error.ts";
import type { SnapshotId, VolumeId } from "../../base/ids.ts";
import { type CopyBase, type CopyGoal, describeSource, type VolumeTags } from "../model/tags.ts";
import type { LocatedLv, LogicalVolume } from "../model/report.ts";
import { isThin } from "../pools/pool.ts";
import { RANGE_UNIT } from "../transfers/protocol.ts";
import { isIncompleteSnapshot } from "../inventory/leftovers.ts";
import { FETCH_BYTES, hasBase } from "./work.ts";

/** The state of a copy. */
export interface CopyState {
  /** The volume that is being filled. */
  readonly id: VolumeId;
  /** The contents of its tags. */
  readonly tags: Pick<VolumeTags, "format"> & Required<Pick<VolumeTags, "source" | "copied">>;
  /** Its LV. */
  readonly destination: LocatedLv;
  /** The LV of its source, a volume or a snapshot; absent when the source does not exist any more. */
  readonly original?: LocatedLv;
  /** The copy snapshot of a source volume, if it exists. A source snapshot needs none. */
  readonly copySnapshot?: LocatedLv;
  /**
   * The bytes that this process has copied, or that a thin clone shares; `undefined` before the first step in this
   * process.
   */
  readonly offset?: bigint;
  /** The node of its source; absent for a source on this machine. */
  readonly sourceNode?: string;
  /** The bytes to copy in all, if this process knows them. */
  readonly total?: bigint;
  /** The snapshot of that node that it has, or is filled from; absent for a volume that is filled from one alone. */
  readonly base?: CopyBase;
  /** What such a volume should have next; absent before this process knows it. */
  readonly goal?: CopyGoal;
  /** The offset up to which the difference to its goal is applied. */
  readonly differenceOffset?: bigint;
  /** True if the difference to its goal cannot be had. */
  readonly isWithoutDifference?: boolean;
}

/** A chunk of a copy, in bytes. */
export interface Chunk {
  /** The offset of its first byte. */
  readonly offset: bigint;
  /** Its length. */
  readonly length: bigint;
}

/** A step of a copy. `recorded` is the number of copied bytes that the tags record. */
export type CopyStep =
  /** Wait: a program of an earlier process may still be writing. */
  | { readonly do: "wait" }
  /** Unmount the LV where an earlier process mounted it, and record that no data is copied. */
  | { readonly do: "restart"; readonly recorded: bigint }
  /** Mark the LV as deleted. A repeated request creates it again. */
  | { readonly do: "drop" }
  /** Mark the copy snapshot as deleted, because it is incomplete, of another LV, or overflowed. */
  | { readonly do: "removeCopySnapshot"; readonly copySnapshot: LocatedLv }
  /** Create the copy snapshot. */
  | { readonly do: "createCopySnapshot"; readonly original: LocatedLv }
  /** Activate or resume a device. */
  | { readonly do: "activate"; readonly located: LocatedLv }
  /** Copy a chunk. */
  | { readonly do: "copy"; readonly from: LogicalVolume; readonly recorded: bigint } & Chunk
  /** Fetch a range of a snapshot of another node. */
  | { readonly do: "fetch"; readonly node: string; readonly recorded: bigint } & Chunk
  /** Record that all of a snapshot of another node is there. */
  | { readonly do: "record filled"; readonly recorded: bigint }
  /** Fetch what differs between the snapshot that the volume has and another one, from an offset on. */
  | { readonly do: "fetch difference"; readonly node: string; readonly snapshot: SnapshotId; readonly offset: bigint }
  /** Fill it with all of another snapshot. */
  | { readonly do: "fill again"; readonly recorded: bigint; readonly snapshot: SnapshotId }
  /** Nothing is to be done now. */
  | { readonly do: "rest" }
  /** Complete the volume, after all bytes are copied. */
  | { readonly do: "complete" }
  /** Fail: the copy cannot be made. */
  | { readonly do: "fail"; readonly error: StorageError };

/** The size of a chunk in bytes. One command copies it in a few seconds, so that the driver stops soon. */
export const CHUNK_BYTES = 512n << 20n;

/** Returns the next step of a copy. */
export function nextStep(copy: CopyState): CopyStep {
  const { tags: { format, source, copied }, destination, original, copySnapshot, offset } = copy;
  if (copied === "all") return nextThinCloneStep(copy);
  if (format.state === "formatting") return restartStep(destination, copied);
  if (offset === undefined && destination.lv.open) return { do: "wait" };
  if (copy.sourceNode !== undefined) return nextFetchStep(copy, copy.sourceNode, copied);
  if (original === undefined) return failStep(copy, "NotFound", "the source does not exist any more");
  let located = original;
  if (source.kind === "volume") {
    if (copySnapshot === undefined) {
      if ((offset ?? copied) > 0n) return restartStep(destination, copied); // Never mix data of two moments.
      return original.lv.active ? { do: "createCopySnapshot", original } : { do: "activate", located: original };
    }
    const isOfOther = copySnapshot.lv.origin !== original.lv.name; // LVM takes the volume by its name
    if (isIncompleteSnapshot(copySnapshot.lv) || isOfOther || copySnapshot.lv.invalidSnapshot) {
      return { do: "removeCopySnapshot", copySnapshot };
    }
    located = copySnapshot;
  }
  const { lv: from } = located;
  if (from.invalidSnapshot) {
    return failStep(copy, "FailedPrecondition", "its COW space overflowed, and its content is lost");
  }
  const size = sourceBytes(from);
  if (size > destination.lv.size) {
    return failStep(
      copy,
      "OutOfRange",
      `the source has ${formatBytes(size)}, the new volume only ${formatBytes(destination.lv.size)}`,
    );
  }
  for (const each of [located, destination]) {
    if (!each.lv.active || each.lv.suspended) return { do: "activate", located: each };
  }
  const done = offset ?? copied;
  if (done < size) {
    return { do: "copy", from, recorded: copied, offset: done, length: min(size - done, CHUNK_BYTES) };
  }
  return destination.lv.open ? { do: "wait" } : { do: "complete" };
}

/**
 * Returns the next step of a thin clone. A thin clone whose creation this process did not see is dropped: it may not
 * have been extended yet, or its lvcreate was killed. In the latter case the pool creates the snapshot only with its
 * next change, when the source may have been written to. So is a clone of another LV, which had the name of the source.
 */
function nextThinCloneStep({ destination, original, offset }: CopyState): CopyStep {
  if (offset === undefined || destination.lv.origin !== original?.lv.name) return { do: "drop" };
  if (!destination.lv.active || destination.lv.suspended) return { do: "activate", located: destination };
  return destination.lv.open ? { do: "wait" } : { do: "complete" };
}

/**
 * Returns the next step of a volume that is filled from another node. How large the source is, its agent says with the first
 * range. What is recorded was read back.
 */
function nextFetchStep(copy: CopyState, node: string, copied: bigint): CopyStep {
  const { destination, offset, total, base } = copy;
  if (!destination.lv.active || destination.lv.suspended) return { do: "activate", located: destination };
  if (base !== undefined) {
    const step = nextStepToGoal(copy, { node, base, copied });
    // only in a new thin LV zeros may be left out
    return step.do === "fill again" && isThin(destination.lv) ? { do: "drop" } : step;
  }
  const done = offset ?? copied - copied % RANGE_UNIT;
  if (total === undefined || done < total) {
    return { do: "fetch", node, recorded: copied, offset: done, length: FETCH_BYTES };
  }
  return destination.lv.open ? { do: "wait" } : { do: "complete" };
}

/**
 * Returns the next step of a volume that is filled from several snapshots of another node, one after the other: from the first
 * one as a whole, and from each later one with what differs from the one before.
 *
 * A tag names the snapshot whose data it has, or is filled with. It is changed when all of a difference was written and read
 * back. Until then the difference is applied again, from its start, after a crash: that does no harm. A difference that
 * cannot be had is no failure: the volume is filled again, with the whole snapshot.
 */
function nextStepToGoal(
  copy: CopyState,
  { node, base, copied }: { readonly node: string; readonly base: CopyBase; readonly copied: bigint },
): CopyStep {
  const { destination: { lv }, goal, offset, total } = copy;
  if (goal === undefined) return { do: "rest" };
  const { snapshot, last } = goal;
  const fillAgain = { do: "fill again", recorded: copied, snapshot } as const;
  if (!hasBase(lv, copied)) {
    if (base.id !== snapshot && base.id !== goal.base) return fillAgain;
    const done = offset ?? copied - copied % RANGE_UNIT;
    if (total !== undefined && done >= total) return { do: "record filled", recorded: copied };
    return { do: "fetch", node, recorded: copied, offset: done, length: FETCH_BYTES };
  }
  if (base.id === snapshot) return !last ? { do: "rest" } : lv.open ? { do: "wait" } : { do: "complete" };
  if (base.id !== goal.base || base.uuid === undefined || copy.isWithoutDifference) return fillAgain;
  return { do: "fetch difference", node, snapshot, offset: copy.differenceOffset ?? 0n };
}

/**
 * Returns the step that begins a copy again. A thick LV is overwritten. A thin LV is dropped with its space in the
 * pool, because only in a new thin LV dd may skip zeros.
 */
function restartStep({ lv }: LocatedLv, recorded: bigint): CopyStep {
  return isThin(lv) ? { do: "drop" } : { do: "restart", recorded };
}

/**
 * Returns the number of bytes to copy from an LV. For a COW snapshot it is the size of its origin, not of its COW
 * space.
 */
export function sourceBytes(from: LogicalVolume): bigint {
  return from.originSize ?? from.size;
}

function failStep({ id, tags: { source } }: CopyState, kind: StorageError["kind"], why: string): CopyStep {
  return {
    do: "fail",
    error: new StorageError(kind, `creating volume ${id} from ${describeSource(source)}: ${why}`),
  };
}
