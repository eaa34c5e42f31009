/**
 * Running the LVM commands that change something, and telling their failures apart.
 *
 * @module
 */

import type { ErrorKind } from "./error.ts";
import { type Exec, type Output, runOk } from "./exec.ts";

/**
 * What LVM says in English (LC_ALL=C) when it refuses, and what that means. Its exit status is 5 for all of them (lvm(8)).
 * Captured from LVM 2.03; anything else is `CommandFailed`.
 */
const REFUSALS: readonly [RegExp, ErrorKind][] = [
  [/insufficient free space/i, "NoSpace"],
  [/insufficient suitable .*allocatable extents/i, "NoSpace"],
  [/too large for circular buffer|metadata .*is too large/i, "NoSpace"],
  [/already exists in volume group/i, "AlreadyExists"],
  [/contains a filesystem in use/i, "InUse"],
  [/is used by another device|in use: not deactivating|is in use/i, "InUse"],
  [/only while inactive/i, "InUse"],
  [/does not accept LV type/i, "FailedPrecondition"],
  [/failed to find logical volume|volume group ".*" not found/i, "NotFound"],
];

/** The kind of failure that LVM's answer stands for. */
export function classifyRefusal(output: Output): ErrorKind {
  return REFUSALS.find(([said]) => said.test(output.stderr))?.[1] ?? "CommandFailed";
}

/**
 * Runs an LVM command that changes something.
 *
 * @throws {StorageError} of the kind that {@linkcode classifyRefusal} finds, besides those of {@linkcode Exec.run}.
 */
export async function change(exec: Exec, args: readonly string[]): Promise<void> {
  await runOk(exec, { program: "lvm", args, mutates: true }, classifyRefusal);
}
