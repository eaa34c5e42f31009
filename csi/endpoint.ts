/**
 * Parses the address of the driver's socket.
 *
 * @module
 */

import { dirname } from "@std/path";
import { invalidArgument, quote, requirePath } from "./request.ts";

/** Maximum length of the path of a Unix socket, in bytes (unix(7): sun_path without its final zero). */
const MAX_SOCKET_PATH_BYTES = 107;

/**
 * Returns the path of the socket of an endpoint: `unix:///run/x.sock`, `unix:/run/x.sock` or the path alone.
 *
 * @throws {StorageError} `InvalidArgument` for another scheme, a relative path, one that is too long, a name that does
 * not end in `.sock` (CSI spec, `CSI_ENDPOINT`), or a socket in the root directory: the driver is permitted the whole
 * directory of its socket
 */
export function socketPath(endpoint: string): string {
  const path = requirePath("endpoint", endpoint.replace(/^unix:(?:\/\/)?(?=\/(?!\/))/, ""));
  if (!path.endsWith(".sock")) {
    throw invalidArgument(`endpoint ${quote(endpoint)}: the socket's name must end in .sock`);
  }
  if (dirname(path) === "/") {
    throw invalidArgument(`endpoint ${quote(endpoint)}: the socket needs a directory of its own`);
  }
  if (new TextEncoder().encode(path).length > MAX_SOCKET_PATH_BYTES) {
    throw invalidArgument(
      `endpoint ${quote(endpoint)}: longer than the ${MAX_SOCKET_PATH_BYTES} bytes that a unix socket's path can have`,
    );
  }
  return path;
}
