/**
 * The controller of contents: takes the snapshots, or group snapshots, that contents ask for, and deletes those that are no
 * longer needed. In a cluster without the kinds, it waits until they are installed.
 *
 * @module
 */

import { backoffMs, type Clock, systemClock, waitForAbort } from "../../base/clock.ts";
import type { KubeObject, Resource } from "../api/objects.ts";
import type { VolumeSnapshotClass } from "../api/snapshot_objects.ts";
import { isConflict, isTransient, type MergePatch, orAbsent } from "../client/client.ts";
import { patchWithRetry } from "../client/patches.ts";
import type { Controller, ReconcileOutcome } from "../runtime/controller.ts";
import { Informer } from "../runtime/informer.ts";
import { ClaimError, readSnapshotClassParameters } from "../sidecars/class_parameters.ts";
import { codeName, type CreateGroupSnapshotRequest, errorMessage, isMaybeInProgress } from "../sidecars/csi_client.ts";
import { readSecret, readSecretIfAllowed } from "../sidecars/secrets.ts";
import { backoffOf } from "../runtime/backoffs.ts";
import { sidecarController } from "../sidecars/sidecar_controller.ts";
import { SpaceWaiters, WaitingKeys } from "../runtime/wake_ups.ts";
import { type Content, type ContentStep, failedPatch, unusablePatch } from "./content.ts";
import type { ContentControllerOptions, ContentKind, Secrets } from "./content_kind.ts";

/** The delay after which an object is reconciled again whose cached copy was stale, in milliseconds. */
const STALE_CACHE_REQUEUE_MS = 1_000;

/** The controller of contents of one kind. Two of them at the same time repeat each other's work without harm. */
export class ContentController<C extends Content, Created extends { readonly readyToUse: boolean }> {
  readonly #kind: ContentKind<C, Created>;
  readonly #options: ContentControllerOptions;
  readonly #clock: Clock;
  readonly #contents: Informer<C>;
  readonly #classes: Informer<VolumeSnapshotClass>;
  /** The names of contents for whose snapshots there was no space. */
  readonly #spaceWaiters = new SpaceWaiters();
  /** The names of contents that wait for an outcome, by the name of a request or the handle of a snapshot. */
  readonly #waiting = new WaitingKeys();
  /** The number of consecutive checks of a content whose snapshot was not ready. */
  readonly #checks = new Map<string, number>();
  readonly #controller: Controller;

  /** Creates it; nothing runs before {@linkcode ContentController.run}. */
  constructor(kind: ContentKind<C, Created>, options: ContentControllerOptions) {
    this.#kind = kind;
    this.#options = options;
    this.#clock = options.clock ?? systemClock;
    this.#contents = this.#newInformer(kind.contents);
    this.#classes = this.#newInformer(kind.classes);
    this.#controller = sidecarController(kind.name, options, (key, signal) => this.#reconcile(key, signal));
  }

  /** Resolves when the contents are listed, while it runs. In a cluster without the kinds that takes until they are there. */
  get synced(): Promise<void> {
    return this.#contents.synced;
  }

  /** Runs until the signal is aborted and all work in progress has ended. */
  async run(signal: AbortSignal): Promise<void> {
    const { rules, snapshotsOf } = this.#kind;
    const { wakeUps } = this.#options;
    const controller = this.#controller;
    controller.subscribe(this.#contents, (key, now, before) => {
      if (now === undefined) {
        [this.#spaceWaiters, this.#waiting, this.#checks].forEach((entries) => entries.delete(key));
      } else if (before === undefined || rules.reconcileInputs(now) !== rules.reconcileInputs(before)) {
        this.#enqueueIfDue(now);
      }
    }, { replay: false }).watch(this.#classes, ({ metadata }) => this.#pendingNamesOfClass(metadata.name));
    wakeUps.on("space", (growth) => {
      for (const { key, delayMs } of this.#spaceWaiters.wake(growth)) controller.addAfter(key, delayMs);
    }, signal);
    for (const kind of ["request", "deletion"] as const) {
      wakeUps.on(kind, (awaited) => this.#waiting.wake(awaited, controller), signal);
    }
    wakeUps.on("unready", (handle) => {
      for (const content of this.#contents.list()) {
        if (snapshotsOf(content).includes(handle)) this.#enqueueIfDue(content);
      }
    }, signal);
    const running = this.#contents.start(signal);
    // One after the other, so that a cluster without these kinds is logged once.
    await Promise.race([this.#contents.synced, waitForAbort(signal)]);
    await Promise.all([running, this.#classes.start(signal), controller.run(signal)]);
  }

  #newInformer<T extends KubeObject>(resource: Resource<T>): Informer<T> {
    const { client, clock, missingKindRetryMs = 60_000 } = this.#options;
    return new Informer(client, resource, { missingKindRetryMs, clock });
  }

  /** Reports whether the driver manages a content, whichever node its labels name. */
  #isOurs({ spec }: C): boolean {
    return spec.driver === this.#options.driverName;
  }

  #enqueueIfDue(content: C): void {
    if (this.#isOurs(content) && this.#stepOf(content) !== "nothing") this.#controller.add(content.metadata.name);
  }

  /** Returns the next step: the one that the object shows, or a check of a snapshot that was ready. */
  #stepOf(content: C): ContentStep {
    const { rules } = this.#kind;
    const step = rules.nextStep(content);
    if (step !== "nothing" || !content.status?.readyToUse || rules.shouldDelete(content)) return step;
    return this.#lostSnapshots(content).length > 0 ? "check" : step;
  }

  /** Returns the snapshots of a content that may not be ready any more. */
  #lostSnapshots(content: C): string[] {
    const { needsRecheck } = this.#options;
    return needsRecheck === undefined ? [] : this.#kind.snapshotsOf(content).filter(needsRecheck);
  }

  #pendingNamesOfClass(className: string): string[] {
    const { classNameOf, rules } = this.#kind;
    const isPending = (content: C) =>
      classNameOf(content) === className && ["create", "check"].includes(rules.nextStep(content));
    return this.#contents.list().filter(isPending).map(({ metadata }) => metadata.name);
  }

  async #reconcile(name: string, signal: AbortSignal): Promise<ReconcileOutcome> {
    const content = this.#contents.get(name);
    if (content === undefined || !this.#isOurs(content)) return { nothingToDo: "it is gone, or another driver's" };
    const step = this.#stepOf(content);
    const wasCurrent = await this.#executeStep(step, content, signal);
    if (!wasCurrent) return { requeueAfterMs: STALE_CACHE_REQUEUE_MS };
    const nothing = step === "nothing" ? { nothingToDo: "its snapshot is as it requests" } : undefined;
    return this.#nextRequeue(name) ?? nothing;
  }

  /**
   * Executes the step that was decided by the cached copy.
   *
   * @returns whether the step was right for the object itself
   */
  async #executeStep(step: ContentStep, content: C, signal: AbortSignal): Promise<boolean> {
    switch (step) {
      case "create":
        return await this.#create(content, signal);
      case "clear being-created":
        await this.#clearBeingCreated(content, signal);
        return true;
      case "check":
        await this.#check(content, signal);
        return true;
      case "delete snapshot":
        return await this.#delete(content, signal);
      case "remove finalizer": {
        const mayRemove = (now: C) => this.#kind.rules.nextStep(now) === "remove finalizer";
        return await this.#removeFinalizer(content, mayRemove, signal);
      }
      case "nothing":
        return true;
    }
  }

  /** Returns when a content is reconciled again, by its cached copy after this attempt. */
  #nextRequeue(name: string): { requeueAfterMs: number } | undefined {
    const content = this.#contents.get(name);
    const step = content === undefined ? "nothing" : this.#kind.rules.nextStep(content);
    if (step === "check") {
      const checks = (this.#checks.get(name) ?? 0) + 1;
      this.#checks.set(name, checks);
      return { requeueAfterMs: backoffMs(this.#options.backoff ?? backoffOf(this.#kind.name), checks, this.#clock) };
    }
    this.#checks.delete(name);
    return step === "nothing" ? undefined : { requeueAfterMs: 0 };
  }

  async #create(content: C, signal: AbortSignal): Promise<boolean> {
    const { name } = content.metadata;
    let now = content;
    try {
      const request = await this.#buildRequest(content, signal);
      const marked = await this.#setBeingCreated(content, signal);
      if (marked === undefined) return false;
      now = marked;
      const created = await this.#kind.create(request, { signal });
      now = await this.#updateStatus(marked, created, signal);
    } catch (error) {
      if (signal.aborted) throw error;
      this.#noteSpace(content, error);
      this.#waiting.delete(name);
      if (!isMaybeInProgress(error)) now = await this.#clearBeingCreated(now, signal);
      else this.#waiting.add(this.#kind.requestNameOf(content) ?? "", name);
      await this.#reportFailure("create", now, error, signal);
      throw error;
    }
    this.#spaceWaiters.delete(name);
    this.#waiting.delete(name);
    await this.#clearBeingCreated(now, signal);
    return true;
  }

  /** Notes whether a snapshot waits for space on the node of its volumes. Its own size is not known here. */
  #noteSpace(content: C, error: unknown): void {
    const { name } = content.metadata;
    if (codeName(error) !== "ResourceExhausted") return this.#spaceWaiters.delete(name);
    const nodeName = this.#options.nodeOfVolume(this.#kind.volumesOf(content)[0] ?? "");
    this.#spaceWaiters.add(name, { bytes: 0n, ...(nodeName !== undefined && { nodeNames: [nodeName] }) });
  }

  /**
   * Adds the annotation of a requested snapshot.
   *
   * @returns the object, or `undefined` when no snapshot should be requested
   */
  async #setBeingCreated(content: C, signal: AbortSignal): Promise<C | undefined> {
    const { rules } = this.#kind;
    // An annotation that is set is not written again, so the object is read: the cache may be stale.
    const current = rules.isBeingCreated(content) ? await this.#getLive(content, signal) : content;
    const now = current && await orAbsent(this.#patch(current, (now) => rules.setBeingCreatedPatch(now), signal));
    return now !== undefined && rules.nextStep(now) === "create" ? now : undefined;
  }

  /** Gets the current object of a cached copy, or `undefined` when it was deleted. */
  async #getLive(cached: C, signal: AbortSignal): Promise<C | undefined> {
    const now = await orAbsent(this.#options.client.get(this.#kind.contents, cached.metadata, { signal }));
    return now?.metadata.uid === cached.metadata.uid ? now : undefined;
  }

  async #buildRequest(content: C, signal: AbortSignal): Promise<CreateGroupSnapshotRequest> {
    const { requestNameOf, volumesOf, ownerKind } = this.#kind;
    const [name, volumeIds] = [requestNameOf(content), volumesOf(content)];
    if (name === undefined || volumeIds.length === 0) {
      throw new ClaimError(`the content names no volume, or no ${ownerKind} with its uid`);
    }
    const parameters = this.#parametersFor(content);
    return { name, volumeIds, parameters, secrets: await this.#secrets(content, signal) };
  }

  /**
   * Returns the parameters of the class for the request of a content. For a content that is to be deleted only the outcome of
   * a request is needed, and its class may have been deleted before it.
   *
   * @throws {ClaimError} when the class does not exist, or is invalid
   */
  #parametersFor(content: C): Readonly<Record<string, string>> {
    const { classNameOf, classes: { kind }, rules } = this.#kind;
    const { driverName } = this.#options;
    const name = classNameOf(content);
    const found = this.#classes.get(name ?? "");
    if (found?.driver !== driverName && rules.shouldDelete(content)) return {};
    const field = `${kind[0]!.toLowerCase()}${kind.slice(1)}Name`;
    if (!name) throw new ClaimError(`${field}: none is named`);
    const description = `${field} ${JSON.stringify(name)}`;
    if (found === undefined) throw new ClaimError(`${description}: there is no such ${kind}`, "NoSuchSnapshotClass");
    if (found.driver !== driverName) throw new ClaimError(`${description}: it is for ${found.driver}`);
    return this.#readClass(content, found).parameters;
  }

  #readClass({ metadata: { name: contentName } }: C, found: VolumeSnapshotClass | undefined) {
    const { ownerKind } = this.#kind;
    return readSnapshotClassParameters(found?.parameters ?? {}, { contentName, ownerKind });
  }

  async #check(content: C, signal: AbortSignal): Promise<void> {
    try {
      const found = await this.#kind.find(content, await this.#lookupSecrets(content, signal), { signal });
      const isContentLost = !found.readyToUse && this.#lostSnapshots(content).length > 0;
      await (isContentLost ? this.#markUnusable(content, signal) : this.#updateStatus(content, found, signal));
    } catch (error) {
      if (!signal.aborted) await this.#reportFailure("check", content, error, signal);
      throw error;
    }
  }

  /** Reads the secrets for looking for a snapshot. The class is only needed for their name, and may have been deleted. */
  async #lookupSecrets(content: C, signal: AbortSignal): Promise<Secrets> {
    const { lookupSecret } = this.#readClass(content, this.#classes.get(this.#kind.classNameOf(content) ?? ""));
    return await readSecret(this.#options.client, lookupSecret, { signal });
  }

  /** Writes the state of a snapshot into the status. */
  async #updateStatus(content: C, created: Created, signal: AbortSignal): Promise<C> {
    const date = this.#clock.date();
    const change = (now: C) => this.#kind.observedPatch(now, created, date);
    const now = await this.#patch(content, change, signal, "status");
    await this.#waitForCache(now, ({ status }) => status?.readyToUse === now.status?.readyToUse);
    return now;
  }

  /** Writes into the status that snapshots lost their content, and records an event once. */
  async #markUnusable(content: C, signal: AbortSignal): Promise<void> {
    const message = this.#kind.lostMessage(content, this.#lostSnapshots(content));
    const date = this.#clock.date();
    const now = await this.#patch(content, (now) => unusablePatch(now, message, date), signal, "status");
    if (content.status?.readyToUse) {
      this.#options.events.record(content, "Warning", this.#kind.reasons.check, message);
    }
    await this.#waitForCache(now, ({ status }) => status?.readyToUse === false);
  }

  async #clearBeingCreated(content: C, signal: AbortSignal): Promise<C> {
    const { rules } = this.#kind;
    const now = await this.#patch(content, (now) => rules.clearBeingCreatedPatch(now), signal);
    await this.#waitForCache(now, (cached) => !rules.isBeingCreated(cached));
    return now;
  }

  async #delete(cached: C, signal: AbortSignal): Promise<boolean> {
    const { rules, reasons } = this.#kind;
    // The policy may just have become Retain: the API server decides.
    const content = await this.#getLive(cached, signal);
    if (content === undefined || rules.nextStep(content) !== "delete snapshot") return false;
    try {
      await this.#kind.delete(content, await this.#secrets(content, signal), { signal });
    } catch (error) {
      if (!signal.aborted) this.#options.events.record(content, "Warning", reasons.delete, errorMessage(error));
      this.#waiting.add(rules.traits.handleOf(content)!, content.metadata.name);
      throw error;
    }
    this.#waiting.delete(content.metadata.name);
    return await this.#removeFinalizer(content, (now) => rules.shouldDelete(now), signal);
  }

  /** Removes the finalizer, if that is still right. */
  async #removeFinalizer(content: C, mayRemove: (now: C) => boolean, signal: AbortSignal): Promise<boolean> {
    const { rules } = this.#kind;
    const patch = (now: C) => mayRemove(now) ? rules.removeFinalizerPatch(now) : undefined;
    const now = await orAbsent(this.#patch(content, patch, signal));
    if (now !== undefined && rules.hasFinalizer(now)) return false;
    await this.#waitForCache(content, (cached) => !rules.hasFinalizer(cached));
    return true;
  }

  /** Reads the secrets for taking and deleting a snapshot. */
  async #secrets(content: C, signal: AbortSignal): Promise<Secrets> {
    const { rules } = this.#kind;
    const read = rules.shouldDelete(content) ? readSecretIfAllowed : readSecret;
    return await read(this.#options.client, rules.secretOf(content), { signal });
  }

  /** Records a failure, except a temporary one of the API server. */
  async #reportFailure(step: "create" | "check", content: C, error: unknown, signal: AbortSignal): Promise<void> {
    if (isConflict(error) || isTransient(error)) return;
    const [message, date] = [errorMessage(error), this.#clock.date()];
    this.#options.events.record(content, "Warning", this.#kind.reasons[step], message);
    await this.#patch(content, (now) => failedPatch(now, message, date), signal, "status");
  }

  async #patch(
    content: C,
    patch: (now: C) => MergePatch<Content> | MergePatch<C> | undefined,
    signal: AbortSignal,
    subresource?: "status",
  ): Promise<C> {
    // the compiler does not see that a patch of what all contents have is one of each
    const change = patch as (now: C) => MergePatch<C> | undefined;
    return await patchWithRetry(this.#options.client, this.#kind.contents, content, change, { signal, subresource });
  }

  /** Waits until the cache shows the current state of an object. */
  async #waitForCache({ metadata: { name } }: C, predicate: (cached: C) => boolean): Promise<void> {
    await this.#controller.waitForCache(this.#contents, name, (cached) => cached === undefined || predicate(cached));
  }
}
