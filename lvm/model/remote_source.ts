/**
 * The tags of a volume that is filled from a snapshot of another node: the name of that node, and of a volume that is
 * filled from several snapshots, one after the other, the one whose data it has. They are there as long as it is filled.
 *
 * @module
 */

import { defined } from "../../base/defined.ts";
import { parseSnapshotId, type SnapshotId } from "../../base/ids.ts";
import { COPIED, tagValue } from "./tag_text.ts";

const NODE = "denolith.from=";
const BASE = "denolith.base=";

/** The snapshot from which a volume is filled, and whose data it then has: the base of the next difference. */
export interface CopyBase {
  /** Its id. */
  readonly id: SnapshotId;
  /** The UUID of its LV; absent before anything was read from it. */
  readonly uuid?: string;
}

/** What a volume that is filled from several snapshots should have next. */
export interface CopyGoal {
  /** The number of the snapshot, which grows. */
  readonly round: number;
  /** The snapshot. */
  readonly snapshot: SnapshotId;
  /** The snapshot before, which the volume has; absent to read all of the snapshot. */
  readonly base?: SnapshotId;
  /** Whether it is the last one, after which the volume is complete. */
  readonly last: boolean;
}

/** Returns the tags of a new volume for its first snapshot; none for one that is filled from one snapshot alone. */
export function copyBaseTags(base: CopyBase | undefined): string[] {
  return base === undefined ? [] : [`${BASE}${base.id}${base.uuid === undefined ? "" : `:${base.uuid}`}`];
}

/** Returns the snapshot from which a volume is filled, or that it has; `undefined` for one that has no such tag. */
export function copyBaseOf(tags: readonly string[]): CopyBase | undefined {
  const [id, uuid] = tagValue(tags, BASE)?.split(":") ?? [];
  const parsed = parseSnapshotId(id ?? "");
  return parsed && { id: parsed, ...defined({ uuid }) };
}

/** Returns arguments of lvchange that record another snapshot, or none when the volume is complete. */
export function markCopyBase(from: CopyBase | undefined, to: CopyBase | undefined): string[] {
  return [
    ...copyBaseTags(from).flatMap((tag) => ["--deltag", tag]),
    ...copyBaseTags(to).flatMap((tag) => ["--addtag", tag]),
  ];
}

/** Returns the tags of a new volume for the node of its source; none for a source on this machine. */
export function sourceNodeTags(node: string | undefined): string[] {
  return node === undefined ? [] : [NODE + node];
}

/** Returns the node of the source of a volume that is filled; `undefined` for a source on this machine. */
export function sourceNodeOf(tags: readonly string[]): string | undefined {
  const node = tagValue(tags, NODE);
  return node !== undefined && tagValue(tags, COPIED) !== undefined ? node : undefined;
}

/** Returns arguments of lvchange that forget the node of the source, when the volume is complete. */
export function forgetSourceNode(node: string | undefined): string[] {
  return sourceNodeTags(node).flatMap((tag) => ["--deltag", tag]);
}
