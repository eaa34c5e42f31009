/**
 * The fake machine's `lvm lvcreate`, after LVM 2.03.
 *
 * @module
 */

import type { Output } from "../../../lvm/exec.ts";
import type { Segment } from "../../../lvm/model/report.ts";
import { allocate, dataStripes, freeBytes, LINEAR } from "./pvs.ts";
import { failure, type FakeGroup, type FakeMachine, newUuid, ok } from "./machine.ts";
import { attachCache, cacheOfOptions } from "./cache.ts";
import { blankContent, copyOf, type DeviceContent } from "./device_content.ts";
import { checkConfig, LVCREATE_OPTIONS, parseOptions, singleValue } from "./lvm_options.ts";
import { cowMaxExtents, groupNotFound, missingPvsError, parseExtents } from "./lvm_lookup.ts";
import { setResumed } from "./suspension.ts";
import { createPool, createThin, isCowSnapshot } from "./thin.ts";

/** Creates an LV of any kind. */
export function lvcreate(machine: FakeMachine, args: readonly string[]): Output {
  const { options, positional: [path = "", ...pvPaths] } = parseOptions(args, LVCREATE_OPTIONS);
  checkConfig(options, options.has("--cachevol") ? options.get("--config")?.[0] : undefined);
  const [groupName = "", originName] = path.split("/");
  const group = machine.groups.find((group) => group.name === groupName);
  if (group === undefined) return groupNotFound(groupName);
  if (group.missingPvs > 0) return missingPvsError(group);
  if (group.maxLvs !== undefined && group.lvs.length >= group.maxLvs) {
    return failure(5, `  Maximum number of logical volumes (${group.maxLvs}) reached in volume group ${group.name}`);
  }
  const name = singleValue(options, "--name");
  const refusal = refuseName(name) ?? refusePool(group, name, options.get("--thinpool")?.[0]);
  if (refusal !== undefined) return refusal;
  const origin = group.lvs.find((lv) => lv.name === originName);
  if (options.has("--snapshot") !== (originName !== undefined)) throw new Error(`lvcreate: an odd path ${path}`);
  if (originName !== undefined && origin === undefined) {
    return failure(5, `  Snapshot origin LV ${originName} not found in Volume group ${groupName}.`);
  }
  if (group.lvs.some((lv) => lv.name === name)) {
    return failure(5, `  Logical Volume "${name}" already exists in volume group "${group.name}"`);
  }
  if (origin?.thinPool !== undefined) {
    return failure(5, "  Snapshots of thin pool type volumes are not supported.");
  }
  if (origin !== undefined && isCowSnapshot(origin)) {
    return failure(5, "  Snapshots of snapshots are not supported.");
  }
  if (origin?.cache !== undefined) throw new Error("lvcreate may fail halfway for a snapshot of a cached LV");
  if (origin?.pvSegments?.some(({ subLv }) => subLv.endsWith("_imeta"))) {
    return failure(5, "  Snapshots of raid with integrity are not supported.");
  }
  const cache = cacheOfOptions(group, name, options);
  if (cache !== undefined && "code" in cache) return cache;
  const monitored = !options.has("--config");
  const newLv = {
    name,
    uuid: newUuid(),
    tags: new Set(options.get("--addtag")),
    active: origin?.active ?? options.get("--activate")?.[0] !== "n",
    suspended: false,
    zeroedTo: 0n,
    permission: options.get("--permission")?.[0] === "r" ? "r" as const : "rw" as const,
    setReadOnly: false,
    minor: machine.nextMinor(),
    createdAt: machine.now(),
    cowPercent: 0,
    invalid: false,
  };
  const type = options.get("--type")?.[0];
  if (type === "thin-pool") {
    const size = parseExtents(singleValue(options, "--size"), group) * group.extentSize;
    return createPool(group, { ...newLv, size }, { zeroes: singleValue(options, "--zero") === "y", monitored });
  }
  if (type === "thin") {
    const size = parseExtents(singleValue(options, "--virtualsize"), group) * group.extentSize;
    return createThin(group, { ...newLv, size, pool: singleValue(options, "--thinpool") }, monitored);
  }
  if (origin?.pool !== undefined && !options.has("--size")) {
    const activationSkip = options.get("--setactivationskip")?.[0] !== "n";
    return createThin(
      group,
      { ...newLv, size: origin.size, pool: origin.pool, activationSkip, active: !activationSkip },
      monitored,
      origin,
    );
  }
  if (!options.has("--size")) throw new Error(`lvcreate: no size: ${args.join(" ")}`);

  const segment = parseSegment(options, group);
  const requestedExtents = parseExtents(singleValue(options, "--size"), group, dataStripes(segment));
  const maxUseful = origin === undefined ? requestedExtents : cowMaxExtents(origin, group);
  const size = (requestedExtents < maxUseful ? requestedExtents : maxUseful) * group.extentSize;
  const free = freeBytes(group);
  if (size > free && segment.stripes === 1) {
    return failure(
      5,
      `  Volume group "${group.name}" has insufficient free space (${free / group.extentSize} extents): ${
        size / group.extentSize
      } required.`,
    );
  }
  const hasIntegrity = options.get("--raidintegrity")?.[0] === "y";
  const pvSegments = allocate(group, { name, segment, pvSegments: [], hasIntegrity }, size, pvPaths);
  if ("code" in pvSegments) return pvSegments;
  const content = origin === undefined ? takeResidualContent(group, options) : copyOf(origin.content);
  group.lvs.push({
    ...newLv,
    size,
    content,
    segment,
    pvSegments,
    ...(segment.type.startsWith("raid") ? { raid: { ...NEW_RAID, isSlowed: options.has("--maxrecoveryrate") } } : {}),
    ...(origin === undefined ? {} : { origin: { name: origin.name, size: origin.size } }),
  });
  if (cache !== undefined) attachCache(group, group.lvs.at(-1)!, cache);
  if (origin !== undefined) {
    delete origin.killedTable; // the right one takes its place
    setResumed(origin);
  }
  return ok(`  Logical volume "${name}" created.\n`);
}

/** The state of the kernel of a new RAID LV: its images are not in sync (lvmraid(7)). */
const NEW_RAID = { action: "resync", syncPercent: 0, mismatches: 0, refreshNeeded: false, isNew: true } as const;

/** Returns the failure of an lvcreate with a name that LVM reserves (lvm(8), "VALID NAMES"). */
function refuseName(name: string): Output | undefined {
  const prefix = /^(?:snapshot|pvmove)/.exec(name)?.[0];
  if (prefix === undefined) return undefined;
  return failure(3, `  Names starting "${prefix}" are reserved. Please choose a different LV name.`);
}

/** Returns the failure of an lvcreate that names a pool which it cannot use. LVM checks this before the LV's name. */
function refusePool(group: FakeGroup, name: string, pool: string | undefined): Output | undefined {
  if (pool === undefined) return undefined;
  if (pool === name) return failure(3, `  Logical volume name ${name} and pool name must be different.`);
  if (group.lvs.some((lv) => lv.name === pool && lv.thinPool !== undefined)) return undefined;
  return failure(5, `  Pool ${pool} not found in Volume group ${group.name}.`);
}

/**
 * Returns the content of a new LV: that of its extents, without the first 4 KiB and the signatures, unless the options
 * keep them (lvcreate(8), --zero and --wipesignatures, both on by default).
 */
function takeResidualContent(group: FakeGroup, options: ReadonlyMap<string, string[]>): DeviceContent {
  const isKept = (option: string) => options.get(option)?.[0] === "n";
  const { residualData: data, residualSignatures } = group;
  const isClean = data.size === 0 && residualSignatures.length === 0;
  Object.assign(group, { residualData: new Set(), residualSignatures: [] });
  return {
    ...blankContent(),
    data,
    zeroHead: isClean || !isKept("--zero"),
    signatures: isKept("--wipesignatures") ? residualSignatures : [],
  };
}

/**
 * Returns the layout that lvcreate's options mean. @throws {Error} when LVM would change an odd layout, which is a
 * mistake of the driver
 */
function parseSegment(options: ReadonlyMap<string, string[]>, group: FakeGroup): Segment {
  const [type = "linear"] = options.get("--type") ?? [];
  if (type === "linear") return LINEAR;
  if (type === "cache" || type === "writecache") return { ...LINEAR, type };
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
