/**
 * What the volume groups of nodes have room for: what is free in them, less what is pending, that is, what the volumes that were
 * asked for will yet take.
 *
 * The rule: a report (LVMNode) lists the volumes whose logical volumes its free space does not count, each with its size. What is
 * pending of a volume (LVMVolume) is the size that it is to have, less the size that the report lists for it.
 *
 * Reports and volumes come by different watches, so any report may be seen together with any state of a volume: one from before
 * the lvcreate with a volume that is Ready, or one from after it with a volume of which nothing is known yet. The rule is right
 * for all of them, and no volume is subtracted twice or not at all, because it asks the report itself what it counts, and not
 * when it was made. docs/adr/0014 tells what was weighed against it.
 *
 * @module
 */

import { StorageError } from "../../lvm/error.ts";
import { candidates, compare, type GroupMatcher } from "../../lvm/model/groups.ts";
import { bytesPerDisk, disksWanted, type Layout, LINEAR } from "../../lvm/model/layout.ts";
import { parseQuantity, roundUp } from "../../lvm/size.ts";
import {
  DEFAULT_OVERCOMMIT,
  newPoolBytes,
  newPoolFootprint,
  newPoolPromise,
  parseOvercommit,
  type PooledGroup,
  poolNameIn,
  roomsFor,
  type ThinWish,
} from "../../lvm/pools/pool.ts";
import type { Informer } from "../runtime/informer.ts";
import { layoutOfSpec } from "../api/layout_mapping.ts";
import type { LvmNode, LvmVolume, NodeVolumeGroup } from "../api/lvm_objects.ts";
import { actualSize, thinWishOf, volumeRequestOf } from "../api/volume_mapping.ts";

/** Reads a list of volume groups. */
export type ParseGroups = (list: string) => GroupMatcher;

/** What a node has room for. */
export interface NodeRoom {
  /** The node's name. */
  readonly name: string;
  /** Its groups. What is free in them is free for volumes that nobody asked for yet. */
  readonly groups: readonly PooledGroup[];
}

/** The room of a group while it is being worked out. */
interface Draft extends PooledGroup {
  free: bigint;
  pending: bigint;
  readonly pools: { name: string; free: bigint }[];
  readonly pvs: { free: bigint }[];
}

/**
 * What a node has room for, according to its report and its volumes, none of which is left out. Volumes whose group was not
 * chosen yet are taken to go where their agent would put them, the oldest first.
 */
export function nodeRoom(
  { metadata: { name }, status }: LvmNode,
  volumes: readonly LvmVolume[],
  parseGroups: ParseGroups,
): NodeRoom {
  const reported = status?.volumeGroups ?? [];
  const overcommit = parseOvercommit(status?.thinOvercommit ?? "") ?? DEFAULT_OVERCOMMIT;
  const groups = reported.map((group) => draftOf(group, overcommit));
  const listed = listedSizes(reported);
  const pending = volumes.filter((volume) => sizeToBe(volume) > listed(volume));
  const take = (group: Draft | undefined, volume: LvmVolume) => {
    if (group === undefined) return;
    const [has, wanted] = [listed(volume), sizeToBe(volume)];
    const thin = unlessRefused(() => thinWishOf(volume));
    if (thin === undefined) takeFrom(group, layoutOfSpec(volume.spec.layout), has, wanted);
    else takeFromPool(group, thin, roundUp(wanted, group.extentSize) - has);
  };
  const isDecided = ({ status }: LvmVolume) => status?.volumeGroup !== undefined;
  for (const volume of pending.filter(isDecided)) {
    take(groups.find(({ name }) => name === volume.status?.volumeGroup), volume);
  }
  for (const volume of pending.filter((volume) => !isDecided(volume)).sort(byAge)) {
    take(likelyGroup(groups, volume, parseGroups), volume);
  }
  return { name, groups };
}

/** What {@linkcode Rooms} works with. The informers are started, and shared, by whoever supplies them. */
export interface RoomsOptions {
  /** The driver's name. */
  readonly driver: string;
  /** All LVMNodes. */
  readonly nodes: Informer<LvmNode>;
  /** All LVMVolumes. */
  readonly volumes: Informer<LvmVolume>;
  /** Reads a list of volume groups. */
  readonly parseGroups: ParseGroups;
}

/** What all nodes have room for, as far as it is known now. */
export class Rooms {
  readonly #options: RoomsOptions;
  /** The volumes of each node, by name. */
  readonly #volumes = new Map<string, Map<string, LvmVolume>>();
  /** Volumes that are being written, by name. */
  readonly #expected = new Map<string, LvmVolume>();
  /** What was worked out and still holds, by node: many ask, for each class and each claim. */
  readonly #rooms = new Map<string, NodeRoom>();

  /** Follows the informers from now on. */
  constructor(options: RoomsOptions) {
    this.#options = options;
    options.nodes.subscribe((name) => this.#rooms.delete(name));
    options.volumes.subscribe((name, now, before) => {
      for (const { spec: { nodeName } } of [before, now].filter((volume) => volume !== undefined)) {
        this.#volumes.get(nodeName)?.delete(name);
        this.#rooms.delete(nodeName);
      }
      if (now === undefined) return;
      const { nodeName } = now.spec;
      this.#volumes.set(nodeName, (this.#volumes.get(nodeName) ?? new Map()).set(name, now));
    });
  }

  /** The rooms of all nodes with an agent of the driver, or of the one of that name. */
  list(nodeName?: string): NodeRoom[] {
    const { driver, nodes } = this.#options;
    const all = nodeName === undefined ? nodes.list() : [nodes.get(nodeName)];
    return all.filter((node) => node?.spec.driverName === driver).map((node) => this.#roomOf(node!));
  }

  /** Counts a volume until the answer is disposed of, although it is not among those that are known yet. */
  expect(volume: LvmVolume): Disposable {
    const { metadata: { name }, spec: { nodeName } } = volume;
    this.#expected.set(name, volume);
    this.#rooms.delete(nodeName);
    return {
      [Symbol.dispose]: () => {
        this.#expected.delete(name);
        this.#rooms.delete(nodeName);
      },
    };
  }

  #roomOf(node: LvmNode): NodeRoom {
    const { name } = node.metadata;
    const room = this.#rooms.get(name) ?? nodeRoom(node, this.#volumesOf(name), this.#options.parseGroups);
    this.#rooms.set(name, room);
    return room;
  }

  #volumesOf(nodeName: string): LvmVolume[] {
    const { driver } = this.#options;
    const known = this.#volumes.get(nodeName) ?? new Map<string, LvmVolume>();
    const expected = [...this.#expected.values()].filter(({ metadata, spec }) =>
      spec.nodeName === nodeName && !known.has(metadata.name)
    );
    return [...known.values(), ...expected].filter(({ spec }) => spec.driverName === driver);
  }
}

/**
 * The size that a volume is to have, in bytes. One that was refused takes nothing, or stays as it is: its agent tries again only
 * when something else is asked for, and never when it is being deleted. One that is Lost is not made again.
 */
function sizeToBe(volume: LvmVolume): bigint {
  const { metadata: { generation = 0, deletionTimestamp }, spec, status } = volume;
  if (status?.state === "Lost") return 0n;
  const has = actualSize(volume) ?? 0n;
  const isAnswer = deletionTimestamp !== undefined || (status?.observedGeneration ?? 0) >= generation;
  if (status?.error !== undefined && isAnswer) return has;
  const wanted = parseQuantity(spec.size) ?? 0n;
  return wanted > has ? wanted : has;
}

/** Takes from the disks what a volume will: of the roomiest, as its agent does. What LVM does with a linear one is near that. */
function takeFromDisks(disks: { free: bigint }[], layout: Layout, perDisk: bigint): void {
  const roomiest = [...disks].sort((a, b) => compare(b.free, a.free));
  let rest = perDisk;
  for (const disk of layout.type === "linear" ? roomiest : roomiest.slice(0, disksWanted(layout))) {
    const taken = disk.free < rest ? disk.free : rest;
    disk.free -= taken;
    if (layout.type === "linear") rest -= taken;
  }
}

/** How much of a volume a report lists. Agents used to list nothing: of theirs, what was made is taken as counted. */
function listedSizes(reported: readonly NodeVolumeGroup[]): (volume: LvmVolume) => bigint {
  if (reported.some(({ volumes }) => volumes === undefined)) return (volume) => actualSize(volume) ?? 0n;
  const sizes = new Map(
    reported.flatMap(({ volumes = [] }) => volumes.map(({ name, size }) => [name, parseQuantity(size) ?? 0n])),
  );
  return ({ metadata: { name } }) => sizes.get(name) ?? 0n;
}

/** A volume of so many bytes takes of its group what it needs to grow to others. */
function takeFrom(group: Draft, layout: Layout, has: bigint, wanted: bigint): void {
  const perDisk = bytesPerDisk(layout, wanted, group.extentSize) -
    (has === 0n ? 0n : bytesPerDisk(layout, has, group.extentSize));
  const bytes = perDisk * BigInt(disksWanted(layout));
  group.free = group.free > bytes ? group.free - bytes : 0n;
  group.pending += bytes;
  takeFromDisks(group.pvs, layout, perDisk);
}

/** A thin volume takes of what its pool may promise. A pool that is yet to be made for it takes of its group first. */
function takeFromPool(group: Draft, thin: ThinWish, bytes: bigint): void {
  const name = poolNameIn(group.name, thin);
  let pool = group.pools.find((pool) => pool.name === name);
  if (pool === undefined) {
    if (thin.pool !== undefined) return; // its agent will refuse it
    pool = { name, free: newPoolPromise(group, thin) };
    group.pools.push(pool);
    takeFrom(group, LINEAR, 0n, newPoolFootprint(newPoolBytes(group, thin), group.extentSize));
  }
  pool.free = pool.free > bytes ? pool.free - bytes : 0n;
}

function draftOf(
  { name, free, extentSize, missingPVs, writeable, disks = [], thinPools = [] }: NodeVolumeGroup,
  overcommit: bigint,
): Draft {
  return {
    // agents used not to tell what pools may promise
    pools: thinPools.map(({ name, free = "0" }) => ({ name, free: parseQuantity(free) ?? 0n })),
    overcommit,
    name,
    free: parseQuantity(free) ?? 0n,
    extentSize: parseQuantity(extentSize) ?? 4n << 20n,
    missingPvs: missingPVs,
    writeable,
    answers: true,
    pvs: disks.map(({ free }) => ({ free: parseQuantity(free) ?? 0n })),
    pending: 0n,
  };
}

/**
 * The group that a volume's agent would choose. Where it would choose none, it will refuse the volume; but the report may be old,
 * so until then nobody is promised what the volume may get after all.
 */
function likelyGroup(groups: readonly Draft[], volume: LvmVolume, parseGroups: ParseGroups): Draft | undefined {
  const request = unlessRefused(() => volumeRequestOf(volume, parseGroups));
  if (request === undefined) return undefined;
  const { groups: wanted, range, preference, layout, thin } = request;
  const [best] = unlessRefused(() => candidates(roomsFor(groups, thin), wanted, range, preference, layout)) ?? [];
  if (best !== undefined) return groups.find(({ name }) => name === best.group.name);
  return groups.filter(({ name }) => wanted.matches(name)).sort((a, b) => compare(b.free, a.free))[0];
}

function unlessRefused<T>(call: () => T): T | undefined {
  try {
    return call();
  } catch (error) {
    if (error instanceof StorageError) return undefined;
    throw error;
  }
}

/** Those that are not written yet come last. */
function byAge({ metadata: a }: LvmVolume, { metadata: b }: LvmVolume): number {
  return compare(a.creationTimestamp ?? "~", b.creationTimestamp ?? "~") || compare(a.name, b.name);
}
