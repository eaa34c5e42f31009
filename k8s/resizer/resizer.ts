/**
 * The resizer: expands the volumes of claims that ask for more, and reports the progress in their status.
 *
 * @module
 */

import { type ClaimSidecarOptions, sidecarController } from "../sidecars/sidecar_controller.ts";
import { type Clock, systemClock, timestamp } from "../../base/clock.ts";
import {
  accessModeOf,
  codeName,
  type CsiClient,
  errorMessage,
  type ExpandedVolume,
  isInfeasible,
  isMaybeInProgress,
} from "../sidecars/csi_client.ts";
import type { Controller, ReconcileOutcome } from "../runtime/controller.ts";
import { type PersistentVolume, type PersistentVolumeClaim, persistentVolumes } from "../api/objects.ts";
import { boundClaim, CACHE_WAIT_MS, claimKeyOf, patchAtRevision, patchStatus } from "./claim_status.ts";
import {
  capacityOf,
  expandedPatch,
  failedPatch,
  finishedPatch,
  hasStalePreResizeCapacity,
  needsExpansion,
  nextSize,
  nodeResizePendingPatch,
  PRE_RESIZE_CAPACITY_ANNOTATION,
  sizesOf,
  startedPatch,
} from "./resize_plan.ts";
import { type AwaitedSpace, SpaceWaiters, WaitingKeys } from "../runtime/wake_ups.ts";
import { INFEASIBLE_RETRY_MS } from "../runtime/backoffs.ts";
import { readSecret } from "../sidecars/secrets.ts";
import { expandSecretOf } from "../sidecars/volume_secrets.ts";

/** Options of the resizer. */
export interface ResizerOptions extends ClaimSidecarOptions {
  /** The driver. */
  readonly csi: Pick<CsiClient, "expandVolume">;
  /**
   * Returns the node of a volume, by its handle; `undefined` when it is not known: then a volume that waits for
   * space is retried when any node has more.
   */
  readonly nodeOfVolume: (volumeHandle: string) => string | undefined;
  /** The delay after which an infeasible request is retried, in milliseconds; {@linkcode INFEASIBLE_RETRY_MS} by default. */
  readonly slowRetryMs?: number | undefined;
}

/** The resizer. Two of them at the same time repeat each other's work without harm. */
export class Resizer {
  readonly #options: ResizerOptions;
  readonly #clock: Clock;
  /** The keys of claims whose last call certainly failed. */
  readonly #finalErrors = new Set<string>();
  /** Infeasible requests, with the time of their next attempt. */
  readonly #slowSet = new Map<string, { bytes: bigint; until: number }>();
  /** The claims for whose expansion there was no space. */
  readonly #spaceWaiters = new SpaceWaiters();
  /** The claims whose volumes are being expanded, by the handles of the volumes. */
  readonly #waiting = new WaitingKeys();
  readonly #controller: Controller;

  /** Creates it; nothing runs before {@linkcode Resizer.run}. */
  constructor(options: ResizerOptions) {
    this.#options = options;
    this.#clock = options.clock ?? systemClock;
    const controllerOptions = { ...options, cacheWaitMs: CACHE_WAIT_MS };
    this.#controller = sidecarController("resizer", controllerOptions, (key, signal) => this.#reconcile(key, signal));
  }

  /** Runs until the signal is aborted and all work in progress has ended. */
  async run(signal: AbortSignal): Promise<void> {
    const { claims, volumes, wakeUps } = this.#options;
    const controller = this.#controller;
    controller.watch(volumes, (volume) => this.#dueClaimKeys(volume)).subscribe(claims, (key, now, before) => {
      if (now?.metadata.uid !== before?.metadata.uid) {
        for (const entries of this.#entriesOfKeys) entries.delete(key); // those of an earlier claim of the name
      }
      if (now !== undefined && (before === undefined || reconcileInputs(now) !== reconcileInputs(before))) {
        if (needsExpansion(now) || before !== undefined) controller.add(key);
      }
    });
    wakeUps.on("space", (growth) => {
      for (const { key, delayMs } of this.#spaceWaiters.wake(growth)) {
        this.#slowSet.delete(key);
        controller.addAfter(key, delayMs);
      }
    }, signal);
    wakeUps.on("expansion", (handle) => this.#waiting.wake(handle, controller), signal);
    await controller.run(signal);
  }

  /** All that is remembered of a claim. */
  get #entriesOfKeys() {
    return [this.#finalErrors, this.#slowSet, this.#spaceWaiters, this.#waiting];
  }

  /** Returns the space that an expansion to a size waits for, on the node of its volume. */
  #awaitedSpace(volume: PersistentVolume, bytes: bigint): AwaitedSpace {
    const nodeName = this.#options.nodeOfVolume(volume.spec!.csi!.volumeHandle);
    const missingBytes = bytes - capacityOf(volume);
    return { bytes: missingBytes > 0n ? missingBytes : 0n, ...(nodeName !== undefined && { nodeNames: [nodeName] }) };
  }

  #dueClaimKeys(volume: PersistentVolume): string[] {
    const key = claimKeyOf(volume, this.#options.driverName);
    if (key === undefined) return [];
    const claim = this.#options.claims.get(key);
    const due = volume.metadata.annotations?.[PRE_RESIZE_CAPACITY_ANNOTATION] !== undefined ||
      claim !== undefined && needsExpansion(claim, volume);
    return due ? [key] : [];
  }

  async #reconcile(key: string, signal: AbortSignal): Promise<ReconcileOutcome> {
    const bound = boundClaim(key, this.#options);
    if (bound === undefined) return { nothingToDo: "it is gone, or not bound to a volume of the driver" };
    const { claim, volume } = bound;
    if (hasStalePreResizeCapacity(claim, volume)) await this.#clearPreResizeCapacity(volume, signal);
    const bytes = needsExpansion(claim, volume)
      ? nextSize(claim, volume, { hasFinalError: this.#finalErrors.has(key) })
      : undefined;
    if (bytes === undefined) return { nothingToDo: "the volume has the size that it requests" };
    const slow = this.#slowSet.get(key);
    const remainingMs = slow?.bytes === bytes ? slow.until - this.#clock.now() : 0;
    if (remainingMs > 0) return { requeueAfterMs: remainingMs, waitsFor: "the next attempt of what is infeasible" };
    return await this.#resize(key, { claim, volume, bytes }, signal);
  }

  async #resize(
    key: string,
    { claim, volume, bytes }: { claim: PersistentVolumeClaim; volume: PersistentVolume; bytes: bigint },
    signal: AbortSignal,
  ): Promise<void | { requeueAfterMs: number }> {
    const { client, events } = this.#options;
    const startedStatus = startedPatch(claim, bytes, this.#now());
    const marked = startedStatus === undefined ? claim : await patchAtRevision(client, claim, startedStatus, signal);
    if (startedStatus !== undefined) {
      events.record(marked, "Normal", "Resizing", `expanding volume ${volume.metadata.name}`);
    }
    let expanded: ExpandedVolume;
    try {
      expanded = await this.#expandVolume(volume, bytes, signal);
    } catch (error) {
      if (signal.aborted) throw error;
      return await this.#recordFailure(key, { claim: marked, volume, bytes, error }, signal);
    }
    for (const entries of this.#entriesOfKeys) entries.delete(key);
    await this.#recordExpansion({ claim: marked, volume, expanded }, signal);
  }

  async #expandVolume(volume: PersistentVolume, requiredBytes: bigint, signal: AbortSignal): Promise<ExpandedVolume> {
    const { client, csi } = this.#options;
    const { csi: source, accessModes = [], volumeMode, mountOptions = [] } = volume.spec!;
    const { volumeHandle: volumeId, fsType = "" } = source!;
    const access = volumeMode === "Block"
      ? { kind: "block" } as const
      : { kind: "mount", fsType, flags: mountOptions } as const;
    const secrets = await readSecret(client, expandSecretOf(volume), { signal });
    const capability = { mode: accessModeOf(accessModes), access };
    return await csi.expandVolume({ volumeId, requiredBytes, capability, secrets }, { signal });
  }

  /** Writes the result of an expansion: first the size of the volume, then what is left to do. */
  async #recordExpansion(
    { claim, volume, expanded }: { claim: PersistentVolumeClaim; volume: PersistentVolume; expanded: ExpandedVolume },
    signal: AbortSignal,
  ): Promise<void> {
    const { client, events, volumes, claims } = this.#options;
    const { capacityBytes, nodeExpansionRequired } = expanded;
    const preResizeCapacity = nodeExpansionRequired ? claim.status?.capacity?.["storage"] : undefined;
    const { name } = volume.metadata;
    const merge = expandedPatch(volume, capacityBytes, { preResizeCapacity });
    if (merge !== undefined) await client.patch(persistentVolumes, { name }, { merge, signal });
    const patched = await patchStatus(client, claim, (now) => {
      return nodeExpansionRequired
        ? nodeResizePendingPatch(now, capacityBytes, this.#now())
        : finishedPatch(now, capacityBytes);
    }, signal);
    if (nodeExpansionRequired) {
      events.record(claim, "Normal", "FileSystemResizeRequired", "the node has to expand the filesystem");
    } else events.record(claim, "Normal", "VolumeResizeSuccessful", `expanded volume ${name}`);
    const key = `${claim.metadata.namespace}/${claim.metadata.name}`;
    const { state } = sizesOf(patched);
    await this.#controller.waitForCache(volumes, name, (now) => now === undefined || capacityOf(now) >= capacityBytes);
    await this.#controller.waitForCache(claims, key, (now) => now === undefined || sizesOf(now).state === state);
  }

  /** Records a failure, and decides when the request is retried. */
  async #recordFailure(
    key: string,
    { claim, volume, bytes, error }: {
      claim: PersistentVolumeClaim;
      volume: PersistentVolume;
      bytes: bigint;
      error: unknown;
    },
    signal: AbortSignal,
  ): Promise<{ requeueAfterMs: number }> {
    if (codeName(error) === "OutOfRange") this.#spaceWaiters.add(key, this.#awaitedSpace(volume, bytes));
    else this.#spaceWaiters.delete(key);
    const message = errorMessage(error);
    const infeasible = isInfeasible(error);
    this.#options.events.record(claim, "Warning", "VolumeResizeFailed", message);
    if (isMaybeInProgress(error)) {
      this.#finalErrors.delete(key);
      this.#waiting.add(volume.spec!.csi!.volumeHandle, key);
      throw error;
    }
    this.#waiting.delete(key);
    this.#finalErrors.add(key);
    const requeueAfterMs = this.#options.slowRetryMs ?? INFEASIBLE_RETRY_MS;
    // before the status is written: a wake-up that comes meanwhile takes the claim out again
    if (infeasible) this.#slowSet.set(key, { bytes, until: this.#clock.now() + requeueAfterMs });
    const failure = { message, infeasible, now: this.#now() };
    await patchStatus(this.#options.client, claim, (now) => failedPatch(now, failure), signal);
    if (!infeasible) throw error;
    return { requeueAfterMs };
  }

  async #clearPreResizeCapacity({ metadata: { name } }: PersistentVolume, signal: AbortSignal): Promise<void> {
    const merge = { metadata: { annotations: { [PRE_RESIZE_CAPACITY_ANNOTATION]: null } } };
    await this.#options.client.patch(persistentVolumes, { name }, { merge, signal });
    const isCleared = (now?: PersistentVolume) =>
      now?.metadata.annotations?.[PRE_RESIZE_CAPACITY_ANNOTATION] === undefined;
    await this.#controller.waitForCache(this.#options.volumes, name, isCleared);
  }

  #now(): string {
    return timestamp(this.#clock.date());
  }
}

/**
 * Returns the fields of a claim that decide about an expansion. Other changes, such as those of messages, are no reason
 * to reconcile it.
 */
function reconcileInputs({ spec, status }: PersistentVolumeClaim): string {
  const { resources, volumeName } = spec ?? {};
  const { phase, capacity, allocatedResourceStatuses } = status ?? {};
  return JSON.stringify([resources?.requests, volumeName, phase, capacity, allocatedResourceStatuses]);
}
