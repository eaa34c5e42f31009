/**
 * The snapshotter: takes the snapshots that VolumeSnapshotContents ask for, and removes those that nobody wants any more. Where
 * the cluster has no such kinds, it waits for them.
 *
 * VolumeSnapshots themselves, and their VolumeSnapshotContents, are the official snapshot-controller's.
 *
 * @module
 */

import { type SnapshotterOptions, Snapshotting } from "./snapshotting.ts";

export type { SnapshotterOptions } from "./snapshotting.ts";

/** The snapshotter. Two of them at work do everything twice, and harm nothing. */
export class Snapshotter {
  readonly #options: SnapshotterOptions;
  #snapshotting: Snapshotting | undefined;

  /** Does nothing before {@linkcode Snapshotter.run}. */
  constructor(options: SnapshotterOptions) {
    this.#options = options;
  }

  /** Works until the signal is aborted, and comes back when nothing is being worked on any more. It may be run again. */
  async run(signal: AbortSignal): Promise<void> {
    // What was known when someone else led is worth nothing now.
    this.#snapshotting = new Snapshotting(this.#options);
    await this.#snapshotting.run(signal);
    this.#snapshotting = undefined;
  }

  /** Has a look at the snapshot of a handle, which was ready and may not be so any more. */
  recheck(handle: string): void {
    this.#snapshotting?.recheck(handle);
  }

  /** Tries again, soon, the snapshots for which there was no space: to be called when a node has more. */
  requeueExhausted(): void {
    this.#snapshotting?.requeueExhausted();
  }
}
