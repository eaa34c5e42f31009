/**
 * What a node does for its LVMVolumes: it makes, grows and removes the LVs that they ask for, and says what it sees.
 *
 * The objects say what is wanted and what was seen, LVM's tags say whose an LV is. Where they disagree, both are left as they
 * are, and the disagreement is told.
 *
 * @module
 */

import { type ErrorKind, StorageError } from "../lvm/error.ts";
import type { GroupMatcher } from "../lvm/groups.ts";
import type { VolumeId } from "../lvm/ids.ts";
import { type Locks, volumeLock } from "../lvm/locks.ts";
import type { Lvm } from "../lvm/lvm.ts";
import type { VolumeGroup } from "../lvm/report.ts";
import { formatBytes, formatQuantity } from "../lvm/size.ts";
import type { RecordedLv } from "../lvm/volume_state.ts";
import { requireSatisfying, type Volume, type Volumes } from "../lvm/volumes.ts";
import { type ApiClient, isConflict, isNotFound } from "./client.ts";
import type { EventRecorder } from "./events.ts";
import type { Informer } from "./informer.ts";
import {
  FORGOTTEN_ANNOTATION,
  isForgotten,
  LVM_VOLUME_FINALIZER,
  type LvmVolume,
  lvmVolumes,
  type LvmVolumeStatus,
  REMOVE_ANNOTATION,
} from "./lvm_objects.ts";
import { volumeRequestOf, wantedRange } from "./volume_spec.ts";
import { failedStatus, isSame, lostStatus, madeStatus } from "./volume_status.ts";

/** What {@linkcode VolumeAgent} needs. */
export interface VolumeAgentOptions {
  /** The API server. */
  readonly client: ApiClient;
  /** The LVMVolumes of this node. */
  readonly objects: Informer<LvmVolume>;
  /** Where events go. */
  readonly events: EventRecorder;
  /** LVM on this machine. */
  readonly lvm: Lvm;
  /** The volumes of this machine, which know what the objects record ({@linkcode recordedIn}). */
  readonly volumes: Volumes;
  /** Locks by volume, shared with the Node service. */
  readonly locks: Locks;
  /** Reads a list of volume groups. */
  readonly parseGroups: (list: string) => GroupMatcher;
  /** Is told when an LV was made, grown or removed, and when a group has less room than was told of it. */
  readonly onChange: () => void;
  /** Is aborted when the agent is to end: what was written is not waited for any more. */
  readonly end: AbortSignal;
}

/** What an LVMVolume records of the LV that was made for it. */
export function recordedIn(object: LvmVolume | undefined): RecordedLv | undefined {
  const { lvUUID, volumeGroup } = object?.status ?? {};
  return lvUUID === undefined ? undefined : { lvUuid: lvUUID, groupName: volumeGroup ?? "(unknown)" };
}

/** Failures that may pass by themselves: the object stays as it is, and is tried again. */
const PASSING: readonly ErrorKind[] = ["Busy", "StillRunning", "Unavailable"];

/** Failures for want of room in a group. */
const ROOMLESS: readonly ErrorKind[] = ["NoSpace", "OutOfRange"];

/** How long a turn waits to see what it wrote, in milliseconds. */
const SEEN_MS = 5_000;

/** A node's part of the LVMVolumes. */
export class VolumeAgent {
  readonly #options: VolumeAgentOptions;

  /** Makes the agent; it keeps no state. */
  constructor(options: VolumeAgentOptions) {
    this.#options = options;
  }

  /** Does what the object of the name asks for next, and writes what is true. Whatever is in doubt is tried again. */
  async reconcile(name: string): Promise<void> {
    const { objects, volumes, locks } = this.#options;
    const object = objects.get(name);
    if (object === undefined || object.spec.driverName !== volumes.driver) return;
    const id = object.metadata.name as VolumeId; // the API server takes no other name
    const deleting = object.metadata.deletionTimestamp !== undefined;
    if (!deleting && isSettled(object)) return;
    try {
      if (deleting) await locks.run("deletion", [volumeLock(id)], () => this.#remove(object, id));
      else await this.#settle(object, id);
    } catch (error) {
      if (!(error instanceof StorageError) || PASSING.includes(error.kind)) throw error;
      await this.#fail(object, error);
      if (deleting) throw error; // somebody may yet free it
    }
  }

  /** Writes what a report shows of the volumes that were made: grown, lost or found again without this driver. */
  async verify(groups: readonly VolumeGroup[]): Promise<void> {
    const { objects, volumes } = this.#options;
    for (const object of objects.list()) {
      const { metadata: { name, deletionTimestamp }, spec: { driverName }, status } = object;
      if (driverName !== volumes.driver || deletionTimestamp !== undefined || status?.lvUUID === undefined) continue;
      if (!isSettled(object)) continue; // its own turn comes
      try {
        const found = volumes.locate(groups, name as VolumeId);
        if (found.state === "present") {
          await this.#write(object, madeStatus(object, found.volume));
          if (isForgotten(object)) await this.#recall(object);
        }
        if (found.state === "lost") await this.#write(object, lostStatus(object, found.error));
      } catch (error) {
        if (!(error instanceof StorageError)) throw error;
        if (!PASSING.includes(error.kind)) await this.#write(object, failedStatus(object, error));
      }
    }
  }

  async #settle(object: LvmVolume, id: VolumeId): Promise<void> {
    const { lvm, volumes, locks, parseGroups } = this.#options;
    const groups = await lvm.report();
    const found = volumes.locate(groups, id);
    if (found.state === "lost") return await this.#write(object, lostStatus(object, found.error));
    if (found.state === "absent") {
      if (isAnswered(object)) return; // it failed, and nobody asked anew
      return await locks.run("creation", [volumeLock(id)], () => this.#make(object, groups));
    }
    const { volume } = found;
    if (object.status?.lvUUID === undefined) requireSatisfying(volume, volumeRequestOf(object, parseGroups));
    if (volume.size < wantedRange(object).required && !isAnswered(object)) {
      return await locks.run("expansion", [volumeLock(id)], () => this.#grow(object, volume));
    }
    await this.#write(object, madeStatus(object, volume));
  }

  /** Makes the LV. The choice of its group is saved before, its UUID after. */
  async #make(object: LvmVolume, groups: readonly VolumeGroup[]): Promise<void> {
    const { lvm, volumes, parseGroups, events, onChange } = this.#options;
    const request = volumeRequestOf(object, parseGroups);
    let latest = object;
    const size = await volumes.make(groups, request, async ({ name }) => {
      latest = await this.#patch(latest, { ...latest.status, state: "Pending", volumeGroup: name });
    });
    onChange();
    const volume = volumes.require(await lvm.reportOfChanges(), request.id);
    await this.#write(latest, madeStatus(latest, volume));
    events.record(object, "Normal", "Created", `made ${volume.group.name}/${volume.lv.name} of ${formatBytes(size)}`);
  }

  async #grow(object: LvmVolume, before: Volume): Promise<void> {
    const { volumes, events, onChange } = this.#options;
    // A turn before may have grown it, and not lived to tell. If no more can be had, this is what it takes of its group.
    await this.#write(object, { ...object.status, size: formatQuantity(before.size) });
    const grown = await volumes.expand(before.id, wantedRange(object));
    onChange();
    await this.#write(object, madeStatus(object, grown));
    events.record(object, "Normal", "Grown", `grew from ${formatBytes(before.size)} to ${formatBytes(grown.size)}`);
  }

  /** Removes the LV, and then lets the object go. */
  async #remove(object: LvmVolume, id: VolumeId): Promise<void> {
    const { metadata: { name, annotations, finalizers = [], resourceVersion } } = object;
    if (!finalizers.includes(LVM_VOLUME_FINALIZER)) return;
    if (annotations?.[REMOVE_ANNOTATION] === undefined) {
      throw new StorageError(
        "FailedPrecondition",
        `removing volume ${id}: its LVMVolume was deleted, but not by the driver, so its logical volume and its data stay. ` +
          `Delete its claim or PersistentVolume to be rid of it, or set the annotation ${REMOVE_ANNOTATION}=true`,
      );
    }
    if (!isOthers(object)) await this.#options.volumes.delete(id);
    this.#options.onChange();
    const rest = finalizers.filter((finalizer) => finalizer !== LVM_VOLUME_FINALIZER);
    try {
      await this.#options.client.patch(lvmVolumes, { name }, {
        merge: { metadata: { finalizers: rest } },
        resourceVersion,
      });
    } catch (error) {
      if (!isNotFound(error)) throw error;
    }
  }

  async #fail(object: LvmVolume, error: StorageError): Promise<void> {
    // the controller chose by what was told of the groups; it is to know better before somebody chooses anew
    if (ROOMLESS.includes(error.kind)) this.#options.onChange();
    const latest = this.#options.objects.get(object.metadata.name) ?? object;
    await this.#write(latest, error.kind === "Lost" ? lostStatus(latest, error) : failedStatus(latest, error));
  }

  /** Takes the mark off that its node was given up: the node is here, and the LV, too. */
  async #recall(object: LvmVolume): Promise<void> {
    const { client, events } = this.#options;
    const { metadata: { name, uid } } = object;
    const merge = { metadata: { uid, annotations: { [FORGOTTEN_ANNOTATION]: null } } };
    try {
      await client.patch(lvmVolumes, { name }, { merge });
    } catch (error) {
      if (!isNotFound(error) && !isConflict(error)) throw error; // another one of the name was never forgotten
    }
    events.record(object, "Normal", "Found", "its node was given up and is back, and so is its logical volume");
  }

  /** Writes the status, if it is another one, and tells people what they may have to act on. */
  async #write(object: LvmVolume, status: LvmVolumeStatus): Promise<void> {
    if (isSame(object.status, status)) return;
    const { error } = status;
    if (error !== undefined && error.message !== object.status?.error?.message) {
      this.#options.events.record(object, "Warning", status.state === "Lost" ? "Lost" : "Failed", error.message);
    }
    const { metadata: { name, resourceVersion = "0" } } = await this.#patch(object, status);
    // the next turn must not see less than this one wrote
    const { objects, end } = this.#options;
    await objects.seen(name, (now) => now === undefined || isAtLeast(now, resourceVersion), {
      timeoutMs: SEEN_MS,
      signal: end,
    });
  }

  /** Patches the status; `null` takes away what it no longer has. */
  async #patch(object: LvmVolume, status: LvmVolumeStatus): Promise<LvmVolume> {
    const { metadata: { name, uid }, status: before = {} } = object;
    const gone = Object.fromEntries(Object.keys(before).filter((key) => !(key in status)).map((key) => [key, null]));
    try {
      return await this.#options.client.patch(lvmVolumes, { name }, {
        merge: { metadata: { uid }, status: { ...status, ...gone } },
        subresource: "status",
      });
    } catch (error) {
      if (isNotFound(error) || isConflict(error)) {
        throw new StorageError("Unavailable", `writing the status of LVMVolume ${name}: it is not there any more`, {
          cause: error,
        });
      }
      throw error;
    }
  }
}

/** Whether there is an LV with the volume's tags that is another volume than the object asks for: it was not made for it. */
function isOthers({ status }: LvmVolume): boolean {
  return status?.lvUUID === undefined && status?.error?.code === "AlreadyExists";
}

/** Whether the object is at least at the revision, which are numbers in one order (KEP-5504). */
function isAtLeast({ metadata: { resourceVersion = "0" } }: LvmVolume, revision: string): boolean {
  return BigInt(resourceVersion) >= BigInt(revision);
}

/** Whether the status is about what is wanted now, and there is nothing to do for it. */
function isSettled({ metadata: { generation = 0 }, status }: LvmVolume): boolean {
  return status?.state !== undefined && status.state !== "Pending" && (status.observedGeneration ?? 0) >= generation;
}

/** Whether the status is about what is wanted now, and says that it cannot be had. */
function isAnswered({ metadata: { generation = 0 }, status }: LvmVolume): boolean {
  return status?.error !== undefined && (status.observedGeneration ?? 0) >= generation;
}
