/**
 * The group snapshotter: takes the group snapshots that VolumeGroupSnapshotContents ask for, and deletes those that are no
 * longer needed. In a cluster without these kinds, it waits until they are installed.
 *
 * VolumeGroupSnapshots, their contents, and those of their snapshots, are created by the official snapshot-controller.
 *
 * @module
 */

import { type Clock, systemClock, waitForAbort } from "../../lvm/clock.ts";
import type { KubeObject, Resource } from "../api/objects.ts";
import {
  type VolumeGroupSnapshotClass,
  volumeGroupSnapshotClasses,
  type VolumeGroupSnapshotContent,
  volumeGroupSnapshotContents,
} from "../api/snapshot_objects.ts";
import { isConflict, isTransient, orAbsent } from "../client/client.ts";
import { patchWithRetry } from "../client/patch_with_retry.ts";
import type { Controller } from "../runtime/controller.ts";
import type { EventRecorder } from "../runtime/events.ts";
import { Informer } from "../runtime/informer.ts";
import { ClaimError, readSnapshotClassParameters } from "../sidecars/class_parameters.ts";
import {
  type CreatedGroupSnapshot,
  type CreateGroupSnapshotRequest,
  errorMessage,
  type GroupSnapshotClient,
  isMaybeInProgress,
  isOperationPending,
} from "../sidecars/csi_client.ts";
import { readSecret } from "../sidecars/secrets.ts";
import { sidecarController, type SidecarOptions } from "../sidecars/sidecar_controller.ts";
import { WaitingKeys } from "../sidecars/waiting_keys.ts";
import {
  clearGroupBeingCreatedPatch,
  failedGroupPatch,
  type GroupContentPatch,
  groupHandleOf,
  groupReconcileInputs,
  groupSecretOf,
  groupSnapshotNameOf,
  hasGroupFinalizer,
  isGroupBeingCreated,
  memberHandlesOf,
  nextGroupStep,
  observedGroupPatch,
  removeGroupFinalizerPatch,
  setGroupBeingCreatedPatch,
  shouldDeleteGroup,
} from "./group_content.ts";

/** Options of the group snapshotter. */
export interface GroupSnapshotterOptions extends SidecarOptions {
  /** The driver. */
  readonly csi: GroupSnapshotClient;
  /** The recorder of events. */
  readonly events: EventRecorder;
  /** The interval at which missing kinds are looked for, in milliseconds; a minute. */
  readonly missingKindRetryMs?: number | undefined;
}

/** The time limit for the cache to show a change, in milliseconds. */
const CACHE_WAIT_MS = 10_000;

/** The delay after which an object is reconciled again whose cached copy was stale, in milliseconds. */
const STALE_CACHE_REQUEUE_MS = 1_000;

/** The group snapshotter. Two of them at the same time repeat each other's work without harm. */
export class GroupSnapshotter {
  readonly #options: GroupSnapshotterOptions;
  readonly #clock: Clock;
  #contents: Informer<VolumeGroupSnapshotContent>;
  #classes: Informer<VolumeGroupSnapshotClass>;
  /** The names of contents that wait for an outcome, by the name of a request. */
  readonly #waiting = new WaitingKeys();
  #controller: Controller | undefined;
  #stopSignal: AbortSignal | undefined;

  /** Creates it; nothing runs before {@linkcode GroupSnapshotter.run}. */
  constructor(options: GroupSnapshotterOptions) {
    this.#options = options;
    this.#clock = options.clock ?? systemClock;
    this.#contents = this.#newInformer(volumeGroupSnapshotContents);
    this.#classes = this.#newInformer(volumeGroupSnapshotClasses);
  }

  /** Requeues the content that waits for the outcome of a request, by its name. */
  requeueWaiting(requestName: string): void {
    this.#waiting.wake(requestName, this.#controller);
  }

  /** Runs until the signal is aborted and all work in progress has ended. It may be run again. */
  async run(signal: AbortSignal): Promise<void> {
    this.#waiting.clear(); // of an earlier term of leadership
    this.#contents = this.#newInformer(volumeGroupSnapshotContents);
    this.#classes = this.#newInformer(volumeGroupSnapshotClasses);
    const controller = sidecarController(
      "groupsnapshotter",
      this.#options,
      (name, reconcileSignal) => this.#reconcile(name, reconcileSignal),
    );
    [this.#controller, this.#stopSignal] = [controller, signal];
    controller.watch(this.#contents, () => [])
      .watch(this.#classes, ({ metadata }) => this.#pendingNamesOfClass(metadata.name));
    this.#contents.subscribe((name, now, before) => {
      if (now === undefined) this.#waiting.delete(name);
      else if (before === undefined || groupReconcileInputs(now) !== groupReconcileInputs(before)) this.#enqueue(now);
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

  #isOurs({ spec }: VolumeGroupSnapshotContent): boolean {
    return spec.driver === this.#options.driverName;
  }

  #enqueue(content: VolumeGroupSnapshotContent): void {
    if (this.#isOurs(content) && nextGroupStep(content) !== "nothing") this.#controller?.add(content.metadata.name);
  }

  #pendingNamesOfClass(className: string): string[] {
    const isPending = (content: VolumeGroupSnapshotContent) =>
      content.spec.volumeGroupSnapshotClassName === className && ["create", "check"].includes(nextGroupStep(content));
    return this.#contents.list().filter(isPending).map(({ metadata }) => metadata.name);
  }

  async #reconcile(name: string, signal: AbortSignal): Promise<void | { requeueAfterMs: number }> {
    const content = this.#contents.get(name);
    if (content === undefined || !this.#isOurs(content)) return;
    if (!await this.#executeStep(content, signal)) return { requeueAfterMs: STALE_CACHE_REQUEUE_MS };
    const now = this.#contents.get(name);
    const step = now === undefined ? "nothing" : nextGroupStep(now);
    if (step !== "nothing") return { requeueAfterMs: step === "check" ? STALE_CACHE_REQUEUE_MS : 0 };
  }

  /** Executes the step that the cached copy shows. @returns whether it was right for the object itself */
  async #executeStep(content: VolumeGroupSnapshotContent, signal: AbortSignal): Promise<boolean> {
    switch (nextGroupStep(content)) {
      case "create":
        return await this.#create(content, signal);
      case "clear being-created":
        await this.#clearBeingCreated(content, signal);
        return true;
      case "check":
        await this.#check(content, signal);
        return true;
      case "delete group snapshot":
        return await this.#delete(content, signal);
      case "remove finalizer":
        return await this.#removeFinalizer(content, (now) => nextGroupStep(now) === "remove finalizer", signal);
      case "nothing":
        return true;
    }
  }

  async #create(content: VolumeGroupSnapshotContent, signal: AbortSignal): Promise<boolean> {
    const { name } = content.metadata;
    let now = content;
    try {
      const request = await this.#request(content, signal);
      const marked = await this.#setBeingCreated(content, signal);
      if (marked === undefined) return false;
      now = marked;
      const created = await this.#options.csi.createGroupSnapshot(request, { signal });
      now = await this.#updateStatus(marked, created, signal);
    } catch (error) {
      if (signal.aborted) throw error;
      this.#waiting.delete(name);
      if (!isMaybeInProgress(error)) now = await this.#clearBeingCreated(now, signal);
      else this.#waiting.add(groupSnapshotNameOf(content.spec.volumeGroupSnapshotRef.uid ?? ""), name);
      await this.#reportFailure("GroupSnapshotCreationFailed", now, error, signal);
      throw error;
    }
    this.#waiting.delete(name);
    await this.#clearBeingCreated(now, signal);
    return true;
  }

  /** Adds the annotation of a requested group snapshot. @returns `undefined` when none should be requested */
  async #setBeingCreated(
    content: VolumeGroupSnapshotContent,
    signal: AbortSignal,
  ): Promise<VolumeGroupSnapshotContent | undefined> {
    // an annotation that is set is not written again, so the object is read: the cache may be stale
    const current = isGroupBeingCreated(content) ? await this.#getLive(content, signal) : content;
    const now = current && await orAbsent(this.#patch(current, setGroupBeingCreatedPatch, signal));
    return now !== undefined && nextGroupStep(now) === "create" ? now : undefined;
  }

  /** Gets the current object of a cached copy, or `undefined` when it was deleted. */
  async #getLive(
    cached: VolumeGroupSnapshotContent,
    signal: AbortSignal,
  ): Promise<VolumeGroupSnapshotContent | undefined> {
    const now = await orAbsent(this.#options.client.get(volumeGroupSnapshotContents, cached.metadata, { signal }));
    return now?.metadata.uid === cached.metadata.uid ? now : undefined;
  }

  async #request(content: VolumeGroupSnapshotContent, signal: AbortSignal): Promise<CreateGroupSnapshotRequest> {
    const { source: { volumeHandles = [] }, volumeGroupSnapshotRef: { uid } } = content.spec;
    if (volumeHandles.length === 0 || !uid) {
      throw new ClaimError("the content names no volumes, or no VolumeGroupSnapshot with its uid");
    }
    const parameters = this.#parameters(content);
    const secrets = await this.#secrets(content, signal);
    return { name: groupSnapshotNameOf(uid), volumeIds: volumeHandles, parameters, secrets };
  }

  /** Returns the driver's parameters of the class. Of one that is to be deleted, only the outcome of a request is needed. */
  #parameters(content: VolumeGroupSnapshotContent): Readonly<Record<string, string>> {
    const { metadata: { name: contentName }, spec: { volumeGroupSnapshotClassName: name } } = content;
    const found = this.#classes.get(name ?? "");
    if (found?.driver !== this.#options.driverName && shouldDeleteGroup(content)) return {};
    if (!name) throw new ClaimError("volumeGroupSnapshotClassName: none is named");
    const description = `volumeGroupSnapshotClassName ${JSON.stringify(name)}`;
    if (found === undefined) throw new ClaimError(`${description}: there is no such VolumeGroupSnapshotClass`);
    if (found.driver !== this.#options.driverName) throw new ClaimError(`${description}: it is for ${found.driver}`);
    return readSnapshotClassParameters(found.parameters ?? {}, { contentName }).parameters;
  }

  async #check(content: VolumeGroupSnapshotContent, signal: AbortSignal): Promise<void> {
    try {
      const found = await this.#options.csi.getGroupSnapshot(await this.#existing(content, signal), { signal });
      await this.#updateStatus(content, found, signal);
    } catch (error) {
      if (!signal.aborted) {
        await this.#reportFailure("GroupSnapshotContentCheckandUpdateFailed", content, error, signal);
      }
      throw error;
    }
  }

  async #existing(content: VolumeGroupSnapshotContent, signal: AbortSignal) {
    const secrets = await this.#secrets(content, signal);
    return { groupSnapshotId: groupHandleOf(content)!, snapshotIds: memberHandlesOf(content), secrets };
  }

  /** Writes the state of a group snapshot into the status. */
  async #updateStatus(
    content: VolumeGroupSnapshotContent,
    group: CreatedGroupSnapshot,
    signal: AbortSignal,
  ): Promise<VolumeGroupSnapshotContent> {
    const date = this.#clock.date();
    const now = await this.#patch(content, (now) => observedGroupPatch(now, group, date), signal, "status");
    await this.#waitForCache(now, ({ status }) => status?.readyToUse === now.status?.readyToUse);
    return now;
  }

  async #clearBeingCreated(
    content: VolumeGroupSnapshotContent,
    signal: AbortSignal,
  ): Promise<VolumeGroupSnapshotContent> {
    const now = await this.#patch(content, clearGroupBeingCreatedPatch, signal);
    await this.#waitForCache(now, (cached) => !isGroupBeingCreated(cached));
    return now;
  }

  async #delete(cached: VolumeGroupSnapshotContent, signal: AbortSignal): Promise<boolean> {
    const { csi, events } = this.#options;
    // the policy may just have become Retain: the API server decides
    const content = await this.#getLive(cached, signal);
    if (content === undefined || nextGroupStep(content) !== "delete group snapshot") return false;
    try {
      await csi.deleteGroupSnapshot(await this.#existing(content, signal), { signal });
    } catch (error) {
      if (!signal.aborted && !isOperationPending(error)) {
        events.record(content, "Warning", "GroupSnapshotDeleteError", errorMessage(error));
      }
      throw error;
    }
    return await this.#removeFinalizer(content, shouldDeleteGroup, signal);
  }

  /** Removes the finalizer, if that is still right. */
  async #removeFinalizer(
    content: VolumeGroupSnapshotContent,
    mayRemove: (now: VolumeGroupSnapshotContent) => boolean,
    signal: AbortSignal,
  ): Promise<boolean> {
    const patch = (now: VolumeGroupSnapshotContent) => mayRemove(now) ? removeGroupFinalizerPatch(now) : undefined;
    const now = await orAbsent(this.#patch(content, patch, signal));
    if (now !== undefined && hasGroupFinalizer(now)) return false;
    await this.#waitForCache(content, (cached) => !hasGroupFinalizer(cached));
    return true;
  }

  /** Reads the secrets for taking and deleting a group snapshot; those of a deleted one may have been deleted before it. */
  async #secrets(content: VolumeGroupSnapshotContent, signal: AbortSignal): Promise<Record<string, string>> {
    const secret = readSecret(this.#options.client, groupSecretOf(content), { signal });
    return shouldDeleteGroup(content) ? await orAbsent(secret) ?? {} : await secret;
  }

  /** Records a failure, unless it is temporary. */
  async #reportFailure(
    reason: "GroupSnapshotCreationFailed" | "GroupSnapshotContentCheckandUpdateFailed",
    content: VolumeGroupSnapshotContent,
    error: unknown,
    signal: AbortSignal,
  ): Promise<void> {
    if (isOperationPending(error) || isConflict(error) || isTransient(error)) return;
    const [message, date] = [errorMessage(error), this.#clock.date()];
    this.#options.events.record(content, "Warning", reason, message);
    await this.#patch(content, (now) => failedGroupPatch(now, message, date), signal, "status");
  }

  async #patch(
    content: VolumeGroupSnapshotContent,
    patch: (now: VolumeGroupSnapshotContent) => GroupContentPatch | undefined,
    signal: AbortSignal,
    subresource?: "status",
  ): Promise<VolumeGroupSnapshotContent> {
    return await patchWithRetry(this.#options.client, volumeGroupSnapshotContents, content, patch, {
      signal,
      subresource,
    });
  }

  /** Waits until the cache shows the current state of an object. */
  async #waitForCache(
    { metadata: { name } }: VolumeGroupSnapshotContent,
    predicate: (cached: VolumeGroupSnapshotContent) => boolean,
  ): Promise<void> {
    const options = { signal: this.#stopSignal, timeoutMs: CACHE_WAIT_MS };
    await this.#contents.waitForCache(name, (cached) => cached === undefined || predicate(cached), options);
  }
}
