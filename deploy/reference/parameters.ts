/**
 * The parameters of volumes that the driver accepts.
 *
 * @module
 */

import { VOLUME_PARAMETERS } from "../../csi/parameters.ts";
import type { LAYOUT_PARAMETERS } from "../../csi/layout_parameters.ts";
import { DEFAULT_FILESYSTEM, FILESYSTEM_TYPES } from "../../lvm/spec/filesystem.ts";
import { IO_LIMITS, type IoLimitName } from "../../lvm/spec/io_limits.ts";
import { DEFAULT_STRIPE_SIZE, LAYOUT_NAMES, LINEAR } from "../../lvm/model/layout.ts";
import { formatQuantity } from "../../lvm/size.ts";
import { ERASURES } from "../../lvm/model/tags.ts";
import { code, table } from "./markdown.ts";

/**
 * Returns the table of the parameters of volumes.
 *
 * @throws {Error} when a parameter that the driver accepts is not described
 */
export function parametersTable(): string {
  const rows = VOLUME_PARAMETERS.map((name) => {
    const description = DESCRIPTIONS[name];
    if (description === undefined) {
      throw new Error(
        `generating the table of parameters: ${name} is not described; add it to deploy/reference/parameters.ts`,
      );
    }
    return [code(name), description.default, description.values];
  });
  return table(["Parameter", "Default", "Values"], rows);
}

/** A description of a parameter of a StorageClass. */
interface ParameterDescription {
  /** Default in words, or a value between backticks. */
  readonly default: string;
  /** Values and their meaning, in Markdown; links are relative to docs/reference. */
  readonly values: string;
}

const AGENT_DEFAULT = "that of the agent for the volume group, or none";

const LIMITED_OPERATIONS = {
  readIops: "reads per second",
  writeIops: "writes per second",
  readBps: "bytes read per second",
  writeBps: "bytes written per second",
} as const satisfies Record<IoLimitName, string>;

/** The descriptions of the parameters by name. */
const DESCRIPTIONS: Readonly<Record<string, ParameterDescription>> = {
  volumeGroup: {
    default: "any volume group that `--volume-groups` allows",
    values: "Name of one volume group: 1 to 127 of `A-Z a-z 0-9 + _ . -`, not beginning with `-`, not `.` or `..`.",
  },
  volumeGroupPattern: { default: "", values: "Pattern that must match the whole name of a volume group." },
  volumeGroupPreference: {
    default: "`leastFree`",
    values: "`leastFree`: of the volume groups with enough space, the one with the least free space. `mostFree`: the " +
      "one with the most. Ties are resolved by name. With `Immediate` also for nodes.",
  },
  fsType: {
    default: code(DEFAULT_FILESYSTEM),
    values: `${oneOf(FILESYSTEM_TYPES)}. For requests whose capability names none.`,
  },
  mkfsOptions: {
    default: "none",
    values: "Options of mkfs and their values, separated by blanks: [mkfs options](mkfs-options.md). Not for block " +
      "volumes.",
  },
  shared: {
    default: "`yes`",
    values: "`yes`: as many targets at a time as the access mode allows. `no`: one.",
  },
  erase: {
    default: code(ERASURES[0]),
    values: "How the data of a deleted volume and of its snapshots is erased. `zero`: overwritten with zeros before " +
      "the space is reused. `discard`: discarded, best effort. `none`: kept on the disk.",
  },
  ...ioLimitParameters(),
  thinProvision: {
    default: "`no`",
    values:
      "`yes`: a [thin volume](../guides/thin-volumes.md), which allocates space as it is written. `no`: a thick " +
      "volume, which allocates all space when it is created.",
  },
  thinPool: {
    default: "`<group>_thinpool`",
    values: "Name of an existing thin pool. Without it, the default pool of the volume group, which is created when " +
      "it is first needed.",
  },
  thinPoolSize: {
    default: "`80%`",
    values: "Size of the default pool when it is created: `1%` to `100%` of the free space in the volume group at " +
      "that time, or a quantity.",
  },
  ...{
    layout: { default: code(LINEAR.type), values: `${oneOf(LAYOUT_NAMES)}: see [layouts](#layouts).` },
    stripes: {
      default: "the minimum of the layout",
      values: "Number of physical volumes for data, without those for redundancy. Not for `linear` and `raid1`.",
    },
    stripeSize: {
      default: code(formatQuantity(DEFAULT_STRIPE_SIZE)),
      values:
        "Bytes that are written to one physical volume before the next: a power of two from `4Ki` to `4Mi`. Not " +
        "for `linear` and `raid1`.",
    },
    mirrors: {
      default: "`1`",
      values: "Additional mirrors: `1` to `9` for `raid1`, only `1` for `raid10`. Only for these two.",
    },
  } satisfies Record<typeof LAYOUT_PARAMETERS[number], ParameterDescription>,
  discard: {
    default: "`no`",
    values: "`yes`: mount with the option [`discard`](../guides/discard.md). Not for ext2 and block volumes.",
  },
  fstrim: {
    default: "`no`",
    values: "Interval of [fstrim](../guides/discard.md) while the volume is staged, from `10m` to `90d`, in `m`, `h` " +
      "or `d`. Not for ext2 and block volumes.",
  },
};

function ioLimitParameters(): Readonly<Record<string, ParameterDescription>> {
  return Object.fromEntries(IO_LIMITS.flatMap((name) => {
    const unit = LIMITED_OPERATIONS[name];
    return [
      [name, { default: AGENT_DEFAULT, values: `Limit of ${unit}, or \`max\`: see [IO limits](#io-limits).` }],
      [`${name}PerGiB`, { default: AGENT_DEFAULT, values: `Limit of ${unit}, for each GiB of the volume.` }],
    ];
  }));
}

function oneOf(values: readonly string[]): string {
  return values.map(code).join(", ");
}
