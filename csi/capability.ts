/**
 * Volume capabilities: the access type and the access mode of a volume.
 *
 * @module
 */

import { quote, StorageError } from "../base/error.ts";
import { FILESYSTEM_TYPES, type FilesystemType, parseFilesystemType } from "../lvm/settings/filesystem.ts";
import { checkMountFlags, effectiveMountFlags } from "../lvm/settings/mount_flags.ts";
import type { Access } from "../lvm/staging/publication.ts";
import { type VolumeCapability, VolumeCapability_AccessMode_Mode as Mode } from "./proto/csi_pb.ts";
import { invalidArgument, wrongParameter } from "./request.ts";
import { defined } from "../base/defined.ts";

/** A supported capability. */
export interface Capability {
  /** Access as a block device or as a filesystem. */
  readonly access: Access;
  /** True if a node may publish the volume at one target only. */
  readonly exclusive: boolean;
  /** True if the volume is only read. */
  readonly readOnly: boolean;
}

/**
 * The access modes for one node. Only SINGLE_NODE_MULTI_WRITER allows a second target (CSI spec, NodePublishVolume).
 */
const MODES: ReadonlyMap<Mode, Omit<Capability, "access">> = new Map([
  [Mode.SINGLE_NODE_WRITER, { exclusive: true, readOnly: false }],
  [Mode.SINGLE_NODE_READER_ONLY, { exclusive: true, readOnly: true }],
  [Mode.SINGLE_NODE_SINGLE_WRITER, { exclusive: true, readOnly: false }],
  [Mode.SINGLE_NODE_MULTI_WRITER, { exclusive: false, readOnly: false }],
]);

/** Parses a capability. @throws {StorageError} `InvalidArgument` for one that is missing or not supported */
export function requireCapability(capability: VolumeCapability | undefined): Capability {
  if (capability === undefined) throw invalidArgument("volume_capability: missing");
  const mode = capability.accessMode?.mode ?? Mode.UNKNOWN;
  const use = MODES.get(mode);
  if (use === undefined) throw invalidArgument(unsupportedMode(mode), "AccessModeUnsupported");
  return { ...use, access: requireAccess(capability.accessType) };
}

/**
 * Parses the capability of a request to a node. A mode of several nodes is more than any volume has, and has a code of its own
 * there (CSI spec, NodeStageVolume and NodePublishVolume).
 *
 * @throws {StorageError} `FailedPrecondition` for such a mode; `InvalidArgument` as {@linkcode requireCapability}
 */
export function requireNodeCapability(capability: VolumeCapability | undefined): Capability {
  const mode = capability?.accessMode?.mode ?? Mode.UNKNOWN;
  if (Mode[mode]?.startsWith("MULTI_NODE")) {
    throw new StorageError("FailedPrecondition", unsupportedMode(mode), { reason: "AccessModeUnsupported" });
  }
  return requireCapability(capability);
}

function unsupportedMode(mode: Mode): string {
  const name = Mode[mode] ?? mode;
  return `volume_capability.access_mode ${name}: not supported; a node-local volume is for one node (SINGLE_NODE_…)`;
}

/**
 * Returns the kind of volume that has all the capabilities of a request.
 *
 * @throws {StorageError} `InvalidArgument` when there is none, one is not supported, or they exclude each other
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

/** Reports whether an error means that a capability is not supported, as opposed to a failure. */
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
  return { kind: "mount", flags: effectiveMountFlags(mountFlags), ...defined({ type }) };
}

/**
 * Parses the filesystem type of a field.
 *
 * @returns the type, or `undefined` for an empty field
 * @throws {StorageError} `InvalidArgument` for an unknown type
 */
export function requireFilesystemType(field: string, value: string): FilesystemType | undefined {
  if (value === "") return undefined;
  const type = parseFilesystemType(value);
  if (type === undefined) {
    throw wrongParameter(`${field} ${quote(value)}: not supported; there are ${FILESYSTEM_TYPES.join(", ")}`);
  }
  return type;
}
