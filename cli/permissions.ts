/**
 * What a subcommand's body is permitted: computed from what the user chose, and nothing else.
 *
 * @module
 */

import { dirname } from "@std/path";
import { PROGRAM_DIRECTORIES, PROGRAMS } from "../lvm/exec.ts";

/** What a subcommand's body touches on the machine. */
export interface AccessScope {
  /** The programs that it runs, by absolute path; those of the closed list by default. */
  readonly programs?: readonly string[];
  /** The unix sockets that it listens on or connects to. Their directories belong to it, too. */
  readonly sockets: readonly string[];
  /** The directories that it reads and changes. */
  readonly directories: readonly string[];
  /** The hosts that it connects to and the addresses that it listens on, with their ports. */
  readonly hosts?: readonly string[];
  /** The files and directories that it only reads. */
  readonly files?: readonly string[];
  /** The environment's variables that it reads, beside those of grpc-js. */
  readonly variables?: readonly string[];
}

/**
 * The programs of the closed list by absolute path, in each directory where one may be. Whether one is there is found out
 * when it is run, so that a package can be installed while the driver runs.
 */
export const PROGRAM_PATHS: readonly string[] = PROGRAM_DIRECTORIES.flatMap((directory) =>
  PROGRAMS.map((program) => `${directory}/${program}`)
);

/** The variables that grpc-js reads; a variable that is not permitted is an error to it, even where it is not set. */
export const GRPC_ENVIRONMENT: readonly string[] = [
  "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH",
  "GRPC_EXPERIMENTAL_ENABLE_OUTLIER_DETECTION",
  "GRPC_NODE_DEBUG_SEND_ERROR_DETAILS",
  "GRPC_NODE_TRACE",
  "GRPC_NODE_USE_ALTERNATIVE_RESOLVER",
  "GRPC_NODE_VERBOSITY",
  "GRPC_SSL_CIPHER_SUITES",
  "GRPC_TRACE",
  "GRPC_VERBOSITY",
];

/**
 * The permissions of a worker.
 *
 * @param module the path of the file that the worker starts from: it reads that itself
 */
export function permissionsFor(scope: AccessScope, module: string): Deno.PermissionOptionsObject {
  const { programs = PROGRAM_PATHS, sockets, directories, hosts = [], files = [], variables = [] } = scope;
  const writable: string[] = [...new Set([...sockets.map((path) => dirname(path)), ...directories])];
  return {
    run: programs.length === 0 ? false : [...programs],
    read: [...writable, ...files, module],
    write: writable,
    net: [...sockets.map((path) => `unix:${path}`), ...hosts],
    env: [...variables, ...GRPC_ENVIRONMENT],
    sys: false,
    ffi: false,
    import: false,
  };
}
