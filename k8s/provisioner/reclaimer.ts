/**
 * Keeps PersistentVolumes until their volumes are deleted, and deletes the volumes that are no longer claimed.
 *
 * @module
 */

import { type ClaimSidecarOptions, sidecarController } from "../sidecars/sidecar_controller.ts";
import type { Controller, ReconcileOutcome } from "../runtime/controller.ts";
import { orAbsent } from "../client/client.ts";
import { codeName, type CsiClient, errorMessage } from "../sidecars/csi_client.ts";
import { type PersistentVolume, persistentVolumes } from "../api/objects.ts";
import { readSecretIfAllowed } from "../sidecars/secrets.ts";
import { WaitingKeys } from "../runtime/wake_ups.ts";
import { deletionSecretOf } from "../sidecars/volume_secrets.ts";
import { isManagedBy, nextReclaimStep, otherFinalizers, VOLUME_FINALIZER } from "./persistent_volume.ts";

/** Options of {@linkcode Reclaimer}. */
export interface ReclaimerOptions extends Omit<ClaimSidecarOptions, "claims"> {
  /** The driver. */
  readonly csi: Pick<CsiClient, "deleteVolume">;
}

/** Keeps PersistentVolumes until their volumes are deleted, and deletes these. */
export class Reclaimer {
  readonly #options: ReclaimerOptions;
  /** The PersistentVolumes whose volumes are being deleted, by the handles of the volumes. */
  readonly #waiting = new WaitingKeys();
  readonly #controller: Controller;

  /** Creates it; nothing runs before {@linkcode Reclaimer.run}. */
  constructor(options: ReclaimerOptions) {
    this.#options = options;
    this.#controller = sidecarController("reclaimer", options, (name, signal) => this.#reconcile(name, signal));
  }

  /** Runs until the signal is aborted. */
  async run(signal: AbortSignal): Promise<void> {
    const { driverName, volumes, wakeUps } = this.#options;
    const controller = this.#controller;
    controller.watch(volumes, (volume) => {
      return isManagedBy(volume, driverName) && nextReclaimStep(volume) !== "nothing" ? [volume.metadata.name] : [];
    });
    wakeUps.on("deletion", (handle) => this.#waiting.wake(handle, controller), signal);
    await controller.run(signal);
  }

  async #reconcile(name: string, signal: AbortSignal): Promise<ReconcileOutcome> {
    const volume = this.#options.volumes.get(name);
    if (volume === undefined) return { nothingToDo: "it is gone" };
    if (!isManagedBy(volume, this.#options.driverName)) return { nothingToDo: "it is not the driver's to reclaim" };
    switch (nextReclaimStep(volume)) {
      case "add finalizer":
        return await this.#setFinalizers(volume, [...otherFinalizers(volume), VOLUME_FINALIZER], signal);
      case "remove finalizer":
        return await this.#setFinalizers(volume, otherFinalizers(volume), signal);
      case "delete volume":
        return await this.#deleteVolumeAndObject(name, signal);
      case "nothing":
        return { nothingToDo: "its phase, its policy and its finalizers ask for nothing" };
    }
  }

  async #deleteVolumeAndObject(name: string, signal: AbortSignal): Promise<ReconcileOutcome> {
    const { client, events } = this.#options;
    // The cache may be stale, and the policy may just have become Retain: the API server decides.
    const volume = await orAbsent(client.get(persistentVolumes, { name }, { signal }));
    if (
      volume === undefined || !isManagedBy(volume, this.#options.driverName) ||
      nextReclaimStep(volume) !== "delete volume"
    ) return { nothingToDo: "by the API server, which is ahead of the cache, its volume is to be kept" };
    const handle = volume.spec!.csi!.volumeHandle;
    // before the attempt, so that a change during it requeues the volume
    this.#waiting.add(handle, name);
    try {
      await this.#deleteVolume(volume, signal);
    } catch (error) {
      if (!signal.aborted) events.record(volume, "Warning", "VolumeFailedDelete", errorMessage(error));
      if (codeName(error) === "FailedPrecondition") return { waitsFor: "the end of what the refusal names" };
      throw error;
    }
    this.#waiting.delete(name);
    if (volume.metadata.finalizers?.includes(VOLUME_FINALIZER)) {
      await this.#setFinalizers(volume, otherFinalizers(volume), signal);
    }
    if (volume.metadata.deletionTimestamp === undefined) {
      await orAbsent(client.delete(persistentVolumes, { name }, { uid: volume.metadata.uid, signal }));
    }
    const isDeleting = (now?: PersistentVolume) => now === undefined || now.metadata.deletionTimestamp !== undefined;
    await this.#controller.waitForCache(this.#options.volumes, name, isDeleting);
  }

  async #deleteVolume(volume: PersistentVolume, signal: AbortSignal): Promise<void> {
    const { client, csi } = this.#options;
    const secrets = await readSecretIfAllowed(client, deletionSecretOf(volume), { signal });
    await csi.deleteVolume({ volumeId: volume.spec!.csi!.volumeHandle, secrets }, { signal });
  }

  async #setFinalizers({ metadata }: PersistentVolume, finalizers: string[], signal: AbortSignal): Promise<void> {
    const { name, resourceVersion } = metadata;
    const merge = { metadata: { finalizers } };
    const { client } = this.#options;
    const patched = await orAbsent(client.patch(persistentVolumes, { name }, { merge, resourceVersion, signal }));
    if (patched === undefined) return;
    const hasFinalizer = finalizers.includes(VOLUME_FINALIZER);
    const isUpToDate = (now: PersistentVolume) =>
      (now.metadata.finalizers?.includes(VOLUME_FINALIZER) ?? false) === hasFinalizer;
    await this.#controller.waitForCache(this.#options.volumes, name, (now) => now === undefined || isUpToDate(now));
  }
}
