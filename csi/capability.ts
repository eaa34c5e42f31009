/**
 * Volume capabilities: what a volume is to be used as, and by how many.
 *
 * @module
 */

import { StorageError } from "../lvm/error.ts";
import { checkMountFlags, FILESYSTEM_TYPES, type FilesystemType, parseFilesystemType } from "../lvm/spec/filesystem.ts";
import type { Access } from "../lvm/staging/publication.ts";
import { type VolumeCapability, VolumeCapability_AccessMode_Mode as Mode } from "./proto/csi_pb.ts";
import { invalidArgument, quote } from "./request.ts";
import { defined } from "../lvm/defined.ts";

/** A capability that this driver has. */
export interface Capability {
  /** As a block device or a filesystem. */
  readonly access: Access;
  /** Whether a node may have it at one target only. */
  readonly exclusive: boolean;
  /** Whether it is only read. */
  readonly readOnly: boolean;
}

/**
 * The access modes of a volume that one node has. The table of NodePublishVolume lets only SINGLE_NODE_MULTI_WRITER have
 * a second target.
 */
const MODES: ReadonlyMap<Mode, Omit<Capability, "access">> = new Map([
  [Mode.SINGLE_NODE_WRITER, { exclusive: true, readOnly: false }],
  [Mode.SINGLE_NODE_READER_ONLY, { exclusive: true, readOnly: true }],
  [Mode.SINGLE_NODE_SINGLE_WRITER, { exclusive: true, readOnly: false }],
  [Mode.SINGLE_NODE_MULTI_WRITER, { exclusive: false, readOnly: false }],
]);

/** The capability of a request. @throws {StorageError} `InvalidArgument` for one that is missing or not supported. */
export function requireCapability(capability: VolumeCapability | undefined): Capability {
  if (capability === undefined) throw invalidArgument("volume_capability: missing");
  const mode = capability.accessMode?.mode ?? Mode.UNKNOWN;
  const use = MODES.get(mode);
  if (use === undefined) {
    throw invalidArgument(
      `volume_capability.access_mode ${
        Mode[mode] ?? mode
      }: not supported; a node-local volume is for one node (SINGLE_NODE_…)`,
    );
  }
  return { ...use, access: requireAccess(capability.accessType) };
}

/**
 * What a volume must be to have all the capabilities of a request.
 *
 * @throws {StorageError} `InvalidArgument` when there is none, one is not supported, or they exclude each other.
 */
export function requireCapabilities(
  capabilities: readonly VolumeCapability[],
): { readonly kind: "block" } | { readonly kind: "mount"; readonly type: FilesystemType | undefined } {
  const [first, ...rest] = capabilities.map((capability) => requireCapability(capability).access);
  if (first === undefined) throw invalidArgument("volume_capabilities: missing");
  const types = new Set([first, ...rest].map((access) => access.kind === "mount" ? access.type : undefined));
  types.delete(undefined);
  if (rest.some((access) => access.kind !== first.kind) || types.size > 1) {
    throw invalidArgument(
      "volume_capabilities: a volume is either a block device or of one filesystem type, not several",
    );
  }
  const [type] = types;
  return first.kind === "block" ? first : { kind: "mount", type };
}

/** Whether an error says that a capability is not supported, rather than that something failed. */
export function isUnsupportedCapability(error: unknown): error is StorageError {
  return error instanceof StorageError && error.kind === "InvalidArgument";
}

function requireAccess(accessType: VolumeCapability["accessType"]): Access {
  if (accessType.case === "block") return { kind: "block" };
  if (accessType.case !== "mount") throw invalidArgument("volume_capability.access_type: neither block nor mount");
  const { fsType, mountFlags, volumeMountGroup } = accessType.value;
  if (volumeMountGroup !== "") throw invalidArgument("volume_capability.mount.volume_mount_group: not supported");
  const type = requireFilesystemType("volume_capability.mount.fs_type", fsType);
  checkMountFlags(type, mountFlags);
  return { kind: "mount", flags: mountFlags, ...defined({ type }) };
}

/** The filesystem type that a field names, `undefined` for an empty one. @throws {StorageError} `InvalidArgument`. */
export function requireFilesystemType(field: string, value: string): FilesystemType | undefined {
  if (value === "") return undefined;
  const type = parseFilesystemType(value);
  if (type === undefined) {
    throw invalidArgument(`${field} ${quote(value)}: not supported; there are ${FILESYSTEM_TYPES.join(", ")}`);
  }
  return type;
}
