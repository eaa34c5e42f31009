/**
 * The mapping between a request for a volume and its LVMVolume. A linear volume has no layout, as those had none that were
 * written before there were others.
 *
 * @module
 */

import { quote, StorageError } from "../../base/error.ts";
import { ANY_GROUP, type GroupMatcher } from "../../lvm/model/groups.ts";
import {
  formatIoLimitParameters,
  hasLimits,
  IO_LIMIT_PARAMETERS,
  type IoLimits,
  parseIoLimitParameters,
} from "../../lvm/settings/io_limits.ts";
import { parseSnapshotId, parseVolumeId } from "../../base/ids.ts";
import { describeLayout, hasIntegrity, isCached, type Layout, LINEAR } from "../../lvm/model/layout.ts";
import { encryptionOf } from "../../lvm/settings/format.ts";
import { formatQuantity, parseQuantity, type SizeRange } from "../../base/size.ts";
import { formatSizeOrPercent, parseSizeOrPercent } from "../../lvm/settings/cow_size.ts";
import type { ContentSource, CopyGoal } from "../../lvm/model/tags.ts";
import { DEFAULT_POOL_SIZE, type ThinSpec } from "../../lvm/pools/pool.ts";
import type { SettingField } from "../../lvm/settings/settings.ts";
import { formatInterval, parseInterval, type TrimPolicy } from "../../lvm/settings/trim.ts";
import { differences, requireNoDifferences, type VolumeRequest } from "../../lvm/inventory/volume.ts";
import {
  CREATED_ANNOTATION,
  type LayoutSpec,
  LVM_VOLUME_FINALIZER,
  type LvmVolume,
  type LvmVolumeSpec,
} from "./lvm_objects.ts";
import { defined } from "../../base/defined.ts";
import { requireKnownValues } from "./volume_spec.ts";
import { listNodeNames } from "./pods.ts";
import { DEFAULT_CACHE_SIZE, DEFAULT_STRIPE_SIZE } from "../../lvm/settings/layouts.ts";

/** A request with its CSI name, which the LVMVolume records. */
export type NamedVolumeRequest = VolumeRequest & {
  readonly name: string;
  /** The size of the largest logical sectors on which its content can be used, in bytes; absent while that is not known. */
  readonly maximumSectorBytes?: bigint;
};

/** The driver and the node of a volume. */
export interface NodeDriver {
  /** The driver's name. */
  readonly driver: string;
  /** The node on which the volume is created. */
  readonly nodeName: string;
}

/** Returns the LVMVolume for a request. */
export function lvmVolumeFor(request: NamedVolumeRequest, { driver, nodeName }: NodeDriver): LvmVolume {
  const { id, name, range, groups, preference, format, mkfsOptions, shared, erase, limits = {}, thin, source, trim } =
    request;
  const { sourceNode, goal } = request;
  const settings = {
    volumeGroups: groups === ANY_GROUP ? undefined : String(groups),
    volumeGroupPreference: preference,
    fsType: format.state === "raw" ? undefined : format.type,
    mkfsOptions: mkfsOptions.length === 0 ? undefined : [...mkfsOptions],
    encryption: format.luks === undefined ? undefined : encryptionOf(format),
    shared,
    erase,
    layout: layoutSpecOf(request.layout),
    ioLimits: hasLimits(limits) ? formatIoLimitParameters(limits) : undefined,
    thinProvision: thin === undefined ? undefined : true,
    thinPool: thin?.pool,
    thinPoolSize: thin === undefined || thin.pool !== undefined ? undefined : formatSizeOrPercent(thin.poolSize),
    discard: trim?.discard ? true : undefined,
    fstrim: trim?.intervalMs === undefined ? undefined : formatInterval(trim.intervalMs),
  } satisfies Record<SettingField, unknown>;
  const spec: LvmVolumeSpec = {
    driverName: driver,
    requestName: name,
    nodeName,
    size: formatQuantity(range.required),
    ...(range.limit === undefined ? {} : { sizeLimit: formatQuantity(range.limit) }),
    volumeMode: format.state === "raw" ? "Block" : "Filesystem",
    ...defined(settings),
    ...(source === undefined ? {} : { source: { [source.kind]: source.id } }),
    ...(sourceNode === undefined || sourceNode === nodeName ? {} : { sourceNode }),
    ...(goal === undefined ? {} : { copy: copySpecOf(goal) }),
  };
  return {
    metadata: { name: id, finalizers: [LVM_VOLUME_FINALIZER], annotations: { [CREATED_ANNOTATION]: "false" } },
    spec,
  };
}

/**
 * Reads the request from an LVMVolume. IO limits are not part of it: they change, and are read from the object alone.
 *
 * @param parseGroups parses a list of volume groups
 * @throws {StorageError} `InvalidArgument` when the object, written by somebody else, cannot be read
 */
export function volumeRequestOf(object: LvmVolume, parseGroups: (list: string) => GroupMatcher): NamedVolumeRequest {
  const { metadata: { name }, spec } = object;
  const id = parseVolumeId(name);
  if (id === undefined) throw invalidArgument(object, "its name is no volume id");
  requireKnownValues(object);
  const { volumeGroups, volumeMode, fsType } = spec;
  if (volumeMode === "Filesystem" && fsType === undefined) throw invalidArgument(object, "it has no fsType");
  const thin = thinSpecOf(object);
  const trim = trimOf(object);
  return {
    id,
    name: spec.requestName,
    range: desiredSizeRange(object),
    groups: volumeGroups === undefined ? ANY_GROUP : parseGroups(volumeGroups),
    preference: spec.volumeGroupPreference,
    format: formatOf(spec),
    mkfsOptions: spec.mkfsOptions ?? [],
    shared: spec.shared,
    erase: spec.erase,
    layout: layoutOfSpec(spec.layout),
    ...defined({ thin }),
    ...(spec.source === undefined
      ? {}
      : { source: contentSourceOf(object)!, ...defined({ sourceNode: spec.sourceNode, goal: goalOf(object) }) }),
    ...defined({ trim }),
  };
}

/**
 * Returns the thin pool that an LVMVolume asks for, or `undefined` for a thick volume.
 *
 * @throws {StorageError} `InvalidArgument`
 */
export function thinSpecOf(object: LvmVolume): ThinSpec | undefined {
  requireKnownValues(object, ["thinProvision", "thinPool", "thinPoolSize"]);
  const { thinProvision, thinPool, thinPoolSize } = object.spec;
  if (thinProvision !== true) return undefined;
  const poolSize = thinPoolSize === undefined ? DEFAULT_POOL_SIZE : parseSizeOrPercent(thinPoolSize);
  if (poolSize === undefined) {
    throw invalidArgument(object, `its thinPoolSize ${quote(thinPoolSize ?? "")} is not valid`);
  }
  return { ...defined({ pool: thinPool }), poolSize };
}

/**
 * Returns what a volume is created from, or `undefined` for an empty volume.
 *
 * @throws {StorageError} `InvalidArgument`
 */
export function contentSourceOf(object: LvmVolume): ContentSource | undefined {
  requireKnownValues(object, ["source"]);
  const { source } = object.spec;
  if (source === undefined) return undefined;
  const [snapshot, volume] = [parseSnapshotId(source.snapshot ?? ""), parseVolumeId(source.volume ?? "")];
  if (snapshot !== undefined) return { kind: "snapshot", id: snapshot };
  if (volume !== undefined) return { kind: "volume", id: volume };
  throw invalidArgument(object, "its source is neither the id of a snapshot nor that of a volume");
}

/** Returns what the spec of a volume says of what it should have next. */
export function copySpecOf({ round, snapshot, base, last }: CopyGoal): NonNullable<LvmVolumeSpec["copy"]> {
  return { round, snapshot, ...defined({ base }), ...(last ? { last } : {}) };
}

/**
 * Returns what a volume should have next; `undefined` for one that is not filled from several snapshots.
 *
 * @throws {StorageError} `InvalidArgument`
 */
export function goalOf(object: LvmVolume): CopyGoal | undefined {
  requireKnownValues(object, ["copy"]);
  const { copy } = object.spec;
  if (copy === undefined) return undefined;
  const base = parseSnapshotId(copy.base ?? "");
  const snapshot = parseSnapshotId(copy.snapshot)!;
  return { round: copy.round, snapshot, last: copy.last ?? false, ...defined({ base }) };
}

function trimOf(object: LvmVolume): TrimPolicy | undefined {
  const { discard = false, fstrim } = object.spec;
  const intervalMs = fstrim === undefined ? undefined : parseInterval(fstrim);
  if (fstrim !== undefined && intervalMs === undefined) {
    throw invalidArgument(object, `its fstrim ${quote(fstrim)} is not a valid interval`);
  }
  return discard || intervalMs !== undefined ? { discard, ...defined({ intervalMs }) } : undefined;
}

/** Returns the size that an LVMVolume asks for. @throws {StorageError} `InvalidArgument` */
export function desiredSizeRange(object: LvmVolume): SizeRange {
  requireKnownValues(object, ["size", "sizeLimit"]);
  const { size, sizeLimit } = object.spec;
  const required = parseQuantity(size);
  if (required === undefined || required === 0n) {
    throw invalidArgument(object, `its size ${quote(size)} is not a valid quantity`);
  }
  if (sizeLimit === undefined) return { required };
  const max = parseQuantity(sizeLimit);
  if (max === undefined) throw invalidArgument(object, `its limit ${quote(sizeLimit)} is no size`);
  return { required, limit: max };
}

/** Returns the IO limits of an LVMVolume. @throws {StorageError} `InvalidArgument` */
export function ioLimitsOf(object: LvmVolume): IoLimits {
  requireKnownValues(object, ["ioLimits"]);
  try {
    return parseIoLimitParameters(new Map(Object.entries(object.spec.ioLimits ?? {})));
  } catch (error) {
    throw invalidArgument(object, error instanceof Error ? error.message : String(error));
  }
}

/** Returns a merge patch of `ioLimits`. A limit replaces the one of the same name, whether absolute or per GiB. */
export function ioLimitsPatch(limits: IoLimits): Record<string, string | null> {
  const names = Object.keys(limits);
  const replaced = IO_LIMIT_PARAMETERS.filter((parameter) => names.some((name) => parameter.startsWith(name)));
  return { ...Object.fromEntries(replaced.map((parameter) => [parameter, null])), ...formatIoLimitParameters(limits) };
}

/** Returns the layout that an LVMVolume asks for. @throws {StorageError} `InvalidArgument` */
export function layoutOf(object: LvmVolume): Layout {
  requireKnownValues(object, ["layout"]);
  return layoutOfSpec(object.spec.layout);
}

/** Returns the actual size of a volume in bytes, or `undefined` before it is created. */
export function actualSize({ status }: LvmVolume): bigint | undefined {
  return status?.size === undefined ? undefined : parseQuantity(status.size);
}

/** Returns the size of the largest logical sectors on which what is on a volume can be used, as far as it is known. */
export function maximumSectorBytesOf({ status }: LvmVolume): { readonly maximumSectorBytes?: bigint } {
  return defined({ maximumSectorBytes: parseQuantity(status?.maximumSectorSize ?? "") });
}

/**
 * Requires that the existing volume of an object satisfies a request, by what the volume is and not by how it was asked for.
 *
 * @param allowedNodes the names of the nodes where the volume may be; any, when absent
 * @throws {StorageError} `AlreadyExists` with the differences
 */
export function requireCompatible(
  object: LvmVolume,
  request: NamedVolumeRequest,
  allowedNodes: readonly string[] | undefined,
): void {
  const { nodeName } = object.spec;
  const isElsewhere = allowedNodes !== undefined && !allowedNodes.includes(nodeName);
  requireNoDifferences(request.id, [
    ...differences({
      size: actualSize(object) ?? desiredSizeRange(object).required,
      format: formatOf(object.spec),
      group: object.status?.volumeGroup,
      thin: thinSpecOf(object),
      layout: describeLayout(layoutOf(object)),
      source: contentSourceOf(object),
    }, request),
    ...(isElsewhere ? [`it is on node ${nodeName} (requested: ${listNodeNames(allowedNodes, " or ")})`] : []),
  ]);
}

function formatOf({ volumeMode, fsType, encryption = "none" }: LvmVolumeSpec): VolumeRequest["format"] {
  return {
    ...(volumeMode === "Block" || fsType === undefined
      ? { state: "raw" } as const
      : { state: "unformatted", type: fsType } as const),
    ...(encryption === "luks2" && { luks: { state: "wanted" } as const }),
  };
}

function invalidArgument({ metadata: { name } }: LvmVolume, why: string): StorageError {
  return new StorageError("InvalidArgument", `reading LVMVolume ${name}: ${why}`);
}

/** Returns the `layout` field of an LVMVolume, or `undefined` for a linear layout. */
export function layoutSpecOf(layout: Layout): LayoutSpec | undefined {
  if (layout.type === "linear") return undefined;
  if (isCached(layout)) return { type: layout.type, cacheSize: formatQuantity(layout.cacheSize) };
  const integrity = hasIntegrity(layout) ? { integrity: true } : {};
  if (layout.type === "raid1") return { type: layout.type, mirrors: layout.mirrors, ...integrity };
  const { type, stripes, stripeSize } = layout;
  return { type, stripes, stripeSize: formatQuantity(stripeSize), ...integrity };
}

/** Returns the layout that the spec of an LVMVolume asks for. The schema of the kind has validated it. */
export function layoutOfSpec(spec: LayoutSpec | undefined): Layout {
  if (spec === undefined) return LINEAR;
  if ("cacheSize" in spec) {
    return { type: spec.type, cacheSize: parseQuantity(spec.cacheSize) ?? DEFAULT_CACHE_SIZE };
  }
  const integrity = spec.integrity === true ? { integrity: true as const } : {};
  if (spec.type === "raid1") return { type: spec.type, mirrors: spec.mirrors, ...integrity };
  const { type, stripes } = spec;
  const stripeSize = parseQuantity(spec.stripeSize) ?? DEFAULT_STRIPE_SIZE;
  return type === "striped" ? { type, stripes, stripeSize } : { type, stripes, stripeSize, ...integrity };
}
