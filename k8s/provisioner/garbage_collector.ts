/**
 * Deletes volumes whose claims were deleted before their PersistentVolumes were created, if the provisioner that
 * requested them was stopped meanwhile.
 *
 * It never deletes a volume that somebody needs:
 *
 * - It considers only pending intents: the provisioner requested the volume, and no PersistentVolume was ever seen for
 *   it. So no reclaim policy can have retained it, and it has no data.
 * - It looks for the claim by uid, which is never used again, among all claims.
 * - It reads claims and PersistentVolumes from the API server, twice, with a grace period in between.
 * - If the official provisioner is still creating the volume for the deleted claim, its PersistentVolume is released at
 *   once, and it deletes the volume itself. Then it does no harm that the volume is deleted already.
 *
 * @module
 */

import { getLogger } from "@logtape/logtape";
import { claimUidOf } from "./claim.ts";
import { orAbsent } from "../client/client.ts";
import { sleep, systemClock, waitForAbort } from "../../lvm/clock.ts";
import type { Intent } from "./intents.ts";
import { persistentVolumeClaims, persistentVolumes } from "../api/objects.ts";
import type { ProvisionerOptions } from "./provisioner_options.ts";

/** Reports whether the provisioner itself works on a request. */
export type IsInProgress = (requestName: string) => boolean;

/** Deletes the volumes of claims that were deleted. */
export class GarbageCollector {
  readonly #options: ProvisionerOptions;
  readonly #isInProgress: IsInProgress;
  readonly #log = getLogger(["denolith", "garbage-collector"]);
  /** The time at which an intent was first seen without a claim, in the clock's milliseconds. */
  readonly #orphanedSinceMs = new Map<string, number>();

  /** Creates it; nothing runs before {@linkcode GarbageCollector.run}. */
  constructor(options: ProvisionerOptions, isInProgress: IsInProgress) {
    this.#options = options;
    this.#isInProgress = isInProgress;
  }

  /** Collects garbage every minute until the signal is aborted. */
  async run(signal: AbortSignal): Promise<void> {
    const { clock = systemClock, garbageCollectionIntervalMs = 60_000, claims, volumes } = this.#options;
    await Promise.race([Promise.all([claims.synced, volumes.synced]), waitForAbort(signal)]);
    while (!signal.aborted) {
      await this.collect(signal).catch((error) => this.#log.warn("garbage collection failed", { error }));
      await sleep(clock, garbageCollectionIntervalMs, signal);
    }
    this.#orphanedSinceMs.clear();
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

  /** Finds the pending intents that have neither a claim nor a PersistentVolume. */
  async #findOrphans(signal: AbortSignal): Promise<Intent[]> {
    const { intents, volumes, claims, client } = this.#options;
    const pending = intents.list().filter(({ requestName, pending }) =>
      pending && claimUidOf(requestName) !== undefined && !this.#isInProgress(requestName)
    );
    const withPersistentVolume = pending.filter(({ requestName }) => volumes.get(requestName) !== undefined);
    for (const { requestName } of withPersistentVolume) await intents.clearPending(requestName, { signal });
    const uids = new Set(claims.list().map(({ metadata }) => metadata.uid));
    const hasNoClaim = ({ requestName }: Intent) => !uids.has(claimUidOf(requestName)!);
    const candidates = pending.filter((intent) => !withPersistentVolume.includes(intent) && hasNoClaim(intent));
    if (candidates.length === 0) return [];
    for (const { metadata } of (await client.list(persistentVolumeClaims, { signal })).items) uids.add(metadata.uid);
    const confirmed: Intent[] = [];
    for (const intent of candidates.filter(hasNoClaim)) {
      if (!await this.#hasPersistentVolume(intent, signal)) confirmed.push(intent);
    }
    return confirmed;
  }

  async #hasPersistentVolume({ requestName }: Intent, signal: AbortSignal): Promise<boolean> {
    const { client } = this.#options;
    return await orAbsent(client.get(persistentVolumes, { name: requestName }, { signal })) !== undefined;
  }

  async #deleteVolume({ requestName, volumeId }: Intent, signal: AbortSignal): Promise<void> {
    this.#log.info("a volume without a claim is deleted", { request: requestName, volume: volumeId });
    await this.#options.csi.deleteVolume({ volumeId, secrets: {} }, { signal });
    this.#orphanedSinceMs.delete(requestName);
  }
}
