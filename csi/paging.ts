/**
 * Lists in pages. A token names the last item of the page before, so that it stays right when items come and go.
 *
 * @module
 */

import { parseVolumeId } from "../lvm/ids.ts";
import { invalidArgument } from "./request.ts";
import { unknownToken } from "./status.ts";

/**
 * The items after the one that the token names, at most `maxEntries` of them (0: all), and the token for the rest. The
 * items must be in the order of their keys, which are ids.
 *
 * @throws {StorageError} `InvalidArgument` for a negative number; a `StatusError` with ABORTED for a foreign token.
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
