/**
 * Parses the options of a driver: its socket, its mount roots, its name, and the names of volume groups. The process that parses
 * the command line loads this module, so it has nothing of the library for patterns.
 *
 * @module
 */

import { basename, dirname, join } from "@std/path";
import { quote, StorageError } from "../base/error.ts";
import { invalidArgument, requirePath, wrongParameter } from "./request.ts";
import { anyMatcherOf, exactMatcher, GROUP_NAME, type GroupMatcher } from "../lvm/model/groups.ts";

/**
 * The host in the URLs of the calls that a process makes to itself, over its socket. Deno wants a permission for it. There is
 * no such host (RFC 2606).
 */
export const OWN_HOST = "driver.invalid:80";

/**
 * Returns the path at which a socket is made, before it is moved to its own. It is not longer, and kubelet ignores it for
 * its dot.
 */
export function newSocketPath(path: string): string {
  return join(dirname(path), `.${basename(path, ".sock")}.new`);
}

/** Maximum length of the path of a Unix socket, in bytes (unix(7): sun_path without its final zero). */
const MAX_SOCKET_PATH_BYTES = 107;

/** The form of mount roots, for messages. */
const MOUNT_ROOTS_ALLOWED = 'must be absolute paths of directories, without "." and ".."';

/**
 * Returns the path of the socket of an endpoint: `unix:///run/x.sock`, `unix:/run/x.sock` or the path alone.
 *
 * @param field the name of the field, for messages
 * @throws {StorageError} `InvalidArgument` for another scheme, a relative path, one that is too long, a name that does
 * not end in `.sock` (CSI spec, `CSI_ENDPOINT`), or a socket in the root directory: the driver is permitted the whole
 * directory of its socket
 */
export function socketPath(endpoint: string, field = "endpoint"): string {
  const invalid = (reason: string) => invalidArgument(`${field} ${quote(endpoint)}: ${reason}`);
  const withoutScheme = endpoint.replace(/^unix:(?:\/\/)?(?=\/(?!\/))/, "");
  if (!withoutScheme.startsWith("/")) throw invalid("must be unix:///PATH.sock, with an absolute path");
  const path = requirePath(field, withoutScheme);
  if (!path.endsWith(".sock")) throw invalid("the socket's name must end in .sock");
  if (dirname(path) === "/") throw invalid("the socket needs a directory of its own");
  if (new TextEncoder().encode(path).length > MAX_SOCKET_PATH_BYTES) {
    throw invalid(`longer than the ${MAX_SOCKET_PATH_BYTES} bytes that a unix socket's path can have`);
  }
  return path;
}

/**
 * Parses a list of directories, separated by commas.
 *
 * @param field the name of the list, for messages
 * @throws {StorageError} `InvalidArgument` for a relative path, one with dots, the root directory, or an empty list
 */
export function parseMountRoots(list: string, field = "mount roots"): readonly string[] {
  const roots = list.split(",").map((entry) => entry.trim()).filter((entry) => entry !== "");
  if (roots.length === 0) throw invalidArgument(`${field} ${quote(list)}: ${MOUNT_ROOTS_ALLOWED}`);
  return [...new Set(roots.map((root) => requireRoot(root, field)))];
}

function requireRoot(root: string, field: string): string {
  try {
    return requirePath(field, root);
  } catch (error) {
    throw error instanceof StorageError ? invalidArgument(`${error.message}; ${MOUNT_ROOTS_ALLOWED}`) : error;
  }
}

/**
 * Returns the name of a driver if it is valid.
 *
 * @param field the name of the field, for messages
 * @throws {StorageError} `InvalidArgument` if it is not (CSI spec, GetPluginInfoResponse.name)
 */
export function requireDriverName(name: string, field = "--driver-name"): string {
  if (/^(?=.{1,63}$)[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?$/.test(name)) return name;
  throw invalidArgument(`${field} ${quote(name)}: must be a domain name of at most 63 characters`);
}

/**
 * Parses a list of volume groups: names and `/patterns/`, separated by commas.
 *
 * @param field the name of the list, for messages
 * @param pattern creates the matcher of a pattern, which is given without its slashes and as it stands in the list
 * @throws {StorageError} `InvalidArgument` for an invalid name or an empty list; what `pattern` throws
 */
export function parseGroupEntries(
  list: string,
  field: string,
  pattern: (pattern: string, entry: string) => GroupMatcher,
): GroupMatcher {
  const entries = splitGroupEntries(list);
  if (entries.length === 0) {
    throw invalidArgument(`${field} ${quote(list)}: must be names of volume groups or /patterns/, separated by commas`);
  }
  return anyMatcherOf(
    entries.map((entry) => /^\/[^/]*\/$/.test(entry) ? pattern(entry.slice(1, -1), entry) : nameMatcher(field, entry)),
  );
}

/**
 * Splits a list at its commas, except those within a `/pattern/` at the start of an entry.
 *
 * @returns the entries without blanks around them; empty ones are left out
 */
export function splitGroupEntries(list: string): string[] {
  const entries: string[] = [];
  for (let start = 0; start <= list.length;) {
    const first = start + list.slice(start).search(/\S|$/);
    const closing = list[first] === "/" ? list.indexOf("/", first + 1) : -1;
    const comma = list.indexOf(",", closing < 0 ? first : closing);
    const end = comma < 0 ? list.length : comma;
    entries.push(list.slice(first, end).trimEnd());
    start = end + 1;
  }
  return entries.filter((entry) => entry !== "");
}

/** Creates a matcher of one name. @throws {StorageError} `InvalidArgument` when no volume group can have it */
export function nameMatcher(field: string, name: string): GroupMatcher {
  if (!GROUP_NAME.test(name)) {
    throw wrongParameter(`${field} ${quote(name)}: not a name that a volume group can have`);
  }
  return exactMatcher(name);
}
