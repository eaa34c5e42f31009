/**
 * Volumes made from snapshots and from other volumes: at once, as a thin snapshot, where both are in one thin pool; else their
 * bytes are copied, in the background, piece by piece.
 *
 * The new LV is made first, and says by its tags what it is made from, so the source is kept from then on. A volume that is
 * copied may be in use: a temporary snapshot keeps it as it was. Each step is decided from a report ({@linkcode nextStep}), so
 * there is nothing to remember: whatever instruction the driver dies at, the next start goes on. The last step makes it a
 * volume of its own, with a filesystem's UUID that no other has, and only then it is given out.
 *
 * Of each group, one piece is copied at a time, past the page cache: gentle on the disks, and one that hangs holds up no other.
 *
 * @module
 */

import { type CopyContext, executeStep, removeCopySnapshot, scratchPath } from "./executor.ts";
import { copyRange, groupsWithoutCopySnapshotSpace, requireSpaceForCopySnapshot, thinCloneSize } from "./rules.ts";
import { copiesInProgress, type CopyProgress, describeProgress, staleCopySnapshots } from "../inventory/copying.ts";
import { CopySources, type CopySourcesOptions } from "./sources.ts";
import { type CopyState, nextStep } from "./plan.ts";
import { StorageError } from "../error.ts";
import { newWork, recordBusy, recordFailure, recordSuccess, RETRY_MS, type Work } from "./work.ts";
import type { VolumeId } from "../ids.ts";
import { unmountLeftovers } from "./filesystem_uuid.ts";
import { derivedReport, type FreshReport, type Lvm } from "../model/client.ts";
import type { LocatedLv, VolumeGroup } from "../model/report.ts";
import type { ContentSource } from "../model/tags.ts";
import { isThin, type ThinSpec } from "../pools/pool.ts";
import { createThinClone } from "../volumes/thin_volumes.ts";
import { type Clock, systemClock, withinDeadline } from "../clock.ts";
import { requireCompatible, type Volume, type VolumeRequest } from "../inventory/volume.ts";
import type { Volumes } from "../volumes/volumes.ts";
import { syncFilesystem } from "../snapshots/sync.ts";
import { BackgroundWorker } from "../worker.ts";
import { defined } from "../defined.ts";

/** A request for a volume that is made from something. */
export type CopyVolumeRequest = VolumeRequest & { readonly source: ContentSource };

/** What {@linkcode Copies} needs. */
export interface CopiesOptions extends CopyContext, CopySourcesOptions {
  /** Creates and deletes volumes. */
  readonly volumes: Pick<Volumes, "createNew" | "delete">;
  /** Is told what failed. */
  readonly onError: (error: unknown) => void;
  /** Is told of a volume of which more is there, or that is done, or cannot be made; nobody by default. */
  readonly onProgress?: (id: VolumeId) => void;
  /** When what failed is tried again at the latest, in milliseconds; a minute by default. */
  readonly retryMs?: number;
  /** How long a call waits for a copy to be done, in milliseconds. */
  readonly waitMs?: number;
  /** The clock; the machine's by default. */
  readonly clock?: Clock;
}

/** How long a call waits, in milliseconds: small volumes are done by then, and whoever gives up before repeats the call. */
const WAIT_MS = 20_000;

/** The copies of one driver on this machine. */
export class Copies {
  readonly #options: CopiesOptions;
  readonly #lvm: Lvm;
  readonly #clock: Clock;
  readonly #context: CopyContext;
  readonly #sources: CopySources;
  /** By the UUID of the LV that is filled, or of the temporary snapshot that is to go. */
  readonly #work = new Map<string, Work>();
  /** The step under way in each group. */
  readonly #steps = new Map<string, Promise<void>>();
  readonly #waiters = new Map<VolumeId, PromiseWithResolvers<void>>();
  /** Those whose thin snapshots are being made. */
  readonly #cloning = new Set<VolumeId>();
  readonly #worker: BackgroundWorker;
  #runCount = 0;

  /** Makes it; nothing is done until {@linkcode Copies.wake}. */
  constructor(options: CopiesOptions) {
    this.#options = options;
    this.#lvm = options.lvm;
    this.#clock = options.clock ?? systemClock;
    this.#context = options;
    this.#sources = new CopySources(options);
    const { onError, retryMs = RETRY_MS, clock } = options;
    this.#worker = new BackgroundWorker({ pass: () => this.#pass(), onError, retryMs, clock });
  }

  /**
   * Makes the volume that the request describes, unless one exists that satisfies it; answers its size in bytes.
   *
   * @throws {StorageError} `Busy` while it is being filled, with how far that is, and when it is to be made anew; why it cannot
   * be made, once nothing of it is left; those of {@linkcode Copies.createNew}; `AlreadyExists`, `Lost`.
   */
  async create(request: CopyVolumeRequest): Promise<bigint> {
    const groups = await this.#lvm.report();
    const found = this.#options.volumeFinder.locate(groups, request.id, request.groups);
    if (found.state === "lost") throw found.error;
    if (found.state === "absent") await this.createNew(groups, request);
    else {
      requireCompatible(found.volume, request);
      if (found.volume.tags.copied === undefined) return found.volume.size;
      this.#workOn(found.volume.lv.uuid).abandoned = false; // a deletion was given up
      this.wake();
    }
    return await this.#waitUntilFilled(request);
  }

  /**
   * Makes the LV of a volume that does not exist, according to a report, and begins to fill it, or has it share what its source
   * has; answers which of the two. `onChoice` is told of each group before it is tried, and the try waits for it.
   *
   * @throws {StorageError} `NotFound`, `Lost` or `FailedPrecondition` for the source; those of {@linkcode copyRange};
   * `NoSpace`; `FailedPrecondition` when what was deleted could be read in the pool.
   */
  async createNew(
    groups: FreshReport,
    request: CopyVolumeRequest,
    onGroupChosen?: (group: VolumeGroup) => Promise<void>,
  ): Promise<"cloned" | "copied"> {
    const { volumes, volumeFinder, reservation } = this.#options;
    const { original, properties } = this.#sources.require(groups, request.source);
    const wanted = { ...request, range: copyRange(request, properties) };
    const { thin } = wanted;
    const size = thinCloneSize(volumeFinder.managedGroups(groups), original, wanted, reservation.defaultOvercommit);
    try {
      if (size === undefined || thin === undefined) {
        await volumes.createNew(this.#withoutCopySnapshotSpace(groups, original, request), wanted, onGroupChosen);
        return "copied";
      }
      await this.#createThinClone(groups, original, { ...wanted, thin, size }, onGroupChosen);
      return "cloned";
    } finally {
      this.wake();
    }
  }

  /** The groups without the room that the copying itself takes for a while. @throws {StorageError} `NoSpace` */
  #withoutCopySnapshotSpace(
    groups: FreshReport,
    original: LocatedLv,
    { id, source }: CopyVolumeRequest,
  ): FreshReport {
    if (source.kind === "snapshot") return groups;
    if (!isThin(original.lv)) {
      return derivedReport(groups, groupsWithoutCopySnapshotSpace(groups, original, id));
    }
    requireSpaceForCopySnapshot(this.#options.reservation, id, original);
    return groups;
  }

  /**
   * Makes the LV as a thin snapshot of its source, and takes it over. The looks that come meanwhile leave it alone; if it is not
   * taken over in the end, the next one gives it up.
   */
  async #createThinClone(
    groups: FreshReport,
    original: LocatedLv,
    request: CopyVolumeRequest & { readonly thin: ThinSpec; readonly size: bigint },
    onGroupChosen: (group: VolumeGroup) => Promise<void> = () => Promise.resolve(),
  ): Promise<void> {
    const { driver, volumeFinder, reservation } = this.#options;
    const { id } = request;
    this.#cloning.add(id);
    try {
      await onGroupChosen(original.group);
      if (request.source.kind === "volume") {
        await syncFilesystem(this.#lvm.exec, original.lv, volumeFinder.require(groups, request.source.id).tags.format);
      }
      await createThinClone({ lvm: this.#lvm, driver, reservation }, groups, original, request);
      const found = volumeFinder.locate(await this.#lvm.reportAfterChanges(), id);
      if (found.state === "present") this.#workOn(found.volume.lv.uuid).offset = original.lv.size;
    } finally {
      this.#cloning.delete(id);
    }
  }

  /** How far the filling of a volume is. */
  progress({ lv, tags }: Volume): CopyProgress {
    const { offset, total, trouble: lastError } = this.#work.get(lv.uuid) ?? {};
    return {
      copied: offset ?? (tags.copied === "all" ? lv.size : tags.copied ?? 0n),
      ...defined({ total }),
      ...(lastError && { lastError }),
    };
  }

  /** Why a volume cannot be filled; `undefined` as long as it may yet be. */
  failure({ lv }: Volume): StorageError | undefined {
    return this.#work.get(lv.uuid)?.failure;
  }

  /** Goes on with what a report shows of an earlier driver's work. */
  start(groups: readonly VolumeGroup[]): void {
    const { driver } = this.#options;
    if (copiesInProgress(driver, groups).length + staleCopySnapshots(driver, groups).length > 0) this.wake();
  }

  /**
   * Stops filling an LV for good, and takes off what was mounted of it.
   *
   * @throws {StorageError} `Busy` while a step of it does not end.
   */
  async abandon({ lv, group }: LocatedLv): Promise<void> {
    this.#workOn(lv.uuid).abandoned = true;
    const step = Promise.resolve(this.#steps.get(group.name)).then(() => true);
    if (!await withinDeadline(step, this.#options.waitMs ?? WAIT_MS, { clock: this.#clock })) {
      throw new StorageError(
        "Busy",
        "deleting a volume that is being made: a step of that is still running; try again",
      );
    }
    await unmountLeftovers(this.#lvm.exec, lv, scratchPath(lv, this.#context));
  }

  /** Starts a pass over all that is left to do. */
  wake(): void {
    this.#worker.wake();
  }

  /** Waits until nothing is being done. */
  async idle(): Promise<void> {
    while (this.#worker.running || this.#steps.size > 0) {
      await this.#worker.idle();
      await Promise.all(this.#steps.values());
    }
  }

  /** Stops the background work after the commands that are running. */
  async stop(): Promise<void> {
    const stopped = this.#worker.stop();
    for (const id of [...this.#waiters.keys()]) this.#notify(id);
    await stopped;
    await this.idle();
  }

  /** Starts a step in each group in which none is running. */
  async #pass(): Promise<void> {
    this.#startSteps(await this.#lvm.report());
  }

  #startSteps(groups: FreshReport): void {
    const { driver } = this.#options;
    const now = this.#clock.now();
    const tasks = [
      ...staleCopySnapshots(driver, groups).map((copySnapshot) => ({
        located: copySnapshot,
        run: () => removeCopySnapshot(copySnapshot, this.#context),
      })),
      ...this.#copies(groups).map((copy) => ({ located: copy.destination, run: () => this.#step(groups, copy) })),
    ].filter(({ located: { lv, group } }) => {
      const { abandoned, failure } = this.#workOn(lv.uuid);
      return group.responsive && !abandoned && failure === undefined;
    });
    this.#forgetRemoved(groups);
    const due = tasks.filter(({ located: { lv } }) => this.#workOn(lv.uuid).notBefore <= now);
    for (const [name, ofGroup] of Map.groupBy(due, ({ located: { group } }) => group.name)) {
      if (this.#steps.has(name) || this.#worker.stopped) continue;
      const lastRun = ({ located: { lv } }: { located: LocatedLv }) => this.#workOn(lv.uuid).lastRun;
      const first = ofGroup.reduce((one, other) => lastRun(other) < lastRun(one) ? other : one);
      this.#steps.set(
        name,
        this.#attempt(first.located.lv.uuid, first.run).finally(() => {
          this.#steps.delete(name);
          this.wake();
        }),
      );
    }
    const later = tasks.map(({ located: { lv } }) => this.#workOn(lv.uuid).notBefore).filter((time) => time > now);
    if (later.length > 0) this.#worker.wakeAfter(Math.min(...later) - now);
  }

  async #attempt(lvUuid: string, run: () => Promise<void>): Promise<void> {
    const work = this.#workOn(lvUuid);
    work.lastRun = ++this.#runCount;
    try {
      await run();
      recordSuccess(work);
    } catch (error) {
      if (error instanceof StorageError && error.kind === "Busy") return recordBusy(work, this.#clock.now());
      const { retryMs = RETRY_MS, onError } = this.#options;
      onError(error);
      recordFailure(work, error, this.#clock.now(), retryMs);
    }
  }

  async #step(groups: FreshReport, copy: CopyState): Promise<void> {
    const work = this.#workOn(copy.destination.lv.uuid);
    const step = nextStep(copy);
    // what is begun then cannot be gone on with, and a thin LV is not written over
    if (step.do === "complete" && isThin(copy.destination.lv)) work.unrecoverable = true;
    try {
      await executeStep(step, { copy, groups, work }, this.#context);
    } finally {
      this.#notify(copy.id);
    }
  }

  /** Waits for a volume to be filled, and answers its size; one that cannot be made is removed. */
  async #waitUntilFilled(request: CopyVolumeRequest): Promise<bigint> {
    const { id } = request;
    const { volumes, volumeFinder, waitMs = WAIT_MS } = this.#options;
    const end = this.#clock.now() + waitMs;
    for (;;) {
      const progressed = (this.#waiters.get(id) ?? this.#addWaiter(id)).promise;
      const found = volumeFinder.locate(await this.#lvm.report(), id);
      if (found.state !== "present") {
        throw new StorageError("Busy", `creating volume ${id}: it was deleted meanwhile, or given up; try again`);
      }
      const { volume } = found;
      requireCompatible(volume, request);
      if (volume.tags.copied === undefined) return volume.size;
      const failure = this.failure(volume);
      if (failure !== undefined) {
        await volumes.delete(id);
        throw failure;
      }
      const hasProgressed = progressed.then(() => true);
      if (
        this.#worker.stopped ||
        !await withinDeadline(hasProgressed, Math.max(end - this.#clock.now(), 0), { clock: this.#clock })
      ) {
        throw new StorageError("Busy", describeProgress(volume, this.progress(volume)));
      }
    }
  }

  #addWaiter(id: VolumeId): PromiseWithResolvers<void> {
    const waiter = Promise.withResolvers<void>();
    this.#waiters.set(id, waiter);
    return waiter;
  }

  #notify(id: VolumeId): void {
    this.#waiters.get(id)?.resolve();
    this.#waiters.delete(id);
    this.#options.onProgress?.(id);
  }

  #copies(groups: readonly VolumeGroup[]): CopyState[] {
    const offsetOf = (lvUuid: string) => this.#workOn(lvUuid).offset;
    const copies = this.#sources.copies(groups, offsetOf, this.#options.onError);
    return copies.filter(({ id }) => !this.#cloning.has(id));
  }

  #workOn(lvUuid: string): Work {
    const known = this.#work.get(lvUuid);
    if (known !== undefined) return known;
    const work = newWork();
    this.#work.set(lvUuid, work);
    return work;
  }

  /** Forgets what is not there any more; a UUID is never used again. */
  #forgetRemoved(groups: readonly VolumeGroup[]): void {
    const there = new Set(groups.flatMap(({ lvs }) => lvs.map(({ uuid }) => uuid)));
    for (const uuid of this.#work.keys()) if (!there.has(uuid)) this.#work.delete(uuid);
  }
}
