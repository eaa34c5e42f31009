/**
 * Thin pools of the fake machine's `lvm`, after LVM 2.03 (lvmthin(7)).
 *
 * @module
 */

import type { Output } from "../../../lvm/exec.ts";
import { notLarger } from "./lvm_options.ts";
import { allocate, freeBytes, LINEAR, pmspareBytes } from "./pvs.ts";
import { failure, type FakeGroup, type FakeLv, type FakeMachine, type FakePool, ok } from "./machine.ts";
import { blankContent, copyOf, type DeviceContent } from "./device_content.ts";

/** The bytes of metadata that LVM gives to a small pool, and once more to its spare. */
const METADATA_BYTES = 4n << 20n;

/** An LV that is being created, without its content. */
type NewLv = Omit<FakeLv, "content">;

/** Makes a thin pool. */
export function createPool(
  group: FakeGroup,
  newLv: NewLv,
  { zeroes, monitored }: { zeroes: boolean; monitored: boolean },
): Output {
  const thinPool: FakePool = {
    metadataSize: METADATA_BYTES,
    transactionId: 0,
    dataPercent: 0,
    metadataPercent: 10.84,
    zeroes,
    health: "",
    monitored,
    residualData: group.residualData,
  };
  const spare = pmspareBytes(group) > METADATA_BYTES ? 0n : METADATA_BYTES - pmspareBytes(group);
  const free = freeBytes(group);
  const needed = newLv.size + METADATA_BYTES + spare;
  if (newLv.size === 0n) return failure(3, "  Invalid argument for --size: 0b");
  if (needed > free) {
    const [have, want] = [free, needed].map((bytes) => bytes / group.extentSize);
    return failure(
      5,
      `  Volume group "${group.name}" has insufficient free space (${have} extents): ${want} required.`,
    );
  }
  const pvSegments = allocate(group, { name: newLv.name, segment: LINEAR, pvSegments: [] }, newLv.size, []);
  if ("code" in pvSegments) return pvSegments;
  group.residualData = new Set();
  group.lvs.push({ ...newLv, content: blankContent(), thinPool, pvSegments });
  return ok(`  Logical volume "${newLv.name}" created.\n`);
}

/** Returns the pools of the kernel. An active LV keeps its pool there, also where LVM shows the pool itself as inactive. */
export function kernelPools(machine: FakeMachine): { group: FakeGroup; lv: FakeLv }[] {
  const lvs = machine.allLvs();
  const isUsed = ({ name }: FakeLv) => lvs.some(({ lv }) => lv.pool === name && lv.active);
  return lvs.filter(({ lv }) => lv.thinPool !== undefined && (lv.active || isUsed(lv)));
}

/** Makes a thin volume in its pool, or a thin snapshot of one. */
export function createThin(
  group: FakeGroup,
  newLv: NewLv & { pool: string },
  monitored: boolean,
  origin?: FakeLv,
): Output {
  const pool = group.lvs.find(({ name }) => name === newLv.pool)!.thinPool!;
  if (pool.dataPercent >= 100 || pool.metadataPercent >= 75) {
    return failure(
      5,
      `  Cannot create new thin volume, free space in thin pool ${group.name}/${newLv.pool} reached threshold.`,
    );
  }
  if (origin?.suspended) throw new Error("LVM does not tell the pool to make a snapshot of a suspended LV");
  const refusal = refuseMessages(group, newLv.pool) ?? refuseComponents(group, newLv.pool);
  if (refusal !== undefined) return refusal;
  makePending(group, newLv.pool);
  delete pool.oldMessage;
  const made = origin === undefined
    ? { ...blankContent(), data: pool.zeroes ? new Set<string>() : pool.residualData }
    : copyContent(origin);
  // the first LV of a pool has the number that the first one before it had, and LVM does not mind that the pool knows it
  const isFirst = group.lvs.every((lv) => lv.pool !== newLv.pool);
  const content = isFirst ? pool.leaked ?? made : made;
  if (isFirst) delete pool.leaked;
  if (monitored) pool.monitored = true;
  const transactionId = pool.transactionId++;
  const ofOrigin = origin && { origin: { name: origin.name, size: origin.size } };
  group.lvs.push({ ...newLv, content, transactionId, ...ofOrigin });
  return ok(`  Logical volume "${newLv.name}" created.\n`);
}

/** Returns what a thin snapshot of an LV has. */
export function copyContent({ content }: FakeLv): DeviceContent {
  return copyOf(content);
}

/**
 * Makes the LVs that a pool has not made yet: LVM sends the pool the messages about them before or with its next change.
 * A snapshot gets what its origin has by now.
 */
export function makePending(group: FakeGroup, pool: string): void {
  for (const lv of group.lvs.filter((lv) => lv.pool === pool && lv.pending)) {
    delete lv.pending;
    const origin = group.lvs.find(({ name }) => name === lv.origin?.name);
    if (origin !== undefined) lv.content = copyContent(origin);
  }
}

/** Returns the failure of a change of a pool that has made a snapshot already which LVM tells it to make. */
export function refuseMessages(group: FakeGroup, pool: string | undefined): Output | undefined {
  const lv = group.lvs.find(({ name }) => name === pool);
  if (lv?.thinPool?.oldMessage !== "half-followed") return undefined;
  const answer = `  device-mapper: message ioctl on  (253:${lv.minor}) failed: File exists`;
  return failure(5, `${answer}\n  Failed to process message "create_snap 2 1".`);
}

/** Returns the failure of the activation of a pool while LVs that it consists of are active alone. */
function refuseComponents(group: FakeGroup, pool: string): Output | undefined {
  const [active] = group.lvs.find(({ name }) => name === pool)?.thinPool?.activeParts ?? [];
  if (active === undefined) return undefined;
  const path = `${group.name}/${pool}`;
  return failure(
    5,
    `  Activation of logical volume ${path} is prohibited while logical volume ${path}_${active} is active.\n` +
      `  Aborting. Failed to locally activate thin pool ${path}.`,
  );
}

/** Deactivates LVs that pools consist of; `undefined` when the paths are of other LVs. */
export function deactivateParts(machine: FakeMachine, paths: readonly string[]): Output | undefined {
  const parts = paths.map((path) => /^(.+)_(tmeta|tdata)$/.exec(path)).filter((match) => match !== null);
  if (parts.length === 0) return undefined;
  for (const [, path, part] of parts) {
    const pool = machine.allLvs().find(({ group, lv }) => `${group.name}/${lv.name}` === path)?.lv.thinPool;
    if (pool === undefined) return failure(5, `  Failed to find logical volume "${path}_${part}"`);
    pool.activeParts = (pool.activeParts ?? []).filter((active) => active !== part);
  }
  return ok();
}

/** Returns the failure of the activation of an LV that its pool has not made. */
export function refusePending({ pending, lost, minor }: FakeLv): Output | undefined {
  if (!pending && !lost) return undefined;
  return failure(5, `  device-mapper: reload ioctl on  (253:${minor}) failed: No data available`);
}

/** Reports whether an LV is a copy-on-write snapshot of another one. LVM removes these with their origin. */
export function isCowSnapshotOf(lv: FakeLv, origin: FakeLv): boolean {
  return isCowSnapshot(lv) && lv.origin?.name === origin.name;
}

/** Reports whether an LV is a copy-on-write snapshot. */
export function isCowSnapshot({ origin, pool }: FakeLv): boolean {
  return origin !== undefined && pool === undefined;
}

/**
 * Reports whether an active LV is a pool whose device in the kernel is open. Its active thin LVs have it open, and from its first
 * transaction on, the device that LVM shows as the pool.
 */
export function isPoolOpen(group: FakeGroup, { name, thinPool }: FakeLv): boolean {
  return (thinPool?.transactionId ?? 0) > 0 || group.lvs.some(({ pool, active }) => pool === name && active);
}

/** Returns the size of an LV's device: a copy-on-write snapshot looks like its origin. Without a table it has none. */
export function deviceBytes({ origin, pool, size, killedTable }: FakeLv): bigint {
  if (killedTable === "only") return 0n;
  return pool === undefined ? origin?.size ?? size : size;
}

/** Returns the failure of an lvremove that asks for a confirmation without `--yes`. Nobody answers, which means no. */
export function confirmRemoval(group: FakeGroup, lv: FakeLv, isConfirmed: boolean): Output | undefined {
  const dependent = lv.thinPool === undefined ? 0 : group.lvs.filter(({ pool }) => pool === lv.name).length;
  if (isConfirmed || (dependent === 0 && !lv.active)) return undefined;
  const path = `${group.name}/${lv.name}`;
  const prompt = dependent === 0
    ? `Do you really want to remove active logical volume ${path}? [y/n]: [n]`
    : `Removing pool ${path} will remove ${dependent} dependent volume(s). Proceed? [y/n]: [n]`;
  return failure(5, `${prompt}\n  Logical volume ${path} not removed.`);
}

/** Removes an LV that is thin or a thin pool. @returns whether it was one */
export function removeThin(group: FakeGroup, lv: FakeLv): boolean {
  const pool = group.lvs.find(({ name }) => name === lv.pool)?.thinPool;
  if (pool === undefined && lv.thinPool === undefined) return false;
  if (pool !== undefined) {
    // LVM adds the removal to a transaction that is pending, unless it makes the removed LV first
    const isPending = group.lvs.some((other) => other !== lv && other.pool === lv.pool && other.pending);
    if (pool.oldMessage !== undefined) pool.leaked = lv.content;
    else if (!isPending || lv.pending) pool.transactionId++;
    delete pool.oldMessage;
    makePending(group, lv.pool!);
    pool.residualData = pool.residualData.union(lv.content.data);
    const poolBytes = Number(group.lvs.find(({ name }) => name === lv.pool)!.size);
    pool.dataPercent = Math.max(0, pool.dataPercent - 100 * (lv.thinChunks?.size ?? 0) * CHUNK_BYTES / poolBytes);
  }
  if (lv.thinPool !== undefined) group.residualData = group.residualData.union(lv.thinPool.residualData);
  group.lvs = group.lvs.filter((other) => other !== lv && other.pool !== lv.name);
  for (const other of group.lvs) if (other.pool !== undefined && other.origin?.name === lv.name) delete other.origin;
  return true;
}

/** Grows the metadata of a pool, and the spare with it. */
export function extendMetadata(group: FakeGroup, lv: FakeLv, wanted: bigint, free: bigint): Output {
  const { thinPool } = lv;
  if (thinPool === undefined) throw new Error(`lvextend --poolmetadatasize: ${lv.name} is no thin pool`);
  const size = wanted * group.extentSize;
  const more = size - thinPool.metadataSize;
  if (more < 0n) return notLarger(wanted, thinPool.metadataSize / group.extentSize);
  const spare = size > pmspareBytes(group) ? size - pmspareBytes(group) : 0n;
  if (more + spare > free) {
    const [needed, available] = [more + spare, free].map((bytes) => bytes / group.extentSize);
    return failure(5, `  Insufficient free space: ${needed} extents needed, but only ${available} available`);
  }
  thinPool.metadataPercent *= Number(thinPool.metadataSize) / Number(size);
  thinPool.metadataSize = size;
  return ok(`  Logical volume ${group.name}/${lv.name} successfully resized.\n`);
}

/**
 * Removes the data of a pool that cannot be read any more: once one of its LVs has overwritten the pool's whole size.
 */
export function discardOverwrittenData(machine: FakeMachine, lv: FakeLv): void {
  const group = machine.allLvs().find((each) => each.lv === lv)?.group;
  const pool = group?.lvs.find(({ name }) => name === lv.pool);
  if (pool === undefined || lv.zeroedTo < pool.size) return;
  pool.thinPool!.residualData = new Set();
  Object.assign(lv.content, blankContent());
}

/** The size of a chunk of a small thin pool (lvmthin(7)), in bytes. */
const CHUNK_BYTES = 65_536;

/** Allocates the chunks of a thin LV that are written from one byte to another. @returns false when its pool is full */
export function allocateChunks(machine: FakeMachine, lv: FakeLv, from: number, to: number): boolean {
  const pool = poolOf(machine, lv);
  if (pool?.thinPool === undefined) return true;
  const chunks = lv.thinChunks ??= new Set();
  const percent = 100 * CHUNK_BYTES / Number(pool.size);
  for (let chunk = Math.floor(from / CHUNK_BYTES); chunk * CHUNK_BYTES < to; chunk++) {
    if (chunks.has(chunk)) continue;
    if (pool.thinPool.dataPercent + percent > 100 + percent / 2) return false; // sums of percents are not exact
    chunks.add(chunk);
    pool.thinPool.dataPercent = Math.min(100, pool.thinPool.dataPercent + percent);
  }
  return true;
}

/** Frees the chunks of a thin LV that are wholly between two bytes, as a discard does. */
export function freeChunks(machine: FakeMachine, lv: FakeLv, from: number, to: number): void {
  const pool = poolOf(machine, lv);
  if (pool?.thinPool === undefined) return;
  const freed = [...lv.thinChunks ?? []].filter((chunk) =>
    chunk * CHUNK_BYTES >= from && (chunk + 1) * CHUNK_BYTES <= to
  );
  for (const chunk of freed) lv.thinChunks!.delete(chunk);
  const percent = 100 * CHUNK_BYTES * freed.length / Number(pool.size);
  pool.thinPool.dataPercent = Math.max(0, pool.thinPool.dataPercent - percent);
}

function poolOf(machine: FakeMachine, lv: FakeLv): FakeLv | undefined {
  return machine.allLvs().find((each) => each.group.lvs.includes(lv) && each.lv.name === lv.pool)?.lv;
}

/** Returns the fields of a report that differ for thin LVs and pools. */
export function thinFields(lv: FakeLv): Record<string, string> {
  const { pool, thinPool, origin, active, permission } = lv;
  if (pool !== undefined) {
    return {
      lv_layout: "thin,sparse",
      lv_attr: `V${permission === "r" ? "r" : "w"}i-a-tz--`,
      origin_size: "",
      lv_snapshot_invalid: "-1",
      snap_percent: "",
      pool_lv: pool,
      data_percent: active ? "0.00" : "",
      ...(origin === undefined ? { origin: "" } : {}),
    };
  }
  if (thinPool === undefined) return {};
  const full = thinPool.dataPercent >= 100 ? "out_of_data" : "";
  return {
    lv_layout: "thin,pool",
    lv_attr: `twi-${thinPool.needsCheck ? "c" : "a"}ot${thinPool.zeroes ? "z" : "-"}--`,
    origin_size: "",
    data_percent: active ? thinPool.dataPercent.toFixed(2) : "",
    metadata_percent: active ? thinPool.metadataPercent.toFixed(2) : "",
    lv_metadata_size: `${thinPool.metadataSize}`,
    lv_when_full: "queue",
    lv_health_status: thinPool.health || full,
  };
}
