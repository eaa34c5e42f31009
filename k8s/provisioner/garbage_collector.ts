/**
 * Removes the volumes that were begun for claims which went before their volumes came to be, when whoever began them did not live
 * to see it.
 *
 * Why this takes nothing that anyone wants: only an intent of this loop's own requests is looked at, and only as long as no
 * PersistentVolume was ever seen for it, so there is none that could have been kept by its policy, nor data in its volume. Its
 * claim is looked for by uid, in all claims as the API server has them, and a uid never comes back. Both are asked of the server
 * itself, twice, with a grace time between. An official provisioner that works at the same time makes volumes for claims that
 * are there; if it is still at work for one that is gone, what it makes of it is a released PersistentVolume, whose volume it
 * deletes, and there nothing is lost if that is gone already.
 *
 * @module
 */

import { getLogger } from "@logtape/logtape";
import { claimUidOf } from "./claim.ts";
import { isNotFound } from "../client/client.ts";
import { aborted, sleep, systemClock } from "../runtime/clock.ts";
import type { Intent } from "./intents.ts";
import { persistentVolumeClaims, persistentVolumes } from "../api/objects.ts";
import type { ProvisionerOptions } from "./provisioner_options.ts";

/** Whether a request is being worked on by the loop itself. */
export type IsBusy = (requestName: string) => boolean;

/** Removes the volumes of claims that are gone. */
export class Sweep {
  readonly #options: ProvisionerOptions;
  readonly #isBusy: IsBusy;
  readonly #log = getLogger(["denolith", "sweep"]);
  /** Since when an intent is known to be wanted by nobody, in the clock's milliseconds. */
  readonly #suspects = new Map<string, number>();

  /** Does nothing before {@linkcode Sweep.run}. */
  constructor(options: ProvisionerOptions, isBusy: IsBusy) {
    this.#options = options;
    this.#isBusy = isBusy;
  }

  /** Sweeps every minute until the signal is aborted. */
  async run(signal: AbortSignal): Promise<void> {
    const { clock = systemClock, sweepEveryMs = 60_000, claims, volumes } = this.#options;
    await Promise.race([Promise.all([claims.synced, volumes.synced]), aborted(signal)]);
    while (!signal.aborted) {
      await this.sweep(signal).catch((error) => this.#log.warn("the sweep failed", { error }));
      await sleep(clock, sweepEveryMs, signal);
    }
    this.#suspects.clear();
  }

  /** Sweeps once. */
  async sweep(signal: AbortSignal): Promise<void> {
    const { clock = systemClock, sweepGraceMs = 120_000 } = this.#options;
    const unwanted = (await this.#unwanted(signal)).map((intent) => [intent.requestName, intent] as const);
    const names = new Set(unwanted.map(([name]) => name));
    for (const name of this.#suspects.keys()) if (!names.has(name)) this.#suspects.delete(name);
    for (const [name, intent] of unwanted) {
      const since = this.#suspects.get(name);
      if (since === undefined) this.#suspects.set(name, clock.now());
      else if (clock.now() - since >= sweepGraceMs) await this.#remove(intent, signal);
    }
  }

  /** The pending intents whose claim and PersistentVolume are gone, or never were. */
  async #unwanted(signal: AbortSignal): Promise<Intent[]> {
    const { intents, volumes, claims, client } = this.#options;
    const pending = intents.list().filter(({ requestName, pending }) =>
      pending && claimUidOf(requestName) !== undefined && !this.#isBusy(requestName)
    );
    const published = pending.filter(({ requestName }) => volumes.get(requestName) !== undefined);
    for (const { requestName } of published) await intents.handOver(requestName, { signal });
    const uids = new Set(claims.list().map(({ metadata }) => metadata.uid));
    const isOrphan = ({ requestName }: Intent) => !uids.has(claimUidOf(requestName)!);
    const orphans = pending.filter((intent) => !published.includes(intent) && isOrphan(intent));
    if (orphans.length === 0) return [];
    for (const { metadata } of (await client.list(persistentVolumeClaims, { signal })).items) uids.add(metadata.uid);
    const unwanted: Intent[] = [];
    for (const intent of orphans.filter(isOrphan)) if (!await this.#hasVolume(intent, signal)) unwanted.push(intent);
    return unwanted;
  }

  async #hasVolume({ requestName }: Intent, signal: AbortSignal): Promise<boolean> {
    try {
      await this.#options.client.get(persistentVolumes, { name: requestName }, { signal });
      return true;
    } catch (error) {
      if (isNotFound(error)) return false;
      throw error;
    }
  }

  async #remove({ requestName, volumeId }: Intent, signal: AbortSignal): Promise<void> {
    this.#log.info("a volume that no claim wants is removed", { request: requestName, volume: volumeId });
    await this.#options.csi.deleteVolume({ volumeId, secrets: {} }, { signal });
    this.#suspects.delete(requestName);
  }
}
