/**
 * Deletes volumes whose claims were deleted, or bound to another PersistentVolume, before their own were created, if the
 * provisioner that requested them was stopped meanwhile.
 *
 * It never deletes a volume that somebody needs:
 *
 * - It considers only pending intents: the provisioner requested the volume, no PersistentVolume was ever seen for it,
 *   and its agent has not seen it in use. So no reclaim policy can have retained it, and it has no data.
 * - It looks for the claim by uid, which is never used again, among all claims that are not bound to another volume.
 * - It reads claims and PersistentVolumes from the API server, twice, with a grace period in between.
 * - If the official provisioner is still creating the volume for the deleted claim, its PersistentVolume is released at
 *   once, and it deletes the volume itself. Then it does no harm that the volume is deleted already.
 *
 * @module
 */

import { getLogger } from "@logtape/logtape";
import { claimUidOf, volumeNameOf } from "./claim.ts";
import { orAbsent } from "../client/client.ts";
import { sleep, systemClock, waitForAbort } from "../../base/clock.ts";
import type { PendingIntent } from "./volume_intents.ts";
import { type PersistentVolumeClaim, persistentVolumeClaims, persistentVolumes } from "../api/objects.ts";
import type { ProvisionerOptions } from "./provisioner_options.ts";

/** Returns the names of the requests that the provisioner itself works on. */
export type RequestsInProgress = () => ReadonlySet<string>;

/** Deletes the volumes of claims that were deleted. */
export class GarbageCollector {
  readonly #options: ProvisionerOptions;
  readonly #requestsInProgress: RequestsInProgress;
  readonly #log = getLogger(["denolith", "garbage-collector"]);
  /** The time at which an intent was first seen without a claim, in the clock's milliseconds. */
  readonly #orphanedSinceMs = new Map<string, number>();

  /** Creates it; nothing runs before {@linkcode GarbageCollector.run}. */
  constructor(options: ProvisionerOptions, requestsInProgress: RequestsInProgress) {
    this.#options = options;
    this.#requestsInProgress = requestsInProgress;
  }

  /** Collects garbage every minute until the signal is aborted. */
  async run(signal: AbortSignal): Promise<void> {
    const { clock = systemClock, garbageCollectionIntervalMs = 60_000, claims, volumes } = this.#options;
    await Promise.race([Promise.all([claims.synced, volumes.synced]), waitForAbort(signal)]);
    while (!signal.aborted) {
      await this.collect(signal).catch((error) => this.#log.warn("garbage collection failed", { error }));
      await sleep(clock, garbageCollectionIntervalMs, signal);
    }
  }

  /** Collects garbage once. */
  async collect(signal: AbortSignal): Promise<void> {
    const { clock = systemClock, garbageCollectionGraceMs = 120_000 } = this.#options;
    const orphans = (await this.#findOrphans(signal)).map((intent) => [intent.requestName, intent] as const);
    const names = new Set(orphans.map(([name]) => name));
    for (const name of this.#orphanedSinceMs.keys()) if (!names.has(name)) this.#orphanedSinceMs.delete(name);
    for (const [name, intent] of orphans) {
      const since = this.#orphanedSinceMs.get(name);
      if (since === undefined) this.#orphanedSinceMs.set(name, clock.now());
      else if (clock.now() - since >= garbageCollectionGraceMs) await this.#deleteVolume(intent, signal);
    }
  }

  /** Finds the pending intents that have neither a PersistentVolume nor a claim that may need one. */
  async #findOrphans(signal: AbortSignal): Promise<PendingIntent[]> {
    const { intents, volumes, claims, client } = this.#options;
    const inProgress = this.#requestsInProgress();
    const pending = intents.listPending().filter(({ requestName }) =>
      claimUidOf(requestName) !== undefined && !inProgress.has(requestName)
    );
    const hasVolume = ({ requestName }: PendingIntent) => volumes.get(requestName) !== undefined;
    for (const { requestName } of pending.filter(hasVolume)) await this.#clearPending(requestName, signal);
    const withoutVolume = pending.filter((intent) => !hasVolume(intent));
    if (withoutVolume.length === 0) return [];
    const uids = new Set(claims.list().filter(mayNeedVolume).map(({ metadata }) => metadata.uid));
    const hasNoClaim = ({ requestName }: PendingIntent) => !uids.has(claimUidOf(requestName)!);
    const candidates = withoutVolume.filter(hasNoClaim);
    if (candidates.length === 0) return [];
    const { items } = await client.list(persistentVolumeClaims, { signal });
    for (const { metadata } of items.filter(mayNeedVolume)) uids.add(metadata.uid);
    const confirmed: PendingIntent[] = [];
    for (const intent of candidates.filter(hasNoClaim)) {
      if (!await this.#hasPersistentVolume(intent, signal)) confirmed.push(intent);
    }
    return confirmed;
  }

  /** Marks an intent as complete. If that fails, it is marked in a later pass, and the others do not wait for it. */
  async #clearPending(requestName: string, signal: AbortSignal): Promise<void> {
    await this.#options.intents.clearPending(requestName, { signal }).catch((error) => {
      this.#log.warn("an intent could not be marked as complete", { request: requestName, error });
    });
  }

  async #hasPersistentVolume({ requestName }: PendingIntent, signal: AbortSignal): Promise<boolean> {
    const { client } = this.#options;
    return await orAbsent(client.get(persistentVolumes, { name: requestName }, { signal })) !== undefined;
  }

  /** Deletes the volume of an intent. If that fails, it is deleted in a later pass. */
  async #deleteVolume({ requestName, volumeId }: PendingIntent, signal: AbortSignal): Promise<void> {
    if (signal.aborted) return;
    this.#log.info("a volume without a claim is deleted", { request: requestName, volume: volumeId });
    try {
      await this.#options.csi.deleteVolume({ volumeId, secrets: {} }, { signal });
      this.#orphanedSinceMs.delete(requestName);
    } catch (error) {
      // the others do not wait for a node that does not answer
      this.#log.warn("a volume without a claim could not be deleted", { volume: volumeId, error });
    }
  }
}

/** Reports whether a claim may get the volume that was requested for it: it is bound to no other one. */
function mayNeedVolume({ metadata: { uid }, spec }: PersistentVolumeClaim): boolean {
  return !spec?.volumeName || spec.volumeName === volumeNameOf(uid!);
}
