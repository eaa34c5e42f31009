/**
 * The check of an LVMVolume's spec before it is used.
 *
 * The API server checks it against the definition that is installed, which may be newer than this program: fields that
 * are unknown here are ignored, but a value that is unknown must not be taken for another one.
 *
 * @module
 */

import { quote, StorageError } from "../../base/error.ts";
import { parseSnapshotId } from "../../base/ids.ts";
import { FILESYSTEM_TYPES } from "../../lvm/settings/filesystem.ts";
import { IO_LIMIT_PARAMETERS } from "../../lvm/settings/io_limits.ts";
import { type Bounds, isCachedLayoutName, LAYOUT_NAMES, LAYOUTS } from "../../lvm/settings/layouts.ts";
import { SETTINGS } from "../../lvm/settings/settings.ts";
import { parseQuantity } from "../../base/size.ts";
import type { LvmVolume, LvmVolumeSpec } from "./lvm_objects.ts";

/** Reports whether this version knows a value. */
type Check = (value: unknown) => boolean;

const isText: Check = (value) => typeof value === "string";
const isFlag: Check = (value) => typeof value === "boolean";
const isOneOf = (values: readonly string[]): Check => (value) => values.some((known) => known === value);
const isOptional = (check: Check): Check => (value) => value === undefined || check(value);

/** The checks of all fields. */
const CHECKS = {
  driverName: isText,
  requestName: isText,
  nodeName: isText,
  size: isText,
  sizeLimit: isOptional(isText),
  volumeGroups: isOptional(isText),
  volumeGroupPreference: isOneOf(SETTINGS.volumeGroupPreference.values),
  volumeMode: isOneOf(["Filesystem", "Block"]),
  fsType: isOptional(isOneOf(FILESYSTEM_TYPES)),
  mkfsOptions: isOptional((value) => Array.isArray(value) && value.every(isText)),
  encryption: isOptional(isOneOf(SETTINGS.encryption.values)),
  shared: isFlag,
  erase: isOneOf(SETTINGS.erase.values),
  layout: isOptional(isLayout),
  ioLimits: isOptional((value) =>
    isObject(value) && IO_LIMIT_PARAMETERS.every((name) => isOptional(isText)(value[name]))
  ),
  thinProvision: isOptional(isFlag),
  thinPool: isOptional(isLvName),
  thinPoolSize: isOptional(isText),
  source: isOptional((value) => isObject(value) && [value.snapshot, value.volume].every(isOptional(isText))),
  sourceNode: isOptional((value) => typeof value === "string" && /^[a-z0-9.-]{1,253}$/.test(value)),
  copy: isOptional(isGoal),
  held: isOptional(isFlag),
  adoptsVolume: isOptional(isText),
  imports: isOptional((value) =>
    isObject(value) && isText(value.volumeGroupUUID) && isLvName(value.lvName) &&
    isOneOf(["Inspect", "Import", "InspectReturn", "Return"])(value.action)
  ),
  discard: isOptional(isFlag),
  fstrim: isOptional(isText),
} as const satisfies Record<keyof LvmVolumeSpec, Check>;

const ALL_FIELDS = Object.keys(CHECKS) as readonly (keyof LvmVolumeSpec)[];

/**
 * Requires that fields of the spec have values that this version knows.
 *
 * @param fields the fields; all by default
 * @throws {StorageError} `InvalidArgument` with the first field that has not
 */
export function requireKnownValues(
  { metadata: { name }, spec }: LvmVolume,
  fields: readonly (keyof LvmVolumeSpec)[] = ALL_FIELDS,
): void {
  const unknown = fields.find((field) => !CHECKS[field](spec[field]));
  if (unknown === undefined) return;
  const value = quote(JSON.stringify(spec[unknown]) ?? "nothing");
  throw new StorageError(
    "InvalidArgument",
    `reading LVMVolume ${name}: its ${unknown} has the value ${value}, which this version does not know; upgrade the driver, or ` +
      "delete the volume and create it again",
  );
}

function isLvName(value: unknown): boolean {
  return typeof value === "string" && /^[A-Za-z0-9+_.][A-Za-z0-9+_.-]{0,126}$/.test(value);
}

function isGoal(value: unknown): boolean {
  if (!isObject(value)) return false;
  const { round, snapshot, base, last } = value;
  const isId = (id: unknown) => typeof id === "string" && parseSnapshotId(id) !== undefined;
  return Number.isSafeInteger(round) && isId(snapshot) && isOptional(isId)(base) && isOptional(isFlag)(last);
}

function isLayout(value: unknown): boolean {
  if (!isObject(value)) return false;
  const { type, mirrors, stripes, stripeSize, cacheSize } = value;
  if (!LAYOUT_NAMES.some((name) => name === type) || type === "linear") return false;
  if (isCachedLayoutName(String(type))) {
    return typeof cacheSize === "string" && (parseQuantity(cacheSize) ?? 0n) > 0n;
  }
  if (type === "raid1") return isWithin(mirrors, LAYOUTS.raid1.mirrors);
  const layout = LAYOUTS[type as "striped" | "raid10" | "raid5" | "raid6"];
  return isWithin(stripes, layout.stripes) && typeof stripeSize === "string" && (parseQuantity(stripeSize) ?? 0n) > 0n;
}

function isWithin(value: unknown, { min, max }: Bounds): boolean {
  return typeof value === "number" && Number.isInteger(value) && value >= min && value <= max;
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
