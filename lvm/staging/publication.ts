/**
 * Whether a volume may be used as it is asked for: decided from its tags and the mount table, and nothing is done.
 *
 * @module
 */

import type { BlockDevice } from "../host/device.ts";
import { StorageError } from "../error.ts";
import { checkMountFlags, type FilesystemType } from "../spec/filesystem.ts";
import type { VolumeId } from "../ids.ts";
import { filesystemMounts, type Mount } from "../host/mounts.ts";
import type { Volume } from "../inventory/volume.ts";

/** How a volume is to be used. */
export type Access =
  | { readonly kind: "block" }
  /** As a filesystem; without a type, of the type that the volume was made for. */
  | { readonly kind: "mount"; readonly type?: FilesystemType; readonly flags: readonly string[] };

/** Where a staged volume is to be published, and how. */
export interface Publication {
  /** Where it is staged. */
  readonly stagingPath: string;
  /** Where it is to appear: a directory, or a file for a block volume. */
  readonly target: string;
  /** As what. */
  readonly access: Access;
  /** Whether this target may only read. */
  readonly readOnly: boolean;
  /** Whether this may be the only target. */
  readonly exclusive: boolean;
}

/** The type to mount with, after checking that the volume can be used in the way asked for. */
export function resolveFilesystemType(volume: Volume, access: Access): FilesystemType | undefined {
  const { format } = volume.tags;
  if (access.kind === "block") {
    if (format.state === "raw") return undefined;
    throw new StorageError(
      "FailedPrecondition",
      `using volume ${volume.id} as a block device: it was made for ${format.type}`,
    );
  }
  if (format.state === "raw") {
    throw new StorageError(
      "FailedPrecondition",
      `mounting volume ${volume.id}: it is a block volume, it has no filesystem`,
    );
  }
  if (access.type !== undefined && access.type !== format.type) {
    throw new StorageError(
      "FailedPrecondition",
      `mounting volume ${volume.id} as ${access.type}: it was made for ${format.type}`,
    );
  }
  checkMountFlags(format.type, access.flags);
  return format.type;
}

/** Whether the volume is staged at the path as asked for. */
export function isStaged(
  volume: Volume,
  mounts: readonly Mount[],
  path: string,
  access: Access & { kind: "mount" },
): boolean {
  const there = mounts.findLast((mount) => mount.target === path);
  if (there === undefined) return false;
  if (!filesystemMounts([there], volume.lv).length) {
    throw new StorageError(
      "FailedPrecondition",
      `staging volume ${volume.id}: at ${path} ${there.source} is mounted already`,
    );
  }
  if (there.readOnly === access.flags.includes("ro")) return true;
  throw new StorageError(
    "AlreadyExists",
    `staging volume ${volume.id}: it is staged at ${path} ${
      there.readOnly ? "read-only" : "read-write"
    }, asked for is the other`,
  );
}

/** Whether the volume is published at the target as asked for. */
export function isPublished(
  id: VolumeId,
  mounts: readonly Mount[],
  ours: readonly Mount[],
  target: string,
  readOnly: boolean,
  device: BlockDevice | undefined,
): boolean {
  const there = mounts.findLast((mount) => mount.target === target);
  if (there === undefined) return false;
  if (!ours.includes(there)) {
    throw new StorageError(
      "FailedPrecondition",
      `publishing volume ${id}: at ${target} ${there.source} is mounted already`,
    );
  }
  if ((device?.readOnly ?? there.readOnly) === readOnly) return true;
  throw new StorageError(
    "AlreadyExists",
    `publishing volume ${id}: it is published at ${target} ${
      readOnly ? "read-write" : "read-only"
    }, asked for is the other`,
  );
}

/** Refuses a further target where the access mode, the volume, or a device that is read-only as a whole forbids it. */
export function refuseFurtherTarget(
  volume: Volume,
  publication: Publication,
  others: readonly Mount[],
  device: BlockDevice | undefined,
): void {
  const [first] = others;
  if (first === undefined) return;
  const why = publication.exclusive
    ? "the access mode allows one target"
    : !volume.tags.shared
    ? "it was made with shared: no"
    : device !== undefined && device.readOnly !== publication.readOnly
    ? `a block device is read-only for all of its targets or for none, and there it is ${
      device.readOnly ? "read-only" : "read-write"
    }`
    : undefined;
  if (why === undefined) return;
  throw new StorageError(
    "FailedPrecondition",
    `publishing volume ${volume.id} at ${publication.target}: it is published at ${first.target}, and ${why}`,
  );
}
