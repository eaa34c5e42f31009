/**
 * What a node does for its LVMVolumes: it makes, grows and removes the LVs that they ask for, and says what it sees.
 *
 * @module
 */

import type { Copies, CopyProgress } from "../../lvm/copies/copies.ts";
import type { GroupMatcher } from "../../lvm/model/groups.ts";
import type { VolumeId } from "../../lvm/ids.ts";
import type { IoLimiter, LimitsState } from "../../lvm/staging/io_limiter.ts";
import { creationLocks, type Locks, volumeLock } from "../../lvm/locks.ts";
import type { VolumeGroup } from "../../lvm/model/report.ts";
import { formatBytes, formatQuantity } from "../../lvm/size.ts";
import { describeSource } from "../../lvm/model/tags.ts";
import type { StoppedFilesystems } from "../../lvm/health/read_only_filesystems.ts";
import type { Trimmed } from "../../lvm/staging/trimmer.ts";
import { requireSatisfying, type Volume } from "../../lvm/inventory/volume.ts";
import type { Volumes } from "../../lvm/volumes/volumes.ts";
import {
  type Condition,
  LVM_VOLUME_FINALIZER,
  type LvmVolume,
  lvmVolumes,
  type LvmVolumeStatus,
} from "../api/lvm_objects.ts";
import { type AgentOptions, isAnswered, ObjectAgent } from "./object_reconciler.ts";
import { lostStatus } from "../api/object_status.ts";
import { volumeRequestOf, wantedRange } from "../api/volume_mapping.ts";
import { HEALTHY, limitsConditions, madeStatus, REDUNDANT } from "./volume_status.ts";

/** What {@linkcode VolumeAgent} needs. */
export interface VolumeAgentOptions extends AgentOptions<LvmVolume> {
  /** The volumes of this machine, which know what the objects record. */
  readonly volumes: Volumes;
  /** Fills those that are made from others. */
  readonly copies: Copies;
  /** Holds pods to the limits of their volumes. */
  readonly limiter: Pick<IoLimiter, "stateOf">;
  /** Knows whose filesystem the kernel has stopped writing to. */
  readonly filesystems: Pick<StoppedFilesystems, "problemOf">;
  /** Locks by volume, shared with the Node service. */
  readonly locks: Locks;
  /** Reads a list of volume groups. */
  readonly parseGroups: (list: string) => GroupMatcher;
}

/** The longest account of why a copy does not go on that the status takes, in characters. */
const LONGEST_TROUBLE = 1_024;

/** After how many failures in a row people are told that trimming fails. */
const TELLING_FAILURES = 3;

/** A node's part of the LVMVolumes. */
export class VolumeAgent {
  readonly #options: VolumeAgentOptions;
  readonly #objects: ObjectAgent<LvmVolume, LvmVolumeStatus>;

  /** Makes the agent; it keeps no state. */
  constructor(options: VolumeAgentOptions) {
    const { volumes, locks } = options;
    this.#options = options;
    this.#objects = new ObjectAgent({
      ...options,
      driver: volumes.driver,
      what: "volume",
      owner: "claim or PersistentVolume",
      finalizer: LVM_VOLUME_FINALIZER,
      settle: (object) => this.#settle(object, idOf(object)),
      see: (object, groups) => {
        const found = volumes.locate(groups, idOf(object));
        if (found.state === "present") return this.#made(object, found.volume); // one that was made is filled
        return found.state === "lost" ? lostStatus(object, found.error) : undefined;
      },
      remove: (object) => locks.run("deletion", [volumeLock(idOf(object))], () => volumes.delete(idOf(object))),
      lost: lostStatus,
    });
  }

  /** Does what the object of the name asks for next, and writes what is true. Whatever is in doubt is tried again. */
  reconcile(name: string): Promise<void> {
    return this.#objects.reconcile(name);
  }

  /** Writes what has become of a volume's limits, and tells people what they may have to act on. */
  async tellLimits(id: VolumeId, limits: LimitsState | undefined): Promise<void> {
    const { objects, events, client } = this.#options;
    const object = objects.get(id);
    if (object?.status?.lvUUID === undefined) return;
    const { uid } = object.metadata;
    // nothing else of the status: its own turn may be writing that
    const merge = { metadata: { uid }, status: { conditions: limitsConditions(object, limits) } };
    await client.patch(lvmVolumes, { name: id }, { merge, subresource: "status" });
    if (limits?.applied) events.record(object, "Normal", "LimitsApplied", limits.message);
    else if (limits !== undefined) events.record(object, "Warning", "LimitsNotApplied", limits.message);
  }

  /** Writes what a report shows of the volumes that were made: grown, lost or found again without this driver. */
  verify(groups: readonly VolumeGroup[]): Promise<void> {
    return this.#objects.verify(groups);
  }

  /** Tells that what the filesystem freed could not be discarded, when that has happened again and again. */
  trimFailed({ id }: Trimmed, why: string, failures: number): void {
    const { objects, events } = this.#options;
    const object = objects.get(id);
    if (object === undefined || failures < TELLING_FAILURES) return;
    events.record(object, "Warning", "TrimFailed", `trimming failed ${failures} times in a row: ${why}`);
  }

  /** Tells that discarding what the filesystem frees is of no use. */
  trimUnsupported({ id, group, lv }: Trimmed): void {
    const { objects, events } = this.#options;
    const object = objects.get(id);
    if (object === undefined) return;
    const message =
      `fstrim is of no use: the device of ${group.name}/${lv.name} takes no discards, as its disks or its ` +
      `layout have it; leave fstrim out of the class`;
    events.record(object, "Warning", "TrimUnsupported", message);
  }

  async #settle(object: LvmVolume, id: VolumeId): Promise<void> {
    const { lvm, volumes, locks, parseGroups } = this.#options;
    const groups = await lvm.report();
    const found = volumes.locate(groups, id);
    if (found.state === "lost") return await this.#objects.write(object, lostStatus(object, found.error));
    if (found.state === "absent") {
      if (isAnswered(object)) return; // it failed, and nobody asked anew
      const { source } = volumeRequestOf(object, parseGroups);
      return await locks.run("creation", creationLocks(id, source), () => this.#make(object, groups));
    }
    const { volume } = found;
    if (object.status?.lvUUID === undefined) requireSatisfying(volume, volumeRequestOf(object, parseGroups));
    if (volume.tags.copied !== undefined) return await this.#fill(object, volume);
    if (volume.size < wantedRange(object).required && !isAnswered(object)) {
      return await locks.run("expansion", [volumeLock(id)], () => this.#grow(object, volume));
    }
    await this.#objects.write(object, this.#made(object, volume));
    if (object.status?.state === "Pending" && volume.tags.source !== undefined) {
      const from = describeSource(volume.tags.source);
      this.#options.events.record(
        object,
        "Normal",
        "Created",
        `made ${volume.group.name}/${volume.lv.name} from ${from}`,
      );
    }
  }

  /** The status of a volume that is there. When it stops to be redundant or writable, or is so again, people are told. */
  #made(object: LvmVolume, volume: Volume): LvmVolumeStatus {
    const { limiter, filesystems } = this.#options;
    const status = madeStatus(object, volume, {
      limits: limiter.stateOf(volume.id),
      filesystem: filesystems.problemOf(volume.id),
    });
    const [before, now] = [object.status, status].map((each) => ({
      redundant: each?.conditions?.find(({ type }) => type === REDUNDANT),
      healthy: each?.conditions?.find(({ type }) => type === HEALTHY),
    }));
    this.#tellChange(object, "Redundant", before!.redundant, now!.redundant);
    const isStopped = (condition: Condition | undefined) => condition?.reason === "FilesystemReadOnly";
    if (isStopped(before!.healthy) || isStopped(now!.healthy)) {
      this.#tellChange(object, "Healthy", before!.healthy, now!.healthy);
    }
    return status;
  }

  /** Tells that a condition has another reason than before; when it holds again, under the word for that. */
  #tellChange(object: LvmVolume, good: string, before: Condition | undefined, now: Condition | undefined): void {
    const { events } = this.#options;
    if (now === undefined || now.reason === before?.reason) return;
    if (now.status === "False") {
      events.record(object, now.reason === "Rebuilding" ? "Normal" : "Warning", now.reason, now.message);
    } else if (before?.status === "False") {
      events.record(object, "Normal", good, now.message);
    }
  }

  /** Says how far a volume is filled; that goes on by itself, and has its turn come again. */
  async #fill(object: LvmVolume, volume: Volume): Promise<void> {
    const { copies } = this.#options;
    const failure = copies.failure(volume);
    if (failure !== undefined) throw failure;
    copies.look();
    // what shares its source's blocks is about to be done
    const copy = volume.tags.copied === "all" ? {} : { copy: copyStatus(copies.progress(volume)) };
    await this.#objects.write(object, { ...object.status, state: "Pending", volumeGroup: volume.group.name, ...copy });
  }

  /** Makes the LV. The choice of its group is saved before, its UUID after. */
  async #make(object: LvmVolume, groups: readonly VolumeGroup[]): Promise<void> {
    const { lvm, volumes, copies, parseGroups, events, onChange } = this.#options;
    const request = volumeRequestOf(object, parseGroups);
    let latest = object;
    const onChoice = async ({ name }: VolumeGroup) => {
      latest = await this.#objects.patch(latest, { ...latest.status, state: "Pending", volumeGroup: name });
    };
    const { source } = request;
    if (source !== undefined) {
      const made = await copies.make(groups, { ...request, source }, onChoice);
      if (made === "copied") events.record(object, "Normal", "Copying", `it is made from ${describeSource(source)}`);
      return onChange();
    }
    const size = await volumes.make(groups, request, onChoice);
    onChange();
    const volume = volumes.require(await lvm.reportOfChanges(), request.id);
    await this.#objects.write(latest, this.#made(latest, volume));
    events.record(object, "Normal", "Created", `made ${volume.group.name}/${volume.lv.name} of ${formatBytes(size)}`);
  }

  async #grow(object: LvmVolume, before: Volume): Promise<void> {
    const { volumes, events, onChange } = this.#options;
    // A turn before may have grown it, and not lived to tell. If no more can be had, this is what it takes of its group.
    await this.#objects.write(object, { ...object.status, size: formatQuantity(before.size) });
    const grown = await volumes.expand(before.id, wantedRange(object));
    onChange();
    await this.#objects.write(object, this.#made(object, grown));
    events.record(object, "Normal", "Grown", `grew from ${formatBytes(before.size)} to ${formatBytes(grown.size)}`);
  }
}

function copyStatus({ copied, total, trouble }: CopyProgress): NonNullable<LvmVolumeStatus["copy"]> {
  const percent = total === undefined ? {} : { percent: Number(copied * 100n / total) };
  return {
    copied: formatQuantity(copied),
    ...(total === undefined ? {} : { total: formatQuantity(total), ...percent }),
    ...(trouble && { trouble: trouble.slice(0, LONGEST_TROUBLE) }),
  };
}

function idOf({ metadata: { name } }: LvmVolume): VolumeId {
  return name as VolumeId; // the API server takes no other name
}
