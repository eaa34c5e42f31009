/**
 * What a node does with each of its objects, whatever they stand for: when it has its turn, how its status is written, and how
 * it is let go.
 *
 * The objects say what is wanted and what was seen, LVM's tags say whose an LV is. Where they disagree, both are left as they
 * are, and the disagreement is told.
 *
 * @module
 */

import { type ErrorKind, StorageError } from "../../lvm/error.ts";
import type { Lvm } from "../../lvm/model/client.ts";
import type { VolumeGroup } from "../../lvm/model/report.ts";
import type { RecordedLv } from "../../lvm/inventory/volume_state.ts";
import { type ApiClient, orAbsent, orAbsentOrChanged } from "../client/client.ts";
import type { EventRecorder } from "../runtime/events.ts";
import type { Informer } from "../runtime/informer.ts";
import {
  type AgentManaged,
  type AgentManagedStatus,
  FORGOTTEN_ANNOTATION,
  isForgotten,
  REMOVE_ANNOTATION,
} from "../api/lvm_objects.ts";
import { failedStatus, isSameStatus } from "../api/object_status.ts";
import type { KubeObject, Resource } from "../api/objects.ts";

/** What the agents of all kinds need. */
export interface ReconcilerOptions<T extends KubeObject> {
  /** The API server. */
  readonly client: ApiClient;
  /** The objects of this node. */
  readonly objects: Informer<T>;
  /** Where events go. */
  readonly events: EventRecorder;
  /** LVM on this machine. */
  readonly lvm: Lvm;
  /** Is told when an LV was made, grown or removed, and when a group has less room than was told of it. */
  readonly onChange: () => void;
  /** Is aborted when the agent is to end: what was written is not waited for any more. */
  readonly end: AbortSignal;
}

/** What {@linkcode ObjectReconciler} needs. */
export interface ObjectReconcilerOptions<T extends AgentManaged<S>, S extends AgentManagedStatus>
  extends ReconcilerOptions<T> {
  /** The driver's name. */
  readonly driver: string;
  /** What each object stands for. */
  readonly noun: "volume" | "snapshot";
  /** Whose deletion has the driver delete it, in words. */
  readonly ownerDescription: string;
  /** What keeps an object until its LV is removed. */
  readonly finalizer: string;
  /** Makes true what the object asks for, and writes what is true. */
  readonly reconcileObject: (object: T) => Promise<void>;
  /** The status of an object whose LV was made, by a report; `undefined` to leave it as it is. */
  readonly observe: (object: T, groups: readonly VolumeGroup[]) => S | undefined;
  /** Removes its LV; without one, does nothing. */
  readonly remove: (object: T) => Promise<void>;
  /** The status of an object whose LV was there and is gone, or was replaced. */
  readonly toLostStatus: (object: T, error: StorageError) => S;
}

/** What an object records of the LV that was made for it. */
export function recordedLvOf(object: AgentManaged | undefined): RecordedLv | undefined {
  const { lvUUID, volumeGroup } = object?.status ?? {};
  return lvUUID === undefined ? undefined : { lvUuid: lvUUID, groupName: volumeGroup ?? "(unknown)" };
}

/** Failures that may pass by themselves: the object stays as it is, and is tried again. */
const TRANSIENT_KINDS: readonly ErrorKind[] = ["Busy", "StillRunning", "Unavailable"];

/** Failures for want of room in a group. */
const NO_SPACE_KINDS: readonly ErrorKind[] = ["NoSpace", "OutOfRange"];

/** How long a turn waits to see what it wrote, in milliseconds. */
const CACHE_WAIT_MS = 5_000;

/** A node's part of the objects of one kind. */
export class ObjectReconciler<T extends AgentManaged<S>, S extends AgentManagedStatus> {
  readonly #options: ObjectReconcilerOptions<T, S>;
  readonly #resource: Resource<AgentManaged>;

  /** Makes the agent; it keeps no state. */
  constructor(options: ObjectReconcilerOptions<T, S>) {
    this.#options = options;
    this.#resource = options.objects.resource;
  }

  /** Does what the object of the name asks for next, and writes what is true. Whatever is in doubt is tried again. */
  async reconcile(name: string): Promise<void> {
    const { objects, driver, reconcileObject } = this.#options;
    const object = objects.get(name);
    if (object === undefined || object.spec.driverName !== driver) return;
    const isDeleting = object.metadata.deletionTimestamp !== undefined;
    if (!isDeleting && isReconciled(object)) return;
    try {
      if (isDeleting) await this.#remove(object);
      else await reconcileObject(object);
    } catch (error) {
      if (!(error instanceof StorageError) || TRANSIENT_KINDS.includes(error.kind)) throw error;
      await this.#recordFailure(object, error);
      if (isDeleting) throw error; // somebody may yet free it
    }
  }

  /** Writes what a report shows of what was made: grown, filled, lost or found again without this driver. */
  async verify(report: readonly VolumeGroup[]): Promise<void> {
    const { objects, driver, observe, lvm } = this.#options;
    let groups = report;
    for (const object of objects.list()) {
      const { metadata: { deletionTimestamp }, spec: { driverName }, status } = object;
      if (driverName !== driver || deletionTimestamp !== undefined || status?.lvUUID === undefined) continue;
      if (!isReconciled(object)) continue; // its own turn comes
      try {
        let observed = observe(object, groups);
        if (observed?.state === "Lost" && status.state !== "Lost") {
          groups = await lvm.report(); // the other report may have been begun before the LV was made
          observed = observe(object, groups);
        }
        if (observed === undefined) continue;
        await this.writeStatus(object, observed);
        if (observed.state !== "Lost" && isForgotten(object)) await this.#clearForgotten(object);
      } catch (error) {
        if (!(error instanceof StorageError)) throw error;
        if (!TRANSIENT_KINDS.includes(error.kind)) await this.writeStatus(object, failedStatus<S>(object, error));
      }
    }
  }

  /** Writes the status, if it is another one, and tells people what they may have to act on. */
  async writeStatus(object: T, status: S): Promise<void> {
    if (isSameStatus(object.status, status)) return;
    const { error } = status;
    if (error !== undefined && error.message !== object.status?.error?.message) {
      this.#options.events.record(object, "Warning", status.state === "Lost" ? "Lost" : "Failed", error.message);
    }
    const { metadata: { name, resourceVersion = "0" } } = await this.patchStatus(object, status);
    // the next turn must not see less than this one wrote
    const { objects, end } = this.#options;
    await objects.waitForCache(name, (now) => now === undefined || isAtLeastVersion(now, resourceVersion), {
      timeoutMs: CACHE_WAIT_MS,
      signal: end,
    });
  }

  /** Patches the status; `null` takes away what it no longer has. */
  async patchStatus(object: T, status: S): Promise<T> {
    const { metadata: { name, uid }, status: previous = {} } = object;
    const removed = Object.fromEntries(
      Object.keys(previous).filter((key) => !(key in status)).map((key) => [key, null]),
    );
    const merge = { metadata: { uid }, status: { ...status, ...removed } };
    const patched = await orAbsentOrChanged(
      this.#options.client.patch(this.#resource, { name }, { merge, subresource: "status" }),
    );
    if (patched !== undefined) return patched as T;
    throw new StorageError("Unavailable", `writing the status of ${this.#describe(name)}: it does not exist any more`);
  }

  /** Removes the LV, and then lets the object go. */
  async #remove(object: T): Promise<void> {
    const { finalizer, remove, client, noun, ownerDescription, onChange } = this.#options;
    const { metadata: { name, annotations, finalizers = [], resourceVersion } } = object;
    if (!finalizers.includes(finalizer)) return;
    if (annotations?.[REMOVE_ANNOTATION] === undefined) {
      throw new StorageError(
        "FailedPrecondition",
        `removing ${noun} ${name}: its ${this.#resource.kind} was deleted, but not by the driver, so its logical volume and ` +
          `its data stay. Delete its ${ownerDescription} to be rid of it, or set the annotation ${REMOVE_ANNOTATION}=true`,
      );
    }
    if (!isForeignLv(object)) await remove(object);
    onChange();
    const remaining = finalizers.filter((one) => one !== finalizer);
    const merge = { metadata: { finalizers: remaining } };
    await orAbsent(client.patch(this.#resource, { name }, { merge, resourceVersion }));
  }

  /** Takes the mark off that its node was given up: the node is here, and the LV, too. */
  async #clearForgotten(object: T): Promise<void> {
    const { client, events } = this.#options;
    const { metadata: { name, uid } } = object;
    const merge = { metadata: { uid, annotations: { [FORGOTTEN_ANNOTATION]: null } } };
    await orAbsentOrChanged(client.patch(this.#resource, { name }, { merge }));
    events.record(object, "Normal", "Recovered", "its node was given up and is back, and so is its logical volume");
  }

  async #recordFailure(object: T, error: StorageError): Promise<void> {
    // the controller chose by what was told of the groups; it is to know better before somebody chooses anew
    if (NO_SPACE_KINDS.includes(error.kind)) this.#options.onChange();
    const latest = this.#options.objects.get(object.metadata.name) ?? object;
    const status = error.kind === "Lost" ? this.#options.toLostStatus(latest, error) : failedStatus<S>(latest, error);
    await this.writeStatus(latest, status);
  }

  #describe(name: string): string {
    return `${this.#resource.kind} ${name}`;
  }
}

/** Whether the status is about what is wanted now, and says that it cannot be had. */
export function hasCurrentError({ metadata: { generation = 0 }, status }: AgentManaged): boolean {
  return status?.error !== undefined && (status.observedGeneration ?? 0) >= generation;
}

/** Whether there is an LV with the tags that is something else than the object asks for: it was not made for it. */
function isForeignLv({ status }: AgentManaged): boolean {
  return status?.lvUUID === undefined && status?.error?.code === "AlreadyExists";
}

/** Whether the object is at least at the revision, which are numbers in one order (KEP-5504). */
function isAtLeastVersion({ metadata: { resourceVersion = "0" } }: KubeObject, revision: string): boolean {
  return BigInt(resourceVersion) >= BigInt(revision);
}

/** Whether the status is about what is wanted now, and there is nothing to do for it. */
function isReconciled({ metadata: { generation = 0 }, status }: AgentManaged): boolean {
  return status?.state !== undefined && status.state !== "Pending" && (status.observedGeneration ?? 0) >= generation;
}
