/**
 * Lists in pages. A token names the last item of the previous page, so it stays valid when items are added or removed.
 *
 * @module
 */

import { parseVolumeId } from "../base/ids.ts";
import { invalidArgument } from "./request.ts";
import { unknownToken } from "./status.ts";

/**
 * Returns a page of items, and the token of the next page, which is empty after the last one.
 *
 * @param items all items, in the order of their keys
 * @param key returns the key of an item, which is an id
 * @param startingToken the token of the page; empty for the first one
 * @param maxEntries the maximum number of items; 0 for all
 * @throws {StorageError} `InvalidArgument` for a negative number
 * @throws {StatusError} ABORTED for a token of another driver
 */
export function paginate<T>(
  items: readonly T[],
  key: (item: T) => string,
  startingToken: string,
  maxEntries: number,
): { items: readonly T[]; nextToken: string } {
  if (maxEntries < 0) throw invalidArgument(`max_entries: negative: ${maxEntries}`);
  if (startingToken !== "" && parseVolumeId(startingToken) === undefined) throw unknownToken(startingToken);
  const remaining = items.filter((item) => key(item) > startingToken);
  const pageItems = maxEntries === 0 ? remaining : remaining.slice(0, maxEntries);
  const last = pageItems.at(-1);
  return { items: pageItems, nextToken: last === undefined || pageItems.length === remaining.length ? "" : key(last) };
}
