/**
 * The permissions of the body of a subcommand, computed from its flags.
 *
 * @module
 */

import { dirname } from "@std/path";
import { newSocketPath, OWN_HOST } from "../csi/driver_options.ts";
import { PROGRAM_DIRECTORIES, PROGRAMS } from "../lvm/exec.ts";

/** The access that the body of a subcommand needs. */
export interface AccessScope {
  /** Programs that it runs, by absolute path; by default those of the closed list. */
  readonly programs?: readonly string[];
  /** Unix sockets that it listens on or connects to. Their directories are included. */
  readonly sockets: readonly string[];
  /** Directories that it reads and writes. */
  readonly directories: readonly string[];
  /** Hosts that it connects to and addresses that it listens on, with ports. */
  readonly hosts?: readonly string[];
  /** Files and directories that it only reads. */
  readonly files?: readonly string[];
  /** Environment variables that it reads. */
  readonly variables?: readonly string[];
}

/**
 * The programs of the closed list by absolute path, in each directory where one may be. A program need not exist before
 * it is run, so that a package can be installed while the driver runs.
 */
export const PROGRAM_PATHS: readonly string[] = PROGRAM_DIRECTORIES.flatMap((directory) =>
  PROGRAMS.map((program) => `${directory}/${program}`)
);

/** The variables that grpc-js reads when it is loaded. */
const GRPC_VARIABLES = "GRPC_*";

/**
 * Returns the permissions of a worker.
 *
 * @param module the path of the module that the worker loads, which it reads itself
 */
export function permissionsFor(scope: AccessScope, module: string): Deno.PermissionOptionsObject {
  const { programs = PROGRAM_PATHS, sockets, directories, hosts = [], files = [], variables = [] } = scope;
  const writable: string[] = [...new Set([...sockets.map((path) => dirname(path)), ...directories])];
  return {
    run: programs.length === 0 ? false : [...programs],
    read: [...writable, ...files, module],
    write: writable,
    net: [
      ...sockets.flatMap((path) => [`unix:${path}`, `unix:${newSocketPath(path)}`]),
      ...(sockets.length > 0 ? [OWN_HOST] : []),
      ...hosts,
    ],
    env: [...variables, ...(sockets.length > 0 ? [GRPC_VARIABLES] : [])],
    sys: false,
    ffi: false,
    import: false,
  };
}
