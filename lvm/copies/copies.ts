/**
 * Creates volumes from snapshots and from other volumes.
 *
 * If the source and the new volume are in the same thin pool, the new volume is a thin snapshot, which is complete at
 * once. Otherwise the driver copies the bytes of the source in the background, chunk by chunk.
 *
 * The new LV is created first. Its tags name its source, so from then on the source is not deleted. The source volume
 * may be in use: a temporary copy snapshot keeps the data of one moment. Each step is decided from a report ({@linkcode
 * nextStep}), and no other state is needed: whenever the driver dies, the next start continues. The last step gives the
 * copied filesystem a UUID that no other filesystem has. Only then the volume can be used.
 *
 * In each group one step runs at a time, so that copies load the physical volumes little, and a step that hangs delays
 * no other group. Copying bypasses the page cache.
 *
 * @module
 */

import { type CopyContext, executeStep, removeCopySnapshot, scratchPath } from "./executor.ts";
import { GroupSteps, type MayBegin, type StepEnd } from "./group_steps.ts";
import { copyRange, groupsWithoutCopySnapshotSpace, requireSpaceForCopySnapshot, thinCloneSize } from "./rules.ts";
import {
  copiesInProgress,
  type CopyProgress,
  describeProgress,
  isSourceKept,
  requireNoCopySnapshot,
  requireSnapshots,
  staleCopySnapshots,
} from "../inventory/copying.ts";
import { CopySources, type CopySourcesOptions } from "./sources.ts";
import { type CopyState, nextStep } from "./plan.ts";
import { lateCompletion, StorageError } from "../../base/error.ts";
import { AllWork, progressOf, recordBusy, recordFailure, recordGoal, recordSuccess, RETRY_MS } from "./work.ts";
import type { ContentSource, CopyGoal } from "../model/tags.ts";
import type { VolumeId } from "../../base/ids.ts";
import { unmountLeftovers } from "../staging/filesystem_uuid.ts";
import { derivedReport, type FreshReport, type Lvm } from "../client/client.ts";
import type { LocatedLv, VolumeGroup } from "../model/report.ts";
import { isThin, type ThinSpec } from "../pools/pool.ts";
import { createThinClone } from "../volumes/thin_volumes.ts";
import { type Clock, systemClock, withinDeadline } from "../../base/clock.ts";
import { type CreateOptions, requireCompatible, type Volume, type VolumeRequest } from "../inventory/volume.ts";
import type { Volumes } from "../volumes/volumes.ts";
import { syncFilesystem } from "../snapshots/snapshots.ts";
import { BackgroundWorker } from "../../base/worker.ts";

/** A request for a volume with a content source. */
export type CopyVolumeRequest = VolumeRequest & { readonly source: ContentSource };

/** Options of {@linkcode Copies}. */
export interface CopiesOptions extends CopyContext, CopySourcesOptions {
  /** Creates and deletes volumes. */
  readonly volumes: Pick<Volumes, "createNew" | "delete">;
  /** Called with each error of the background work. */
  readonly onError: (error: unknown) => void;
  /** Called for a volume when more of it is copied, when it is complete, or when it cannot be created. */
  readonly onProgress?: (id: VolumeId) => void;
  /** The longest time until a failed step is tried again, in milliseconds; a minute by default. */
  readonly retryMs?: number;
  /** The time for which a call waits for a copy or for a running step, in milliseconds; 20 seconds by default. */
  readonly waitMs?: number;
  /** The clock; the machine's by default. */
  readonly clock?: Clock;
}

/**
 * The time for which a call waits, in milliseconds. Small copies complete within it. A client with a shorter timeout
 * retries.
 */
const WAIT_MS = 20_000;

/** The copies of one driver on this machine. */
export class Copies {
  readonly #options: CopiesOptions;
  readonly #lvm: Lvm;
  readonly #clock: Clock;
  readonly #context: CopyContext;
  readonly #sources: CopySources;
  /** The state of each copy, by the UUID of its destination LV, or of the copy snapshot that has to be removed. */
  readonly #work = new AllWork();
  readonly #steps = new GroupSteps(() => this.wake());
  readonly #waiters = new Map<VolumeId, PromiseWithResolvers<void>>();
  /** The volumes whose thin clone is being created. */
  readonly #cloning = new Set<VolumeId>();
  readonly #worker: BackgroundWorker;
  #runCount = 0;

  /** Creates the service. The background work begins with {@linkcode Copies.wake}. */
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
   * Creates the volume that a request describes, unless a volume exists that satisfies the request, and waits for its
   * copy.
   *
   * @param options.onSourceUsable called when the source may be used again
   * @returns the size of the volume in bytes
   * @throws {StorageError} `Busy` with the progress when the copy takes longer than the call waits, or when the volume
   * was deleted meanwhile; the reason why the copy cannot be made, after the volume was deleted; those of {@linkcode
   * Copies.createNew}; `AlreadyExists` when another volume has the id; `Lost`.
   */
  async create(request: CopyVolumeRequest, options: CreateOptions = {}): Promise<bigint> {
    const groups = await this.#lvm.report();
    const found = this.#options.volumeFinder.locate(groups, request.id, request.groups);
    if (found.state === "lost") throw found.error;
    if (found.state === "absent") await this.createNew(groups, request);
    else {
      requireCompatible(found.volume, request);
      if (found.volume.tags.copied === undefined) return found.volume.size;
      this.#work.of(found.volume.lv.uuid).abandoned = false; // A deletion was not completed.
      this.wake();
    }
    return await this.#waitUntilFilled(request, options);
  }

  /**
   * Creates the LV of a volume that does not exist, as a thin clone of its source or as an LV that is filled in the
   * background.
   *
   * @param groups the report that shows that the volume does not exist
   * @param onGroupChosen called with each group before the volume is created in it; the creation waits for the promise
   * @returns whether the volume is a thin clone or is being copied
   * @throws {StorageError} `NotFound`, `Lost` or `FailedPrecondition` for the source; those of {@linkcode copyRange};
   * `NoSpace`; `FailedPrecondition` when deleted data could be read in the pool; `Busy` until the copy snapshot of an
   * earlier copy of the same id is removed.
   */
  async createNew(
    groups: FreshReport,
    request: CopyVolumeRequest,
    onGroupChosen?: (group: VolumeGroup) => Promise<void>,
  ): Promise<"cloned" | "copied"> {
    const { volumes, volumeFinder, reservation } = this.#options;
    requireNoCopySnapshot(this.#options.driver, groups, request.id);
    if (request.sourceNode !== undefined) { // the request has the size of its source
      await volumes.createNew(groups, request, onGroupChosen).finally(() => this.wake());
      return "copied";
    }
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

  /**
   * Returns the groups without the space that the copy snapshot of the source needs.
   *
   * @throws {StorageError} `NoSpace` when there is no space for the copy snapshot.
   */
  #withoutCopySnapshotSpace(
    groups: FreshReport,
    original: LocatedLv,
    { id, source }: CopyVolumeRequest,
  ): FreshReport {
    if (source.kind === "snapshot") return groups;
    requireSnapshots(`creating volume ${id} from volume ${source.id}`, original);
    if (!isThin(original.lv)) {
      return derivedReport(groups, groupsWithoutCopySnapshotSpace(groups, original, id));
    }
    requireSpaceForCopySnapshot(this.#options.reservation, id, original);
    return groups;
  }

  /**
   * Creates the LV as a thin snapshot of its source, and records that this process has seen it complete. Passes that
   * run meanwhile ignore the volume. If it is not recorded in the end, the next pass drops the LV.
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
      if (found.state === "present") this.#work.of(found.volume.lv.uuid).offset = original.lv.size;
    } finally {
      this.#cloning.delete(id);
    }
  }

  /**
   * Returns the progress of the copy of a volume: what this process has copied, or else what the tags record.
   *
   * @returns the progress, in bytes
   */
  progress(volume: Volume): CopyProgress {
    return progressOf(volume, this.#work.of(volume.lv.uuid));
  }

  /** Sets what a volume that is filled from several snapshots should have next. */
  pursue({ lv }: Volume, goal: CopyGoal): void {
    recordGoal(this.#work.of(lv.uuid), goal);
  }

  /** Returns the reason why the copy of a volume cannot be made, or `undefined` while the copy may still succeed. */
  failure({ lv }: Volume): StorageError | undefined {
    return this.#work.of(lv.uuid).failure;
  }

  /**
   * Continues the copies that an earlier process of the driver left.
   *
   * @param groups the report of the start
   */
  start(groups: readonly VolumeGroup[]): void {
    const { driver } = this.#options;
    if (copiesInProgress(driver, groups).length + staleCopySnapshots(driver, groups).length > 0) this.wake();
  }

  /**
   * Stops filling an LV for good, and unmounts it where a copy mounted it.
   *
   * @throws {StorageError} `Busy` when the step that runs for the LV does not end in time.
   */
  async abandon({ lv, group }: LocatedLv): Promise<void> {
    const work = this.#work.of(lv.uuid);
    work.abandoned = true;
    work.cancel?.();
    const step = this.#steps.ended({ lv, group }).then(() => true);
    if (!await withinDeadline(step, this.#options.waitMs ?? WAIT_MS, { clock: this.#clock })) {
      throw new StorageError(
        "Busy",
        "deleting a volume that is being created: a step of its copy is still running; try again",
      );
    }
    await unmountLeftovers(this.#lvm.exec, lv, scratchPath(lv, this.#context));
  }

  /** Starts a pass over all copies and stale copy snapshots. */
  wake(): void {
    this.#worker.wake();
  }

  /** Waits until no background work is running. */
  async idle(): Promise<void> {
    do await this.#worker.idle(); while (await this.#steps.idle() || this.#worker.running);
  }

  /** Stops the background work after the commands that are running. Calls that wait for a copy end. */
  async stop(): Promise<void> {
    const stopped = this.#worker.stop();
    this.#work.cancel();
    for (const id of [...this.#waiters.keys()]) this.#notify(id);
    await stopped;
    await this.idle();
  }

  /** Starts a step in each group in which none is running. */
  async #pass(): Promise<void> {
    const mayBegin = this.#steps.beforeReport();
    this.#startSteps(await this.#lvm.report(), mayBegin);
  }

  #startSteps(groups: FreshReport, mayBegin: MayBegin): void {
    const { driver } = this.#options;
    const now = this.#clock.now();
    const tasks = [
      ...staleCopySnapshots(driver, groups).map((copySnapshot) => ({
        located: copySnapshot,
        run: () => removeCopySnapshot(copySnapshot, this.#context),
      })),
      ...this.#copies(groups).filter(({ destination: { lv } }) => {
        const { abandoned, failure } = this.#work.of(lv.uuid);
        return !abandoned && failure === undefined;
      }).map((copy) => ({ located: copy.destination, run: () => this.#step(groups, copy) })),
    ].filter(({ located: { lv, group } }) => group.responsive && lv.unreadable === undefined);
    this.#work.forgetRemoved(groups);
    const due = tasks.filter(({ located: { lv } }) => this.#work.of(lv.uuid).notBefore <= now);
    for (const ofGroup of Map.groupBy(due, ({ located: { group } }) => group.uuid).values()) {
      const { group } = ofGroup[0]!.located;
      if (this.#worker.stopped || !mayBegin(group)) continue;
      const lastRun = ({ located: { lv } }: { located: LocatedLv }) => this.#work.of(lv.uuid).lastRun;
      const first = ofGroup.reduce((one, other) => lastRun(other) < lastRun(one) ? other : one);
      this.#steps.begin(first.located, () => this.#attempt(first.located.lv.uuid, first.run));
    }
    const later = tasks.map(({ located: { lv } }) => this.#work.of(lv.uuid).notBefore).filter((time) => time > now);
    if (later.length > 0) this.#worker.wakeAfter(Math.min(...later) - now);
  }

  async #attempt(lvUuid: string, run: () => Promise<void>): Promise<StepEnd> {
    const work = this.#work.of(lvUuid);
    work.lastRun = ++this.#runCount;
    try {
      await run();
      recordSuccess(work);
      return {};
    } catch (error) {
      if (error instanceof StorageError && error.kind === "Busy") {
        recordBusy(work, this.#clock.now());
        return {};
      }
      const { retryMs = RETRY_MS, onError } = this.#options;
      onError(error);
      recordFailure(work, error, this.#clock.now(), retryMs);
      return { late: lateCompletion(error) };
    }
  }

  async #step(groups: FreshReport, copy: CopyState): Promise<void> {
    const work = this.#work.of(copy.destination.lv.uuid);
    const step = nextStep(copy);
    work.isRemote = copy.sourceNode !== undefined;
    // A completion that fails cannot be continued, and a thin LV is not overwritten.
    if (step.do === "complete" && isThin(copy.destination.lv)) work.unrecoverable = true;
    try {
      await executeStep(step, { copy, groups, work }, this.#context);
    } finally {
      this.#notify(copy.id);
    }
  }

  /**
   * Waits for the copy of a volume, and returns the volume's size in bytes. Deletes a volume whose copy cannot be made.
   */
  async #waitUntilFilled(request: CopyVolumeRequest, { onSourceUsable }: CreateOptions): Promise<bigint> {
    const { id } = request;
    const { driver, volumes, volumeFinder, waitMs = WAIT_MS } = this.#options;
    const end = this.#clock.now() + waitMs;
    for (;;) {
      const progressed = (this.#waiters.get(id) ?? this.#addWaiter(id)).promise;
      const groups = await this.#lvm.report();
      const found = volumeFinder.locate(groups, id);
      if (found.state !== "present") {
        throw new StorageError(
          "Busy",
          `creating volume ${id}: it was deleted meanwhile, or its copy failed; try again`,
        );
      }
      const { volume } = found;
      requireCompatible(volume, request);
      if (volume.tags.copied === undefined) return volume.size;
      if (isSourceKept(driver, groups, request)) onSourceUsable?.();
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
    const copies = this.#sources.copies(groups, (lvUuid) => this.#work.of(lvUuid), this.#options.onError);
    return copies.filter((copy) => !this.#cloning.has(copy.id) && nextStep(copy).do !== "rest");
  }
}
