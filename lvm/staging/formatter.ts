/**
 * Formats volumes right after their creation, while their claims and pods are bound, so that the first stage is like a later one.
 *
 * It only saves time: nobody waits for it but who needs the volume, and what it does not do the stage does. It begins nothing
 * while LVM changes something or several volumes wait, since claims wait for that, and reads no report. That the volume is in
 * use is not recorded: it is not.
 *
 * @module
 */

import { ignoreStorageError, ignoring } from "../../base/error.ts";
import type { VolumeId } from "../../base/ids.ts";
import { type Locks, volumeLock } from "../../base/locks.ts";
import { BackgroundWorker } from "../../base/worker.ts";
import type { Lvm } from "../client/client.ts";
import type { VolumeFinder } from "../inventory/volume_finder.ts";
import { isEmpty } from "../inventory/volume.ts";
import type { Staging } from "./staging.ts";

/** Options of {@linkcode Formatter}. */
export interface FormatterOptions {
  /** LVM on this machine. */
  readonly lvm: Lvm;
  /** Finds the volumes. */
  readonly finder: VolumeFinder;
  /** Locks by volume, shared with the Node service. */
  readonly locks: Locks;
  /** Formats them. */
  readonly staging: Pick<Staging, "format">;
  /** Called with each error. The stage of the volume tries again. */
  readonly onError: (error: unknown) => void;
}

/** Formats volumes in the background, one after the other. */
export class Formatter {
  readonly #options: FormatterOptions;
  readonly #worker: BackgroundWorker;
  readonly #waiting = new Set<VolumeId>();

  /** Creates it. */
  constructor(options: FormatterOptions) {
    this.#options = options;
    this.#worker = new BackgroundWorker({ pass: () => this.#run(), onError: options.onError });
  }

  /** Formats a volume that was created just now, if it is to have a filesystem, and is not encrypted or a copy. */
  formatSoon(id: VolumeId): void {
    if (this.#worker.stopped) return;
    this.#waiting.add(id);
    this.#worker.wake();
  }

  /** Waits until none is being formatted. */
  async idle(): Promise<void> {
    await this.#worker.idle();
  }

  /** Stops after the one that is being formatted. */
  async stop(): Promise<void> {
    this.#waiting.clear();
    await this.#worker.stop();
  }

  async #run(): Promise<void> {
    const { lvm, locks, staging, onError } = this.#options;
    for (const id of this.#waiting) {
      const isIdle = await lvm.becomesIdle();
      if (this.#waiting.size > 1) this.#waiting.clear();
      // not once it was cleared, here or by stop()
      if (!this.#waiting.delete(id) || !isIdle || !this.#isToBeFormatted(id)) continue;
      // one that is busy is being staged, or deleted
      await locks.runYielding("formatting", [volumeLock(id)], () => staging.format(id))
        .catch(ignoring("Busy")).catch(onError);
    }
  }

  /** Reports whether a volume is known to be as it was created. */
  #isToBeFormatted(id: VolumeId): boolean {
    const known = this.#options.lvm.knownToConfirm(id);
    const found = known && ignoreStorageError(() => this.#options.finder.locate(known, id));
    if (found?.state !== "present") return false;
    const { volume } = found;
    return isEmpty(volume) && volume.tags.format.state === "unformatted" && volume.tags.format.luks === undefined;
  }
}
