/**
 * The fake machine's `lvm`, after LVM 2.03.
 *
 * @module
 */

import type { Output } from "../../../lvm/exec.ts";
import {
  allocate,
  canActivateDegraded,
  dataPvSegmentsOf,
  dataStripes,
  freeBytes,
  isMissing,
  LINEAR,
  lvHealthStatus,
} from "./pvs.ts";
import { pvcreate, pvremove, vgcreate, vgextend } from "./disks.ts";
import { failure, type FakeLv, type FakeMachine, isMounted, ok, type Tool } from "./machine.ts";
import { DEFAULT_FILTER } from "./machine_host.ts";
import {
  changePermission,
  checkConfig,
  LVCHANGE_OPTIONS,
  LVEXTEND_OPTIONS,
  notLarger,
  parseOptions,
  singleValue,
} from "./lvm_options.ts";
import { fillCache, splitCache } from "./cache.ts";
import { refuseAccess } from "./lvm_access.ts";
import { cowMaxExtents, findLv, groupNotFound, missingPvsError, parseExtents } from "./lvm_lookup.ts";
import { isSelected } from "./lvm_selection.ts";
import { lvcreate } from "./lvcreate.ts";
import { refuseFullMetadata } from "./metadata_area.ts";
import { fullreport, isOpen, NOT_ROOT } from "./reports.ts";
import { setResumed } from "./suspension.ts";
import {
  confirmRemoval,
  deactivateParts,
  extendMetadata,
  isCowSnapshot,
  isCowSnapshotOf,
  makePending,
  refuseMessages,
  refusePending,
  removeThin,
} from "./thin.ts";

/** Runs `lvm SUBCOMMAND …`. */
export function lvm(machine: FakeMachine, args: readonly string[]): Output {
  const at = args.indexOf("--devices");
  const [subcommand = "", ...rest] = at < 0 ? args : args.toSpliced(at, 2);
  const run = SUBCOMMANDS[subcommand];
  if (run === undefined) throw new Error(`the fake lvm has no ${args.join(" ")}`);
  const visible = at < 0 ? machine : machine.withDevices(args[at + 1]!.split(","));
  const output = refuseAccess(visible, subcommand, rest) ?? refuseFullMetadata(visible, (each) => run(each, rest)) ??
    run(visible, rest);
  return subcommand === "fullreport" ? output : { ...output, stderr: warnOfMissing(visible, rest) + output.stderr };
}

/** Returns what LVM prints about the physical volumes that it does not find of the groups that a command names. */
function warnOfMissing({ groups }: FakeMachine, args: readonly string[]): string {
  const named = groups.filter(({ name }) => args.some((arg) => arg === name || arg.startsWith(`${name}/`)));
  return named.flatMap((group) => group.pvs.filter(({ uuid }) => isMissing(group, uuid)).map((pv) => ({ group, pv })))
    .map(({ group, pv }) => `  WARNING: VG ${group.name} is missing PV ${pv.uuid} (last written to ${pv.path}).\n`)
    .join("");
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
  pvcreate,
  pvremove,
  vgcreate,
  vgextend,
  pvchange,
};

function version(machine: FakeMachine): Output {
  return ok(
    `  LVM version:     ${machine.host.lvmVersion}(2) (2022-05-18)\n  Library version: 1.02.185 (2022-05-18)\n` +
      "  Driver version:  4.47.0\n  Configuration:   ./configure\n",
  );
}

function lvmconfig(machine: FakeMachine, args: readonly string[]): Output {
  if (args.slice(0, 2).join(" ") === "--type current") return currentConfiguration(machine, args.slice(2));
  if (args.slice(0, 2).join(" ") !== "--type full") throw new Error(`the fake lvm has no lvmconfig ${args.join(" ")}`);
  const values = args.slice(2).map((setting) => setting.split("/")[1]!)
    .flatMap((name) => machine.host.settings.has(name) ? [`${name}=${machine.host.settings.get(name)}\n`] : []);
  return { ...ok(values.join("")), stderr: machine.host.root ? "" : NOT_ROOT };
}

/** Returns what lvm.conf has of some settings: it fails when it has not all of them. */
function currentConfiguration({ host }: FakeMachine, [merged, ...settings]: readonly string[]): Output {
  if (merged !== "--mergedconfig") throw new Error("without --mergedconfig, LVM shows its command line alone");
  const set = settings.map((setting) => [setting, setting.split("/")[1]!] as const)
    .filter(([, name]) => host.settings.get(name) !== DEFAULT_FILTER);
  const missing = settings.filter((setting) => !set.some(([name]) => name === setting));
  return {
    code: missing.length === 0 ? 0 : 5,
    stdout: set.map(([, name]) => `${name}=${host.settings.get(name)}\n`).join(""),
    stderr: missing.map((setting) => `  Configuration node ${setting} not found\n`).join(""),
  };
}

/** Returns LVM's message about an LV that is open. */
function inUseMessage(machine: FakeMachine, group: string, lv: FakeLv): string {
  const path = `${group}/${lv.name}`;
  return isMounted(machine, lv)
    ? `Logical volume ${path} contains a filesystem in use.`
    : `Logical volume ${path} in use.`;
}

function lvremove(machine: FakeMachine, args: readonly string[]): Output {
  const { options, positional } = parseOptions(args, { "--yes": 0, "--select": 1, "--config": 1 });
  checkConfig(options, "activation/retry_deactivation=0");
  const results = positional.map((path) => findLv(machine, path));
  const missing = results.find((result) => "code" in result);
  const selected = results.filter((result) => "group" in result).filter((found) => isSelected(machine, options, found));
  for (const { group, lv } of selected) {
    for (const each of [lv, ...group.lvs.filter(({ pool }) => pool === lv.name)]) {
      if (isOpen(machine, each)) return failure(5, `  ${inUseMessage(machine, group.name, each)}`);
      if (each !== lv) each.active = false; // before the next one is looked at
    }
  }
  let printed = "";
  for (const { group, lv } of selected) {
    const refusal = confirmRemoval(group, lv, options.has("--yes")) ?? refuseMessages(group, lv.pool);
    if (refusal !== undefined) return refusal;
    const removed = group.lvs.filter((other) => other === lv || isCowSnapshotOf(other, lv));
    for (const each of removed) machine.removeDevice(each);
    printed += removed.map(({ name }) => `  Logical volume "${name}" successfully removed.\n`).join("");
    if (removeThin(group, lv)) continue;
    for (const lv of removed) {
      fillCache(lv);
      const { content, raid, cache } = lv;
      group.residualData = group.residualData.union(content.data).union(raid?.staleData ?? new Set<string>())
        .union(cache?.content.data ?? new Set<string>());
      group.residualSignatures.push(...content.signatures);
    }
    group.lvs = group.lvs.filter((other) => !removed.includes(other));
  }
  if (missing !== undefined) return { ...missing, stdout: printed };
  return ok(printed);
}

function lvextend(machine: FakeMachine, args: readonly string[]): Output {
  const { options, positional: [path = "", ...pvPaths] } = parseOptions(args, LVEXTEND_OPTIONS);
  checkConfig(options);
  const found = findLv(machine, path);
  if ("code" in found) {
    const [groupName = "", name] = path.split("/");
    const isGroupThere = machine.groups.some((group) => group.name === groupName);
    return isGroupThere ? failure(5, `  Logical volume ${name} not found in volume group ${groupName}.`) : found;
  }
  const { group, lv } = found;
  if (group.missingPvs > 0) return missingPvsError(group);
  if (lv.thinPool !== undefined) {
    makePending(group, lv.name);
    delete lv.thinPool.oldMessage;
  }
  if (options.has("--poolmetadatasize")) {
    return extendMetadata(group, lv, parseExtents(singleValue(options, "--poolmetadatasize"), group), freeBytes(group));
  }
  const { segment = LINEAR } = lv;
  const requestedExtents = parseExtents(singleValue(options, "--size"), group, dataStripes(segment));
  const currentExtents = lv.size / group.extentSize;
  const origin = group.lvs.find(({ name }) => name === lv.origin?.name);
  const limit = origin && lv.pool === undefined ? cowMaxExtents(origin, group) : undefined;
  const newExtents = limit !== undefined && limit < requestedExtents ? limit : requestedExtents;
  if (newExtents === currentExtents) {
    if (newExtents < requestedExtents) return ok(); // "Reached maximum COW size"
    return failure(5, `  New size (${newExtents} extents) matches existing size (${currentExtents} extents).`);
  }
  if (newExtents < currentExtents) return notLarger(newExtents, currentExtents);
  if (lv.active && group.lvs.some((other) => isCowSnapshotOf(other, lv))) {
    return failure(5, "  Snapshot origin volumes can be resized only while inactive: try lvchange -an.");
  }
  const free = freeBytes(group) / group.extentSize;
  if (lv.pool === undefined && segment.stripes === 1 && newExtents - currentExtents > free) {
    return failure(
      5,
      `  Insufficient free space: ${newExtents - currentExtents} extents needed, but only ${free} available`,
    );
  }
  if (lv.pool === undefined) {
    const before = dataPvSegmentsOf(group, lv);
    const addedBytes = (newExtents - currentExtents) * group.extentSize;
    const hasIntegrity = before.some(({ subLv }) => subLv.endsWith("_imeta"));
    const pvSegments = allocate(
      group,
      { name: lv.name, segment, pvSegments: before, hasIntegrity },
      addedBytes,
      pvPaths,
    );
    if ("code" in pvSegments) return pvSegments;
    lv.pvSegments = [...before, ...pvSegments];
  }
  if (lv.thinPool !== undefined) lv.thinPool.dataPercent *= Number(currentExtents) / Number(newExtents);
  lv.cowPercent *= Number(currentExtents) / Number(newExtents);
  lv.size = newExtents * group.extentSize;
  return ok(`  Logical volume ${path} successfully resized.\n`);
}

function lvchange(machine: FakeMachine, args: readonly string[]): Output {
  const { options, positional } = parseOptions(args, LVCHANGE_OPTIONS);
  checkConfig(options);
  const parts = options.get("--activate")?.[0] === "n" ? deactivateParts(machine, positional) : undefined;
  if (parts !== undefined) return parts;
  const [path = ""] = positional;
  const found = findLv(machine, path);
  if ("code" in found) return found;
  const { group, lv } = found;
  if (!isSelected(machine, options, found)) return ok();
  for (const tag of options.get("--deltag") ?? []) lv.tags.delete(tag);
  for (const tag of options.get("--addtag") ?? []) lv.tags.add(tag);
  if (options.has("--setactivationskip")) lv.activationSkip = singleValue(options, "--setactivationskip") === "y";
  if (options.has("--zero")) lv.thinPool!.zeroes = singleValue(options, "--zero") === "y";
  if (options.has("--maxrecoveryrate") && lv.raid) lv.raid.isSlowed = singleValue(options, "--maxrecoveryrate") !== "0";
  if (options.has("--refresh")) {
    if (lvHealthStatus(group, lv) === "partial") {
      return failure(5, `  Refusing refresh of partial LV ${path}. Use '--activationmode partial' to override.`);
    }
    setResumed(lv);
    if (lv.raid) Object.assign(lv.raid, { refreshNeeded: false, staleData: undefined });
  }
  if (options.has("--activate") && !options.has("--yes") && isCowSnapshot(lv)) {
    const question = `Change of snapshot ${path} will also change its origin ${group.name}/${lv.origin!.name}.`;
    return failure(5, `${question} Proceed? [y/n]: [n]`);
  }
  // LVM activates an origin and all its snapshots together, whichever of them it is given.
  const whole = isCowSnapshot(lv) ? group.lvs.find(({ name }) => name === lv.origin!.name)! : lv;
  const isUsable = [lv, whole].every((each) => canActivateDegraded(group, each));
  if (options.get("--activate")?.[0] === "y" && !isUsable) {
    return failure(5, `  Refusing activation of partial LV ${path}.  Use '--activationmode partial' to override.`);
  }
  const refusal = options.has("--permission")
    ? changePermission(path, lv, singleValue(options, "--permission"))
    : undefined;
  if (refusal !== undefined) return refusal;
  const activate = options.get("--activate")?.[0];
  if (activate === undefined) return ok(`  Logical volume ${path} changed.\n`);
  if (activate === "y" && lv.activationSkip && !options.has("--ignoreactivationskip")) return ok(); // LVM prints no error
  const missing = activate === "y" ? refusePending(lv) : undefined;
  if (missing !== undefined) return missing;
  const pool = group.lvs.find(({ name }) => name === lv.pool);
  if (activate === "y" && pool?.active === false) Object.assign(pool, { minor: machine.nextMinor(), active: true });
  if (pool?.thinPool !== undefined && !options.has("--config")) pool.thinPool.monitored = true;
  const withSnapshots = group.lvs.filter((other) => other === whole || isCowSnapshotOf(other, whole));
  const open = withSnapshots.filter((other) => isOpen(machine, other));
  if (activate === "n" && open.length > 0) {
    const inUse = open.map((other) => `  ${inUseMessage(machine, group.name, other)}`);
    if (!open.includes(whole)) {
      inUse.push(`  LV ${group.name}/${whole.name} has open ${open.length} snapshot(s), not deactivating.`);
    }
    return failure(5, inUse.join("\n"));
  }
  for (const each of withSnapshots) {
    if (activate === "y" && !each.active) each.minor = machine.nextMinor();
    if (each.killedTable === "only") delete each.killedTable;
    if (activate === "n") {
      each.setReadOnly = false;
      machine.removeDevice(each);
    } else each.active = true;
  }
  return ok();
}

/**
 * Splits a snapshot from its origin, or a cache from its LV: it remains, as an LV of its own. Or removes the checksums of the
 * images of a RAID LV.
 */
function lvconvert(machine: FakeMachine, args: readonly string[]): Output {
  const known = { "--yes": 0, "--splitsnapshot": 0, "--splitcache": 0, "--raidintegrity": 1 };
  const { options, positional: [path = ""] } = parseOptions(args, known);
  const found = findLv(machine, path);
  if ("code" in found) return found;
  const { group, lv } = found;
  if (options.get("--raidintegrity")?.[0] === "n") {
    lv.pvSegments = dataPvSegmentsOf(group, lv).filter(({ subLv }) => !subLv.endsWith("_imeta"))
      .map((segment) => ({ ...segment, subLv: segment.subLv.replace(/_iorig$/, "") }));
    return ok(`  Logical volume ${path} has removed integrity.\n`);
  }
  if (options.has("--splitsnapshot") === options.has("--splitcache")) {
    throw new Error(`the fake lvconvert only splits: ${args.join(" ")}`);
  }
  if (group.missingPvs > 0) return missingPvsError(group);
  if (options.has("--splitcache")) return splitCache(group, lv);
  if (lv.origin === undefined || lv.pool !== undefined) {
    return failure(
      5,
      `  Command on LV ${path} does not accept LV type linear.\n  Command not permitted on LV ${path}.`,
    );
  }
  delete lv.origin;
  lv.content = { ...lv.content, zeroHead: false, signatures: [{ type: "DM_snapshot_cow", uuid: "" }] };
  return ok(`  Logical Volume ${path} split from its origin.\n`);
}

function lvrename(machine: FakeMachine, args: readonly string[]): Output {
  const [from = "", to = ""] = args;
  const found = findLv(machine, from);
  if ("code" in found) return found;
  const { group: { name: groupName, lvs }, lv } = found;
  const name = to.split("/")[1]!;
  if (lvs.some((other) => other.name === name)) {
    return failure(5, `  Logical Volume "${name}" already exists in volume group "${groupName}"`);
  }
  for (const { origin } of lvs) if (origin?.name === lv.name) origin.name = name;
  lv.name = name;
  return ok(`  Renamed "${from}" to "${to}"\n`);
}

function vgchange(machine: FakeMachine, args: readonly string[]): Output {
  const { options, positional: [name = ""] } = parseOptions(args, { "--addtag": 1, "--deltag": 1, "--select": 1 });
  const group = machine.groups.find((group) => group.name === name);
  if (group === undefined) return groupNotFound(name);
  if (options.has("--select") && !group.lvs.some((lv) => isSelected(machine, options, { group, lv }))) return ok();
  for (const tag of options.get("--deltag") ?? []) group.tags.delete(tag);
  for (const tag of options.get("--addtag") ?? []) group.tags.add(tag);
  return ok(`  Volume group "${name}" successfully changed\n`);
}

function pvchange(machine: FakeMachine, args: readonly string[]): Output {
  const { options, positional: [path = ""] } = parseOptions(args, { "--addtag": 1, "--deltag": 1 });
  const pv = machine.groups.flatMap(({ pvs }) => pvs).find((pv) => pv.path === path);
  if (pv === undefined) return failure(5, `  Failed to find physical volume "${path}".`);
  pv.tags ??= new Set();
  for (const tag of options.get("--deltag") ?? []) pv.tags.delete(tag);
  for (const tag of options.get("--addtag") ?? []) pv.tags.add(tag);
  return ok(`  Physical volume "${path}" changed\n  1 physical volume changed / 0 physical volumes not changed\n`);
}
