/**
 * The settings of a volume: the one table of what a StorageClass can set, and of where each setting is recorded;
 * and those of a snapshot, which a VolumeSnapshotClass can set.
 *
 * Parsing and formatting are elsewhere: csi/parameters.ts parses the parameters, lvm/model/tags.ts writes the tags, and
 * k8s/api/volume_mapping.ts writes the fields of LVMVolumes. settings_test.ts checks that they agree with this table.
 *
 * @module
 */

import { PERCENT } from "./cow_size.ts";
import { formatQuantity } from "../../base/size.ts";
import { DEFAULT_FILESYSTEM, FILESYSTEM_TYPES } from "./filesystem.ts";
import { ENCRYPTIONS } from "./format.ts";
import {
  DEFAULT_CACHE_SIZE,
  DEFAULT_STRIPE_SIZE,
  LAYOUT_NAMES,
  LAYOUTS,
  MIN_CACHE_SIZE,
  STRIPE_SIZE,
} from "./layouts.ts";

/** A setting of a volume. */
export interface Setting {
  /** Its meaning: one sentence in Markdown, without links. */
  readonly meaning: string;
  /** All accepted values, the default first; or the form of accepted values, with examples. */
  readonly values: readonly string[] | OpenValues;
  /** The value that has the same effect as no value; or what applies without a value, in words. */
  readonly default: string | DefaultInWords;
  /** The parameters without which it is not accepted. */
  readonly requires?: Readonly<Record<string, string>>;
  /** The property of `VolumeRequest` that carries it. Several settings can have the same. */
  readonly property: string;
  /** True if it defines the kind of volume: a repeated request for a volume has to agree with the existing one. */
  readonly definesKind: boolean;
  /**
   * The tag that records it on the machine: a prefix, or the whole tag. `null` where LVM itself records it, or where it
   * has no meaning after the volume is created.
   */
  readonly tag: string | null;
  /** The field of `LVMVolume.spec` that records it, with a dot before a field of a field. */
  readonly field: string;
}

/** Values that cannot be listed. */
export interface OpenValues {
  /** Their form, in Markdown. */
  readonly form: string;
  /** Some of them, none of which is the default. */
  readonly examples: readonly string[];
}

/** The behaviour without a value, where no value has the same effect. */
export interface DefaultInWords {
  /** A clause in Markdown; empty where another setting has the default. */
  readonly words: string;
}

/** The bounds of the number of mirrors. */
const MIRRORS = LAYOUTS.raid1.mirrors;

/** The bounds of the number of stripes, of every layout. */
const STRIPE_COUNTS = Object.values(LAYOUTS).flatMap((layout) =>
  "stripes" in layout ? Object.values(layout.stripes) : []
);

/** The settings, by the names of their parameters, in the order of the documents. */
export const SETTINGS = {
  volumeGroup: {
    meaning: "Volume group of the volume.",
    values: {
      form: "A name: 1 to 127 of `A-Z a-z 0-9 + _ . -`, not beginning with `-`, not `.` or `..`",
      examples: ["data"],
    },
    default: { words: "any volume group that `--volume-groups` allows" },
    property: "groups",
    definesKind: true,
    tag: null,
    field: "volumeGroups",
  },
  volumeGroupPattern: {
    meaning: "Pattern of the whole name of the volume group.",
    values: { form: "A pattern", examples: ["data.*"] },
    default: { words: "" },
    property: "groups",
    definesKind: true,
    tag: null,
    field: "volumeGroups",
  },
  volumeGroupPreference: {
    meaning: "Preference among the volume groups with enough space: the one with the least or the most free space.",
    values: ["leastFree", "mostFree"],
    default: "leastFree",
    property: "preference",
    definesKind: false,
    tag: null,
    field: "volumeGroupPreference",
  },
  fsType: {
    meaning: "Filesystem, for requests whose capability names none.",
    values: FILESYSTEM_TYPES,
    default: DEFAULT_FILESYSTEM,
    property: "format",
    definesKind: true,
    tag: "denolith.fs=",
    field: "fsType",
  },
  mkfsOptions: {
    meaning: "Options of mkfs; not for block volumes.",
    values: { form: "Options and their values, separated by blanks", examples: ["-b 4096"] },
    default: { words: "none" },
    property: "mkfsOptions",
    definesKind: false,
    tag: "denolith.mkfs=",
    field: "mkfsOptions",
  },
  encryption: {
    meaning: "Encryption of the volume, by the passphrase of its node-stage secret.",
    values: ENCRYPTIONS,
    default: ENCRYPTIONS[0],
    property: "format",
    definesKind: true,
    tag: "denolith.fs=",
    field: "encryption",
  },
  shared: {
    meaning: "Whether a volume can have several targets at a time.",
    values: ["yes", "no"],
    default: "yes",
    property: "shared",
    definesKind: false,
    tag: "denolith.shared=no",
    field: "shared",
  },
  erase: {
    meaning: "How the data of a deleted volume and of its snapshots is erased.",
    values: ["zero", "discard", "none"],
    default: "zero",
    property: "erase",
    definesKind: false,
    tag: "denolith.erase=",
    field: "erase",
  },
  readIops: ioLimit("readIops", "Limit of reads per second.", ["500", "max"]),
  readIopsPerGiB: ioLimit("readIopsPerGiB", "Limit of reads per second, for each GiB of the volume.", ["5"]),
  writeIops: ioLimit("writeIops", "Limit of writes per second.", ["500", "max"]),
  writeIopsPerGiB: ioLimit("writeIopsPerGiB", "Limit of writes per second, for each GiB of the volume.", ["5"]),
  readBps: ioLimit("readBps", "Limit of bytes read per second.", ["4Mi", "max"]),
  readBpsPerGiB: ioLimit("readBpsPerGiB", "Limit of bytes read per second, for each GiB of the volume.", ["1Mi"]),
  writeBps: ioLimit("writeBps", "Limit of bytes written per second.", ["4Mi", "max"]),
  writeBpsPerGiB: ioLimit("writeBpsPerGiB", "Limit of bytes written per second, for each GiB of the volume.", ["1Mi"]),
  thinProvision: {
    meaning: "Whether the volume is thin: it allocates space as it is written.",
    values: ["no", "yes"],
    default: "no",
    property: "thin",
    definesKind: true,
    tag: null,
    field: "thinProvision",
  },
  thinPool: {
    meaning: "Existing thin pool of the volume.",
    values: { form: "A name", examples: ["fast"] },
    default: { words: "`<group>_thinpool`" },
    requires: { thinProvision: "yes" },
    property: "thin",
    definesKind: true,
    tag: null,
    field: "thinPool",
  },
  thinPoolSize: {
    meaning: "Size of the default thin pool when it is created.",
    values: { form: `\`${PERCENT.min}%\` to \`${PERCENT.max}%\`, or a quantity`, examples: ["30%", "200Mi"] },
    default: "80%",
    requires: { thinProvision: "yes" },
    property: "thin",
    definesKind: false,
    tag: null,
    field: "thinPoolSize",
  },
  layout: {
    meaning: "Layout over the physical volumes of the volume group.",
    values: LAYOUT_NAMES,
    default: LAYOUT_NAMES[0]!,
    property: "layout",
    definesKind: true,
    tag: null,
    field: "layout.type",
  },
  stripes: {
    meaning: "Number of physical volumes for data, without those for redundancy; not for `linear` and `raid1`.",
    values: {
      form: `\`${Math.min(...STRIPE_COUNTS)}\` to \`${Math.max(...STRIPE_COUNTS)}\`, as the layout allows`,
      examples: ["4"],
    },
    default: { words: "the minimum of the layout" },
    requires: { layout: "striped" },
    property: "layout",
    definesKind: true,
    tag: null,
    field: "layout.stripes",
  },
  stripeSize: {
    meaning: "Bytes that are written to one physical volume before the next; not for `linear` and `raid1`.",
    values: {
      form: `A power of two from \`${formatQuantity(STRIPE_SIZE.min)}\` to \`${formatQuantity(STRIPE_SIZE.max)}\``,
      examples: [formatQuantity(STRIPE_SIZE.min), formatQuantity(STRIPE_SIZE.max)],
    },
    default: formatQuantity(DEFAULT_STRIPE_SIZE),
    requires: { layout: "striped" },
    property: "layout",
    definesKind: true,
    tag: null,
    field: "layout.stripeSize",
  },
  mirrors: {
    meaning: "Number of additional mirrors, for `raid1` and `raid10` only.",
    values: {
      form:
        `\`${MIRRORS.min}\` to \`${MIRRORS.max}\` for \`raid1\`, only \`${LAYOUTS.raid10.mirrors.max}\` for \`raid10\``,
      examples: ["2", `${MIRRORS.max}`],
    },
    default: `${MIRRORS.min}`,
    requires: { layout: "raid1" },
    property: "layout",
    definesKind: true,
    tag: null,
    field: "layout.mirrors",
  },
  raidIntegrity: {
    meaning: "Whether each RAID image has checksums of its data, so that corrupt data is read from another image.",
    values: ["no", "yes"],
    default: "no",
    requires: { layout: "raid1" },
    property: "layout",
    definesKind: true,
    tag: null,
    field: "layout.integrity",
  },
  cacheSize: {
    meaning: "Size of the cache, for `cache` and `writecache` only.",
    values: { form: `A quantity from \`${formatQuantity(MIN_CACHE_SIZE)}\``, examples: ["10Gi"] },
    default: formatQuantity(DEFAULT_CACHE_SIZE),
    requires: { layout: "cache" },
    property: "layout",
    definesKind: true,
    tag: null,
    field: "layout.cacheSize",
  },
  discard: {
    meaning: "Whether the filesystem is mounted with the option `discard`; not for ext2 and block volumes.",
    values: ["no", "yes"],
    default: "no",
    property: "trim",
    definesKind: false,
    tag: "denolith.trim=",
    field: "discard",
  },
  fstrim: {
    meaning: "Interval of fstrim while the volume is staged; not for ext2 and block volumes.",
    values: { form: "`no`, or `10m` to `90d` in `m`, `h` or `d`", examples: ["24h", "7d"] },
    default: "no",
    property: "trim",
    definesKind: false,
    tag: "denolith.trim=",
    field: "fstrim",
  },
} as const satisfies Readonly<Record<string, Setting>>;

/** The name of a setting, which is that of its parameter. */
export type SettingName = keyof typeof SETTINGS;

/** The property of `VolumeRequest` that carries a setting. */
export type SettingProperty = typeof SETTINGS[SettingName]["property"];

/** The property of `VolumeRequest` that carries a setting of the kind of volume. */
export type KindProperty = Extract<typeof SETTINGS[SettingName], { readonly definesKind: true }>["property"];

/** The field of `LVMVolume.spec` that records a setting, without the fields in it. */
export type SettingField = typeof SETTINGS[SettingName]["field"] extends infer Field
  ? Field extends `${infer Outer}.${string}` ? Outer : Field
  : never;

/** The tag that records a setting. */
export type SettingTag = Exclude<typeof SETTINGS[SettingName]["tag"], null>;

/** The names of all settings. */
export const SETTING_NAMES = Object.keys(SETTINGS) as readonly SettingName[];

/** Returns the settings that a property of `VolumeRequest` carries: each name with its entry of {@linkcode SETTINGS}. */
export function settingsOf(property: SettingProperty): [SettingName, Setting][] {
  return SETTING_NAMES.map((name): [SettingName, Setting] => [name, SETTINGS[name]]).filter(([, setting]) =>
    setting.property === property
  );
}

/** Returns the entry of an IO limit. */
function ioLimit<const Name extends string>(name: Name, meaning: string, examples: readonly string[]) {
  const form = name.includes("Iops") ? "A number" : "A quantity";
  return {
    meaning,
    values: { form: examples.includes("max") ? `${form}, or \`max\`` : form, examples },
    default: { words: "that of the agent for the volume group, or none" },
    property: "limits",
    definesKind: false,
    tag: "denolith.io=",
    field: `ioLimits.${name}`,
  } as const;
}

/** The settings, by the names of their parameters. */
export const SNAPSHOT_SETTINGS = {
  snapSize: {
    meaning: "Size of the COW space, in whole extents.",
    values: {
      form: `\`${PERCENT.min}%\` to \`${PERCENT.max}%\` of the volume's size, or a quantity: ` +
        "`512Mi`, `10Gi`, `1.5G`, `4194304`",
      examples: ["1%", "99%", "512Mi", "10Gi", "1.5G", "4194304"],
    },
    default: { words: "space for every block of the volume to change: such a snapshot cannot overflow" },
  },
} as const satisfies Readonly<Record<string, Pick<Setting, "meaning" | "values" | "default">>>;

/** The name of a setting of a snapshot, which is that of its parameter. */
export type SnapshotSettingName = keyof typeof SNAPSHOT_SETTINGS;

/** The names of all settings of a snapshot. */
export const SNAPSHOT_SETTING_NAMES = Object.keys(SNAPSHOT_SETTINGS) as readonly SnapshotSettingName[];
