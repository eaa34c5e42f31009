/**
 * The files and directories that volumes are mounted on.
 *
 * @module
 */

import { StorageError } from "../error.ts";

/** Makes the file or directory to mount on; answers whether it was not there before. */
export async function createMountPoint(target: string, isFile: boolean): Promise<boolean> {
  try {
    if (isFile) await Deno.writeFile(target, new Uint8Array(), { createNew: true, mode: 0o660 });
    else await Deno.mkdir(target, { mode: 0o750 });
    return true;
  } catch (error) {
    if (error instanceof Deno.errors.AlreadyExists) return false;
    throw new StorageError("FailedPrecondition", `making the target ${target}: ${String(error)}`, { cause: error });
  }
}

/** Removes the file or directory that a volume was mounted on, if nothing is in it. */
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
