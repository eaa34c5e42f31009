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
} from "../../lvm/model/commands.ts";
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
export interface Scene {
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

const lvName = ({ lvs }: Scene, { pick }: Action) => choose(lvs, pick, "missing");

const lvPath = (scene: Scene, action: Action) => `${GROUP}/${lvName(scene, action)}`;

/** Returns the device of an LV that is no pool: no program but LVM opens the device of a pool. */
function device({ lvs, pools }: Scene, { pick }: Action): string {
  return deviceOf(choose(lvs.filter((name) => !pools.includes(name)), pick, "missing"));
}

const folder = ({ folders }: Scene, { other }: Action) => folders[other % folders.length]!;

const target = ({ mounted, folders }: Scene, { pick }: Action) => choose(mounted, pick, folders[0]!);

/** Returns the target of a filesystem's mount. */
function mountedFolder({ mounted, file }: Scene, { pick }: Action): string {
  return choose(mounted.filter((each) => each !== file), pick, "/nowhere");
}

/** Returns the device of an LV with a filesystem, preferably of a type. */
function formattedDevice({ formatted }: Scene, { pick }: Action, type: RegExp): string {
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

const mkfs = (type: FilesystemType) => (scene: Scene, action: Action) =>
  mkfsCommand(type, device(scene, action), uuid(action), []);

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
  createThin: (scene, action) => {
    const thinpool = choose(scene.pools, action.other, "missing");
    const options = newVolume(action, { type: "thin", thinpool, virtualsize: size(action) });
    return lvm(lvcreate({ ...options, config: "activation/monitoring=0" }, GROUP));
  },
  snapshot: (scene, action) => {
    const name = NAMES[action.other % NAMES.length]!;
    const options = { snapshot: true, permission: "r", name, size: size(action), addtag: ["denolith=x"] } as const;
    return lvm(lvcreate(options, lvPath(scene, action)));
  },
  snapshotThin: (scene, action) => {
    const name = NAMES[action.other % NAMES.length]!;
    const options = { yes: true, snapshot: true, permission: "r", name, setactivationskip: "n" } as const;
    const source = choose(scene.thin, action.pick, "missing");
    return lvm(
      lvcreate({ ...options, config: "activation/monitoring=0", addtag: ["denolith=x"] }, `${GROUP}/${source}`),
    );
  },
  extendMetadata: (scene, action) => {
    const pool = choose(scene.pools, action.pick, "missing");
    const options = { poolmetadatasize: size(action), config: "activation/monitoring=0" };
    return lvm(lvextend(options, `${GROUP}/${pool}`));
  },
  extend: (scene, action) => lvm(lvextend({ size: size(action) }, lvPath(scene, action))),
  activate: (scene, action) => lvm(lvchange({ activate: "y" }, lvPath(scene, action))),
  activateConfirmed: (scene, action) => lvm(lvchange({ activate: "y", yes: true }, lvPath(scene, action))),
  deactivate: (scene, action) => lvm(lvchange({ activate: "n" }, lvPath(scene, action))),
  forbidWrites: (scene, action) => lvm(lvchange({ permission: "r" }, lvPath(scene, action))),
  permitWrites: (scene, action) => lvm(lvchange({ permission: "rw" }, lvPath(scene, action))),
  refresh: (scene, action) => lvm(lvchange({ refresh: true }, lvPath(scene, action))),
  tag: (scene, action) =>
    lvm(lvchangeTags(["--deltag", "denolith=x", "--addtag", "denolith.used"], lvPath(scene, action))),
  tagGroup: (_, { other }) =>
    lvm(vgchange(other % 2 === 0 ? { addtag: ["denolith.used=a"] } : { deltag: ["denolith.used=a"] }, GROUP)),
  remove: (scene, action) =>
    lvm(lvremove({ yes: true, uuid: scene.uuidOf(lvName(scene, action)) }, lvPath(scene, action))),
  removeUnconfirmed: (scene, action) =>
    lvm(lvremove({ uuid: scene.uuidOf(lvName(scene, action)) }, lvPath(scene, action))),
  removeAnother: (scene, action) => {
    const another = "AAAAAA-AAAA-AAAA-AAAA-AAAA-AAAA-AAAAAA";
    return lvm(lvremove({ yes: true, uuid: another }, lvPath(scene, action)));
  },
  split: (scene, action) => lvm(lvconvert({ yes: true, splitsnapshot: true }, lvPath(scene, action))),
  mkfsExt4: mkfs("ext4"),
  mkfsXfs: mkfs("xfs"),
  mkfsBtrfs: mkfs("btrfs"),
  mount: (scene, action) => {
    const { name, type } = choose(scene.formatted, action.pick, { name: "missing", type: "ext4" });
    return tool("mount", "-t", type, deviceOf(name), folder(scene, action));
  },
  mountReadOnly: (scene, action) => {
    const { name, type } = choose(scene.formatted, action.pick, { name: "missing", type: "ext4" });
    return tool("mount", "-t", type, "-o", "ro,nosuid", deviceOf(name), folder(scene, action));
  },
  bind: (scene, action) => tool("mount", "-o", "bind", mountedFolder(scene, action), folder(scene, action)),
  bindReadOnly: (scene, action) => tool("mount", "-o", "bind,ro", mountedFolder(scene, action), folder(scene, action)),
  bindDevice: (scene, action) => tool("mount", "-o", "bind", device(scene, action), scene.file),
  remountReadOnly: (scene, action) => tool("mount", "-o", "remount,bind,ro", target(scene, action)),
  umount: (scene, action) => tool("umount", target(scene, action)),
  listSignatures: (scene, action) => tool("wipefs", "--no-act", "--json", device(scene, action)),
  wipe: (scene, action) => tool("wipefs", "--all", device(scene, action)),
  readHead: (scene, action) => tool("cmp", "--bytes=4096", "/dev/zero", device(scene, action)),
  setReadOnly: (scene, action) => tool("blockdev", "--setro", device(scene, action)),
  setWritable: (scene, action) => tool("blockdev", "--setrw", device(scene, action)),
  check: (scene, action) => tool("e2fsck", "-p", formattedDevice(scene, action, /^ext/)),
  checkAll: (scene, action) => tool("e2fsck", "-f", "-p", formattedDevice(scene, action, /^ext/)),
  resizeExt: (scene, action) => tool("resize2fs", formattedDevice(scene, action, /^ext/)),
  growXfs: (scene, action) => tool("xfs_growfs", "-d", target(scene, action)),
  resizeBtrfs: (scene, action) => tool("btrfs", "filesystem", "resize", "max", target(scene, action)),
  trim: (scene, action) => tool("fstrim", "--verbose", target(scene, action)),
  changeExtUuid: (scene, action) => changeUuidCommand("ext4", formattedDevice(scene, action, /^ext/), uuid(action)),
  zero: (scene, action) => {
    const range = ["--offset", "0", "--length", `${size(action)}`];
    return tool("blkdiscard", "--zeroout", ...range, device(scene, action));
  },
} satisfies Record<string, (scene: Scene, action: Action) => Command>;

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
export function commandOf(scene: Scene, action: Action): Command | undefined {
  try {
    return COMMANDS[action.kind](scene, action);
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
