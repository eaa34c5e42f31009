/**
 * The fake machine's `lvm`, after LVM 2.03.
 *
 * @module
 */

import type { Output } from "../../lvm/exec.ts";
import type { Segment } from "../../lvm/model/report.ts";
import { allocate, dataOf, dataPiecesOf, freeBytes, healthOf, isWholeEnough, LINEAR } from "./disks.ts";
import { blank, type FakeGroup, type FakeLv, type FakeMachine, newUuid, ok, refuse, type Tool } from "./machine.ts";
import { fullreport, isOpen, NOT_ROOT } from "./reports.ts";
import { askBeforeRemoval, createPool, createThin, extendMetadata, isCowOf, removeThin } from "./thin.ts";

/** Runs `lvm SUBCOMMAND …`. */
export function lvm(machine: FakeMachine, args: readonly string[]): Output {
  const at = args.indexOf("--devices");
  const [subcommand = "", ...rest] = at < 0 ? args : args.toSpliced(at, 2);
  const run = SUBCOMMANDS[subcommand];
  if (run === undefined) throw new Error(`the fake lvm has no ${args.join(" ")}`);
  return run(at < 0 ? machine : machine.seeing(args[at + 1]!.split(",")), rest);
}

const SUBCOMMANDS: Readonly<Record<string, Tool>> = {
  fullreport,
  lvmconfig,
  systemid: () => ok("  system ID: this-host\n"),
  version,
  lvcreate,
  lvremove,
  lvextend,
  lvchange,
  lvconvert,
  lvrename,
  vgchange,
};

function version(machine: FakeMachine): Output {
  return ok(
    `  LVM version:     ${machine.host.lvmVersion}(2) (2022-05-18)\n  Library version: 1.02.185 (2022-05-18)\n` +
      "  Driver version:  4.47.0\n  Configuration:   ./configure\n",
  );
}

function lvmconfig(machine: FakeMachine, args: readonly string[]): Output {
  if (args.slice(0, 2).join(" ") !== "--type full") throw new Error(`the fake lvm has no lvmconfig ${args.join(" ")}`);
  const values = args.slice(2).map((setting) => setting.split("/")[1]!)
    .flatMap((name) => machine.host.settings.has(name) ? [`${name}=${machine.host.settings.get(name)}\n`] : []);
  return { ...ok(values.join("")), stderr: machine.host.root ? "" : NOT_ROOT };
}

function lvcreate(machine: FakeMachine, args: readonly string[]): Output {
  const { options, positional: [path = "", ...disks] } = parse(args, LVCREATE_OPTIONS);
  checkConfig(options);
  const [groupName = "", originName] = path.split("/");
  const group = machine.groups.find((group) => group.name === groupName);
  if (group === undefined) return noGroup(groupName);
  if (group.missingPvs > 0) return lacksDisks(group);
  const name = one(options, "--name");
  if (group.lvs.some((lv) => lv.name === name)) {
    return refuse(5, `  Logical Volume "${name}" already exists in volume group "${group.name}"`);
  }
  const origin = group.lvs.find((lv) => lv.name === originName);
  if (options.has("--snapshot") !== (originName !== undefined)) throw new Error(`lvcreate: an odd path ${path}`);
  if (originName !== undefined && origin === undefined) return noLv(path);
  const monitored = !options.has("--config");
  const made = {
    name,
    uuid: newUuid(),
    tags: new Set(options.get("--addtag")),
    active: true,
    suspended: false,
    zeroedTo: 0n,
    readOnly: options.get("--permission")?.[0] === "r",
    minor: machine.nextMinor(),
    createdAt: machine.now(),
    storePercent: 0,
    invalid: false,
  };
  const type = options.get("--type")?.[0];
  if (type === "thin-pool") {
    const size = extents(one(options, "--size"), group) * group.extentSize;
    return createPool(group, { ...made, size }, { zeroes: one(options, "--zero") === "y", monitored });
  }
  if (type === "thin") {
    const size = extents(one(options, "--virtualsize"), group) * group.extentSize;
    return createThin(group, { ...made, size, pool: one(options, "--thinpool") }, monitored);
  }
  if (origin?.pool !== undefined && !options.has("--size")) {
    const skipped = options.get("--setactivationskip")?.[0] !== "n";
    return createThin(
      group,
      { ...made, size: origin.size, pool: origin.pool, skipped, active: !skipped },
      monitored,
      origin,
    );
  }
  if (!options.has("--size")) throw new Error(`lvcreate: no size: ${args.join(" ")}`);

  const segment = segmentFrom(options, group);
  const asked = extents(one(options, "--size"), group, dataOf(segment));
  const useful = origin === undefined ? asked : storeLimit(origin, group);
  const size = (asked < useful ? asked : useful) * group.extentSize;
  const free = freeBytes(group);
  if (size > free && segment.type === "linear") {
    return refuse(
      5,
      `  Volume group "${group.name}" has insufficient free space (${free / group.extentSize} extents): ${
        size / group.extentSize
      } required.`,
    );
  }
  const pieces = allocate(group, { name, segment, pieces: [] }, size, disks);
  if ("code" in pieces) return pieces;
  const content = origin === undefined
    ? { ...blank(), data: group.residue }
    : { ...origin.content, signatures: [...origin.content.signatures], data: new Set(origin.content.data) };
  if (origin === undefined) group.residue = new Set();
  group.lvs.push({
    ...made,
    size,
    content,
    segment,
    pieces,
    ...(segment.type.startsWith("raid")
      ? { raid: { action: "idle", syncPercent: 100, mismatches: 0, dropped: false } }
      : {}),
    ...(origin === undefined ? {} : { origin: { name: origin.name, size: origin.size } }),
  });
  return ok(`  Logical volume "${name}" created.\n`);
}

function lvremove(machine: FakeMachine, args: readonly string[]): Output {
  const { options, positional } = parse(args, { "--yes": 0 });
  for (const path of positional) {
    const found = find(machine, path);
    if ("code" in found) return found;
    const { group, lv } = found;
    if (isOpen(machine, lv)) return refuse(5, `  Logical volume ${path} contains a filesystem in use.`);
    const refusal = askBeforeRemoval(group, lv, options.has("--yes"));
    if (refusal !== undefined) return refusal;
    if (removeThin(group, lv)) continue;
    const gone = group.lvs.filter((other) => other === lv || isCowOf(other, lv));
    for (const { content } of gone) group.residue = group.residue.union(content.data);
    group.lvs = group.lvs.filter((other) => !gone.includes(other));
  }
  return ok();
}

function lvextend(machine: FakeMachine, args: readonly string[]): Output {
  const { options, positional: [path = "", ...disks] } = parse(args, LVEXTEND_OPTIONS);
  checkConfig(options);
  const found = find(machine, path);
  if ("code" in found) return found;
  const { group, lv } = found;
  if (group.missingPvs > 0) return lacksDisks(group);
  if (options.has("--poolmetadatasize")) {
    return extendMetadata(group, lv, extents(one(options, "--poolmetadatasize"), group), freeBytes(group));
  }
  const { segment = LINEAR } = lv;
  const asked = extents(one(options, "--size"), group, dataOf(segment));
  const current = lv.size / group.extentSize;
  const origin = group.lvs.find(({ name }) => name === lv.origin?.name);
  const limit = origin && lv.pool === undefined ? storeLimit(origin, group) : undefined;
  const wanted = limit !== undefined && limit < asked ? limit : asked;
  if (lv.active && group.lvs.some((other) => isCowOf(other, lv))) {
    return refuse(5, "  Snapshot origin volumes can be resized only while inactive: try lvchange -an.");
  }
  if (wanted === current) {
    return refuse(5, `  New size (${wanted} extents) matches existing size (${current} extents).`);
  }
  if (wanted < current) {
    return refuse(3, `  New size given (${wanted} extents) not larger than existing size (${current} extents)`);
  }
  const free = freeBytes(group) / group.extentSize;
  if (lv.pool === undefined && segment.type === "linear" && wanted - current > free) {
    return refuse(5, `  Insufficient free space: ${wanted - current} extents needed, but only ${free} available`);
  }
  if (lv.pool === undefined) {
    const before = dataPiecesOf(group, lv);
    const more = (wanted - current) * group.extentSize;
    const pieces = allocate(group, { name: lv.name, segment, pieces: before }, more, disks);
    if ("code" in pieces) return pieces;
    lv.pieces = [...before, ...pieces];
  }
  if (lv.thinPool !== undefined) lv.thinPool.dataPercent *= Number(current) / Number(wanted);
  lv.storePercent *= Number(current) / Number(wanted);
  lv.size = wanted * group.extentSize;
  return ok(`  Logical volume ${path} successfully resized.\n`);
}

function lvchange(machine: FakeMachine, args: readonly string[]): Output {
  const { options, positional: [path = ""] } = parse(args, LVCHANGE_OPTIONS);
  checkConfig(options);
  const found = find(machine, path);
  if ("code" in found) return found;
  const { group, lv } = found;
  for (const tag of options.get("--deltag") ?? []) lv.tags.delete(tag);
  for (const tag of options.get("--addtag") ?? []) lv.tags.add(tag);
  if (options.has("--refresh")) {
    if (healthOf(group, lv) === "partial") {
      return refuse(5, `  Refusing refresh of partial LV ${path}. Use '--activationmode partial' to override.`);
    }
    lv.suspended = false;
    if (lv.raid) lv.raid.dropped = false;
  }
  if (options.get("--activate")?.[0] === "y" && !isWholeEnough(group, lv)) {
    return refuse(5, `  Refusing activation of partial LV ${path}.  Use '--activationmode partial' to override.`);
  }
  if (options.has("--permission")) lv.readOnly = one(options, "--permission") === "r";
  const activate = options.get("--activate")?.[0];
  if (activate === undefined) return ok(`  Logical volume ${path} changed.\n`);
  if (activate === "y" && lv.skipped) return ok(); // as LVM, which says nothing
  const pool = group.lvs.find(({ name }) => name === lv.pool);
  if (activate === "y" && pool !== undefined) pool.active = true;
  if (pool?.thinPool !== undefined && !options.has("--config")) pool.thinPool.monitored = true;
  const together = group.lvs.filter((other) => other === lv || isCowOf(other, lv));
  const open = together.filter((other) => isOpen(machine, other));
  if (activate === "n" && open.length > 0) {
    const inUse = open.map(({ name }) => `  Logical volume ${group.name}/${name} contains a filesystem in use.`);
    if (!open.includes(lv)) inUse.push(`  LV ${path} has open ${open.length} snapshot(s), not deactivating.`);
    return refuse(5, inUse.join("\n"));
  }
  for (const each of together) {
    if (activate === "y" && !each.active) each.minor = machine.nextMinor();
    if (activate === "n") each.readOnly = false;
    each.active = activate === "y";
  }
  return ok();
}

/** Splits a snapshot off its origin: what is left is its store, as an LV of its own. */
function lvconvert(machine: FakeMachine, args: readonly string[]): Output {
  const { options, positional: [path = ""] } = parse(args, { "--yes": 0, "--splitsnapshot": 0 });
  if (!options.has("--splitsnapshot")) throw new Error(`the fake lvconvert only splits: ${args.join(" ")}`);
  const found = find(machine, path);
  if ("code" in found) return found;
  const { group, lv } = found;
  if (group.missingPvs > 0) return lacksDisks(group);
  if (lv.origin === undefined || lv.pool !== undefined) {
    return refuse(5, `  Command on LV ${path} does not accept LV type linear.\n  Command not permitted on LV ${path}.`);
  }
  delete lv.origin;
  lv.content = { ...lv.content, zeroHead: false, signatures: [{ type: "DM_snapshot_cow", uuid: "" }] };
  return ok(`  Logical Volume ${path} split from its origin.\n`);
}

function lvrename(machine: FakeMachine, args: readonly string[]): Output {
  const [from = "", to = ""] = args;
  const found = find(machine, from);
  if ("code" in found) return found;
  found.lv.name = to.split("/")[1]!;
  return ok(`  Renamed "${from}" to "${to}"\n`);
}

function vgchange(machine: FakeMachine, args: readonly string[]): Output {
  const { options, positional: [name = ""] } = parse(args, { "--addtag": 1, "--deltag": 1 });
  const group = machine.groups.find((group) => group.name === name);
  if (group === undefined) return noGroup(name);
  for (const tag of options.get("--deltag") ?? []) group.tags.delete(tag);
  for (const tag of options.get("--addtag") ?? []) group.tags.add(tag);
  return ok(`  Volume group "${name}" successfully changed\n`);
}

/** The layout that lvcreate is asked for. What LVM would make of an odd one is not what was asked for, so it is a mistake. */
function segmentFrom(options: ReadonlyMap<string, string[]>, group: FakeGroup): Segment {
  const [type = "linear"] = options.get("--type") ?? [];
  if (type === "linear") return LINEAR;
  const value = (name: string) => Number((options.get(name)?.[0] ?? "0").replace(/b$/, ""));
  const [stripes, stripeSize, mirrors] = [value("--stripes"), BigInt(value("--stripesize")), value("--mirrors")];
  if (stripeSize > group.extentSize) {
    throw new Error(`lvcreate would make stripes of ${group.extentSize}: ${stripeSize}`);
  }
  if (type === "raid1") return { type, stripes: mirrors + 1, stripeSize: 0n };
  const extra = { striped: 0, raid10: stripes, raid5: 1, raid6: 2 }[type];
  if (extra === undefined) throw new Error(`the fake lvcreate has no type ${type}`);
  return { type, stripes: stripes + extra, stripeSize };
}

/** LVM changes nothing of what is where while it does not see all disks; tags and removals are another matter. */
function lacksDisks({ name }: FakeGroup): Output {
  return refuse(
    5,
    `  Cannot change VG ${name} while PVs are missing.\n  See vgreduce --removemissing and vgextend --restoremissing.\n` +
      `  Cannot process volume group ${name}`,
  );
}

const LVEXTEND_OPTIONS = { "--size": 1, "--poolmetadatasize": 1, "--config": 1 };

const LVCHANGE_OPTIONS = {
  "--config": 1,
  "--activate": 1,
  "--activationmode": 1,
  "--addtag": 1,
  "--deltag": 1,
  "--permission": 1,
  "--refresh": 0,
};

const LVCREATE_OPTIONS = {
  "--yes": 0,
  "--snapshot": 0,
  "--wipesignatures": 1,
  "--zero": 1,
  "--permission": 1,
  "--name": 1,
  "--size": 1,
  "--addtag": 1,
  "--config": 1,
  "--type": 1,
  "--thinpool": 1,
  "--virtualsize": 1,
  "--setactivationskip": 1,
  "--mirrors": 1,
  "--stripes": 1,
  "--stripesize": 1,
};

/** The one setting that commands about thin pools come with. */
function checkConfig(options: ReadonlyMap<string, string[]>): void {
  const [config = "activation/monitoring=0"] = options.get("--config") ?? [];
  if (config !== "activation/monitoring=0") throw new Error(`the fake lvm has no setting ${config}`);
}

/** Reads options with the given number of values, as lvm does; anything else is a mistake of the driver. */
function parse(
  args: readonly string[],
  known: Readonly<Record<string, number>>,
): { options: Map<string, string[]>; positional: string[] } {
  const options = new Map<string, string[]>();
  const positional: string[] = [];
  for (let index = 0; index < args.length; index++) {
    const arg = args[index]!;
    if (!arg.startsWith("-")) {
      positional.push(arg);
      continue;
    }
    if (!Object.hasOwn(known, arg)) throw new Error(`the fake lvm has no option ${arg} here: ${args.join(" ")}`);
    const values = options.get(arg) ?? [];
    if (known[arg] === 1) values.push(args[++index]!);
    options.set(arg, values);
  }
  if (positional.length === 0) throw new Error(`the fake lvm was given nothing to work on: ${args.join(" ")}`);
  // an empty name, a tag or a whole group where one LV is meant would reach far more than was meant
  if (positional.some((path) => path === "" || path.startsWith("@"))) {
    throw new Error(`a dangerous name: ${args.join(" ")}`);
  }
  for (const tag of [...options.get("--addtag") ?? [], ...options.get("--deltag") ?? []]) {
    if (!/^[A-Za-z0-9_+.\-/=!:&#]{1,1024}$/.test(tag)) throw new Error(`not a tag that LVM takes: ${tag}`);
  }
  return { options, positional };
}

function one(options: ReadonlyMap<string, string[]>, name: string): string {
  const [value, ...more] = options.get(name) ?? [];
  if (value === undefined || more.length > 0) throw new Error(`lvm: ${name} must be given once`);
  return value;
}

/** More than the origin and the store's own table could ever need is not allocated (lvm's cow_max_extents), in extents. */
function storeLimit(origin: FakeLv, group: FakeGroup): bigint {
  const chunks = (origin.size + 4095n) / 4096n;
  const bytes = (1n + chunks + (chunks + 256n) / 256n) * 4096n;
  return (bytes + group.extentSize - 1n) / group.extentSize;
}

/** The size in extents, the same on each of the disks with different data. */
function extents(size: string, group: FakeGroup, disks = 1n): bigint {
  const bytes = /^(\d+)b$/.exec(size)?.[1];
  if (bytes === undefined) throw new Error(`lvm: an odd size ${size}`);
  const row = group.extentSize * disks;
  return (BigInt(bytes) + row - 1n) / row * disks;
}

function find(machine: FakeMachine, path: string): { group: FakeGroup; lv: FakeLv } | Output {
  const [groupName = "", name = ""] = path.split("/");
  if (name === "") throw new Error(`lvm: ${path} would mean all LVs of the group`);
  const group = machine.groups.find((group) => group.name === groupName);
  if (group === undefined) return noGroup(groupName);
  const lv = group.lvs.find((lv) => lv.name === name);
  return lv === undefined ? noLv(path) : { group, lv };
}

function noGroup(name: string): Output {
  return refuse(5, `  Volume group "${name}" not found\n  Cannot process volume group ${name}`);
}

function noLv(path: string): Output {
  return refuse(5, `  Failed to find logical volume "${path}"`);
}
