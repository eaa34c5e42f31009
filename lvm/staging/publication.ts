/**
 * Decisions whether a volume may be used as requested, from its tags and the mount table. Nothing is changed here.
 *
 * @module
 */

import type { BlockDevice } from "../host/device.ts";
import { StorageError } from "../../base/error.ts";
import type { FilesystemType } from "../settings/filesystem.ts";
import { checkMountFlags } from "../settings/mount_flags.ts";
import { isSameContext, requestedContext } from "../settings/selinux.ts";
import type { VolumeId } from "../../base/ids.ts";
import type { Passphrases } from "../encryption/passphrase.ts";
import { deviceMounts, filesystemMounts, isDeletedNodeMount, type Mount, type MountedDevice } from "../host/mounts.ts";
import type { Volume } from "../inventory/volume.ts";

/** The access type of a volume. */
export type Access =
  | { readonly kind: "block" }
  /** As a filesystem. Without a type, the type that the volume was created for. */
  | { readonly kind: "mount"; readonly type?: FilesystemType; readonly flags: readonly string[] };

/** What a request to stage a volume says of its encryption. */
export interface EncryptedAccess extends Passphrases {
  /** True if the volume must be encrypted; by default it may be. */
  readonly isRequired?: boolean | undefined;
}

/** A request to stage a volume. */
export interface StageTarget extends EncryptedAccess {
  /** All mounts. */
  readonly mounts: readonly Mount[];
  /** The path at which it is to be mounted. */
  readonly path: string;
  /** How it is to be accessed. */
  readonly access: Access;
}

/** A request to publish a staged volume. */
export interface Publication {
  /** The path at which the volume is staged. */
  readonly stagingPath: string;
  /** The target: a directory, or a file for a block volume. */
  readonly target: string;
  /** The access type. */
  readonly access: Access;
  /** True if this target is read-only. */
  readonly readOnly: boolean;
  /** True if no other target is allowed. */
  readonly exclusive: boolean;
  /** Its passphrases, if the request has any: the previous one is replaced. */
  readonly passphrases?: Passphrases;
}

/**
 * Requires that a volume may be staged as requested.
 *
 * @param content the device that has its content
 * @returns where its filesystem is mounted: at the path as requested, elsewhere, or nowhere
 * @throws {StorageError} `FailedPrecondition` when it may not be used so, or not now; `AlreadyExists` when it is staged there in
 * another way; `InvalidArgument` for a mount flag that is not allowed
 */
export function requireStageable(
  volume: Volume,
  content: MountedDevice,
  target: StageTarget,
): "staged" | "elsewhere" | "nowhere" {
  const { mounts, access } = target;
  requireUsableAs(volume, access);
  requireEncrypted(volume, target);
  if (access.kind === "mount" && isStaged(volume.id, content, { ...target, access })) return "staged";
  if (deviceMounts(mounts, content).length === 0) refuseHeld("staging", volume);
  refuseWhileReached(volume, mounts);
  return filesystemMounts(mounts, content).length > 0 ? "elsewhere" : "nowhere";
}

/**
 * Requires that a volume was created for what is requested.
 *
 * @throws {StorageError} `FailedPrecondition` when it was not; `InvalidArgument` for a mount flag that is not allowed
 */
export function requireUsableAs(volume: Volume, access: Access): void {
  const { format } = volume.tags;
  if (access.kind === "block") {
    if (format.state === "raw") return;
    throw new StorageError(
      "FailedPrecondition",
      `using volume ${volume.id} as a block device: it was created for ${format.type}`,
      { reason: "WrongFilesystemType" },
    );
  }
  if (format.state === "raw") {
    throw new StorageError(
      "FailedPrecondition",
      `mounting volume ${volume.id}: it is a block volume and has no filesystem`,
      { reason: "WrongFilesystemType" },
    );
  }
  if (access.type !== undefined && access.type !== format.type) {
    throw new StorageError(
      "FailedPrecondition",
      `mounting volume ${volume.id} as ${access.type}: it was created for ${format.type}`,
      { reason: "WrongFilesystemType" },
    );
  }
  checkMountFlags(format.type, access.flags);
}

/**
 * Requires that a volume is encrypted if it has to be.
 *
 * @throws {StorageError} `FailedPrecondition`
 */
function requireEncrypted({ id, tags }: Volume, { isRequired = false }: EncryptedAccess): void {
  if (!isRequired || tags.format.luks !== undefined) return;
  throw new StorageError(
    "FailedPrecondition",
    `staging volume ${id}: its PersistentVolume says that it is encrypted, but its logical volume is not, as after a creation ` +
      "by an agent of an earlier version. Nothing was written; delete the volume and create it again",
  );
}

/**
 * Reports whether the volume is staged at the path as requested.
 *
 * @throws {StorageError} `FailedPrecondition` when another filesystem is mounted there; `AlreadyExists` when the volume
 * is read-only there and read-write is requested, or the reverse, or when another SELinux context is
 */
function isStaged(
  id: VolumeId,
  content: MountedDevice,
  { mounts, path, access: { flags } }: StageTarget & { readonly access: { readonly kind: "mount" } },
): boolean {
  const there = mounts.findLast((mount) => mount.target === path);
  if (there === undefined) return false;
  if (filesystemMounts([there], content).length === 0) {
    throw new StorageError(
      "FailedPrecondition",
      `staging volume ${id}: ${there.source} is already mounted at ${path}`,
    );
  }
  refuseOtherContext(id, there, flags);
  if (there.readOnly === flags.includes("ro")) return true;
  throw new StorageError(
    "AlreadyExists",
    `staging volume ${id}: it is staged at ${path} ${
      there.readOnly ? "read-only" : "read-write"
    }, but the request differs`,
  );
}

/** Refuses another SELinux context than that with which the volume is staged: a filesystem is mounted with one. */
function refuseOtherContext(id: VolumeId, { target, seLinuxContext }: Mount, flags: readonly string[]): void {
  const context = requestedContext(flags);
  if (isSameContext(context, seLinuxContext)) return;
  const words = (context: string | undefined) =>
    context === undefined ? "no SELinux context" : `the context ${context}`;
  throw new StorageError(
    "AlreadyExists",
    `staging volume ${id} with ${words(context)}: it is staged at ${target} with ${words(seLinuxContext)}, and can ` +
      "have one at a time; end the pods that use it first",
    { reason: "OtherSELinuxContext" },
  );
}

/**
 * Refuses to use a volume while the mount of a removed device node leads to its device: a pod would read the data of
 * another. The kernel gives the number of a removed device to the next one.
 *
 * @throws {StorageError} `FailedPrecondition` with the mount
 */
export function refuseWhileReached({ id, lv }: Volume, mounts: readonly Mount[]): void {
  const [mount] = deviceMounts(mounts, lv).filter(isDeletedNodeMount);
  if (mount === undefined) return;
  throw new StorageError(
    "FailedPrecondition",
    `staging volume ${id}: the removed device node that is mounted at ${mount.target} leads to its device; unpublish the ` +
      "volume that was published there (in a cluster, end its pod), or unmount it",
  );
}

/**
 * Refuses to begin to use a volume that is held, because it is being moved. Who uses it already goes on.
 *
 * @throws {StorageError} `FailedPrecondition`
 */
export function refuseHeld(operation: "staging" | "publishing", { id, tags }: Volume): void {
  if (!tags.held) return;
  throw new StorageError(
    "FailedPrecondition",
    `${operation} volume ${id}: it is being moved to another node, and nobody may begin to use it here; see its LVMMove`,
  );
}

/**
 * Returns the mount by which the volume is published at the target, if there is one. It may lack flags: mount(8) sets
 * them after it has mounted, and may have been killed before. So a mount that accepts writes may be the beginning of a
 * read-only one.
 *
 * @param ours the mounts of the volume
 * @param device the device of a block volume, which is read-only as a whole, and before it is mounted
 * @throws {StorageError} `FailedPrecondition` when another filesystem is mounted there; `AlreadyExists` when the volume
 * is read-only there and read-write is requested, or when the device of a block volume is not read-only as requested
 */
export function publishedMount(
  id: VolumeId,
  mounts: readonly Mount[],
  ours: readonly Mount[],
  { target, readOnly }: Pick<Publication, "target" | "readOnly">,
  device: BlockDevice | undefined,
): Mount | undefined {
  const there = mounts.findLast((mount) => mount.target === target);
  if (there === undefined) return undefined;
  if (!ours.includes(there)) {
    throw new StorageError(
      "FailedPrecondition",
      `publishing volume ${id}: ${there.source} is already mounted at ${target}`,
    );
  }
  if (device === undefined ? there.readOnly && !readOnly : device.readOnly !== readOnly) {
    throw publishedOtherwiseError(id, { target, readOnly });
  }
  return there;
}

/** Returns the error for a volume that is published at the target, but not read-only or read-write as requested. */
export function publishedOtherwiseError(
  id: VolumeId,
  { target, readOnly }: Pick<Publication, "target" | "readOnly">,
  options?: { cause: unknown },
): StorageError {
  return new StorageError(
    "AlreadyExists",
    `publishing volume ${id}: it is published at ${target} ${
      readOnly ? "read-write" : "read-only"
    }, but the request differs; unpublish it first`,
    options,
  );
}

/**
 * Refuses a further target if the access mode, the volume, or a block device that is read-only as a whole does not
 * allow it.
 *
 * @param others the other targets of the volume
 * @throws {StorageError} `FailedPrecondition` with the reason
 */
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
    ? "it was created with shared: no"
    : device !== undefined && device.readOnly !== publication.readOnly
    ? `a block device is read-only at all of its targets or at none, and there it is ${
      device.readOnly ? "read-only" : "read-write"
    }`
    : undefined;
  if (why === undefined) return;
  throw new StorageError(
    "FailedPrecondition",
    `publishing volume ${volume.id} at ${publication.target}: it is published at ${first.target}, and ${why}`,
    { reason: publication.exclusive ? "UsedByAnotherPod" : volume.tags.shared ? undefined : "NotShared" },
  );
}
