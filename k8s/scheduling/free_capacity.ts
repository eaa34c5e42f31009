/**
 * The free capacity of the volume groups of nodes: their free space, less the pending space, which requested volumes
 * will still take. What waits for space is woken by their growth.
 *
 * The rule: a report (LVMNode) lists the volumes whose logical volumes its free space does not count, each with its
 * size. The pending space of a volume (LVMVolume) is its desired size, less the size that the report lists for it.
 *
 * Reports and volumes come by different watches, so any report may be seen together with any state of a volume: one
 * from before the lvcreate with a volume that is Ready, or one from after it with a volume that is still unknown. The
 * rule is right for all of them: no volume is subtracted twice or not at all, since the report itself lists what it
 * counts. docs/adr/0004 has the alternatives.
 *
 * @module
 */

import { defined } from "../../base/defined.ts";
import { firstReason, ignoreStorageError } from "../../base/error.ts";
import { compare, type GroupMatcher, isSelected, selectCandidates } from "../../lvm/model/groups.ts";
import {
  bytesPerPv,
  cacheBytes,
  chooseCachePv,
  isCached,
  isLinear,
  type Layout,
  LINEAR,
  requiredPvCount,
} from "../../lvm/model/layout.ts";
import { parseQuantity, roundUp } from "../../base/size.ts";
import {
  DEFAULT_OVERCOMMIT,
  type GroupWithPools,
  newPoolAvailableVirtual,
  newPoolBytes,
  newPoolFootprint,
  parseOvercommit,
  poolNameIn,
  type ThinSpec,
  withSpaceFor,
} from "../../lvm/pools/pool.ts";
import type { NodeChoice } from "../../lvm/volume_service.ts";
import type { Informer } from "../runtime/informer.ts";
import { ObjectIndex } from "../runtime/object_index.ts";
import { requireResponsiveAgent, type SilentAgents } from "./agent_liveness.ts";
import type { LvmNode, LvmVolume, NodePhysicalVolume, NodeVolumeGroup } from "../api/lvm_objects.ts";
import { actualSize, layoutOf, thinSpecOf, volumeRequestOf } from "../api/volume_mapping.ts";
import type { FreeSpaceGrowth } from "../runtime/wake_ups.ts";

/** Parses a list of volume groups. */
export type ParseGroups = (list: string) => GroupMatcher;

/** The free capacity of a node. */
export interface NodeCapacity {
  /** The node's name. */
  readonly name: string;
  /** Its groups. Their free space excludes the pending space of requested volumes. */
  readonly groups: readonly GroupWithPools[];
}

/** The free space of a group while it is calculated. */
interface GroupSpaceDraft extends GroupWithPools {
  free: bigint;
  pending: bigint;
  readonly pools: { name: string; free: bigint }[];
  readonly pvs: { free: bigint; cacheFree?: bigint }[];
}

/**
 * Returns the free capacity of a node by its report and all of its volumes. A volume whose group is not chosen yet
 * counts in the group that its agent would choose, the oldest volume first.
 */
export function freeCapacityOf(
  { metadata: { name }, status }: LvmNode,
  volumes: readonly LvmVolume[],
  parseGroups: ParseGroups,
): NodeCapacity {
  const reported = status?.volumeGroups ?? [];
  const overcommit = parseOvercommit(status?.thinPoolOvercommit ?? "") ?? DEFAULT_OVERCOMMIT;
  const groups = reported.map((group) => groupSpaceDraft(group, overcommit));
  const reportedSizeOf = reportedSizes(reported);
  const pending = volumes.filter((volume) => targetSizeOf(volume) > reportedSizeOf(volume));
  const allocateFor = (group: GroupSpaceDraft | undefined, volume: LvmVolume) => {
    if (group === undefined) return;
    const [currentSize, wantedSize] = [reportedSizeOf(volume), targetSizeOf(volume)];
    const thin = ignoreStorageError(() => thinSpecOf(volume));
    const layout = ignoreStorageError(() => layoutOf(volume)) ?? LINEAR;
    if (thin === undefined) allocateFromGroup(group, layout, currentSize, wantedSize);
    else allocateFromPool(group, thin, roundUp(wantedSize, group.extentSize) - currentSize);
  };
  const hasGroup = ({ status }: LvmVolume) => status?.volumeGroup !== undefined;
  for (const volume of pending.filter(hasGroup)) {
    allocateFor(groups.find(({ name }) => name === volume.status?.volumeGroup), volume);
  }
  for (const volume of pending.filter((volume) => !hasGroup(volume)).sort(compareByAge)) {
    allocateFor(predictGroup(groups, volume, parseGroups), volume);
  }
  return { name, groups };
}

/**
 * Options of {@linkcode NodeCapacities}. The caller starts and shares the informers.
 */
export interface NodeCapacitiesOptions {
  /** The driver's name. */
  readonly driver: string;
  /** All LVMNodes. */
  readonly nodes: Informer<LvmNode>;
  /** All LVMVolumes. */
  readonly volumes: Informer<LvmVolume>;
  /** Parses a list of volume groups. */
  readonly parseGroups: ParseGroups;
  /** The agents that are silent: their nodes have no free capacity. */
  readonly agents?: SilentAgents | undefined;
}

/** The free capacity of all nodes, as far as it is known now. */
export class NodeCapacities {
  readonly #options: NodeCapacitiesOptions;
  /** The volumes of each node. */
  readonly #volumes: ObjectIndex<LvmVolume>;
  /** Volumes that are being written, by name. */
  readonly #assumed = new Map<string, LvmVolume>();
  /** The results that are still valid, by node: they are read for each class and each claim. */
  readonly #cache = new Map<string, NodeCapacity>();

  /** Subscribes to the informers. */
  constructor(options: NodeCapacitiesOptions) {
    this.#options = options;
    this.#volumes = new ObjectIndex(options.volumes, ({ spec }) => spec.nodeName);
    options.nodes.subscribe((name) => this.#cache.delete(name));
    options.volumes.subscribe((_, now, before) => {
      if (before !== undefined) this.#cache.delete(before.spec.nodeName);
      if (now !== undefined) this.#cache.delete(now.spec.nodeName);
    });
  }

  /**
   * Returns the free capacity of the nodes that have an agent of the driver that is not silent.
   *
   * @param names the names of the nodes; all, when absent
   */
  list(names?: readonly string[]): NodeCapacity[] {
    const { driver, nodes, agents } = this.#options;
    const found = names === undefined ? nodes.list() : names.map((name) => nodes.get(name));
    return found.filter((node) => node?.spec.driverName === driver && !agents?.isSilent(node.metadata.name))
      .map((node) => this.#capacityOf(node!));
  }

  /** Requires that one of the allowed nodes has an agent that is not silent. @throws {StorageError} `NoSpace` */
  requireResponsiveAgent(operation: string, choice: Pick<NodeChoice, "allowed">): void {
    requireResponsiveAgent(operation, choice, this.#options.agents);
  }

  /** Counts a volume until the answer is disposed of, although it is not among those that are known yet. */
  assume(volume: LvmVolume): Disposable {
    const { metadata: { name }, spec: { nodeName } } = volume;
    this.#assumed.set(name, volume);
    this.#cache.delete(nodeName);
    return {
      [Symbol.dispose]: () => {
        this.#assumed.delete(name);
        this.#cache.delete(nodeName);
      },
    };
  }

  #capacityOf(node: LvmNode): NodeCapacity {
    const { name } = node.metadata;
    const capacity = this.#cache.get(name) ?? freeCapacityOf(node, this.#volumesOf(name), this.#options.parseGroups);
    this.#cache.set(name, capacity);
    return capacity;
  }

  #volumesOf(nodeName: string): LvmVolume[] {
    const { driver } = this.#options;
    const cached = this.#volumes.get(nodeName);
    const assumed = [...this.#assumed.values()].filter(({ metadata, spec }) =>
      spec.nodeName === nodeName && !cached.has(metadata.name)
    );
    return [...cached.values(), ...assumed].filter(({ spec }) => spec.driverName === driver);
  }
}

/**
 * Returns the size that a volume will have, in bytes. One that was rejected takes nothing, or keeps its size: its agent
 * tries again only when something else is asked for, and never when it is being deleted. A lost volume is not created
 * again.
 */
function targetSizeOf(volume: LvmVolume): bigint {
  const { metadata: { generation = 0, deletionTimestamp }, spec, status } = volume;
  if (status?.state === "Lost") return 0n;
  if (spec.imports !== undefined && status?.lvUUID === undefined) return 0n; // its LV exists, and takes no more
  const currentSize = actualSize(volume) ?? 0n;
  const isObserved = deletionTimestamp !== undefined || (status?.observedGeneration ?? 0) >= generation;
  if (status?.error !== undefined && isObserved) return currentSize;
  const requestedSize = parseQuantity(spec.size) ?? 0n;
  return requestedSize > currentSize ? requestedSize : currentSize;
}

/** Returns the size that a volume will still take on a node, by the node's report, in bytes. */
export function pendingBytes(volume: LvmVolume, { status }: LvmNode): bigint {
  const targetSize = targetSizeOf(volume);
  if (targetSize === 0n) return 0n;
  const reportedSize = reportedSizes(status?.volumeGroups ?? [])(volume);
  return targetSize > reportedSize ? targetSize - reportedSize : 0n;
}

/** Takes from the disks what a volume will: of the roomiest, as its agent does. What LVM does with a linear one is near that. */
function allocateFromPvs(pvs: { free: bigint }[], layout: Layout, perPv: bigint): void {
  const byFreeSpace = [...pvs].sort((a, b) => compare(b.free, a.free));
  let remaining = perPv;
  for (const pv of isLinear(layout) ? byFreeSpace : byFreeSpace.slice(0, requiredPvCount(layout))) {
    const allocated = pv.free < remaining ? pv.free : remaining;
    pv.free -= allocated;
    if (isLinear(layout)) remaining -= allocated;
  }
}

/**
 * Returns the sizes of volumes that a report lists. Old agents listed none: there, every created volume counts as
 * included.
 */
function reportedSizes(reported: readonly NodeVolumeGroup[]): (volume: LvmVolume) => bigint {
  if (reported.some(({ volumes }) => volumes === undefined)) return (volume) => actualSize(volume) ?? 0n;
  const sizes = new Map(
    reported.flatMap(({ volumes = [] }) => volumes.map(({ name, size }) => [name, parseQuantity(size) ?? 0n])),
  );
  return ({ metadata: { name } }) => sizes.get(name) ?? 0n;
}

/** Takes the space of a volume from its group. */
function allocateFromGroup(group: GroupSpaceDraft, layout: Layout, currentSize: bigint, wantedSize: bigint): void {
  const perPv = bytesPerPv(layout, wantedSize, group.extentSize) -
    (currentSize === 0n ? 0n : bytesPerPv(layout, currentSize, group.extentSize));
  const bytes = perPv * BigInt(requiredPvCount(layout));
  group.free = group.free > bytes ? group.free - bytes : 0n;
  group.pending += bytes;
  allocateFromPvs(group.pvs, layout, perPv);
  if (!isCached(layout) || currentSize > 0n) return; // the cache of a volume never grows
  const cachePv = chooseCachePv(layout, group);
  if (cachePv?.cacheFree !== undefined) cachePv.cacheFree -= cacheBytes(layout, group.extentSize);
}

/**
 * Takes the space of a thin volume from the virtual size that is available in its pool. A pool that does not exist yet
 * takes space from its group first.
 */
function allocateFromPool(group: GroupSpaceDraft, thin: ThinSpec, bytes: bigint): void {
  const name = poolNameIn(group.name, thin);
  let pool = group.pools.find((pool) => pool.name === name);
  if (pool === undefined) {
    if (thin.pool !== undefined) return; // its agent will reject it
    pool = { name, free: newPoolAvailableVirtual(group, thin) };
    group.pools.push(pool);
    allocateFromGroup(group, LINEAR, 0n, newPoolFootprint(newPoolBytes(group, thin), group.extentSize));
  }
  pool.free = pool.free > bytes ? pool.free - bytes : 0n;
}

function groupSpaceDraft(
  group: NodeVolumeGroup,
  overcommit: bigint,
): GroupSpaceDraft {
  const { name, free, spare, extentSize, missingPVCount, writeable, hostUse, refusal } = group;
  const { physicalVolumes = [], thinPools = [], sectorSize = "" } = group;
  return {
    ...defined({
      hostUse,
      refusal,
      refusalReason: firstReason([group.refusalReason]),
      sectorBytes: parseQuantity(sectorSize),
    }),
    // old agents do not report the virtual size that is available
    pools: thinPools.map(({ name, availableVirtual = "0" }) => ({ name, free: parseQuantity(availableVirtual) ?? 0n })),
    overcommit,
    name,
    free: parseQuantity(free) ?? 0n,
    ...(spare === undefined ? {} : { spare: parseQuantity(spare) ?? 0n }),
    extentSize: parseQuantity(extentSize) || 4n << 20n, // no extents have the size 0
    missingPvs: missingPVCount,
    writeable,
    responsive: true,
    pvs: physicalVolumes.map(({ free, cacheFree }) => ({
      free: parseQuantity(free) ?? 0n,
      ...(cacheFree === undefined ? {} : { cacheFree: parseQuantity(cacheFree) ?? 0n }),
    })),
    pending: 0n,
  };
}

/**
 * Returns the group that a volume's agent would choose. Where it would choose none, it will reject the volume; but the
 * report may be old, so until then the space that the volume may still get is not given to another one.
 */
function predictGroup(
  groups: readonly GroupSpaceDraft[],
  volume: LvmVolume,
  parseGroups: ParseGroups,
): GroupSpaceDraft | undefined {
  const request = ignoreStorageError(() => volumeRequestOf(volume, parseGroups));
  if (request === undefined) return undefined;
  const { groups: matcher, range, preference, layout, thin } = request;
  const [best] =
    ignoreStorageError(() => selectCandidates(withSpaceFor(groups, thin), matcher, range, preference, layout)) ?? [];
  if (best !== undefined) return groups.find(({ name }) => name === best.group.name);
  return groups.filter((group) => isSelected(group, matcher)).sort((a, b) => compare(b.free, a.free))[0];
}

/** Compares volumes by age. Those that are not written yet come last. */
function compareByAge({ metadata: a }: LvmVolume, { metadata: b }: LvmVolume): number {
  return compare(a.creationTimestamp ?? "~", b.creationTimestamp ?? "~") || compare(a.name, b.name);
}

/**
 * Returns the growth of a node's free space from one report to the next: a group, one of its physical volumes or one of
 * its thin pools has more, or is new, or LVM may use the group again.
 *
 * @returns `undefined` when the node has no more space than before
 */
export function freeSpaceGrowth(before: LvmNode | undefined, now: LvmNode): FreeSpaceGrowth | undefined {
  const groupsBefore = new Map((before?.status?.volumeGroups ?? []).map((group) => [group.name, group]));
  const groups = (now.status?.volumeGroups ?? []).filter(isUsable);
  const overcommit = overcommitOf(now);
  const mayOvercommitMore = before !== undefined && overcommit > overcommitOf(before);
  if (!mayOvercommitMore && !groups.some((group) => hasGrown(groupsBefore.get(group.name), group))) return undefined;
  // a new thin pool takes volumes of more than its own size
  const sizes = groups.flatMap(({ free, thinPools = [] }) => [
    bytesOf(free) * (overcommit > 100n ? overcommit : 100n) / 100n,
    ...thinPools.map(({ availableVirtual }) => bytesOf(availableVirtual)),
  ]);
  return { nodeName: now.metadata.name, largestBytes: sizes.reduce((max, size) => size > max ? size : max, 0n) };
}

function hasGrown(before: NodeVolumeGroup | undefined, now: NodeVolumeGroup): boolean {
  if (before === undefined || !isUsable(before)) return true;
  if (bytesOf(now.free) > bytesOf(before.free)) return true;
  const pvs = new Map((before.physicalVolumes ?? []).map((pv) => [pv.uuid, pvBytes(pv)]));
  if ((now.physicalVolumes ?? []).some((pv) => pvBytes(pv) > (pvs.get(pv.uuid) ?? -1n))) return true;
  const pools = new Map(
    (before.thinPools ?? []).map(({ name, availableVirtual }) => [name, bytesOf(availableVirtual)]),
  );
  return (now.thinPools ?? []).some(({ name, availableVirtual }) =>
    bytesOf(availableVirtual) > (pools.get(name) ?? -1n)
  );
}

function pvBytes({ free, cacheFree }: NodePhysicalVolume): bigint {
  return bytesOf(cacheFree ?? free);
}

function isUsable({ writeable, missingPVCount }: NodeVolumeGroup): boolean {
  return writeable && missingPVCount === 0;
}

/** Returns the overcommit of new thin pools of a node, in percent. */
function overcommitOf({ status }: LvmNode): bigint {
  return parseOvercommit(status?.thinPoolOvercommit ?? "") ?? DEFAULT_OVERCOMMIT;
}

function bytesOf(quantity = "0"): bigint {
  return parseQuantity(quantity) ?? 0n;
}
