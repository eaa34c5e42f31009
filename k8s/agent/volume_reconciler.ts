/**
 * The reconciler of LVMVolumes: it creates, extends and removes their LVs on this node, and reports their state.
 *
 * @module
 */

import type { Copies } from "../../lvm/copies/copies.ts";
import type { Formatter } from "../../lvm/staging/formatter.ts";
import { defined } from "../../base/defined.ts";
import { StorageError, truncate } from "../../base/error.ts";
import type { CopyProgress } from "../../lvm/inventory/copying.ts";
import type { VolumeFinder } from "../../lvm/inventory/volume_finder.ts";
import type { Candidate, GroupMatcher } from "../../lvm/model/groups.ts";
import { parseVolumeId, type VolumeId } from "../../base/ids.ts";
import type { IoLimiter, LimitsState } from "../../lvm/staging/io_limiter.ts";
import { type Locks, volumeCreationLocks, volumeLock } from "../../base/locks.ts";
import type { FreshReport } from "../../lvm/client/client.ts";
import { lvPath, type VolumeGroup } from "../../lvm/model/report.ts";
import { formatBytes, formatQuantity } from "../../base/size.ts";
import { type ContentSource, describeSource } from "../../lvm/model/tags.ts";
import type { KeyChanges } from "../../lvm/encryption/key_changes.ts";
import type { ContentSectors } from "../../lvm/health/sectors.ts";
import type { ReadOnlyFilesystems } from "../../lvm/health/read_only_filesystems.ts";
import { usedPercent } from "../../lvm/host/mounts.ts";
import type { Stats } from "../../lvm/staging/staging.ts";
import type { TrimmedVolume } from "../../lvm/staging/trimmer.ts";
import { requireCompatible, type Volume, type VolumeRequest } from "../../lvm/inventory/volume.ts";
import { removeMissingVolume } from "../../lvm/deletion/missing_thin.ts";
import type { HeldVolumes } from "../../lvm/volumes/held_volumes.ts";
import { type ImportedVolumes, isReturned } from "../../lvm/volumes/imported_volumes.ts";
import type { Volumes } from "../../lvm/volumes/volumes.ts";
import { orAbsentOrChanged } from "../client/client.ts";
import { patchWithRetry } from "../client/patches.ts";
import {
  CLAIM_ANNOTATION,
  isToBeCreated,
  LVM_VOLUME_FINALIZER,
  type LvmVolume,
  lvmVolumes,
  type LvmVolumeStatus,
  PENDING_ANNOTATION,
  wasCreated,
} from "../api/lvm_objects.ts";
import type { ReconcileOutcome } from "../runtime/controller.ts";
import { hasCurrentError, ObjectReconciler, type ReconcilerOptions } from "./object_reconciler.ts";
import { VolumeHolds } from "./volume_holds.ts";
import { foreignLvOf, VolumeImports } from "./volume_imports.ts";
import type { EventReason } from "../api/event_reasons.ts";
import { inspectedReturn, isForeign, pendingImport } from "../api/volume_conditions.ts";
import { lostStatus } from "../api/object_status.ts";
import { desiredSizeRange, goalOf, volumeRequestOf } from "../api/volume_mapping.ts";
import {
  HEALTHY_CONDITION,
  KEYS_CONDITION,
  limitsConditions,
  problemsOf,
  readyStatus,
  REDUNDANT_CONDITION,
} from "./volume_status.ts";

/** Options of {@linkcode VolumeReconciler}. */
export interface VolumeReconcilerOptions extends ReconcilerOptions<LvmVolume> {
  /** The volumes of this machine. */
  readonly volumes: Volumes;
  /** Finds the volumes in a report; it knows what the objects record. */
  readonly volumeFinder: VolumeFinder;
  /** Holds volumes that are moved, and adopts their LVs. */
  readonly heldVolumes: HeldVolumes;
  /** Imports LVs of others. */
  readonly importedVolumes: ImportedVolumes;
  /** Formats volumes before they are staged. */
  readonly formatter: Pick<Formatter, "formatSoon">;
  /** Copies the content of volumes that are created from a volume or snapshot. */
  readonly copies: Copies;
  /** Applies the IO limits of volumes to pods. */
  readonly limiter: Pick<IoLimiter, "stateOf">;
  /** Knows the filesystems that the kernel has made read-only. */
  readonly filesystems: Pick<ReadOnlyFilesystems, "problemOf">;
  /** Knows the largest sectors on which what is on volumes in use can be used. */
  readonly contentSectors: Pick<ContentSectors, "of" | "forget">;
  /** Knows what comes of changes of keys. */
  readonly keyChanges: Pick<KeyChanges, "stateOf">;
  /** Locks by volume, shared with the Node service. */
  readonly locks: Locks;
  /** Parses a list of volume groups, as an LVMVolume has it. */
  readonly parseGroups: (list: string) => GroupMatcher;
}

/** The maximum length of the reason in the status why a copy does not make progress, in characters. */
const MAX_COPY_ERROR_LENGTH = 1_024;

/**
 * The problems of a volume for which an event is recorded on it. Those of its group and its thin pool, which all their
 * volumes share, are recorded on the LVMNode.
 */
const EVENTS_OF_PROBLEMS = ["Partial", "CacheFailed", "CacheReadOnly", "FilesystemReadOnly"] as const;

/** The number of consecutive failures of trimming after which an event is recorded. */
const FAILURES_BEFORE_EVENT = 3;

/** Reconciles the LVMVolumes of a node. */
export class VolumeReconciler {
  readonly #options: VolumeReconcilerOptions;
  readonly #holds: VolumeHolds;
  readonly #imports: VolumeImports;
  readonly #reconciler: ObjectReconciler<LvmVolume, LvmVolumeStatus>;
  /** The used shares of mounted filesystems, in percent, by the names of their volumes, as kubelet last asked. */
  readonly #usedPercents = new Map<string, number>();
  /** The names of volumes in use for which no PersistentVolume was recorded. */
  readonly #usedPending = new Set<string>();

  /** Creates the reconciler. */
  constructor(options: VolumeReconcilerOptions) {
    const { volumes, volumeFinder, locks } = options;
    this.#options = options;
    this.#holds = new VolumeHolds(options);
    this.#imports = new VolumeImports(options);
    this.#reconciler = new ObjectReconciler({
      ...options,
      driver: volumeFinder.driver,
      noun: "volume",
      ownerDescription: "claim or PersistentVolume",
      finalizer: LVM_VOLUME_FINALIZER,
      reconcileObject: (object) => this.#reconcileVolume(object, idOf(object)),
      observe: (object, groups) => {
        if (isForeign(object)) return undefined;
        const found = volumeFinder.locate(groups, idOf(object));
        // The status has the LV's UUID, so the content is complete, also that of a copy.
        if (found.state === "present") {
          this.#holds.observe(object, found.volume);
          if (found.volume.used && isPending(object)) this.#usedPending.add(object.metadata.name);
          return this.#observedStatus(object, found.volume);
        }
        if (found.state === "absent" || this.#isTaken(object)) return undefined;
        const from = inspectedReturn(object); // if it was returned meanwhile, reconciling it says so
        const hasReturned = from && isReturned(groups, foreignLvOf(from), object.status?.lvUUID);
        return hasReturned ? undefined : lostStatus(object, found.error);
      },
      recordChanges: (object, status) => {
        if (status.state !== "Ready") return;
        this.#recordRedundancyChange(object, status);
        this.#recordKeyChange(object, status);
        this.#recordProblems(object, status);
      },
      remove: async (object) => {
        const id = idOf(object);
        await volumes.requireUnmounted(id); // without the lock, which would delay the unmount
        await locks.run("deletion", [volumeLock(id)], () => volumes.delete(id));
        this.#usedPercents.delete(id); // kubelet may have asked after the unmount
      },
      isRemovable: (object, groups) => volumes.isDeletable(groups, idOf(object)),
      toLostStatus: lostStatus,
    });
  }

  /** Returns the namespace of the claim that an object is for; empty when that is not known. Namespaces take turns. */
  namespaceOf(name: string): string {
    return this.#options.objects.get(name)?.metadata.annotations?.[CLAIM_ANNOTATION]?.split("/")[0] ?? "";
  }

  /**
   * Takes the next step towards what an object asks for, and writes its status. A step whose outcome is uncertain is
   * retried.
   */
  async reconcile(name: string): Promise<ReconcileOutcome> {
    const { objects, volumeFinder } = this.#options;
    const object = objects.get(name);
    if (object?.spec.driverName === volumeFinder.driver) {
      const imports = pendingImport(object);
      const isForeignNow = object.metadata.deletionTimestamp === undefined && isForeign(object);
      if (isForeignNow && imports === undefined) return { nothingToDo: "its import asks for nothing" };
      if (isForeignNow) return await this.#imports.reconcile(object, imports!);
      await this.#holds.reconcile(object);
    }
    const inspected = object?.spec.driverName === volumeFinder.driver ? inspectedReturn(object) : undefined;
    if (inspected && await this.#imports.reportReturned(object!, inspected)) return { nothingToDo: "it was returned" };
    const outcome = await this.#reconciler.reconcile(name);
    return inspected ? await this.#imports.inspectReturn(object!, inspected) : outcome;
  }

  /** Takes how full a volume is, as kubelet asks for it each minute. The next report writes it, if that is something new. */
  recordUsage(id: VolumeId, stats: Stats): void {
    if ("filesystem" in stats) this.#usedPercents.set(id, usedPercent(stats.filesystem.bytes));
  }

  /** Requeues a volume that is being deleted or is held, when a mount of it is gone. */
  requeueUnmounted(id: VolumeId): void {
    this.#usedPercents.delete(id);
    if (this.#options.objects.get(id)?.spec.held) this.#options.requeue(id);
    this.#reconciler.requeueDeletion(id);
  }

  /** Writes the condition of a volume's IO limits, and records an event. @param limits `undefined` without limits */
  async reportLimits(id: VolumeId, limits: LimitsState | undefined): Promise<void> {
    const { objects, events, client } = this.#options;
    const object = objects.get(id);
    if (object?.status?.lvUUID === undefined) return;
    // only the condition: a reconcile attempt may be writing the rest of the status
    const change = (now: LvmVolume) => ({ status: { conditions: limitsConditions(now, limits) } });
    await orAbsentOrChanged(patchWithRetry(client, lvmVolumes, object, change, { subresource: "status" }));
    if (limits?.applied) events.record(object, "Normal", "IOLimitsApplied", limits.message);
    else if (limits !== undefined) events.record(object, "Warning", "IOLimitsNotApplied", limits.message);
  }

  /** Updates the status of the volumes that were created, by a report ({@linkcode ObjectReconciler.verify}). */
  async verify(groups: readonly VolumeGroup[]): Promise<void> {
    await this.#reconciler.verify(groups);
    for (const name of this.#usedPending) await this.#clearPending(name);
    this.#usedPending.clear();
  }

  /**
   * Removes the mark that no PersistentVolume was seen for a volume: it is in use, so there was one, and the garbage
   * collector must not delete the volume. Usually the controller removes the mark.
   */
  async #clearPending(name: string): Promise<void> {
    const { objects, client } = this.#options;
    const object = objects.get(name);
    const change = (now: LvmVolume) =>
      isPending(now) ? { metadata: { annotations: { [PENDING_ANNOTATION]: null } } } : undefined;
    if (object !== undefined) await orAbsentOrChanged(patchWithRetry(client, lvmVolumes, object, change, {}));
  }

  /** Records a warning about a volume. */
  recordWarning(id: VolumeId, { reason, message }: { readonly reason: EventReason; readonly message: string }): void {
    const object = this.#options.objects.get(id);
    if (object !== undefined) this.#options.events.record(object, "Warning", reason, message);
  }

  /** Records that trimming failed several times in a row. */
  recordTrimFailed({ id }: TrimmedVolume, why: string, failures: number): void {
    if (failures < FAILURES_BEFORE_EVENT) return;
    this.recordWarning(id, { reason: "TrimFailed", message: `trimming failed ${failures} times in a row: ${why}` });
  }

  /** Records that the device of a volume does not support discards. */
  recordTrimUnsupported({ id, group, lv }: TrimmedVolume): void {
    const message =
      `fstrim has no effect: the device of ${group.name}/${lv.name} does not support discards, because of its disks or its ` +
      `layout; remove fstrim from the class`;
    this.recordWarning(id, { reason: "TrimUnsupported", message });
  }

  async #reconcileVolume(object: LvmVolume, id: VolumeId): Promise<ReconcileOutcome> {
    const { lvm, volumeFinder, locks, parseGroups, copies } = this.#options;
    if (isNew(object) && await this.#createNew(object, id)) return;
    const groups = await lvm.report();
    const found = volumeFinder.locate(groups, id);
    if (found.state === "lost") {
      if (this.#isTaken(object)) return { nothingToDo: "another volume takes its logical volume" };
      return await this.#reconciler.writeStatus(object, lostStatus(object, found.error));
    }
    if (found.state === "absent") {
      if (object.spec.adoptsVolume !== undefined) return await this.#adopt(object, id);
      if (object.spec.imports !== undefined && !wasCreated(object)) {
        throw new StorageError(
          "Unavailable",
          `looking for volume ${id}: its logical volume no longer has the driver's tags`,
        );
      }
      this.#reconciler.requireToBeCreated(object);
      if (hasCurrentError(object)) return { nothingToDo: "it failed, and its spec has not changed" };
      if (object.spec.copy !== undefined) {
        this.#requireNoOlderLv(groups, volumeRequestOf(object, parseGroups).source);
      }
      return void await this.#createNew(object, id, groups);
    }
    const { volume } = found;
    if (object.status?.lvUUID === undefined) {
      this.#requireAdopted(object, volume);
      const request = volumeRequestOf(object, parseGroups);
      // what a volume that is adopted was created from, its tags alone still say
      requireCompatible(
        volume,
        object.spec.adoptsVolume === id ? { ...request, ...defined({ source: volume.tags.source }) } : request,
      );
      const remove = () => removeMissingVolume(lvm, volumeFinder.driver, volume);
      if (await locks.run("creation", [volumeLock(id)], remove)) return await this.#reconcileVolume(object, id);
    }
    if (volume.tags.copied !== undefined) {
      const goal = goalOf(object);
      if (goal !== undefined) copies.pursue(volume, goal);
      return await this.#reportCopyProgress(object, volume);
    }
    if (volume.size < desiredSizeRange(object).required && !hasCurrentError(object)) {
      return await locks.run(
        "expansion",
        [volumeLock(id)],
        () => this.#reconciler.logged("expand", object, () => this.#extend(object, volume)),
      );
    }
    await this.#reconciler.writeStatus(object, this.#observedStatus(object, volume));
    if (object.status?.state === "Pending" && volume.tags.source !== undefined) {
      this.#options.onChange(); // the deletion of its source may wait for the copy
      const from = describeSource(volume.tags.source);
      this.#options.events.record(
        object,
        "Normal",
        "Created",
        `created ${volume.group.name}/${volume.lv.name} from ${from}`,
      );
    }
  }

  /** Takes the LV of another volume. One that asks for this never gets a new LV. */
  async #adopt(object: LvmVolume, id: VolumeId): Promise<ReconcileOutcome> {
    const { locks, heldVolumes, onChange } = this.#options;
    const from = parseVolumeId(object.spec.adoptsVolume!);
    if (from === undefined) {
      throw new StorageError(
        "InvalidArgument",
        `reading LVMVolume ${id}: spec.adoptsVolume is not a valid volume id`,
      );
    }
    await locks.run(
      "creation",
      [...new Set([volumeLock(from), volumeLock(id)])],
      () => this.#reconciler.logged("adopt", object, () => heldVolumes.adopt(from, id)),
    );
    onChange();
    return await this.#reconcileVolume(object, id);
  }

  /**
   * Requires that this node has no LV of the volume that is copied to it. One may be left from before a move, when the node was
   * forgotten and is back: the volume would be found in it, and not in the copy.
   */
  #requireNoOlderLv(groups: readonly VolumeGroup[], source: ContentSource | undefined): void {
    if (source?.kind !== "volume") return;
    const found = this.#options.volumeFinder.locate(groups, source.id);
    if (found.state === "absent") return;
    const why = found.state === "lost"
      ? found.error.message
      : `this node has the orphan ${lvPath(found.volume)} from when the volume was here; remove that first`;
    throw new StorageError("InvalidArgument", `copying volume ${source.id}: ${why}`);
  }

  /** Requires that an LV which has the tags of a volume is the one that it adopts, as far as that is known. */
  #requireAdopted({ metadata: { name }, spec: { adoptsVolume = "" } }: LvmVolume, { lv, ...located }: Volume): void {
    const adopted = this.#options.objects.get(adoptsVolume)?.status?.lvUUID;
    if (adoptsVolume === name || adopted === undefined || adopted === lv.uuid) return;
    const path = lvPath({ lv, ...located });
    throw new StorageError(
      "Unavailable",
      `creating volume ${name} from the logical volume of ${adoptsVolume}: ${path} has its tags from when it was on this ` +
        "node; remove them",
    );
  }

  /** Reports whether another volume has taken the LV of a volume, or is about to. */
  #isTaken({ metadata: { name } }: LvmVolume): boolean {
    return this.#options.objects.list().some(({ metadata, spec }) =>
      spec.adoptsVolume === name && metadata.name !== name
    );
  }

  /** Returns the status of a volume that exists. */
  #observedStatus(object: LvmVolume, volume: Volume): LvmVolumeStatus {
    const { limiter, filesystems, copies, keyChanges } = this.#options;
    const status = readyStatus(object, volume, {
      limits: limiter.stateOf(volume.id),
      held: this.#holds.stateOf(volume.id),
      filesystem: filesystems.problemOf(volume.id),
      keys: keyChanges.stateOf(volume),
      maximumSectorSize: this.#maximumSectorSize(object, volume),
      usedPercent: this.#usedPercents.get(volume.id),
    });
    // what was received last is reported until the copy is used
    return object.spec.copy === undefined ? status : { ...status, copy: copyStatus(copies.progress(volume)) };
  }

  /** Returns the largest sectors for a volume: they are those that its status has, as long as it has the same LV. */
  #maximumSectorSize({ status = {} }: LvmVolume, volume: Volume): string | undefined {
    const { contentSectors } = this.#options;
    const recorded = status.lvUUID === volume.lv.uuid ? status.maximumSectorSize : undefined;
    if (recorded !== undefined) {
      contentSectors.forget(volume.id);
      return recorded;
    }
    const bytes = contentSectors.of(volume);
    return bytes === undefined ? undefined : formatQuantity(bytes);
  }

  /** Records an event for each new problem of the volume alone, and one when the volume has no problem any more. */
  #recordProblems(object: LvmVolume, status: LvmVolumeStatus): void {
    const { events } = this.#options;
    const [before, now] = [object.status, status].map((each) =>
      problemsOf(each).filter(({ reason }) => EVENTS_OF_PROBLEMS.some((known) => known === reason))
    );
    for (const { reason, message } of now!) {
      if (before!.some((problem) => problem.reason === reason)) continue;
      events.record(object, "Warning", reason as typeof EVENTS_OF_PROBLEMS[number], message);
    }
    if (before!.length === 0 || problemsOf(status).length > 0) return; // others of its group or pool may be left
    const healthy = status.conditions?.find(({ type }) => type === HEALTHY_CONDITION);
    events.record(object, "Normal", "Healthy", healthy?.message ?? "");
  }

  /** Records an event when the redundancy of the volume changed. */
  #recordRedundancyChange(object: LvmVolume, status: LvmVolumeStatus): void {
    const { events } = this.#options;
    const [before, now] = conditionsBetween(object, status, REDUNDANT_CONDITION);
    if (now === undefined || now.reason === before?.reason) return;
    if (now.status === "False") {
      events.record(object, now.reason === "Rebuilding" ? "Normal" : "Warning", now.reason, now.message);
    } else if (before?.status === "False") {
      events.record(object, "Normal", "Redundant", now.message);
    }
  }

  /** Records an event when the condition about keys changed. */
  #recordKeyChange(object: LvmVolume, status: LvmVolumeStatus): void {
    const [before, now] = conditionsBetween(object, status, KEYS_CONDITION);
    if (now === undefined || (now.reason === before?.reason && now.message === before.message)) return;
    const type = now.reason === "KeyChangeComplete" || now.reason === "KeyChangeRunning" ? "Normal" : "Warning";
    this.#options.events.record(object, type, now.reason, now.message);
  }

  /** Reports the progress of a copy, which goes on in the background, and requeues the object. */
  async #reportCopyProgress(object: LvmVolume, volume: Volume): Promise<void> {
    const { copies } = this.#options;
    const failure = copies.failure(volume);
    if (failure !== undefined) throw failure;
    copies.wake();
    // a copy that shares the blocks of its source is almost complete
    const copy = volume.tags.copied === "all" ? {} : { copy: copyStatus(copies.progress(volume)) };
    const { error: _, ...status } = object.status ?? {};
    await this.#reconciler.writeStatus(object, {
      ...status,
      state: "Pending",
      volumeGroup: volume.group.name,
      ...copy,
    });
  }

  /** Creates the LV. @param groups a report; without it, what is known decides @returns false when a report must decide */
  async #createNew(object: LvmVolume, id: VolumeId, groups?: FreshReport): Promise<boolean> {
    const { volumes, formatter, locks, parseGroups } = this.#options;
    const request = volumeRequestOf(object, parseGroups);
    const isCreated = await locks.run("creation", volumeCreationLocks(id, request.source), async () => {
      const place = groups ?? volumes.knownPlaceFor(request);
      return place !== undefined &&
        await this.#reconciler.logged("create", object, () => this.#create(object, request, place));
    });
    if (isCreated) formatter.formatSoon(id);
    return isCreated;
  }

  /**
   * Creates the LV. Saves the chosen group in the status before, and the LV's UUID afterwards.
   *
   * @param place a report, or where it is known not to exist
   * @returns false when a report must decide
   */
  async #create(
    object: LvmVolume,
    request: VolumeRequest,
    place: FreshReport | Candidate<VolumeGroup>,
  ): Promise<boolean> {
    const { volumes, copies, events, onChange } = this.#options;
    let latest = object;
    let group: VolumeGroup;
    const onChoice = async (chosen: VolumeGroup) => {
      group = chosen;
      const { name } = chosen;
      latest = await this.#reconciler.patchStatus(latest, { ...latest.status, state: "Pending", volumeGroup: name });
    };
    const { source } = request;
    let size: bigint;
    if ("group" in place) {
      await onChoice(place.group);
      if (!await volumes.createKnown(place, request).finally(onChange)) return false;
      size = place.size;
    } else if (source === undefined) {
      size = await volumes.createNew(place, request, onChoice).finally(onChange); // also a refusal may change what the node offers
    } else {
      const outcome = await copies.createNew(place, { ...request, source }, onChoice);
      if (outcome === "copied") events.record(object, "Normal", "Copying", `copying from ${describeSource(source)}`);
      onChange();
      return true;
    }
    const volume = await volumes.readCreated(request, group!, size);
    // without an event: the status has all of it, and the claim gets one (ProvisioningSucceeded)
    await this.#reconciler.writeStatus(latest, this.#observedStatus(latest, volume));
    return true;
  }

  async #extend(object: LvmVolume, before: Volume): Promise<void> {
    const { volumes, events, onChange } = this.#options;
    // An earlier attempt may have extended the LV and then been interrupted. If this one fails, the status has the actual size.
    await this.#reconciler.writeStatus(object, { ...object.status, size: formatQuantity(before.size) });
    const extended = await volumes.expand(before.id, desiredSizeRange(object));
    onChange();
    await this.#reconciler.writeStatus(object, this.#observedStatus(object, extended));
    events.record(
      object,
      "Normal",
      "Extended",
      `extended from ${formatBytes(before.size)} to ${formatBytes(extended.size)}`,
    );
  }
}

/** Reports whether nothing was tried for an object yet, and its LV is neither a copy nor one that exists. */
function isNew(object: LvmVolume): boolean {
  const { status, spec: { adoptsVolume, imports, copy } } = object;
  return status === undefined && isToBeCreated(object) &&
    [adoptsVolume, imports, copy].every((each) => each === undefined);
}

/** Returns the condition of a type that an object has, and the one that it is about to have. */
function conditionsBetween({ status: before }: LvmVolume, now: LvmVolumeStatus, type: string) {
  return [before, now].map((each) => each?.conditions?.find((condition) => condition.type === type));
}

function copyStatus(
  { copied, total, lastError, snapshot, received }: CopyProgress,
): NonNullable<LvmVolumeStatus["copy"]> {
  const percent = total === undefined ? {} : { percent: Number(copied * 100n / total) };
  return {
    copied: formatQuantity(copied),
    ...(total === undefined ? {} : { total: formatQuantity(total), ...percent }),
    ...(lastError && { lastError: truncate(lastError, MAX_COPY_ERROR_LENGTH) }),
    ...defined({ snapshot, received: received === undefined ? undefined : formatQuantity(received) }),
  };
}

function idOf({ metadata: { name } }: LvmVolume): VolumeId {
  return name as VolumeId; // the API server accepts no other name
}

/** Reports whether no PersistentVolume was recorded for a volume of a claim. */
function isPending({ metadata: { annotations } }: LvmVolume): boolean {
  return annotations?.[PENDING_ANNOTATION] !== undefined;
}
