/**
 * Lists what changed between two snapshots of a volume, and what a snapshot has, for backups.
 *
 * A list is made window by window and step by step. Each step begins with a report, and holds the locks of the snapshots, so
 * that what is read is theirs. Between two steps, while the client takes what was found, no lock is held: a snapshot may be
 * deleted, also to be taken again under its id, and the list then ends with an error. Lists take the memory of a few windows, and one is made at a time.
 *
 * @module
 */

import { type Exec, execWith } from "../exec.ts";
import { min } from "../../base/size.ts";
import { eitherSignal } from "../../base/clock.ts";
import { StorageError } from "../../base/error.ts";
import type { SnapshotId } from "../../base/ids.ts";
import type { LocatedSnapshot, SnapshotFinder } from "../inventory/snapshot_finder.ts";
import type { Lvm } from "../client/client.ts";
import { type Locks, snapshotLock } from "../../base/locks.ts";
import { type LogicalVolume, lvPath, type VolumeGroup } from "../model/report.ts";
import { activationArguments } from "../pools/activation.ts";
import { isThin } from "../pools/pool.ts";
import { type ChunkRange, windowAt } from "./chunk_set.ts";
import {
  compareChunks,
  type ComparedDevices,
  type CowSnapshot,
  openCowSnapshot,
  overflowError,
  readCandidates,
} from "./cow_differences.ts";
import { MetadataSnapshots } from "./metadata_snapshot.ts";
import { readThinBlocks } from "./thin_differences.ts";

/** A range of a snapshot, in bytes. */
export interface Extent {
  /** Where it begins. */
  readonly offset: bigint;
  /** Its length. */
  readonly length: bigint;
}

/** A list of ranges of a snapshot. */
export interface ExtentList {
  /** The size of the snapshot in bytes. */
  readonly size: bigint;
  /** What the snapshots are, whatever their ids: the UUIDs of their LVs. A list that is continued must have the same. */
  readonly identity: string;
  /** The ranges in order, in groups; they do not overlap. */
  readonly extents: AsyncGenerator<readonly Extent[], void>;
}

/** A request for a list. */
export interface ListRequest {
  /** The snapshot. */
  readonly target: SnapshotId;
  /** An older snapshot of the same volume, to list what changed since; absent to list what the target has. */
  readonly base?: SnapshotId;
  /** The byte from which on ranges are listed. */
  readonly from: bigint;
  /** The most ranges in a group. */
  readonly groupSize: number;
  /** Ends what only reads, when nobody wants the list any more. */
  readonly signal?: AbortSignal | undefined;
}

/** Options of {@linkcode Differences}. */
export interface DifferencesOptions {
  /** LVM on this machine. */
  readonly lvm: Lvm;
  /** Finds the snapshots. */
  readonly finder: SnapshotFinder;
  /** The locks by snapshot. */
  readonly locks: Locks;
  /** Called with each error of the background work. */
  readonly onError: (error: unknown) => void;
}

/** The bytes of snapshots that one step compares. */
const STEP_BYTES = 1 << 30;

/** The snapshots of a list, as a report shows them. */
interface Snapshots {
  readonly base: LocatedSnapshot | undefined;
  readonly target: LocatedSnapshot;
}

/** A request, of which it is known which LVs its snapshots are. */
interface BegunRequest extends ListRequest {
  /** The UUIDs of the LVs, by snapshot. */
  readonly uuids?: ReadonlyMap<SnapshotId, string>;
}

/** The differences between the snapshots of one driver on this machine. */
export class Differences {
  readonly #options: DifferencesOptions;
  readonly #end = new AbortController();
  readonly #metadata: MetadataSnapshots;
  /** The last step that runs or waits: one at a time reads devices. */
  #lastStep: Promise<unknown> = Promise.resolve();

  /** Creates the service. */
  constructor(options: DifferencesOptions) {
    this.#options = options;
    this.#metadata = new MetadataSnapshots({ lvm: options.lvm, driver: options.finder.driver });
  }

  /** Releases what a crash has left in thin pools. @param groups a report */
  start(groups: readonly VolumeGroup[]): void {
    const release = () => this.#metadata.releaseLeft(groups).catch(this.#options.onError);
    this.#lastStep = this.#lastStep.then(release, release);
  }

  /** Resolves when no step is running. */
  async idle(): Promise<void> {
    await this.#lastStep.catch(() => {});
  }

  /** Ends the step that is running, as far as it only reads, and waits for the rest. */
  async stop(): Promise<void> {
    this.#end.abort();
    await this.idle();
  }

  /**
   * Lists what changed between two snapshots of a volume, or what a snapshot has. All of a copy-on-write snapshot counts as
   * what it has.
   *
   * @throws {StorageError} `NotFound`; `InvalidArgument` for snapshots that cannot be compared; `FailedPrecondition` for one
   * that has overflowed; `OutOfRange` for a start beyond the end. The extents fail with the same kinds, and with
   * `CommandFailed` or `Unavailable` when a device cannot be read
   */
  async list(request: ListRequest): Promise<ExtentList> {
    const { target, base } = await this.#step(request, (snapshots) => Promise.resolve(snapshots));
    const { size } = target.snapshot;
    if (request.from > size) {
      throw new StorageError("OutOfRange", `starting_offset ${request.from}: the snapshot has ${size} bytes`);
    }
    const found = [base, target].filter((each) => each !== undefined);
    const identity = found.map(({ lv }) => lv.uuid).join(" ");
    if (request.from === size) return { size, identity, extents: listAll(request, size) };
    const begun = { ...request, uuids: new Map(found.map(({ snapshot, lv }) => [snapshot.id, lv.uuid])) };
    if (base === undefined && (!isThin(target.lv) || hasExternalOrigin(target))) {
      return { size, identity, extents: listAll(request, size) };
    }
    return { size, identity, extents: isThin(target.lv) ? this.#listThin(begun, size) : this.#listCow(begun, size) };
  }

  async *#listThin(request: BegunRequest, size: bigint): AsyncGenerator<readonly Extent[], void> {
    for (let index = 0, isLast = false; !isLast; index++) {
      const windowOf = (blockBytes: number) => windowAt(chunksFrom(request.from, size, blockBytes), index);
      const { blockBytes, blocks } = await this.#step(
        request,
        (snapshots, exec) => readThinBlocks(exec, { ...snapshots, windowOf }, this.#metadata),
      );
      isLast = blocks.window.end * blockBytes >= size;
      yield* inGroups(extentsOf(blocks.ranges(), { chunkBytes: blockBytes, size }), request.groupSize);
    }
  }

  async *#listCow(request: BegunRequest, size: bigint): AsyncGenerator<readonly Extent[], void> {
    for (let index = 0, isLast = false; !isLast; index++) {
      const { candidates, chunkBytes } = await this.#step(request, async (snapshots, exec) => {
        const { older, newer, chunkBytes } = await openCow(exec, snapshots);
        const window = windowAt(chunksFrom(request.from, size, chunkBytes), index);
        return { candidates: await readCandidates(exec, { older, newer }, window, chunkBytes), chunkBytes };
      });
      const { changed, unsure } = candidates;
      const { window } = changed;
      isLast = window.end * chunkBytes >= size;
      const stepChunks = Math.max(1, STEP_BYTES / chunkBytes);
      for (let begin = window.begin; begin < window.end; begin += stepChunks) {
        const within = { begin, end: Math.min(begin + stepChunks, window.end) };
        if (!unsure.ranges(within).next().done) {
          await this.#step(request, async (snapshots, exec) => {
            const devices = await comparedDevices(exec, snapshots, chunkBytes);
            await compareChunks(exec, devices, candidates, within);
          });
        }
        yield* inGroups(extentsOf(changed.ranges(within), { chunkBytes, size }), request.groupSize);
      }
    }
  }

  /** Runs a step when no other one runs, with the snapshots as a new report shows them. */
  async #step<T>(request: BegunRequest, body: (snapshots: Snapshots, exec: Exec) => Promise<T>): Promise<T> {
    const run = async () => {
      using ended = eitherSignal(this.#end.signal, request.signal);
      const { signal } = ended;
      if (signal.aborted) throw new StorageError("Unavailable", "comparing snapshots: nobody waits for it any more");
      const reading = execWith(this.#options.lvm.exec, (command) => command.mutates ? command : { ...command, signal });
      const locks = [request.base, request.target].filter((id) => id !== undefined).map((id) =>
        snapshotLock(id, "shared")
      );
      return await this.#options.locks.run(
        "comparison",
        locks,
        async () => await body(await this.#locate(request), reading),
      );
    };
    const step = this.#lastStep.then(run, run);
    this.#lastStep = step;
    return await step;
  }

  /** Finds the snapshots, active. A copy-on-write snapshot that was deactivated is activated with its volume. */
  async #locate(request: BegunRequest): Promise<Snapshots> {
    let snapshots = this.#find(await this.#options.lvm.report(), request);
    const inactive = [snapshots.base, snapshots.target].filter((each) => each !== undefined && !each.lv.active);
    for (const { group, lv } of inactive as LocatedSnapshot[]) {
      await this.#options.lvm.change(group, activationArguments(this.#options.finder.driver, group, lv));
    }
    if (inactive.length > 0) snapshots = this.#find(await this.#options.lvm.report(), request);
    return snapshots;
  }

  #find(groups: readonly VolumeGroup[], { target: targetId, base: baseId, uuids }: BegunRequest): Snapshots {
    const target = this.#require(groups, targetId, uuids);
    const base = baseId === undefined ? undefined : this.#require(groups, baseId, uuids);
    if (base !== undefined) requireComparable(base, target);
    return { base, target };
  }

  /**
   * Returns a snapshot.
   *
   * @throws {StorageError} `NotFound`; `Lost`; `FailedPrecondition` when it has overflowed, or is not the LV that it was
   */
  #require(groups: readonly VolumeGroup[], id: SnapshotId, uuids: BegunRequest["uuids"]): LocatedSnapshot {
    const found = this.#options.finder.locate(groups, id);
    if (found === undefined || found.incomplete) {
      throw new StorageError("NotFound", `looking for snapshot ${id}: no logical volume carries its tag`);
    }
    this.#options.finder.requireRecorded(found);
    if (uuids !== undefined && uuids.get(id) !== found.lv.uuid) {
      throw new StorageError("FailedPrecondition", `comparing snapshot ${id}: it is another one now; start again`);
    }
    if (!found.snapshot.ready) throw overflowError(found);
    return found;
  }
}

/**
 * Makes sure that two snapshots can be compared.
 *
 * @throws {StorageError} `InvalidArgument` when they are of two volumes, or the base is newer; `FailedPrecondition` when the
 * volume was extended between them in a way that the tables of copy-on-write snapshots do not show
 */
function requireComparable(base: LocatedSnapshot, target: LocatedSnapshot): void {
  const { id, source, createdAt, size } = target.snapshot;
  const fail = (reason: string) =>
    new StorageError("InvalidArgument", `comparing ${base.snapshot.id} and ${id}: ${reason}`);
  if (base.snapshot.id === id) throw fail("they are one snapshot");
  if (base.snapshot.source !== source) throw fail(`they are of volumes ${base.snapshot.source} and ${source}`);
  if (base.snapshot.createdAt > createdAt) throw fail("the base was created after the target");
  if (isThin(target.lv) && isThin(base.lv)) return;
  if (base.lv.origin !== target.lv.origin || base.group.uuid !== target.group.uuid) {
    throw new StorageError(
      "FailedPrecondition",
      `comparing ${base.snapshot.id} and ${id}: they are of two logical volumes, ${base.lv.origin} and ${target.lv.origin}; ` +
        "make a full backup",
    );
  }
  if (base.snapshot.size === size) return;
  throw new StorageError(
    "FailedPrecondition",
    `comparing ${base.snapshot.id} and ${id}: the volume was extended from ${base.snapshot.size} to ${size} bytes between ` +
      "them; make a full backup",
  );
}

/**
 * Reports whether a thin snapshot reads from an LV outside of its pool what was never written (lvmthin(7), external origin), as
 * one of a volume that an administrator has made thin. So its pool does not show all that it has.
 */
function hasExternalOrigin({ group, lv }: LocatedSnapshot): boolean {
  const seen = new Set<LogicalVolume>();
  for (let each: LogicalVolume | undefined = lv; each !== undefined && !seen.has(each);) {
    if (each.pool !== lv.pool) return true;
    seen.add(each);
    const { origin }: LogicalVolume = each;
    each = group.lvs.find(({ name }) => name === origin);
  }
  return false;
}

async function openCow(
  exec: Exec,
  { base, target }: Snapshots,
): Promise<{ older: CowSnapshot; newer: CowSnapshot; chunkBytes: number }> {
  const older = await openCowSnapshot(exec, base!);
  const newer = await openCowSnapshot(exec, target);
  return { older, newer, chunkBytes: Math.max(older.header.chunkBytes, newer.header.chunkBytes) };
}

async function comparedDevices(exec: Exec, snapshots: Snapshots, chunkBytes: number): Promise<ComparedDevices> {
  const opened = await openCow(exec, snapshots);
  if (opened.chunkBytes !== chunkBytes) throw changedError(snapshots);
  const { base, target } = snapshots;
  return { paths: [base!.lv.devicePath, target.lv.devicePath], size: Number(target.snapshot.size), chunkBytes };
}

function changedError({ base, target }: Snapshots): StorageError {
  const names = [base!, target].map(lvPath).join(" and ");
  return new StorageError("FailedPrecondition", `comparing ${names}: they were replaced meanwhile; start again`);
}

/** Yields all of a snapshot. */
async function* listAll({ from }: ListRequest, size: bigint): AsyncGenerator<readonly Extent[], void> {
  if (from < size) yield await Promise.resolve([{ offset: from, length: size - from }]);
}

/** Returns the chunks of a device from a byte on. */
function chunksFrom(from: bigint, size: bigint, chunkBytes: number): ChunkRange {
  return { begin: Number(from / BigInt(chunkBytes)), end: Number((size - 1n) / BigInt(chunkBytes)) + 1 };
}

/** Yields the bytes of chunks: the last chunk of a device may be longer than what is left of it. */
function* extentsOf(
  ranges: Iterable<ChunkRange>,
  { chunkBytes, size }: { readonly chunkBytes: number; readonly size: bigint },
): Generator<Extent, void> {
  for (const { begin, end } of ranges) {
    const offset = BigInt(begin) * BigInt(chunkBytes);
    const after = BigInt(end) * BigInt(chunkBytes);
    yield { offset, length: min(after, size) - offset };
  }
}

/** Yields ranges in groups. */
function* inGroups(extents: Iterable<Extent>, most: number): Generator<readonly Extent[], void> {
  let group: Extent[] = [];
  for (const extent of extents) {
    group.push(extent);
    if (group.length < most) continue;
    yield group;
    group = [];
  }
  if (group.length > 0) yield group;
}
