/**
 * The ranges of a snapshot that are sent because they differ from those of its base.
 *
 * @module
 */

import { max, min, roundUp } from "../../base/size.ts";
import { DIFFERENCE_UNIT, type Range } from "./protocol.ts";

/**
 * What is between two ranges that differ is sent with them up to this length, in bytes: to read it, send it and write it is
 * quicker than to start two more programs.
 */
export const NEAR_BYTES: bigint = 1n << 20n;

/**
 * Yields ranges that have whole units, and are not near each other.
 *
 * @param groups ranges in order, in groups
 * @param within the range that is of interest, of whole units, or up to the end of the device
 */
export async function* mergeNear(
  groups: AsyncIterable<readonly Range[]>,
  within: Range,
): AsyncGenerator<Range, void> {
  const last = within.offset + within.length;
  let current: { begin: bigint; end: bigint } | undefined;
  for await (const group of groups) {
    for (const { offset, length } of group) {
      const begin = max(offset - offset % DIFFERENCE_UNIT, within.offset);
      const end = min(roundUp(offset + length, DIFFERENCE_UNIT), last);
      if (begin >= end) continue;
      if (current !== undefined && begin - current.end <= NEAR_BYTES) current.end = max(current.end, end);
      else {
        if (current !== undefined) yield rangeOf(current);
        current = { begin, end };
      }
    }
  }
  if (current !== undefined) yield rangeOf(current);
}

function rangeOf({ begin, end }: { readonly begin: bigint; readonly end: bigint }): Range {
  return { offset: begin, length: end - begin };
}
