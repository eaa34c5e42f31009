/**
 * The files and directories on which volumes are mounted.
 *
 * @module
 */

import { StorageError } from "../../base/error.ts";

/**
 * Creates the file or directory to mount on.
 *
 * @returns whether it did not exist before
 * @throws {StorageError} `FailedPrecondition` when it cannot be created
 */
export async function createMountPoint(target: string, isFile: boolean): Promise<boolean> {
  try {
    if (isFile) await Deno.writeFile(target, new Uint8Array(), { createNew: true, mode: 0o660 });
    else await Deno.mkdir(target, { mode: 0o750 });
    return true;
  } catch (error) {
    if (error instanceof Deno.errors.AlreadyExists) return false;
    throw new StorageError("FailedPrecondition", `creating the target ${target}: ${String(error)}`, { cause: error });
  }
}

/**
 * Removes the file or directory on which a volume was mounted, if it is empty. One that does not exist is removed
 * already.
 *
 * @throws {StorageError} `FailedPrecondition` when it is not empty or cannot be removed
 */
export async function removeMountPoint(target: string): Promise<void> {
  try {
    const { isDirectory, isFile, size } = await Deno.lstat(target);
    if (!isDirectory && !(isFile && size === 0)) throw new Error("it is not an empty file or directory");
    await Deno.remove(target);
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return;
    throw new StorageError("FailedPrecondition", `removing the target ${target}: ${String(error)}`, { cause: error });
  }
}
