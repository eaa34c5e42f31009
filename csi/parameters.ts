/**
 * The parameters of StorageClasses and VolumeSnapshotClasses.
 *
 * Our names are in camelCase. The names of OpenEBS LVM LocalPV are accepted in any case and with their meaning, so that
 * its classes work unchanged. An unknown parameter is an error, so that a misspelt one is found at once.
 *
 * @module
 */

import { closestString } from "@std/text/closest-string";
import {
  DEFAULT_FILESYSTEM,
  type FilesystemType,
  parseMkfsOptions,
  supportsDiscard,
} from "../lvm/settings/filesystem.ts";
import type { Encryption } from "../lvm/settings/format.ts";
import { ANY_GROUP, type GroupMatcher, type GroupPreference } from "../lvm/model/groups.ts";
import { IO_LIMIT_PARAMETERS, type IoLimits, parseIoLimitParameters } from "../lvm/settings/io_limits.ts";
import { hasIntegrity, type Layout, LINEAR } from "../lvm/model/layout.ts";
import { FULL_COW, parseSizeOrPercent, PERCENT, type SizeOrPercent } from "../lvm/settings/cow_size.ts";
import type { Erasure } from "../lvm/model/tags.ts";
import { DEFAULT_POOL_SIZE, type ThinSpec } from "../lvm/pools/pool.ts";
import { SETTING_NAMES, type SettingProperty, SETTINGS, SNAPSHOT_SETTING_NAMES } from "../lvm/settings/settings.ts";
import { parseInterval, type TrimPolicy } from "../lvm/settings/trim.ts";
import { requireFilesystemType } from "./capability.ts";
import { patternMatcher } from "./group_list.ts";
import { nameMatcher } from "./driver_options.ts";
import { parseLayout } from "./layout_parameters.ts";
import {
  OPENEBS_PARAMETERS,
  OPENEBS_REFUSED_PARAMETERS,
  OPENEBS_SNAPSHOT_PARAMETERS,
  openEbsAliases,
} from "../lvm/settings/openebs_names.ts";
import { quote } from "../base/error.ts";
import { wrongParameter } from "./request.ts";
import { defined } from "../base/defined.ts";

/** The parameters of a StorageClass. */
export interface VolumeParameters {
  /** Volume groups to create volumes in. */
  readonly groups: GroupMatcher;
  /** The preference among them. */
  readonly preference: GroupPreference;
  /** Filesystem of a request that names none. */
  readonly type: FilesystemType;
  /** Encryption of volumes. */
  readonly encryption: Encryption;
  /** True if a volume may be published at several targets. */
  readonly shared: boolean;
  /** Text of the mkfs options, not yet checked against a filesystem. */
  readonly mkfsOptions: string;
  /** The way in which the data of a volume is erased on deletion. */
  readonly erase: Erasure;
  /** Layout of volumes over physical volumes. */
  readonly layout: Layout;
  /** IO limits. */
  readonly limits: IoLimits;
  /** Thin pool of the volumes; absent for thick volumes. */
  readonly thin?: ThinSpec;
  /** The policy for discarding freed blocks, not yet checked against a filesystem. */
  readonly trim: TrimPolicy;
}

/** Maximum length of mkfs options, in characters: they are in a tag, and the metadata area is small. */
const MAX_MKFS_OPTIONS_LENGTH = 256;

/** Valid names of LVs, without the reserved ones (lvm(8), "VALID NAMES"). */
const LV_NAME =
  /^(?!-)(?!\.{1,2}$)(?!snapshot|pvmove)(?!.*_(?:[ct]data|[ct]meta|[cir]orig|mimage|mlog|pmspare|rimage|rmeta|vdata|vorigin|wcorig))[A-Za-z0-9+_.-]{1,127}$/;

/** The form of percentages, for messages. */
const PERCENTAGE = `a percentage from ${PERCENT.min}% to ${PERCENT.max}%`;

/** Prefix of the parameters that the sidecars of Kubernetes add; they are ignored. */
const RESERVED_PREFIX = "csi.storage.k8s.io/";

/** The names of OpenEBS in lower case, and our names for them. */
const VOLUME_ALIASES = openEbsAliases(OPENEBS_PARAMETERS);
const SNAPSHOT_ALIASES = openEbsAliases(OPENEBS_SNAPSHOT_PARAMETERS);

/** The remedies for parameters of OpenEBS that are refused, by their names in lower case. */
const REFUSED_REMEDIES: ReadonlyMap<string, string> = new Map(
  Object.entries(OPENEBS_REFUSED_PARAMETERS).map(([name, remedy]) => [name.toLowerCase(), remedy]),
);

/** Parses the parameters of a StorageClass. @throws {StorageError} `InvalidArgument` with the invalid parameter */
export function parseVolumeParameters(parameters: Readonly<Record<string, string>>): VolumeParameters {
  const given = normalizeParameters(parameters, SETTING_NAMES, VOLUME_ALIASES);
  oneOf(given, "storage", OPENEBS_PARAMETERS.storage.values);
  const layout = parseLayout(given);
  const thin = parseThin(given);
  if (thin !== undefined && layout.type !== LINEAR.type) {
    throw wrongParameter(
      `parameter layout ${layout.type}: a thin volume is laid out as its pool is; make a pool of that layout yourself ` +
        "(lvmthin(7)), and name it by thinPool",
    );
  }
  if (hasIntegrity(layout)) refuseDiscards(given);
  const { encryption, shared, erase, discard, fstrim } = SETTINGS;
  const byProperty = {
    groups: parseGroups(given),
    preference: parsePreference(given),
    // the format is that of the capability, if it has one
    type: requireFilesystemType("parameter fsType", given.get("fsType") ?? "") ?? DEFAULT_FILESYSTEM,
    encryption: oneOf(given, "encryption", encryption.values),
    shared: oneOf(given, "shared", shared.values) === "yes",
    mkfsOptions: given.get("mkfsOptions") ?? "",
    erase: oneOf(given, "erase", erase.values),
    layout,
    limits: parseIoLimitParameters(given),
    thin,
    trim: {
      discard: oneOf(given, "discard", discard.values) === "yes",
      ...parseFstrim(given.get("fstrim") ?? fstrim.default),
    },
  } satisfies Record<Exclude<SettingProperty, "format"> | "type" | "encryption", unknown>;
  return defined(byProperty);
}

/** Refuses parameters that discard blocks: the checksums of RAID images let no discard pass. */
function refuseDiscards(given: ReadonlyMap<string, string>): void {
  const { discard, fstrim } = SETTINGS;
  const name = given.get("erase") === "discard"
    ? "erase"
    : (given.get("discard") ?? discard.default) !== discard.default
    ? "discard"
    : (given.get("fstrim") ?? fstrim.default) !== fstrim.default
    ? "fstrim"
    : undefined;
  if (name === undefined) return;
  throw wrongParameter(`parameter ${name}: a volume with raidIntegrity passes no discards to its disks`);
}

/**
 * Parses the mutable parameters, which are those of a VolumeAttributesClass: they may change after a volume is created.
 *
 * @throws {StorageError} `InvalidArgument` with the invalid parameter
 */
export function parseMutableParameters(parameters: Readonly<Record<string, string>>): IoLimits {
  const isLimit = (name: string) => IO_LIMIT_PARAMETERS.includes(name);
  const immutable = Object.keys(parameters).find((key) =>
    !key.startsWith(RESERVED_PREFIX) && !isLimit(key) && !VOLUME_ALIASES.get(key.toLowerCase())?.every(isLimit)
  );
  if (immutable !== undefined) {
    throw wrongParameter(
      `mutable parameter ${quote(immutable)}: cannot change; what can are ${IO_LIMIT_PARAMETERS.join(", ")}`,
    );
  }
  return parseIoLimitParameters(normalizeParameters(parameters, IO_LIMIT_PARAMETERS, VOLUME_ALIASES));
}

/** Parses the preference among groups. OpenEBS' scheduler stands for one, too. */
function parsePreference(given: ReadonlyMap<string, string>): GroupPreference {
  const preference = oneOf(given, "volumeGroupPreference", SETTINGS.volumeGroupPreference.values);
  if (oneOf(given, "scheduler", OPENEBS_PARAMETERS.scheduler.values) === "") return preference;
  if (preference === "mostFree" || !given.has("volumeGroupPreference")) return "mostFree";
  throw wrongParameter(
    "parameters scheduler and volumeGroupPreference: they contradict each other; omit the first one",
  );
}

/**
 * Parses the thin pool.
 *
 * @returns `undefined` for thick volumes
 * @throws {StorageError} `InvalidArgument` with the invalid parameter
 */
function parseThin(given: ReadonlyMap<string, string>): ThinSpec | undefined {
  const pool = given.get("thinPool");
  const size = given.get("thinPoolSize");
  if (oneOf(given, "thinProvision", OPENEBS_PARAMETERS.thinProvision.values) !== "yes") {
    const unexpected = pool !== undefined ? "thinPool" : size !== undefined ? "thinPoolSize" : undefined;
    if (unexpected === undefined) return undefined;
    throw wrongParameter(`parameter ${unexpected}: only for thin volumes, thinProvision: "yes"`);
  }
  if (pool === undefined) return { poolSize: size === undefined ? DEFAULT_POOL_SIZE : requirePoolSize(size) };
  if (size !== undefined) {
    throw wrongParameter("parameters thinPool and thinPoolSize: a pool that is there has its size");
  }
  if (!LV_NAME.test(pool)) {
    throw wrongParameter(`parameter thinPool ${quote(pool)}: not a name that a thin pool can have`);
  }
  return { pool, poolSize: DEFAULT_POOL_SIZE };
}

function requirePoolSize(text: string): SizeOrPercent {
  const size = parseSizeOrPercent(text);
  if (size !== undefined) return size;
  throw wrongParameter(
    `parameter thinPoolSize ${quote(text)}: neither ${PERCENTAGE} nor a quantity such as 100Gi`,
  );
}

/** Returns the mkfs options for a filesystem. @throws {StorageError} `InvalidArgument` if it does not support them */
export function requireMkfsOptions(parameters: VolumeParameters, type: FilesystemType | undefined): string[] {
  if (parameters.mkfsOptions.length > MAX_MKFS_OPTIONS_LENGTH) {
    throw wrongParameter(`parameter mkfsOptions: longer than ${MAX_MKFS_OPTIONS_LENGTH} characters`);
  }
  if (type !== undefined) return parseMkfsOptions(type, parameters.mkfsOptions);
  if (parameters.mkfsOptions === "") return [];
  throw wrongParameter("parameter mkfsOptions: a block volume has no filesystem");
}

/**
 * Returns how blocks that a filesystem frees are discarded.
 *
 * @param type the filesystem; `undefined` for a block volume
 * @returns `undefined` if they are not discarded
 * @throws {StorageError} `InvalidArgument` for a block volume, or a filesystem without support for discards
 */
export function trimFor({ trim }: VolumeParameters, type: FilesystemType | undefined): TrimPolicy | undefined {
  if (!trim.discard && trim.intervalMs === undefined) return undefined;
  if (type !== undefined && supportsDiscard(type)) return trim;
  const parameter = trim.discard ? "discard" : "fstrim";
  throw wrongParameter(
    `parameter ${parameter}: ${type === undefined ? "a block volume has no filesystem" : `${type} has no such thing`}`,
  );
}

/**
 * Parses the parameters of a VolumeSnapshotClass or a VolumeGroupSnapshotClass. `deletionPolicy` has no effect: the field of
 * the class with that name decides, and Kubernetes' own tests give both.
 *
 * @returns the size of the COW space
 * @throws {StorageError} `InvalidArgument` with the invalid parameter
 */
export function parseSnapshotParameters(
  { deletionPolicy: _, ...parameters }: Readonly<Record<string, string>>,
): SizeOrPercent {
  const value = normalizeParameters(parameters, SNAPSHOT_SETTING_NAMES, SNAPSHOT_ALIASES).get("snapSize");
  if (value === undefined) return FULL_COW;
  const cowSize = parseSizeOrPercent(value);
  if (cowSize !== undefined) return cowSize;
  throw wrongParameter(
    `parameter snapSize ${quote(value)}: neither ${PERCENTAGE} nor a quantity such as 10Gi`,
  );
}

function parseFstrim(value: string): { intervalMs?: number } {
  if (value === "no") return {};
  const intervalMs = parseInterval(value);
  if (intervalMs !== undefined) return { intervalMs };
  throw wrongParameter(
    `parameter fstrim ${quote(value)}: neither no nor from ten minutes to 90 days, such as 30m, 24h or 7d`,
  );
}

function parseGroups(given: ReadonlyMap<string, string>): GroupMatcher {
  const name = given.get("volumeGroup");
  const anchoredPattern = given.get("volumeGroupPattern");
  const unanchoredPattern = given.get("vgpattern");
  if (name !== undefined && anchoredPattern !== undefined) {
    throw wrongParameter("parameters volumeGroup and volumeGroupPattern: only one of them can be given");
  }
  if (name !== undefined) return nameMatcher("parameter volumeGroup", name);
  if (anchoredPattern !== undefined) return patternMatcher("parameter volumeGroupPattern", anchoredPattern);
  if (unanchoredPattern !== undefined) {
    patternMatcher("parameter vgpattern", unanchoredPattern); // it must be valid without the text around it
    return patternMatcher("parameter vgpattern", `.*(?:${unanchoredPattern}).*`);
  }
  return ANY_GROUP;
}

/** Returns the parameters by our names. @throws {StorageError} `InvalidArgument` for an unknown name */
function normalizeParameters(
  parameters: Readonly<Record<string, string>>,
  canonical: readonly string[],
  aliases: ReadonlyMap<string, readonly string[]>,
): Map<string, string> {
  const given = new Map<string, string>();
  for (const [key, value] of Object.entries(parameters)) {
    if (key.startsWith(RESERVED_PREFIX)) continue;
    for (const name of namesOf(key, canonical, aliases)) {
      if (given.has(name) && given.get(name) !== value) {
        throw wrongParameter(`parameter ${name}: given twice, with different values`);
      }
      given.set(name, value);
    }
  }
  return given;
}

/** Returns our names for a parameter. @throws {StorageError} `InvalidArgument` for an unknown name */
function namesOf(
  key: string,
  canonical: readonly string[],
  aliases: ReadonlyMap<string, readonly string[]>,
): readonly string[] {
  const names = canonical.includes(key) ? [key] : aliases.get(key.toLowerCase());
  if (names !== undefined) return names;
  const remedy = REFUSED_REMEDIES.get(key.toLowerCase());
  if (remedy !== undefined) {
    throw wrongParameter(`parameter ${quote(key)}: of OpenEBS, and not supported; ${remedy}`);
  }
  throw wrongParameter(
    `parameter ${quote(key)}: unknown; did you mean ${closestString(key.slice(0, 80), canonical)}?`,
  );
}

/** Returns the value of a parameter with a fixed set of values, the first of which is the default. */
function oneOf<T extends string>(given: ReadonlyMap<string, string>, name: string, allowed: readonly T[]): T {
  const value = given.get(name) ?? allowed[0]!;
  const found = allowed.find((candidate) => candidate === value);
  if (found !== undefined) return found;
  const known = allowed.filter((candidate) => candidate !== "").join(" or ");
  throw wrongParameter(`parameter ${name} ${quote(value)}: must be ${known}`);
}

/**
 * The context of an encrypted volume. The tags of its LV say so as well; an agent of a version that does not know encryption
 * makes an LV without it, and nothing may be written to that.
 */
export const ENCRYPTED_CONTEXT: Readonly<Record<string, string>> = { encryption: "luks2" };

/** Reports whether a volume is encrypted, by its context. */
export function isEncryptedContext(context: Readonly<Record<string, string>>): boolean {
  return Object.entries(ENCRYPTED_CONTEXT).every(([key, value]) => context[key] === value);
}
