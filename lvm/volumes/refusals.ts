import { StorageError, type StorageErrorOptions } from "../../base/error.ts";
import type { VolumeId } from "../../base/ids.ts";

/**
 * Returns the refusal of a group that was filled or removed after the report, or that LVM does not change: the next one, or
 * another node, may take the volume. `undefined` for other errors.
 */
export function groupRefusal(error: unknown): StorageError | undefined {
  if (!(error instanceof StorageError)) return undefined;
  if (error.kind === "NoSpace") return error;
  // the caller would take NotFound for the content source (CSI spec, CreateVolume), and would not choose another node
  return error.kind === "NotFound" || error.ofGroup
    ? new StorageError("NoSpace", error.message, { cause: error })
    : undefined;
}

/** Reports whether an error of LVM may mean that what was known is not true any more, so that a report must decide. */
export function isOutdated({ kind }: StorageError): boolean {
  return ["NoSpace", "AlreadyExists", "NotFound", "FailedPrecondition"].includes(kind);
}

/** Returns the error of the deletion of a volume that is in use. @param what its device, or a mount */
export function inUseError(id: VolumeId, what: string, options: StorageErrorOptions = {}): StorageError {
  const message = `deleting volume ${id}: ${what} is in use; unpublish and unstage it first`;
  return new StorageError("InUse", message, options);
}
