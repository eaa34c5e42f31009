/**
 * The commands of lvm that the driver runs, one of each kind, for tests of how they are run.
 *
 * @module
 */

import { lvchange, lvchangeTags, lvconvert, lvcreate, lvextend, lvremove, vgchange } from "../../lvm/model/commands.ts";
import { REPORT_COMMAND } from "../../lvm/model/report_command.ts";

/** The names that {@linkcode productCommands} uses. */
export interface CommandNames {
  /** The volume group. */
  readonly group: string;
  /** A physical volume of the group. */
  readonly pv: string;
  /** Returns the UUID of an LV, which must exist when the command is run. */
  readonly uuidOf: (lv: string) => string | Promise<string>;
}

/** A command: its arguments, or a function that finds them out when it is run. */
export type ProductCommand = readonly string[] | (() => Promise<string[]>);

const MIB = 1n << 20n;

/** Settings that some commands have. */
const NO_MONITORING = "activation/monitoring=0";

/** Returns the commands in an order in which most of them succeed in an empty group. */
export function productCommands({ group, pv, uuidOf }: CommandNames): ProductCommand[] {
  const lv = (name: string) => `${group}/${name}`;
  const remove = (name: string, yes: { yes?: true } = { yes: true }) => async () =>
    lvremove({ ...yes, uuid: await uuidOf(name) }, lv(name));
  const create = { yes: true, wipesignatures: "y" } as const;
  const snapshot = { yes: true, snapshot: true } as const;
  const tags = ["denolith.id=v1-0123456789abcdef", "denolith.by=lvm.denolith.dev", "a_b+c.d-e/f=g!h:i&j#k", "#l"];
  return [
    [...REPORT_COMMAND.args],
    vgchange({ addtag: ["denolith.used"] }, group),
    vgchange({ deltag: ["denolith.used"] }, group),
    lvcreate({ ...create, name: "thick", size: 16n * MIB, addtag: tags }, group),
    lvcreate({ ...create, name: "thick", size: 16n * MIB }, group),
    lvcreate({ ...create, name: "on-pv", size: 8n * MIB }, group, [pv]),
    lvcreate({ ...create, name: "striped", type: "striped", stripes: 2, stripesize: 65536n, size: 8n * MIB }, group),
    lvcreate({ ...create, name: "mirrored", type: "raid1", mirrors: 1, size: 8n * MIB }, group),
    lvcreate({ ...create, name: "too-large", size: 1n << 50n }, group),
    lvcreate({ ...create, name: "nowhere", size: 8n * MIB }, `${group}-is-not-there`),
    [...REPORT_COMMAND.args],
    lvextend({ size: 24n * MIB }, lv("thick"), [pv]),
    lvextend({ size: 24n * MIB }, lv("thick")),
    lvextend({ size: 24n * MIB }, lv("not-there")),
    lvchangeTags(["--deltag", tags[0]!, "--addtag", "denolith.id=v1-new", "--addtag", "denolith.x"], lv("thick")),
    lvchange({ permission: "r" }, lv("thick")),
    lvchange({ permission: "rw" }, lv("thick")),
    lvcreate({ ...snapshot, permission: "r", name: "cow", size: 8n * MIB, addtag: tags }, lv("thick")),
    lvextend({ size: 12n * MIB }, lv("cow")),
    [...REPORT_COMMAND.args],
    lvconvert({ yes: true, splitsnapshot: true }, lv("cow")),
    lvconvert({ yes: true, splitsnapshot: true }, lv("cow")),
    lvchange({ activate: "n" }, lv("thick")),
    lvchange({ activate: "y", config: NO_MONITORING }, lv("thick")),
    lvchange({ yes: true, activate: "y", ignoreactivationskip: true, activationmode: "degraded" }, lv("thick")),
    lvchange({ refresh: true }, lv("thick")),
    lvcreate({
      ...{ yes: true, type: "thin-pool", zero: "y", name: "pool", size: 16n * MIB, config: NO_MONITORING },
      addtag: tags,
    }, group),
    lvextend({ size: 20n * MIB, config: NO_MONITORING }, lv("pool")),
    lvextend({ poolmetadatasize: 8n * MIB, config: NO_MONITORING }, lv("pool")),
    lvcreate({ ...create, name: "thin", type: "thin", thinpool: "pool", virtualsize: 32n * MIB, addtag: tags }, group),
    lvcreate(
      { ...snapshot, permission: "r", name: "point", setactivationskip: "n", config: NO_MONITORING },
      lv("thin"),
    ),
    lvcreate({ ...snapshot, permission: "rw", name: "clone", setactivationskip: "n", addtag: tags }, lv("point")),
    lvextend({ size: 40n * MIB, config: NO_MONITORING }, lv("thin")),
    [...REPORT_COMMAND.args],
    lvremove({ yes: true, uuid: "aaaaaa-aaaa-aaaa-aaaa-aaaa-aaaa-aaaaaa" }, lv("thick")),
    remove("pool", {}),
    remove("point"),
    remove("clone"),
    remove("thin"),
    lvchange({ activate: "n", config: NO_MONITORING }, lv("pool")),
    remove("pool", {}),
    remove("cow"),
    remove("thick"),
    lvremove({ yes: true, uuid: "aaaaaa-aaaa-aaaa-aaaa-aaaa-aaaa-aaaaaa" }, lv("thick")),
    remove("on-pv"),
    [...REPORT_COMMAND.args],
  ];
}
