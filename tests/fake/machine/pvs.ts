/**
 * The fake machine's disks: what LVs have of them, after LVM 2.03.
 *
 * @module
 */

import type { Output } from "../../../lvm/exec.ts";
import type { Segment } from "../../../lvm/model/report.ts";
import { withCacheSegments } from "./cache.ts";
import { failure, type FakeGroup, type FakeLv } from "./machine.ts";
import { METADATA_AREA_BYTES, metadataFree } from "./metadata_area.ts";

/** The bytes of a device before its first extent, which pvcreate(8) leaves for the label and the metadata area. */
const DATA_OFFSET_BYTES = 1n << 20n;

/** A disk of a group. */
export interface FakePv {
  path: string;
  uuid: string;
  /** Its size in bytes; by default its equal share of the group. */
  size?: bigint;
  /** Whether LVM allocates nothing more on it (pvchange(8), --allocatable n). */
  notAllocatable?: boolean;
  /** Its tags; none by default. */
  tags?: Set<string>;
}

/** A segment of a disk that an LV has; sizes in bytes. */
export interface FakePvSegment {
  subLv: string;
  pvUuid: string;
  size: bigint;
  /** The name of the cache that it belongs to, if not to the LV itself. */
  ofCache?: string;
}

/** The layout of an LV without layout options. */
export const LINEAR: Segment = { type: "linear", stripes: 1, stripeSize: 0n };

/** Returns the extents of an LV on the PVs. A thin LV has none; a pool also has its metadata, on the last PV. */
export function pvSegmentsOf(group: FakeGroup, lv: FakeLv): FakePvSegment[] {
  if (lv.pool !== undefined) return [];
  const data = dataPvSegmentsOf(group, lv);
  if (lv.thinPool === undefined) return withCacheSegments(group, lv, data);
  const metadata = { subLv: "tmeta", pvUuid: group.pvs.at(-1)!.uuid, size: lv.thinPool.metadataSize };
  return [...data.map((segment) => ({ ...segment, subLv: "tdata" })), metadata];
}

/** Returns the extents of an LV's data on the PVs. An LV that a test adds by hand is on the first PV. */
export function dataPvSegmentsOf(group: FakeGroup, lv: FakeLv): FakePvSegment[] {
  return lv.pvSegments ?? [{ subLv: "", pvUuid: group.pvs[0]!.uuid, size: lv.size }];
}

/**
 * Returns the bytes that a group reserves for the repair of its pools, on its last PV: the size of the largest
 * metadata.
 */
export function pmspareBytes(group: FakeGroup): bigint {
  return group.lvs.reduce((max, { thinPool }) => {
    const size = thinPool?.metadataSize ?? 0n;
    return size > max ? size : max;
  }, 0n);
}

/** Returns the size of a PV, and its free bytes. */
export function pvSpace(group: FakeGroup, pv: FakePv): { size: bigint; free: bigint } {
  const size = pv.size ?? group.size / BigInt(group.pvs.length) / group.extentSize * group.extentSize;
  const pvSegments = group.lvs.flatMap((lv) => pvSegmentsOf(group, lv)).filter((segment) => segment.pvUuid === pv.uuid);
  const spare = pv === group.pvs.at(-1) ? pmspareBytes(group) : 0n;
  return { size, free: pvSegments.reduce((free, segment) => free - segment.size, size - spare) };
}

/** Returns the bytes of a group that no LV has. */
export function freeBytes(group: FakeGroup): bigint {
  const pvSegments = group.lvs.flatMap((lv) => pvSegmentsOf(group, lv));
  return pvSegments.reduce((free, { size }) => free - size, group.size - pmspareBytes(group));
}

/** Reports whether LVM cannot find a PV of a group. */
export function isMissing(group: FakeGroup, uuid: string): boolean {
  return group.pvs.findIndex((pv) => pv.uuid === uuid) < group.missingPvs;
}

/** Returns a group as a command sees it that reads some disks only; none when it has none of them. */
export function withPvs(group: FakeGroup, paths: readonly string[]): FakeGroup[] {
  const [seen, unseen] = [true, false].map((isSeen) =>
    group.pvs.filter(({ path, uuid }) => (paths.includes(path) && !isMissing(group, uuid)) === isSeen)
  ) as [FakePv[], FakePv[]];
  if (seen.length === 0) return [];
  if (unseen.length === group.missingPvs) return [group];
  return [Object.create(group, { pvs: { value: [...unseen, ...seen] }, missingPvs: { value: unseen.length } })];
}

/** Returns the problem of an LV that LVM reports. */
export function lvHealthStatus(group: FakeGroup, lv: FakeLv): string {
  const pool = group.lvs.find(({ name }) => name === lv.pool);
  if (pvSegmentsOf(group, pool ?? lv).some(({ pvUuid }) => isMissing(group, pvUuid))) return "partial";
  if (lv.cacheHealth) return lv.cacheHealth;
  if (lv.raid?.refreshNeeded) return "refresh needed";
  return lv.raid?.mismatches ? "mismatches exist" : "";
}

/** Reports whether LVM would activate an LV in the mode `degraded`. */
export function canActivateDegraded(group: FakeGroup, lv: FakeLv): boolean {
  const pvSegments = pvSegmentsOf(group, lv).filter(({ pvUuid }) => isMissing(group, pvUuid));
  const lost = new Set(pvSegments.map(({ subLv }) => subLv.replace(/\D/g, "")));
  const { type, stripes } = lv.segment ?? LINEAR;
  if (type === "raid1") return lost.size < stripes;
  if (type === "raid10") {
    return !Array.from({ length: stripes }, (_, i) => lost.has(`${i}`) && lost.has(`${i ^ 1}`)).includes(true);
  }
  return lost.size <= (type === "raid6" ? 2 : type === "raid5" ? 1 : 0);
}

/** Returns how many of an LV's PVs have different data. */
export function dataStripes({ type, stripes }: Segment): bigint {
  const redundant = { raid1: stripes - 1, raid10: stripes / 2, raid5: 1, raid6: 2 }[type] ?? 0;
  return BigInt(stripes - redundant);
}

/**
 * Allocates space for an LV of so many bytes on the disks of these paths, or on any disk. It keeps the space that it has.
 */
export function allocate(
  group: FakeGroup,
  lv: { name: string; segment: Segment; pvSegments: readonly FakePvSegment[]; hasIntegrity?: boolean },
  bytes: bigint,
  pvPaths: readonly string[],
): FakePvSegment[] | Output {
  const names = pvPaths.map(parsePvArgument);
  const unknownPath = names.find((path) => !group.pvs.some((pv) => pv.path === path));
  if (unknownPath !== undefined) {
    return failure(5, `  Physical Volume "${unknownPath}" not found in Volume Group "${group.name}".`);
  }
  const pvs = group.pvs.filter(({ path, notAllocatable }) =>
    !notAllocatable && (names.length === 0 || names.includes(path))
  );
  const freeByPv = new Map(pvs.map((pv) => [pv.uuid, pvSpace(group, pv).free]));
  if (lv.segment.stripes > 1) return allocateStriped(group, lv, bytes, freeByPv);
  const free = [...freeByPv.values()].reduce((sum, each) => sum + each, 0n);
  if (pvs.length < group.pvs.length && bytes > free) {
    const missing = (bytes - free) / group.extentSize;
    return failure(
      5,
      `  Insufficient suitable allocatable extents for logical volume ${lv.name}: ${missing} more required`,
    );
  }
  return allocateLinear(freeByPv, bytes);
}

/** Returns the path in an argument, in which a colon begins a range of extents, unless a backslash is before it (lvcreate(8)). */
function parsePvArgument(argument: string): string {
  return argument.replace(/(?<!\\):.*$/, "").replace(/\\([:@])/g, "$1");
}

/** Allocates extents as LVM does for a linear LV: it fills one PV after the other. */
function allocateLinear(freeByPv: Map<string, bigint>, bytes: bigint): FakePvSegment[] {
  let remaining = bytes;
  return [...freeByPv].flatMap(([pvUuid, free]) => {
    const size = free < remaining ? free : remaining;
    remaining -= size;
    return size > 0n ? [{ subLv: "", pvUuid, size }] : [];
  });
}

/** Returns the bytes of the checksums of an image, as LVM 2.03.16 and 2.03.31 make them. */
function checksumBytes(image: bigint, extentSize: bigint): bigint {
  const MiB = 1n << 20n;
  const journals = [[512n, 4n], [1024n, 8n], [4096n, 32n]] as const;
  const [, journal] = journals.find(([limit]) => image <= limit * MiB) ?? [undefined, 64n];
  return ((image / (500n * MiB) + 1n) * 4n + journal) * MiB / extentSize * extentSize;
}

/**
 * Allocates one PV for each image. LVM prefers for an image the PV that it has; when that does not suffice, it takes
 * any, also those of the others: seen with 2.03.16.
 */
function allocateStriped(
  group: FakeGroup,
  { name, segment: { type, stripes }, pvSegments, hasIntegrity }: {
    name: string;
    segment: Segment;
    pvSegments: readonly FakePvSegment[];
    hasIntegrity?: boolean;
  },
  bytes: bigint,
  freeByPv: Map<string, bigint>,
): FakePvSegment[] | Output {
  const { extentSize } = group;
  const imageBytes = bytes / dataStripes({ type, stripes, stripeSize: 0n });
  const isNew = pvSegments.length === 0;
  const metadataBytes = type === "striped" || !isNew ? 0n : extentSize;
  const bytesOf = (subLv: string) =>
    pvSegments.filter((segment) => segment.subLv === subLv).reduce((sum, { size }) => sum + size, 0n);
  const image = (index: number) => `rimage_${index}${hasIntegrity ? "_iorig" : ""}`;
  const addedChecksums = hasIntegrity
    ? checksumBytes(bytesOf(image(0)) + imageBytes, extentSize) - bytesOf("rimage_0_imeta")
    : 0n;
  const perPv = imageBytes + metadataBytes + (addedChecksums > 0n ? addedChecksums : 0n);
  const needed = BigInt(stripes) * perPv / extentSize;
  const totalFree = [...freeByPv.values()].reduce((sum, free) => sum + free, 0n) / extentSize;
  if (totalFree === 0n) return failure(5, "  No specified PVs have space available.");
  if (needed > freeBytes(group) / extentSize) {
    return failure(5, `  Insufficient free space: ${needed} extents needed, but only ${totalFree} available`);
  }
  const pvsWithSpace = [...freeByPv].filter(([, free]) => free >= perPv).sort(([, a], [, b]) => a > b ? -1 : 1)
    .map(([pvUuid]) => pvUuid);
  if (pvsWithSpace.length < stripes) {
    return failure(
      5,
      `  Insufficient suitable allocatable extents for logical volume ${name}: ${needed} more required`,
    );
  }
  const parts = Array.from({ length: stripes }, (_, index) => image(index));
  const currentPvs = parts.map((subLv) =>
    pvsWithSpace.find((pvUuid) => pvSegments.some((segment) => segment.subLv === subLv && segment.pvUuid === pvUuid))
  );
  const chosen = currentPvs.every((pvUuid) => pvUuid !== undefined)
    ? currentPvs as string[]
    : pvsWithSpace.slice(0, stripes);
  return chosen.flatMap((pvUuid, index) => {
    if (type === "striped") return [{ subLv: "", pvUuid, size: imageBytes }];
    const rmeta = metadataBytes > 0n ? [{ subLv: `rmeta_${index}`, pvUuid, size: metadataBytes }] : [];
    const imeta = addedChecksums > 0n ? [{ subLv: `rimage_${index}_imeta`, pvUuid, size: addedChecksums }] : [];
    return [...rmeta, { subLv: image(index), pvUuid, size: imageBytes }, ...imeta];
  });
}

/** Returns the row of a PV in a report. */
export function pvRow(group: FakeGroup, pv: FakePv): Record<string, string> {
  const { size, free } = pvSpace(group, pv);
  const missing = isMissing(group, pv.uuid);
  return {
    pv_name: missing ? "[unknown]" : pv.path,
    pv_uuid: pv.uuid,
    pv_missing: missing ? "1" : "0",
    pv_allocatable: pv.notAllocatable ? "0" : "1",
    pv_tags: [...pv.tags ?? []].join(","),
    pv_pe_count: `${size / group.extentSize}`,
    pv_pe_alloc_count: `${(size - free) / group.extentSize}`,
    dev_size: missing ? "0" : `${size + DATA_OFFSET_BYTES}`,
    pv_mda_size: missing ? "0" : `${METADATA_AREA_BYTES}`,
    pv_mda_free: missing ? "0" : `${metadataFree(group)}`,
  };
}

/** Returns the row of a PV segment in a report. */
export function pvsegRow(
  group: FakeGroup,
  lv: FakeLv,
  { subLv, pvUuid, size, ofCache }: FakePvSegment,
): Record<string, string> {
  const name = ofCache !== undefined ? `[${ofCache}_cvol]` : subLv === "" ? lv.name : `[${lv.name}_${subLv}]`;
  return { pv_uuid: pvUuid, pvseg_size: `${size / group.extentSize}`, lv_name: name };
}

/** Returns the row of the only segment of an LV in a report. */
export function segRow({ name, pool, thinPool, transactionId, segment = LINEAR }: FakeLv): Record<string, string> {
  return {
    lv_name: name,
    segtype: pool !== undefined ? "thin" : thinPool !== undefined ? "thin-pool" : segment.type,
    stripes: pool !== undefined ? "0" : `${segment.stripes}`,
    stripe_size: `${segment.stripeSize}`,
    thin_id: pool !== undefined ? `${(transactionId ?? 0) + 1}` : "",
    transaction_id: pool !== undefined ? `${transactionId ?? 0}` : `${thinPool?.transactionId ?? ""}`,
  };
}

/** Ends the first synchronization of the RAID LVs of a group. */
export function endSync({ lvs }: FakeGroup): void {
  for (const { raid } of lvs) if (raid?.isNew) Object.assign(raid, { action: "idle", syncPercent: 100, isNew: false });
}
