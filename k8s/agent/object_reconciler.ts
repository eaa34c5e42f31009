/**
 * The reconciler of an agent for the objects of any kind: when it reconciles them, how it writes their status, and how
 * it removes their finalizers.
 *
 * The objects have the desired and the observed state; LVM's tags say who owns an LV. Where they disagree, both are
 * left as they are, and the disagreement is reported.
 *
 * @module
 */

import { getLogger } from "@logtape/logtape";
import { defined } from "../../base/defined.ts";
import { type ErrorKind, ignoreStorageError, StorageError, withReason } from "../../base/error.ts";
import { currentRequestId, withRequestId } from "../../base/request_id.ts";
import type { Lvm } from "../../lvm/client/client.ts";
import type { VolumeGroup } from "../../lvm/model/report.ts";
import type { RecordedLv } from "../../lvm/inventory/volume.ts";
import { type ApiClient, ApiError, isTransient, orAbsent, orAbsentOrChanged } from "../client/client.ts";
import { mergePatchTo, patchWithRetry } from "../client/patches.ts";
import type { ReconcileOutcome } from "../runtime/controller.ts";
import type { EventRecorder } from "../runtime/events.ts";
import type { Informer } from "../runtime/informer.ts";
import {
  type AgentManaged,
  type AgentManagedStatus,
  CREATED_ANNOTATION,
  FORGOTTEN_ANNOTATION,
  isForgotten,
  isRemovalRequested,
  isToBeCreated,
  REMOVE_ANNOTATION,
  requestIdOf,
  wasCreated,
} from "../api/lvm_objects.ts";
import { failedStatus, isSameStatus, withNewerFields } from "../api/object_status.ts";
import { isAtLeastVersion, type KubeObject, type Resource } from "../api/objects.ts";

/** Options of the reconcilers of all kinds. */
export interface ReconcilerOptions<T extends KubeObject> {
  /** The API server. */
  readonly client: ApiClient;
  /** The objects of this node. */
  readonly objects: Informer<T>;
  /** The recorder of events. */
  readonly events: EventRecorder;
  /** LVM on this machine. */
  readonly lvm: Lvm;
  /** Called after an LV was created, extended or removed, and when a group has less free space than was reported. */
  readonly onChange: () => void;
  /** Enqueues an object at once, whose deletion waited for something that has happened. */
  readonly requeue: (name: string) => void;
  /** Aborted when the agent stops: then nothing waits for the cache. */
  readonly end: AbortSignal;
}

/** Options of {@linkcode ObjectReconciler}. */
export interface ObjectReconcilerOptions<T extends AgentManaged<S>, S extends AgentManagedStatus>
  extends ReconcilerOptions<T> {
  /** The driver's name. */
  readonly driver: string;
  /** The noun for an object in messages. */
  readonly noun: "volume" | "snapshot";
  /** The object whose deletion makes the driver delete it, in words. */
  readonly ownerDescription: string;
  /** The finalizer that keeps an object until its LV is removed. */
  readonly finalizer: string;
  /** Takes the next step from the observed to the desired state, and writes the status. */
  readonly reconcileObject: (object: T) => Promise<ReconcileOutcome>;
  /** Returns the status, by a report, of an object whose status has an LV's UUID; `undefined` to leave it as it is. */
  readonly observe: (object: T, groups: readonly VolumeGroup[]) => S | undefined;
  /** Records events for what changed in the status, once it is written. */
  readonly recordChanges: (before: T, status: S) => void;
  /** Removes the LV of an object, if it has one. */
  readonly remove: (object: T) => Promise<void>;
  /** Reports whether nothing prevents the removal of an object's LV, by a report. */
  readonly isRemovable: (object: T, groups: readonly VolumeGroup[]) => Promise<boolean>;
  /** Returns the status of an object whose LV was created, and then removed or replaced. */
  readonly toLostStatus: (object: T, error: StorageError) => S;
}

/** Returns what the status of an object records about its LV. */
export function recordedLvOf(object: AgentManaged | undefined): RecordedLv | undefined {
  const { lvUUID, volumeGroup, volumeGroupUUID } = object?.status ?? {};
  if (lvUUID === undefined) return undefined;
  return { lvUuid: lvUUID, groupName: volumeGroup ?? "(unknown)", ...defined({ groupUuid: volumeGroupUUID }) };
}

const log = getLogger(["denolith", "agent"]);

/** Failures that may be temporary: the object stays as it is, and is retried. */
const TRANSIENT_KINDS: readonly ErrorKind[] = ["Busy", "StillRunning", "Unavailable"];

/** Failures for lack of free space in a group. */
const NO_SPACE_KINDS: readonly ErrorKind[] = ["NoSpace", "OutOfRange"];

/** The time that a reconcile attempt waits for the cache, in milliseconds. */
const CACHE_WAIT_MS = 5_000;

/** The reconciler of an agent for the objects of one kind. */
export class ObjectReconciler<T extends AgentManaged<S>, S extends AgentManagedStatus> {
  readonly #options: ObjectReconcilerOptions<T, S>;
  readonly #resource: Resource<AgentManaged>;
  /** The names of the objects whose deletion waits for something that is reported, such as an unmount. */
  readonly #waitingDeletions = new Set<string>();

  /** Creates the reconciler. */
  constructor(options: ObjectReconcilerOptions<T, S>) {
    this.#options = options;
    this.#resource = options.objects.resource;
  }

  /**
   * Takes the next step towards what an object asks for, and writes its status. A step whose outcome is uncertain is
   * retried.
   */
  async reconcile(name: string): Promise<ReconcileOutcome> {
    const { objects, driver, reconcileObject } = this.#options;
    const object = objects.get(name);
    if (object?.metadata.deletionTimestamp === undefined) this.#waitingDeletions.delete(name);
    if (object?.spec.driverName !== driver) return { nothingToDo: "it is gone, or another driver's" };
    return await withRequestId(requestIdOf(object), async () => {
      if (object.metadata.deletionTimestamp !== undefined) return await this.#reconcileDeletion(object);
      if (isReconciled(object)) return { nothingToDo: `its status is about this generation: ${object.status!.state}` };
      try {
        return await reconcileObject(object);
      } catch (error) {
        this.#recordWait(object, error);
        if (!(error instanceof StorageError) || TRANSIENT_KINDS.includes(error.kind)) throw error;
        await this.#recordFailure(object, error);
      }
    });
  }

  /** Runs an operation on the machine for an object, and logs it when it ends, with the id of the request for it. */
  async logged<R>(operation: string, { metadata: { name } }: T, body: () => Promise<R>): Promise<R> {
    const start = performance.now();
    const fields = () => ({
      ...defined({ requestId: currentRequestId() }),
      operation,
      [this.#options.noun]: name,
      durationMs: Math.round(performance.now() - start),
    });
    try {
      const result = await body();
      log.info("operation", fields());
      return result;
    } catch (error) {
      log.warn("error", { ...fields(), error });
      throw error;
    }
  }

  /** Requeues an object that is being deleted: its volume was unmounted, or something else changed. */
  requeueDeletion(name: string): void {
    if (this.#options.objects.get(name)?.metadata.deletionTimestamp === undefined) return;
    this.#waitingDeletions.delete(name);
    this.#options.requeue(name);
  }

  /**
   * Removes what is being deleted. A deletion that waits for something that is reported is not retried before; any other
   * failure is retried with a growing delay.
   */
  async #reconcileDeletion(object: T): Promise<ReconcileOutcome> {
    const { name, finalizers = [] } = object.metadata;
    if (!finalizers.includes(this.#options.finalizer)) return { nothingToDo: "it is removed; others keep its object" };
    const waiting = { waitsFor: "the end of what the status names" };
    if (this.#waitingDeletions.has(name)) return waiting;
    if (!isRemovalRequested(object)) {
      await this.#refuseDeletion(object);
      return { waitsFor: `the annotation ${REMOVE_ANNOTATION}` };
    }
    this.#waitingDeletions.add(name); // before the attempt, so that a change during it requeues the object
    let isWaiting = false;
    try {
      await this.#remove(object);
    } catch (error) {
      this.#recordWait(object, error);
      if (error instanceof StorageError && !TRANSIENT_KINDS.includes(error.kind)) {
        await this.#recordFailure(object, error); // it waits only when the status says for what
      }
      isWaiting = error instanceof StorageError && error.retryOnChange;
      if (!isWaiting) throw error;
      return waiting;
    } finally {
      if (!isWaiting) this.#waitingDeletions.delete(name);
    }
  }

  /**
   * Updates the status of the objects whose LVs were created, by a report: an LV may have been extended, removed or
   * restored by somebody else.
   */
  async verify(report: readonly VolumeGroup[]): Promise<void> {
    const { objects, driver, observe, lvm } = this.#options;
    let groups = report;
    let known: ReadonlyMap<string, string | undefined> | undefined;
    await this.#requeueRemovable(report);
    for (const { metadata: { name } } of objects.list()) {
      const object = objects.get(name); // it may have changed while those before it were written
      if (object === undefined) continue;
      const { metadata: { deletionTimestamp }, spec: { driverName }, status } = object;
      if (driverName !== driver || deletionTimestamp !== undefined) continue;
      if (isLostRecord(object) && this.#isObserved(object, groups)) this.#options.requeue(name);
      if (status?.lvUUID === undefined) continue;
      if (!isReconciled(object)) continue; // it is reconciled anyway
      try {
        let observed = observe(object, groups);
        if (observed?.state === "Lost" && status.state !== "Lost") {
          if (known === undefined) {
            // the report may have begun before the LV was created; one other decides about all objects
            const before = new Map(objects.list().map(({ metadata, status }) => [metadata.name, status?.lvUUID]));
            groups = await lvm.report();
            known = before;
            observed = observe(object, groups);
          }
          if (known.get(name) !== status.lvUUID) continue; // created after that report began: the next one shows it
        }
        if (observed === undefined) continue;
        await this.#writeObserved(object, observed);
        if (observed.state !== "Lost" && isForgotten(object)) await this.#clearForgotten(object);
      } catch (error) {
        await this.#handleVerifyError(object, error).catch((error) => {
          if (!(error instanceof ApiError) || isTransient(error)) throw error;
          // what the API server refuses for one object does not keep it from the others
          log.warn("writing the status failed", { [this.#options.noun]: name, error });
        });
      }
    }
  }

  /** Reports whether a report shows the LV of an object. */
  #isObserved(object: T, groups: readonly VolumeGroup[]): boolean {
    return (ignoreStorageError(() => this.#options.observe(object, groups))?.state ?? "Lost") !== "Lost";
  }

  async #handleVerifyError(object: T, error: unknown): Promise<void> {
    if (!(error instanceof StorageError)) throw error;
    if (TRANSIENT_KINDS.includes(error.kind)) return;
    await this.#writeObserved(object, failedStatus<S>(object, error));
  }

  /** Requeues the deletions that wait for something that a report shows, such as the end of a copy. */
  async #requeueRemovable(report: readonly VolumeGroup[]): Promise<void> {
    const { objects } = this.#options;
    for (const name of this.#waitingDeletions) {
      const object = objects.get(name);
      if (object === undefined) this.#waitingDeletions.delete(name);
      else if (await this.#isRemovable(object, report)) this.requeueDeletion(name);
    }
  }

  async #isRemovable(object: T, report: readonly VolumeGroup[]): Promise<boolean> {
    try {
      return await this.#options.isRemovable(object, report);
    } catch (error) {
      if (error instanceof StorageError) return false; // as of a group that hangs; the next report may show it
      throw error;
    }
  }

  /**
   * Requires that the LV of an object without one was never created.
   *
   * @throws {StorageError} `Lost` for what was restored without its status
   */
  requireToBeCreated(object: T): void {
    if (isToBeCreated(object)) return;
    const { noun } = this.#options;
    throw new StorageError(
      "Lost",
      `Lost: ${noun} ${object.metadata.name} was created before, and no logical volume carries its tag. Nothing is created ` +
        `in its place. Bring the logical volume back: attach its disk, or restore its metadata (vgcfgrestore). Or delete the ` +
        `${noun}. If it never was created, set the annotation ${CREATED_ANNOTATION}=false`,
    );
  }

  /** Records in the metadata of an object that its LV was created: a backup may drop the status. */
  async #markCreated(object: T, { lvUUID }: S): Promise<T> {
    if (lvUUID === undefined || wasCreated(object)) return object;
    const change = (now: AgentManaged) =>
      wasCreated(now) ? undefined : { metadata: { annotations: { [CREATED_ANNOTATION]: "true" } } };
    const patched = await orAbsentOrChanged(
      patchWithRetry<AgentManaged>(this.#options.client, this.#resource, object, change, {}),
    );
    return patched as T | undefined ?? object;
  }

  /** Writes the status if it differs, and records an event for a new error. Then waits for the cache to show it. */
  async writeStatus(object: T, status: S): Promise<void> {
    const marked = await this.#markCreated(object, status);
    if (isSameStatus(object.status, status)) return;
    this.#recordError(object, status);
    const patched = await this.patchStatus(marked, status);
    this.#options.recordChanges(object, status);
    await this.#waitUntilCached(patched);
  }

  /**
   * Writes the status that a report shows. It is not written over one that was written since it was decided, such as the
   * refusal of a deletion: another report decides again.
   */
  async #writeObserved(object: T, status: S): Promise<void> {
    const marked = await this.#markCreated(object, status);
    if (isSameStatus(object.status, status)) return;
    const patched = await this.#patchStatus(marked, status, 1);
    if (patched !== undefined) {
      this.#recordError(object, status);
      this.#options.recordChanges(object, status);
      return await this.#waitUntilCached(patched);
    }
    const { name, resourceVersion } = object.metadata;
    await this.#waitForCache(name, (now) => now?.metadata.resourceVersion !== resourceVersion);
    this.#options.onChange();
  }

  /** Records an event while LVM does not respond: the status says nothing of it, and the caller only that it waits. */
  #recordWait(object: T, error: unknown): void {
    if (!(error instanceof StorageError) || error.kind !== "Unavailable") return;
    this.#options.events.record(object, "Warning", "Waiting", withReason(error.message, error.reason));
  }

  #recordError(object: T, { state, error }: S): void {
    if (error === undefined || error.message === object.status?.error?.message) return;
    this.#options.events.record(
      object,
      "Warning",
      state === "Lost" ? "Lost" : "Failed",
      withReason(error.message, error.reason),
    );
  }

  /** Waits until the cache shows what was written: the next attempt must see it. */
  async #waitUntilCached({ metadata: { name, resourceVersion = "0" } }: T): Promise<void> {
    await this.#waitForCache(name, (now) => now === undefined || isAtLeastVersion(now, resourceVersion));
  }

  async #waitForCache(name: string, predicate: (now: T | undefined) => boolean): Promise<void> {
    const { objects, end } = this.#options;
    await objects.waitForCache(name, predicate, { timeoutMs: CACHE_WAIT_MS, signal: end });
  }

  /**
   * Replaces the status at the revision that it was decided on, so that it gets into no other object of the name. A uid
   * in the patch would not prevent that: the API server ignores it in a status of a custom resource. Fields that only a
   * newer version knows stay.
   */
  async patchStatus(object: T, status: S): Promise<T> {
    const patched = await this.#patchStatus(object, status);
    if (patched !== undefined) return patched;
    const { name } = object.metadata;
    throw new StorageError(
      "Unavailable",
      `writing the status of ${this.#describe(name)}: it was changed, deleted or replaced`,
    );
  }

  /** Replaces the status. @returns `undefined` when the object was changed again and again, deleted or replaced */
  async #patchStatus(object: T, status: S, maxAttempts?: number): Promise<T | undefined> {
    const change = (now: AgentManaged) => ({
      status: mergePatchTo(now.status, withNewerFields(status, now.status)) as S,
    });
    const options = { subresource: "status", ...defined({ maxAttempts }) } as const;
    return await orAbsentOrChanged(
      patchWithRetry<AgentManaged>(this.#options.client, this.#resource, object, change, options),
    ) as T | undefined;
  }

  /** Records that an object which somebody else deleted keeps its LV. */
  async #refuseDeletion(object: T): Promise<void> {
    const { noun, ownerDescription } = this.#options;
    const error = new StorageError(
      "FailedPrecondition",
      `removing ${noun} ${object.metadata.name}: its ${this.#resource.kind} was deleted, but not by the driver, so its logical ` +
        `volume and its data stay. To remove them, delete its ${ownerDescription}, or set the annotation ` +
        `${REMOVE_ANNOTATION}=true`,
      { reason: "DeletedByOthers" },
    );
    await this.#recordFailure(object, error);
  }

  /** Removes the LV, and then the finalizer of the object. */
  async #remove(object: T): Promise<void> {
    const { finalizer, remove, client, objects, end, onChange } = this.#options;
    const { metadata: { name, finalizers = [], resourceVersion } } = object;
    if (!isForeignLv(object)) await this.logged("delete", object, () => remove(object));
    onChange();
    const remaining = finalizers.filter((one) => one !== finalizer);
    const merge = { metadata: { finalizers: remaining } };
    const patched = await orAbsent(client.patch(this.#resource, { name }, { merge, resourceVersion }));
    if (patched === undefined) return;
    // otherwise the event that deletion began, if it arrives late, looks like another deletion
    const isOver = (now?: T) => now === undefined || !(now.metadata.finalizers ?? []).includes(finalizer);
    await objects.waitForCache(name, isOver, { timeoutMs: CACHE_WAIT_MS, signal: end });
  }

  /** Removes the annotation that the node was removed for good: the node is back, with the LV. */
  async #clearForgotten(object: T): Promise<void> {
    const { client, events } = this.#options;
    const change = (now: AgentManaged) =>
      isForgotten(now) ? { metadata: { annotations: { [FORGOTTEN_ANNOTATION]: null } } } : undefined;
    await orAbsentOrChanged(patchWithRetry<AgentManaged>(client, this.#resource, object, change, {}));
    events.record(object, "Normal", "Recovered", "its node was forgotten and is back, with its logical volume");
  }

  async #recordFailure(object: T, error: StorageError): Promise<void> {
    // the controller chose by the last report; the next choice needs a new one
    if (NO_SPACE_KINDS.includes(error.kind)) this.#options.onChange();
    const cached = this.#options.objects.get(object.metadata.name);
    // another object of the name has not failed
    const latest = cached?.metadata.uid === object.metadata.uid ? cached! : object;
    // the failure is about the generation that was reconciled, and not about a deletion that was requested meanwhile
    const reconciled = { ...latest, metadata: { ...latest.metadata, generation: object.metadata.generation ?? 0 } };
    const { toLostStatus } = this.#options;
    await this.writeStatus(
      latest,
      error.kind === "Lost" ? toLostStatus(reconciled, error) : failedStatus<S>(reconciled, error),
    );
  }

  #describe(name: string): string {
    return `${this.#resource.kind} ${name}`;
  }
}

/** Reports whether the status has an error for the current generation. */
export function hasCurrentError({ metadata: { generation = 0 }, status }: AgentManaged): boolean {
  return status?.error !== undefined && (status.observedGeneration ?? 0) >= generation;
}

/** Reports whether the LV with the tags of the object was not created for it. */
function isForeignLv({ status }: AgentManaged): boolean {
  return status?.lvUUID === undefined && status?.error?.code === "AlreadyExists";
}

/** Reports whether an object is Lost without a record of its LV in the status: the LV is looked for by its tags. */
function isLostRecord({ status }: AgentManaged): boolean {
  return status?.state === "Lost" && status.lvUUID === undefined;
}

/** Reports whether the status is for the current generation and nothing is left to do. */
function isReconciled(object: AgentManaged): boolean {
  const { metadata: { generation = 0 }, status } = object;
  return !isLostRecord(object) && status?.state !== undefined && status.state !== "Pending" &&
    (status.observedGeneration ?? 0) >= generation;
}
