/**
 * Sees to it that a PersistentVolume outlives its volume, and removes the volumes that nobody claims any more.
 *
 * @module
 */

import { centralLoop } from "../sidecars/controller_options.ts";
import { isNotFound } from "../client/client.ts";
import { isContended, reasonOf } from "../sidecars/csi_client.ts";
import type { WaitOptions } from "../runtime/informer.ts";
import { type PersistentVolume, persistentVolumes } from "../api/objects.ts";
import type { ProvisionerOptions } from "./provisioner_options.ts";
import { readSecret } from "../sidecars/secrets.ts";
import { deletionSecretOf, isServedBy, nextStep, otherFinalizers, VOLUME_FINALIZER } from "./persistent_volume.ts";

/** Milliseconds in which a change that was made should be seen by the informer. */
const SEEN_WITHIN_MS = 10_000;

/** Guards PersistentVolumes, and removes their volumes. */
export class Reclaiming {
  readonly #options: ProvisionerOptions;
  #stopping: AbortSignal | undefined;

  /** Does nothing before {@linkcode Reclaiming.run}. */
  constructor(options: ProvisionerOptions) {
    this.#options = options;
  }

  /** Works until the signal is aborted. */
  async run(signal: AbortSignal): Promise<void> {
    const { driverName, volumes } = this.#options;
    this.#stopping = signal;
    const loop = centralLoop("reclaimer", this.#options, (name, ending) => this.#reconcile(name, ending));
    loop.follow(volumes, (volume) => {
      return isServedBy(volume, driverName) && nextStep(volume) !== "nothing" ? [volume.metadata.name] : [];
    });
    await loop.run(signal);
  }

  /** How long it is waited for what was done to be seen; not when the loop is to end. */
  get #patience(): WaitOptions {
    return { signal: this.#stopping, timeoutMs: SEEN_WITHIN_MS };
  }

  async #reconcile(name: string, signal: AbortSignal): Promise<void> {
    const volume = this.#options.volumes.get(name);
    if (volume === undefined || !isServedBy(volume, this.#options.driverName)) return;
    switch (nextStep(volume)) {
      case "add finalizer":
        return await this.#setFinalizers(volume, [...otherFinalizers(volume), VOLUME_FINALIZER], signal);
      case "drop finalizer":
        return await this.#setFinalizers(volume, otherFinalizers(volume), signal);
      case "remove":
        return await this.#remove(name, signal);
      case "nothing":
    }
  }

  async #remove(name: string, signal: AbortSignal): Promise<void> {
    const { client, events } = this.#options;
    // The copy may be old, and the policy may have just been changed to Retain: the last look is at the original.
    const volume = await client.get(persistentVolumes, { name }, { signal }).catch((error) => {
      if (!isNotFound(error)) throw error;
    });
    if (volume === undefined || !isServedBy(volume, this.#options.driverName) || nextStep(volume) !== "remove") return;
    try {
      await this.#deleteVolume(volume, signal);
    } catch (error) {
      if (!signal.aborted && !isContended(error)) {
        events.record(volume, "Warning", "VolumeFailedDelete", reasonOf(error));
      }
      throw error;
    }
    if (volume.metadata.finalizers?.includes(VOLUME_FINALIZER)) {
      await this.#setFinalizers(volume, otherFinalizers(volume), signal);
    }
    if (volume.metadata.deletionTimestamp === undefined) {
      await client.delete(persistentVolumes, { name }, { uid: volume.metadata.uid, signal }).catch((error) => {
        if (!isNotFound(error)) throw error;
      });
    }
    const isGoing = (now?: PersistentVolume) => now === undefined || now.metadata.deletionTimestamp !== undefined;
    await this.#options.volumes.seen(name, isGoing, this.#patience);
  }

  async #deleteVolume(volume: PersistentVolume, signal: AbortSignal): Promise<void> {
    const { client, csi } = this.#options;
    const secret = deletionSecretOf(volume);
    // A secret may have gone before the volume that it was for.
    const secrets = await readSecret(client, secret, { signal }).catch((error) => {
      if (isNotFound(error)) return {};
      throw error;
    });
    await csi.deleteVolume({ volumeId: volume.spec!.csi!.volumeHandle, secrets }, { signal });
  }

  async #setFinalizers({ metadata }: PersistentVolume, finalizers: string[], signal: AbortSignal): Promise<void> {
    const { name, resourceVersion } = metadata;
    const merge = { metadata: { finalizers } };
    try {
      await this.#options.client.patch(persistentVolumes, { name }, { merge, resourceVersion, signal });
    } catch (error) {
      if (isNotFound(error)) return;
      throw error;
    }
    const guarded = finalizers.includes(VOLUME_FINALIZER);
    const same = (now: PersistentVolume) => (now.metadata.finalizers?.includes(VOLUME_FINALIZER) ?? false) === guarded;
    await this.#options.volumes.seen(name, (now) => now === undefined || same(now), this.#patience);
  }
}
