/**
 * The snapshotter: takes the snapshots that VolumeSnapshotContents ask for, and deletes those that are no longer needed. In a
 * cluster without these kinds, it waits until they are installed.
 *
 * VolumeSnapshots, and the VolumeSnapshotContents that belong to them, are created by the official snapshot-controller.
 *
 * @module
 */

import { sidecarController } from "../sidecars/sidecar_controller.ts";
import type { SnapshotterOptions } from "./snapshotter_options.ts";
import { type FreeSpaceGrowth, SpaceWaiters } from "../sidecars/space_waiters.ts";
import { ClaimError, readSnapshotClassParameters } from "../sidecars/class_parameters.ts";
import { isConflict, isTransient, orAbsent } from "../client/client.ts";
import { backoffMs, type Clock, systemClock, waitForAbort } from "../../lvm/clock.ts";
import {
  type CreatedSnapshot,
  type CreateSnapshotRequest,
  errorMessage,
  isMaybeInProgress,
  isOperationPending,
  isResourceExhausted,
} from "../sidecars/csi_client.ts";
import type { KubeObject, Resource } from "../api/objects.ts";
import { Informer, type WaitOptions } from "../runtime/informer.ts";
import type { Controller } from "../runtime/controller.ts";
import { patchWithRetry } from "../client/patch_with_retry.ts";
import { readSecret } from "../sidecars/secrets.ts";
import { WaitingKeys } from "../sidecars/waiting_keys.ts";
import {
  classParametersOf,
  clearBeingCreatedPatch,
  type ContentPatch,
  type ContentStep,
  failedPatch,
  hasFinalizer,
  isBeingCreated,
  isManagedBy,
  nextContentStep,
  observedPatch,
  reconcileInputs,
  removeFinalizerPatch,
  setBeingCreatedPatch,
  shouldDelete,
  snapshotNameOf,
  snapshotSecretOf,
  unusablePatch,
} from "./snapshot_content.ts";
import {
  snapshotHandleOf,
  type VolumeSnapshotClass,
  volumeSnapshotClasses,
  type VolumeSnapshotContent,
  volumeSnapshotContents,
} from "../api/snapshot_objects.ts";

export type { SnapshotterOptions } from "./snapshotter_options.ts";

/** The time limit for the cache to show a change, in milliseconds. */
const CACHE_WAIT_MS = 10_000;

/** The delay after which an object is reconciled again whose cached copy was stale, in milliseconds. */
const STALE_CACHE_REQUEUE_MS = 1_000;

/** The snapshotter. Two of them at the same time repeat each other's work without harm. */
export class Snapshotter {
  readonly #options: SnapshotterOptions;
  readonly #clock: Clock;
  #contents: Informer<VolumeSnapshotContent>;
  #classes: Informer<VolumeSnapshotClass>;
  /** The names of contents for whose snapshots there was no space. */
  readonly #spaceWaiters = new SpaceWaiters();
  /** The names of contents that wait for an outcome, by the name of a request or the handle of a snapshot. */
  readonly #waiting = new WaitingKeys();
  /** The number of consecutive checks of a content whose snapshot was not ready. */
  readonly #checks = new Map<string, number>();
  #controller: Controller | undefined;
  #stopSignal: AbortSignal | undefined;

  /** Creates it; nothing runs before {@linkcode Snapshotter.run}. */
  constructor(options: SnapshotterOptions) {
    this.#options = options;
    this.#clock = options.clock ?? systemClock;
    this.#contents = this.#newInformer(volumeSnapshotContents);
    this.#classes = this.#newInformer(volumeSnapshotClasses);
  }

  /** Requeues the snapshots for which there was no space. Call it when a node has more. */
  requeueExhausted(growth: FreeSpaceGrowth): void {
    for (const { key, delayMs } of this.#spaceWaiters.wake(growth)) this.#controller?.addAfter(key, delayMs);
  }

  /** Requeues the content that waits for a request, by its name, or for a snapshot, by its handle. */
  requeueWaiting(awaited: string): void {
    this.#waiting.wake(awaited, this.#controller);
  }

  /** Checks the snapshot of a handle, which was ready and may not be so any more. */
  recheck(handle: string): void {
    for (const content of this.#contents.list()) if (snapshotHandleOf(content) === handle) this.#enqueueIfDue(content);
  }

  /** Runs until the signal is aborted and all work in progress has ended. It may be run again. */
  async run(signal: AbortSignal): Promise<void> {
    // State of an earlier term of leadership is stale.
    this.#spaceWaiters.clear();
    this.#waiting.clear();
    this.#checks.clear();
    this.#contents = this.#newInformer(volumeSnapshotContents);
    this.#classes = this.#newInformer(volumeSnapshotClasses);
    const controller = sidecarController(
      "snapshotter",
      this.#options,
      (name, reconcileSignal) => this.#reconcile(name, reconcileSignal),
    );
    [this.#controller, this.#stopSignal] = [controller, signal];
    controller.watch(this.#contents, () => [])
      .watch(this.#classes, ({ metadata }) => this.#pendingNamesOfClass(metadata.name));
    this.#contents.subscribe((name, now, before) => {
      if (now === undefined) {
        [this.#spaceWaiters, this.#waiting, this.#checks].forEach((entries) => entries.delete(name));
      } else if (before === undefined || reconcileInputs(now) !== reconcileInputs(before)) this.#enqueueIfDue(now);
    });
    const contents = this.#contents.start(signal);
    // One after the other, so that a cluster without these kinds is logged once.
    await Promise.race([this.#contents.synced, waitForAbort(signal)]);
    await Promise.all([contents, this.#classes.start(signal), controller.run(signal)]);
    this.#controller = undefined;
  }

  #newInformer<T extends KubeObject>(resource: Resource<T>): Informer<T> {
    const { client, clock, missingKindRetryMs = 60_000 } = this.#options;
    return new Informer(client, resource, { missingKindRetryMs, clock });
  }

  /** Returns how long to wait for the cache to show a change; the wait ends when the controller stops. */
  get #waitOptions(): WaitOptions {
    return { signal: this.#stopSignal, timeoutMs: CACHE_WAIT_MS };
  }

  #enqueueIfDue(content: VolumeSnapshotContent): void {
    const { driverName } = this.#options;
    if (isManagedBy(content, driverName) && this.#stepOf(content) !== "nothing") {
      this.#controller?.add(content.metadata.name);
    }
  }

  /** Returns the next step: the one that the object shows, or a check of a snapshot that was ready. */
  #stepOf(content: VolumeSnapshotContent): ContentStep {
    const step = nextContentStep(content);
    const mustRecheck = content.status?.readyToUse && this.#options.needsRecheck?.(snapshotHandleOf(content) ?? "");
    return step === "nothing" && mustRecheck && !shouldDelete(content) ? "check" : step;
  }

  #pendingNamesOfClass(className: string): string[] {
    const isPending = (content: VolumeSnapshotContent) =>
      content.spec.volumeSnapshotClassName === className && ["create", "check"].includes(nextContentStep(content));
    return this.#contents.list().filter(isPending).map(({ metadata }) => metadata.name);
  }

  async #reconcile(name: string, signal: AbortSignal): Promise<void | { requeueAfterMs: number }> {
    const content = this.#contents.get(name);
    if (content === undefined || !isManagedBy(content, this.#options.driverName)) return;
    const wasCurrent = await this.#executeStep(this.#stepOf(content), content, signal);
    return wasCurrent ? this.#nextRequeue(name) : { requeueAfterMs: STALE_CACHE_REQUEUE_MS };
  }

  /**
   * Executes the step that was decided by the cached copy.
   *
   * @returns whether the step was right for the object itself
   */
  async #executeStep(step: ContentStep, content: VolumeSnapshotContent, signal: AbortSignal): Promise<boolean> {
    switch (step) {
      case "create":
        return await this.#createSnapshot(content, signal);
      case "clear being-created":
        await this.#clearBeingCreated(content, signal);
        return true;
      case "check":
        await this.#checkSnapshot(content, signal);
        return true;
      case "delete snapshot":
        return await this.#deleteSnapshot(content, signal);
      case "remove finalizer":
        return await this.#removeFinalizer(content, (now) => nextContentStep(now) === "remove finalizer", signal);
      case "nothing":
        return true;
    }
  }

  /** Returns when a content is reconciled again, by its cached copy after this attempt. */
  #nextRequeue(name: string): void | { requeueAfterMs: number } {
    const content = this.#contents.get(name);
    const step = content === undefined ? "nothing" : nextContentStep(content);
    if (step === "check") {
      const checks = (this.#checks.get(name) ?? 0) + 1;
      this.#checks.set(name, checks);
      const { backoff = { startMs: 1_000, capMs: 300_000 } } = this.#options;
      return { requeueAfterMs: backoffMs(backoff, checks, this.#clock) };
    }
    this.#checks.delete(name);
    if (step !== "nothing") return { requeueAfterMs: 0 };
  }

  async #createSnapshot(content: VolumeSnapshotContent, signal: AbortSignal): Promise<boolean> {
    let now = content;
    try {
      const request = await this.#buildRequest(content, signal);
      const marked = await this.#setBeingCreated(content, signal);
      if (marked === undefined) return false;
      now = marked;
      const created = await this.#options.csi.createSnapshot(request, { signal });
      now = await this.#updateStatus(marked, created, signal);
    } catch (error) {
      if (signal.aborted) throw error;
      this.#noteSpace(content, error);
      this.#waiting.delete(content.metadata.name);
      if (!isMaybeInProgress(error)) now = await this.#clearBeingCreated(now, signal);
      else this.#waiting.add(snapshotNameOf(content.spec.volumeSnapshotRef.uid ?? ""), content.metadata.name);
      await this.#reportFailure("create", now, error, signal);
      throw error;
    }
    this.#spaceWaiters.delete(content.metadata.name);
    this.#waiting.delete(content.metadata.name);
    await this.#clearBeingCreated(now, signal);
    return true;
  }

  /** Notes whether a snapshot waits for space on the node of its volume. Its own size is not known here. */
  #noteSpace({ metadata: { name }, spec: { source } }: VolumeSnapshotContent, error: unknown): void {
    if (!isResourceExhausted(error)) return this.#spaceWaiters.delete(name);
    const nodeName = this.#options.nodeOfVolume(source.volumeHandle ?? "");
    this.#spaceWaiters.add(name, { bytes: 0n, ...(nodeName !== undefined && { nodeNames: [nodeName] }) });
  }

  /**
   * Adds the annotation of a requested snapshot.
   *
   * @returns the object, or `undefined` when no snapshot should be requested
   */
  async #setBeingCreated(
    content: VolumeSnapshotContent,
    signal: AbortSignal,
  ): Promise<VolumeSnapshotContent | undefined> {
    // An annotation that is set is not written again, so the object is read: the cache may be stale.
    const current = isBeingCreated(content) ? await this.#getLive(content, signal) : content;
    const now = current && await orAbsent(this.#patch(current, setBeingCreatedPatch, signal));
    return now !== undefined && nextContentStep(now) === "create" ? now : undefined;
  }

  /** Gets the current object of a cached copy, or `undefined` when it was deleted. */
  async #getLive(cached: VolumeSnapshotContent, signal: AbortSignal): Promise<VolumeSnapshotContent | undefined> {
    const now = await orAbsent(this.#options.client.get(volumeSnapshotContents, cached.metadata, { signal }));
    return now?.metadata.uid === cached.metadata.uid ? now : undefined;
  }

  async #buildRequest(content: VolumeSnapshotContent, signal: AbortSignal): Promise<CreateSnapshotRequest> {
    const { source: { volumeHandle }, volumeSnapshotRef: { uid } } = content.spec;
    if (!volumeHandle || !uid) throw new ClaimError("the content names no volume, or no VolumeSnapshot with its uid");
    const found = this.#classes.get(content.spec.volumeSnapshotClassName ?? "");
    const { parameters } = classParametersOf(content, found, this.#options.driverName);
    const secrets = await this.#secrets(content, signal);
    return { name: snapshotNameOf(uid), volumeId: volumeHandle, parameters, secrets };
  }

  async #checkSnapshot(content: VolumeSnapshotContent, signal: AbortSignal): Promise<void> {
    try {
      const found = await this.#findSnapshot(content, signal);
      const isContentLost = !found.readyToUse && this.#options.needsRecheck?.(found.snapshotId);
      await (isContentLost ? this.#markUnusable(content, found, signal) : this.#updateStatus(content, found, signal));
    } catch (error) {
      if (!signal.aborted) await this.#reportFailure("check", content, error, signal);
      throw error;
    }
  }

  async #findSnapshot(content: VolumeSnapshotContent, signal: AbortSignal): Promise<CreatedSnapshot> {
    const { client, csi, driverName } = this.#options;
    const { metadata: { name: contentName }, spec: { volumeSnapshotClassName = "" } } = content;
    const snapshotId = snapshotHandleOf(content)!;
    // The class is only needed for its secret, and may have been deleted.
    const { parameters = {} } = this.#classes.get(volumeSnapshotClassName) ?? {};
    const { listSecret } = readSnapshotClassParameters(parameters, { contentName });
    const secrets = await readSecret(client, listSecret, { signal });
    const found = await csi.findSnapshot({ snapshotId, secrets }, { signal });
    if (found !== undefined) return found;
    throw new Error(`looking for snapshot ${snapshotId}: ${driverName} has none of that handle`);
  }

  /** Writes the state of a snapshot into the status. */
  async #updateStatus(
    content: VolumeSnapshotContent,
    snapshot: CreatedSnapshot,
    signal: AbortSignal,
  ): Promise<VolumeSnapshotContent> {
    const date = this.#clock.date();
    const now = await this.#patch(content, (now) => observedPatch(now, snapshot, date), signal, "status");
    await this.#waitForCache(now, ({ status }) => status?.readyToUse === now.status?.readyToUse);
    return now;
  }

  /** Writes into the status that a snapshot lost its content, and records an event once. */
  async #markUnusable(
    content: VolumeSnapshotContent,
    { snapshotId }: CreatedSnapshot,
    signal: AbortSignal,
  ): Promise<void> {
    const message =
      `snapshot ${snapshotId} was taken, but its content is lost (see LVMSnapshot ${snapshotId}): delete it`;
    const date = this.#clock.date();
    const now = await this.#patch(content, (now) => unusablePatch(now, message, date), signal, "status");
    if (content.status?.readyToUse) {
      this.#options.events.record(content, "Warning", "SnapshotContentCheckandUpdateFailed", message);
    }
    await this.#waitForCache(now, ({ status }) => status?.readyToUse === false);
  }

  async #clearBeingCreated(content: VolumeSnapshotContent, signal: AbortSignal): Promise<VolumeSnapshotContent> {
    const now = await this.#patch(content, clearBeingCreatedPatch, signal);
    await this.#waitForCache(now, (cached) => clearBeingCreatedPatch(cached) === undefined);
    return now;
  }

  async #deleteSnapshot(cached: VolumeSnapshotContent, signal: AbortSignal): Promise<boolean> {
    const { csi, events } = this.#options;
    // The policy may just have become Retain: the API server decides.
    const content = await this.#getLive(cached, signal);
    if (content === undefined || nextContentStep(content) !== "delete snapshot") return false;
    try {
      const secrets = await this.#secrets(content, signal);
      await csi.deleteSnapshot({ snapshotId: snapshotHandleOf(content)!, secrets }, { signal });
    } catch (error) {
      if (!signal.aborted && !isOperationPending(error)) {
        events.record(content, "Warning", "SnapshotDeleteError", errorMessage(error));
      }
      this.#waiting.add(snapshotHandleOf(content)!, content.metadata.name);
      throw error;
    }
    this.#waiting.delete(content.metadata.name);
    return await this.#removeFinalizer(content, shouldDelete, signal);
  }

  /** Removes the finalizer, if that is still right. */
  async #removeFinalizer(
    content: VolumeSnapshotContent,
    mayRemove: (now: VolumeSnapshotContent) => boolean,
    signal: AbortSignal,
  ): Promise<boolean> {
    const patch = (now: VolumeSnapshotContent) => mayRemove(now) ? removeFinalizerPatch(now) : undefined;
    const now = await orAbsent(this.#patch(content, patch, signal));
    if (now !== undefined && hasFinalizer(now)) return false;
    await this.#waitForCache(content, (cached) => !hasFinalizer(cached));
    return true;
  }

  /** Reads the secrets for taking and deleting a snapshot; those of a deleted one may have been deleted before it. */
  async #secrets(content: VolumeSnapshotContent, signal: AbortSignal): Promise<Record<string, string>> {
    const secret = readSecret(this.#options.client, snapshotSecretOf(content), { signal });
    return shouldDelete(content) ? await orAbsent(secret) ?? {} : await secret;
  }

  /** Records a failure, unless it is temporary. */
  async #reportFailure(
    step: "create" | "check",
    content: VolumeSnapshotContent,
    error: unknown,
    signal: AbortSignal,
  ): Promise<void> {
    if (isOperationPending(error) || isConflict(error) || isTransient(error)) return;
    const { events } = this.#options;
    const [message, date] = [errorMessage(error), this.#clock.date()];
    if (step === "create") events.record(content, "Warning", "SnapshotCreationFailed", message);
    else events.record(content, "Warning", "SnapshotContentCheckandUpdateFailed", message);
    await this.#patch(content, (now) => failedPatch(now, message, date), signal, "status");
  }

  async #patch(
    content: VolumeSnapshotContent,
    patch: (now: VolumeSnapshotContent) => ContentPatch | undefined,
    signal: AbortSignal,
    subresource?: "status",
  ): Promise<VolumeSnapshotContent> {
    return await patchWithRetry(this.#options.client, volumeSnapshotContents, content, patch, { signal, subresource });
  }

  /** Waits until the cache shows the current state of an object. */
  async #waitForCache(
    { metadata: { name } }: VolumeSnapshotContent,
    predicate: (cached: VolumeSnapshotContent) => boolean,
  ): Promise<void> {
    await this.#contents.waitForCache(name, (cached) => cached === undefined || predicate(cached), this.#waitOptions);
  }
}
