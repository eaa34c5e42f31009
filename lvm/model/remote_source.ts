/**
 * The tag of a volume that is filled from a snapshot of another node: the name of that node. It is there as long as the
 * volume is filled.
 *
 * @module
 */

import { COPIED, tagValue } from "./tag_text.ts";

const NODE = "denolith.from=";

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
