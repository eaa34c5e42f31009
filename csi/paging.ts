/**
 * Lists in pages. A token names the last item of the page before, so that it stays right when items come and go.
 *
 * @module
 */

import { parseVolumeId } from "../lvm/ids.ts";
import { invalid } from "./request.ts";
import { staleToken } from "./status.ts";

/**
 * The items after the one that the token names, at most `maxEntries` of them (0: all), and the token for the rest. The
 * items must be in the order of their keys, which are ids.
 *
 * @throws {StorageError} `InvalidArgument` for a negative number; a `StatusError` with ABORTED for a foreign token.
 */
export function page<T>(
  items: readonly T[],
  key: (item: T) => string,
  token: string,
  maxEntries: number,
): { items: readonly T[]; nextToken: string } {
  if (maxEntries < 0) throw invalid(`max_entries: negative: ${maxEntries}`);
  if (token !== "" && parseVolumeId(token) === undefined) throw staleToken(token);
  const rest = items.filter((item) => key(item) > token);
  const taken = maxEntries === 0 ? rest : rest.slice(0, maxEntries);
  const last = taken.at(-1);
  return { items: taken, nextToken: last === undefined || taken.length === rest.length ? "" : key(last) };
}
