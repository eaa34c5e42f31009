/**
 * What differs between two thin snapshots, and what one of them has, by the tables of their pool.
 *
 * @module
 */

import { type LocatedLv, lvPath } from "../model/report.ts";
import { StorageError } from "../../base/error.ts";
import { type Exec, runOk } from "../exec.ts";
import type { LocatedSnapshot } from "../inventory/snapshot_finder.ts";
import { findPool } from "../pools/pool.ts";
import { type ChunkRange, ChunkSet } from "./chunk_set.ts";
import { requireHiddenDevice } from "../host/device.ts";
import type { MetadataSnapshots } from "./metadata_snapshot.ts";
import { type DeltaKind, ThinDeltaReader } from "./thin_delta.ts";

/** The time in which thin_delta reads the tables of a pool, in milliseconds. They have at most 16 GiB. */
const READ_MS = 10 * 60 * 1000;

/** Blocks of the snapshots. */
export interface ThinBlocks {
  /** The size of a block in bytes. */
  readonly blockBytes: number;
  /** The blocks. */
  readonly blocks: ChunkSet;
}

/** What {@linkcode readThinBlocks} reads. */
export interface ThinComparison {
  /** The older snapshot; `undefined` for what the target has. */
  readonly base: LocatedSnapshot | undefined;
  /** The snapshot. */
  readonly target: LocatedSnapshot;
  /** Returns the window, by the size of a block in bytes. */
  readonly windowOf: (blockBytes: number) => ChunkRange;
}

/**
 * Returns the blocks of a window in which two thin snapshots differ: where they have not the same block of the pool. Without
 * a base, it returns those that the target has; any other one reads as zeros.
 *
 * @throws {StorageError} `FailedPrecondition` when they are not in one pool, or the kernel does not have it
 */
export async function readThinBlocks(
  exec: Exec,
  { base, target, windowOf }: ThinComparison,
  metadata: MetadataSnapshots,
): Promise<ThinBlocks> {
  const located = requireCommonPool(base ?? target, target);
  let blocks: ChunkSet | undefined;
  const kinds: readonly DeltaKind[] = base === undefined ? ["same"] : ["different", "left_only", "right_only"];
  const reader: ThinDeltaReader = new ThinDeltaReader((kind, range) => {
    if (kinds.includes(kind)) (blocks ??= new ChunkSet(windowOf(reader.blockBytes!))).add(range);
  });
  const device = await requireHiddenDevice(exec, located, "_tmeta");
  await metadata.use(located, () =>
    runOk(exec, {
      program: "thin_delta",
      args: ["--metadata-snap", "--thin1", thinIdOf(base ?? target), "--thin2", thinIdOf(target), device],
      mutates: false,
      deadlineMs: READ_MS,
      onOutput: (bytes) => Promise.resolve(reader.take(bytes)),
    }));
  const blockBytes = reader.end();
  return { blockBytes, blocks: blocks ?? new ChunkSet(windowOf(blockBytes)) };
}

function thinIdOf(located: LocatedSnapshot): string {
  const { thinId } = located.lv.segment;
  if (thinId !== undefined) return `${thinId}`;
  throw new StorageError("CommandFailed", `comparing ${lvPath(located)}: LVM does not report its number in its pool`);
}

function requireCommonPool(base: LocatedSnapshot, target: LocatedSnapshot): LocatedLv {
  const pool = findPool(target.group, target.lv.pool);
  if (base.group.uuid === target.group.uuid && base.lv.pool === target.lv.pool && pool !== undefined) {
    return { group: target.group, lv: pool };
  }
  throw new StorageError(
    "FailedPrecondition",
    `comparing ${lvPath(base)} and ${lvPath(target)}: they are not in one thin pool`,
  );
}
