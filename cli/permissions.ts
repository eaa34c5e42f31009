/**
 * The permissions of the body of a subcommand, computed from its flags.
 *
 * @module
 */

import { dirname } from "@std/path";
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
  /** Environment variables that it reads, beside those of grpc-js. */
  readonly variables?: readonly string[];
}

/**
 * The programs of the closed list by absolute path, in each directory where one may be. A program need not exist before
 * it is run, so that a package can be installed while the driver runs.
 */
export const PROGRAM_PATHS: readonly string[] = PROGRAM_DIRECTORIES.flatMap((directory) =>
  PROGRAMS.map((program) => `${directory}/${program}`)
);

/** The variables that grpc-js reads. It fails on a variable that is not permitted, even if that is not set. */
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

/** The variables that Deno reads to start a program with more than three descriptors, as the shell of lvm is started. */
export const SHELL_ENVIRONMENT: readonly string[] = ["NODE_V8_COVERAGE"];

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
    net: [...sockets.map((path) => `unix:${path}`), ...hosts],
    env: [...variables, ...GRPC_ENVIRONMENT],
    sys: false,
    ffi: false,
    import: false,
  };
}
