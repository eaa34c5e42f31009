import { StorageError, type StorageErrorOptions } from "../error.ts";
import type { VolumeId } from "../ids.ts";

/**
 * Returns the refusal of a group that was filled or removed after the report: the next one may have space. `undefined` for
 * other errors.
 */
export function groupRefusal(error: unknown): StorageError | undefined {
  if (!(error instanceof StorageError)) return undefined;
  if (error.kind === "NoSpace") return error;
  // the caller would take NotFound for the content source (CSI spec, CreateVolume)
  return error.kind === "NotFound" ? new StorageError("NoSpace", error.message, { cause: error }) : undefined;
}

/** Returns the error of the deletion of a volume that is in use. @param what its device, or a mount */
export function inUseError(id: VolumeId, what: string, options: StorageErrorOptions = {}): StorageError {
  const message = `deleting volume ${id}: ${what} is in use; unpublish and unstage it first`;
  return new StorageError("InUse", message, options);
}
