/**
 * The next step of a copy: decided from what a report shows, and from how far this process has come.
 *
 * A copy has no other memory than the tags of the volume that is being filled: its source, and how many of its bytes are there
 * for certain. So it goes on wherever the driver died. Whatever was changed by a program that may have been killed is made anew,
 * and so is a thin snapshot that was to become a volume at once: it costs nothing.
 *
 * @module
 */

import { StorageError } from "../error.ts";
import type { VolumeId } from "../ids.ts";
import type { LocatedLv, LogicalVolume } from "../model/report.ts";
import { formatBytes } from "../size.ts";
import { describeSource, type VolumeTags } from "../model/tags.ts";
import { isThin } from "../pools/pool.ts";
import { isIncompleteSnapshot } from "../inventory/leftovers.ts";

/** A copy, as it is now. */
export interface CopyState {
  /** The volume that is being filled. */
  readonly id: VolumeId;
  /** What its tags say. */
  readonly tags: Pick<VolumeTags, "format"> & Required<Pick<VolumeTags, "source" | "copied">>;
  /** Its LV. */
  readonly destination: LocatedLv;
  /** The volume or the snapshot that it is made from; absent when that is gone. */
  readonly original?: LocatedLv;
  /** The LV that keeps the volume as it was, if there is one; of a snapshot, none is needed. */
  readonly copySnapshot?: LocatedLv;
  /** How many bytes this process has copied, or shares with the source; `undefined` before it has taken the copy over. */
  readonly offset?: bigint;
}

/** A piece of a copy, in bytes. */
export interface Chunk {
  /** Where it begins. */
  readonly offset: bigint;
  /** How long it is. */
  readonly length: bigint;
}

/** The next step of a copy; `recorded` is what its tags say of how many bytes are there. */
export type CopyStep =
  /** A program of an earlier driver may still write: wait until it is done. */
  | { readonly do: "wait" }
  /** Take off what an earlier driver mounted, and record that nothing can be relied on. */
  | { readonly do: "restart"; readonly recorded: bigint }
  /** Give up the LV: it is made anew when it is asked for anew. */
  | { readonly do: "drop" }
  /** Give up the LV that should have kept the volume as it was. */
  | { readonly do: "removeCopySnapshot"; readonly copySnapshot: LocatedLv }
  /** Keep the volume as it is now. */
  | { readonly do: "createCopySnapshot"; readonly original: LocatedLv }
  /** Make a device usable. */
  | { readonly do: "activate"; readonly located: LocatedLv }
  /** Copy a piece. */
  | { readonly do: "copy"; readonly from: LogicalVolume; readonly recorded: bigint } & Chunk
  /** Nothing is left to be copied: make it a volume of its own. */
  | { readonly do: "complete" }
  /** It cannot be made. */
  | { readonly do: "fail"; readonly error: StorageError };

/** How much is copied by one command, in bytes: a few seconds' work, so that stopping need not wait for long. */
export const CHUNK_BYTES = 512n << 20n;

/** The next step of a copy. */
export function nextStep(copy: CopyState): CopyStep {
  const { tags: { format, source, copied }, destination, original, copySnapshot, offset } = copy;
  if (copied === "all") return nextThinCloneStep(copy);
  if (format.state === "formatting") return restartStep(destination, copied);
  if (offset === undefined && destination.lv.open) return { do: "wait" };
  if (original === undefined) return failStep(copy, "NotFound", "that is gone");
  let located = original;
  if (source.kind === "volume") {
    if (copySnapshot === undefined) {
      if ((offset ?? copied) > 0n) return restartStep(destination, copied); // or it would be of two moments
      return original.lv.active ? { do: "createCopySnapshot", original } : { do: "activate", located: original };
    }
    if (isIncompleteSnapshot(copySnapshot.lv) || copySnapshot.lv.invalidSnapshot) {
      return { do: "removeCopySnapshot", copySnapshot };
    }
    located = copySnapshot;
  }
  const { lv: from } = located;
  if (from.invalidSnapshot) {
    return failStep(copy, "FailedPrecondition", "its store overflowed, and its content is gone");
  }
  const size = sourceBytes(from);
  if (size > destination.lv.size) {
    return failStep(
      copy,
      "OutOfRange",
      `that has ${formatBytes(size)}, the new one only ${formatBytes(destination.lv.size)}`,
    );
  }
  for (const each of [located, destination]) {
    if (!each.lv.active || each.lv.suspended) return { do: "activate", located: each };
  }
  const done = offset ?? copied;
  if (done < size) {
    const length = size - done < CHUNK_BYTES ? size - done : CHUNK_BYTES;
    return { do: "copy", from, recorded: copied, offset: done, length };
  }
  return destination.lv.open ? { do: "wait" } : { do: "complete" };
}

/**
 * The next step of a copy that was made as a thin snapshot of its source. One that this process did not see made may not have
 * grown, or its lvcreate was killed, and the pool takes the snapshot only when it hears of it next, in the midst of writing.
 */
function nextThinCloneStep({ destination, offset }: CopyState): CopyStep {
  if (offset === undefined) return { do: "drop" };
  if (!destination.lv.active || destination.lv.suspended) return { do: "activate", located: destination };
  return destination.lv.open ? { do: "wait" } : { do: "complete" };
}

/**
 * How to begin anew what cannot be relied on. A thick LV is written over. A thin one is given up, and what it takes of its pool
 * with it: only in a fresh one zeros need not be written.
 */
function restartStep({ lv }: LocatedLv, recorded: bigint): CopyStep {
  return isThin(lv) ? { do: "drop" } : { do: "restart", recorded };
}

/** How many bytes there are to be copied from an LV. */
export function sourceBytes(from: LogicalVolume): bigint {
  return from.originSize ?? from.size;
}

function failStep({ id, tags: { source } }: CopyState, kind: StorageError["kind"], why: string): CopyStep {
  return {
    do: "fail",
    error: new StorageError(kind, `creating volume ${id} from ${describeSource(source)}: ${why}`),
  };
}
