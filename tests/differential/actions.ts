/**
 * Random commands for a machine, as the driver gives them: what a play of {@linkcode play} consists of.
 *
 * @module
 */

import fc from "fast-check";
import type { Command, Program } from "../../lvm/exec.ts";
import {
  lvchange,
  lvchangeTags,
  lvconvert,
  lvcreate,
  type LvcreateOptions,
  lvextend,
  lvremove,
  vgchange,
} from "../../lvm/model/command_lines.ts";
import { changeUuidCommand, type FilesystemType, mkfsCommand } from "../../lvm/settings/filesystem.ts";

/** The volume group of a play. */
export const GROUP = "differential";

/** The size of an extent, in bytes. */
const EXTENT = 4n << 20n;

/** The names of LVs, most of which exist now and then. */
const NAMES = ["a", "b", "c", "d", "e", "f"];

/** Sizes in extents, most of them small. The largest ones suffice for btrfs and xfs, or for no group. */
const SIZES = [1, 2, 2, 3, 4, 4, 6, 8, 16, 30, 76, 80, 1000];

/** A part of a play: what is to be done, and numbers that choose to what. */
export interface Action {
  /** The name of one of {@linkcode KINDS}. */
  readonly kind: Kind;
  /** Chooses an LV or a name. */
  readonly pick: number;
  /** Chooses a second thing. */
  readonly other: number;
  /** A size in extents. */
  readonly extents: number;
}

/** What actions refer to. */
export interface Harness {
  /** The names of the LVs that exist. */
  readonly lvs: readonly string[];
  /** The names of those that are thin pools. */
  readonly pools: readonly string[];
  /** The names of those that are in a thin pool. */
  readonly thin: readonly string[];
  /** The names of the LVs that have a filesystem. */
  readonly formatted: readonly { readonly name: string; readonly type: string }[];
  /** The targets of mounts. */
  readonly mounted: readonly string[];
  /** Empty folders, and an empty file, to mount on. */
  readonly folders: readonly string[];
  readonly file: string;
  /** Returns the UUID of an LV of a machine, by its name. */
  readonly uuidOf: (name: string) => string;
}

/** Thrown when an action has nothing to work on. */
class NothingToDo extends Error {}

/** Chooses a thing. Now and then it is `missing`. */
function choose<T>(things: readonly T[], pick: number, missing: T): T {
  if (pick % 16 === 15) return missing;
  if (things.length === 0) throw new NothingToDo();
  return things[pick % things.length]!;
}

const lvm = (args: readonly string[]): Command => ({ program: "lvm", args, mutates: true });

const tool = (program: Program, ...args: string[]): Command => ({ program, args, mutates: true });

/** Returns the device-mapper node of an LV. */
export function deviceOf(name: string): string {
  return `/dev/mapper/${GROUP}-${name}`;
}

const lvName = ({ lvs }: Harness, { pick }: Action) => choose(lvs, pick, "missing");

const lvPath = (harness: Harness, action: Action) => `${GROUP}/${lvName(harness, action)}`;

/** Returns the device of an LV that is no pool: no program but LVM opens the device of a pool. */
function device({ lvs, pools }: Harness, { pick }: Action): string {
  return deviceOf(choose(lvs.filter((name) => !pools.includes(name)), pick, "missing"));
}

const folder = ({ folders }: Harness, { other }: Action) => folders[other % folders.length]!;

const target = ({ mounted, folders }: Harness, { pick }: Action) => choose(mounted, pick, folders[0]!);

/** Returns the target of a filesystem's mount. */
function mountedFolder({ mounted, file }: Harness, { pick }: Action): string {
  return choose(mounted.filter((each) => each !== file), pick, "/nowhere");
}

/** Returns the device of an LV with a filesystem, preferably of a type. */
function formattedDevice({ formatted }: Harness, { pick }: Action, type: RegExp): string {
  const matching = formatted.filter((each) => type.test(each.type));
  return deviceOf(choose((matching.length > 0 ? matching : formatted).map(({ name }) => name), pick, "missing"));
}

/** Returns options of lvcreate as the driver gives them for a volume. */
function newVolume({ pick }: Action, options: LvcreateOptions): LvcreateOptions {
  const name = NAMES[pick % NAMES.length]!;
  return { yes: true, wipesignatures: "y", name, ...options, addtag: [`denolith.volume=${name}`, "denolith=x"] };
}

const size = ({ extents }: Action) => BigInt(extents) * EXTENT;

const uuid = ({ pick, other }: Action) =>
  `00000000-0000-4000-8000-${`${pick}`.padStart(6, "0")}${`${other}`.padStart(6, "0")}`;

const mkfs = (type: FilesystemType) => (harness: Harness, action: Action) =>
  mkfsCommand(type, device(harness, action), uuid(action), []);

/** The commands by kind. */
const COMMANDS = {
  createLinear: (_, action) => lvm(lvcreate(newVolume(action, { size: size(action) }), GROUP)),
  createStriped: (_, action) =>
    lvm(lvcreate(newVolume(action, { type: "striped", size: size(action), stripes: 2, stripesize: 65536n }), GROUP)),
  createMirror: (_, action) =>
    lvm(lvcreate(newVolume(action, { type: "raid1", size: size(action), mirrors: 1 }), GROUP)),
  createRaid5: (_, action) =>
    lvm(lvcreate(newVolume(action, { type: "raid5", size: size(action), stripes: 2, stripesize: 65536n }), GROUP)),
  createPool: (_, action) => {
    const name = NAMES[action.pick % NAMES.length]!;
    const options = { type: "thin-pool", name, zero: "y", size: size(action), addtag: ["denolith=x"] } as const;
    return lvm(lvcreate({ yes: true, ...options, config: "activation/monitoring=0" }, GROUP));
  },
  createThin: (harness, action) => {
    const thinpool = choose(harness.pools, action.other, "missing");
    const options = newVolume(action, { type: "thin", thinpool, virtualsize: size(action) });
    return lvm(lvcreate({ ...options, config: "activation/monitoring=0" }, GROUP));
  },
  snapshot: (harness, action) => {
    const name = NAMES[action.other % NAMES.length]!;
    const options = { snapshot: true, permission: "r", name, size: size(action), addtag: ["denolith=x"] } as const;
    return lvm(lvcreate(options, lvPath(harness, action)));
  },
  snapshotThin: (harness, action) => {
    const name = NAMES[action.other % NAMES.length]!;
    const options = { yes: true, snapshot: true, permission: "r", name, setactivationskip: "n" } as const;
    const source = choose(harness.thin, action.pick, "missing");
    return lvm(
      lvcreate({ ...options, config: "activation/monitoring=0", addtag: ["denolith=x"] }, `${GROUP}/${source}`),
    );
  },
  extendMetadata: (harness, action) => {
    const pool = choose(harness.pools, action.pick, "missing");
    const options = { poolmetadatasize: size(action), config: "activation/monitoring=0" };
    return lvm(lvextend(options, `${GROUP}/${pool}`));
  },
  extend: (harness, action) => lvm(lvextend({ size: size(action) }, lvPath(harness, action))),
  activate: (harness, action) => lvm(lvchange({ activate: "y" }, lvPath(harness, action))),
  activateConfirmed: (harness, action) => lvm(lvchange({ activate: "y", yes: true }, lvPath(harness, action))),
  deactivate: (harness, action) => lvm(lvchange({ activate: "n" }, lvPath(harness, action))),
  forbidWrites: (harness, action) => lvm(lvchange({ permission: "r" }, lvPath(harness, action))),
  permitWrites: (harness, action) => lvm(lvchange({ permission: "rw" }, lvPath(harness, action))),
  refresh: (harness, action) => lvm(lvchange({ refresh: true }, lvPath(harness, action))),
  tag: (harness, action) =>
    lvm(lvchangeTags(["--deltag", "denolith=x", "--addtag", "denolith.used"], lvPath(harness, action))),
  tagGroup: (_, { other }) =>
    lvm(vgchange(other % 2 === 0 ? { addtag: ["denolith.used=a"] } : { deltag: ["denolith.used=a"] }, GROUP)),
  remove: (harness, action) =>
    lvm(lvremove({ yes: true, uuid: harness.uuidOf(lvName(harness, action)) }, lvPath(harness, action))),
  removeUnconfirmed: (harness, action) =>
    lvm(lvremove({ uuid: harness.uuidOf(lvName(harness, action)) }, lvPath(harness, action))),
  removeAnother: (harness, action) => {
    const another = "AAAAAA-AAAA-AAAA-AAAA-AAAA-AAAA-AAAAAA";
    return lvm(lvremove({ yes: true, uuid: another }, lvPath(harness, action)));
  },
  split: (harness, action) => lvm(lvconvert({ yes: true, splitsnapshot: true }, lvPath(harness, action))),
  mkfsExt4: mkfs("ext4"),
  mkfsXfs: mkfs("xfs"),
  mkfsBtrfs: mkfs("btrfs"),
  mount: (harness, action) => {
    const { name, type } = choose(harness.formatted, action.pick, { name: "missing", type: "ext4" });
    return tool("mount", "-t", type, deviceOf(name), folder(harness, action));
  },
  mountReadOnly: (harness, action) => {
    const { name, type } = choose(harness.formatted, action.pick, { name: "missing", type: "ext4" });
    return tool("mount", "-t", type, "-o", "ro,nosuid", deviceOf(name), folder(harness, action));
  },
  bind: (harness, action) => tool("mount", "-o", "bind", mountedFolder(harness, action), folder(harness, action)),
  bindReadOnly: (harness, action) =>
    tool("mount", "-o", "bind,ro", mountedFolder(harness, action), folder(harness, action)),
  bindDevice: (harness, action) => tool("mount", "-o", "bind", device(harness, action), harness.file),
  remountReadOnly: (harness, action) => tool("mount", "-o", "remount,bind,ro", target(harness, action)),
  umount: (harness, action) => tool("umount", target(harness, action)),
  listSignatures: (harness, action) => tool("wipefs", "--no-act", "--json", device(harness, action)),
  wipe: (harness, action) => tool("wipefs", "--all", device(harness, action)),
  readHead: (harness, action) => tool("cmp", "--bytes=4096", "/dev/zero", device(harness, action)),
  setReadOnly: (harness, action) => tool("blockdev", "--setro", device(harness, action)),
  setWritable: (harness, action) => tool("blockdev", "--setrw", device(harness, action)),
  check: (harness, action) => tool("e2fsck", "-p", formattedDevice(harness, action, /^ext/)),
  checkAll: (harness, action) => tool("e2fsck", "-f", "-p", formattedDevice(harness, action, /^ext/)),
  resizeExt: (harness, action) => tool("resize2fs", formattedDevice(harness, action, /^ext/)),
  growXfs: (harness, action) => tool("xfs_growfs", "-d", target(harness, action)),
  resizeBtrfs: (harness, action) => tool("btrfs", "filesystem", "resize", "max", target(harness, action)),
  trim: (harness, action) => tool("fstrim", "--verbose", target(harness, action)),
  changeExtUuid: (harness, action) => changeUuidCommand("ext4", formattedDevice(harness, action, /^ext/), uuid(action)),
  zero: (harness, action) => {
    const range = ["--offset", "0", "--length", `${size(action)}`];
    return tool("blkdiscard", "--zeroout", ...range, device(harness, action));
  },
} satisfies Record<string, (harness: Harness, action: Action) => Command>;

/** A kind of action. */
export type Kind = keyof typeof COMMANDS;

/** All kinds. */
export const KINDS: readonly Kind[] = Object.keys(COMMANDS) as Kind[];

/** The kinds that are drawn more often, since the others do little without them. */
const FREQUENT: readonly Kind[] = [
  ...Array<Kind>(8).fill("createLinear"),
  ...Array<Kind>(6).fill("mkfsExt4"),
  ...Array<Kind>(6).fill("mount"),
  ...Array<Kind>(4).fill("umount"),
  ...Array<Kind>(4).fill("extend"),
  ...Array<Kind>(3).fill("createPool"),
  ...Array<Kind>(4).fill("createThin"),
  ...Array<Kind>(4).fill("snapshot"),
  ...Array<Kind>(2).fill("snapshotThin"),
  ...Array<Kind>(2).fill("activateConfirmed"),
  ...Array<Kind>(3).fill("remove"),
];

/** Returns the command of an action; none when there is nothing that it could be about. */
export function commandOf(harness: Harness, action: Action): Command | undefined {
  try {
    return COMMANDS[action.kind](harness, action);
  } catch (error) {
    if (error instanceof NothingToDo) return undefined;
    throw error;
  }
}

/** Plays of so many actions. */
export function plays(length: number): fc.Arbitrary<Action[]> {
  const action = fc.record({
    kind: fc.constantFrom(...KINDS, ...FREQUENT),
    pick: fc.nat(95),
    other: fc.nat(95),
    extents: fc.constantFrom(...SIZES),
  });
  return fc.array(action, { minLength: length, maxLength: length, size: "max" });
}
