/**
 * The kernel of this host.
 *
 * @module
 */

import { type Exec, runOk } from "../exec.ts";

/**
 * Reads the release of the kernel, as uname(1) prints it.
 *
 * @throws {StorageError} `CommandFailed` when it cannot be read
 */
export async function readKernelRelease(exec: Exec): Promise<string> {
  // with a program, since Deno refuses /proc under scoped permissions (docs/adr/0001)
  const args = ["if=/proc/sys/kernel/osrelease", "status=none"];
  return (await runOk(exec, { program: "dd", args, mutates: false })).trim();
}
