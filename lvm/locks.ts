/**
 * Locks by key: who comes second is told so at once instead of waiting (CSI spec, "Concurrency": ABORTED).
 *
 * @module
 */

import { StorageError } from "./error.ts";
import type { SnapshotId, VolumeId } from "./ids.ts";
import type { ContentSource } from "./model/tags.ts";

/** How a lock is held: alone, or together with other holders of the same kind of operation. */
export type LockMode = "exclusive" | "shared";

/** A key to lock and how. */
export interface LockRequest {
  /** What is locked. */
  readonly key: string;
  /** How. */
  readonly mode: LockMode;
}

/** The lock that an operation on a volume needs: those that copy from it may run together. */
export function volumeLock(id: VolumeId, mode: LockMode = "exclusive"): LockRequest {
  return { key: `volume ${id}`, mode };
}

/** The lock that an operation on a snapshot needs. */
export function snapshotLock(id: SnapshotId, mode: LockMode = "exclusive"): LockRequest {
  return { key: `snapshot ${id}`, mode };
}

/** The locks that making a volume needs: its own, and that of its source together with other copies of that. */
export function volumeCreationLocks(id: VolumeId, source: ContentSource | undefined): LockRequest[] {
  if (source === undefined) return [volumeLock(id)];
  const sourceLock = source.kind === "volume" ? volumeLock(source.id, "shared") : snapshotLock(source.id, "shared");
  return [volumeLock(id), sourceLock];
}

/** The locks that taking a snapshot needs: that of the snapshot, and that of its volume together with other copies of it. */
export function snapshotCreationLocks(id: SnapshotId, source: VolumeId): LockRequest[] {
  return [snapshotLock(id), volumeLock(source, "shared")];
}

/** A set of locks by key. */
export class Locks {
  readonly #held = new Map<string, { mode: LockMode; holders: number; operation: string }>();

  /**
   * Runs `body` while holding the locks, and releases them whatever happens. When `body` fails because a command is
   * still running, the locks are kept until that command has ended.
   *
   * @throws {StorageError} `Busy`, at once, when one of the locks is held in a way that excludes this one.
   */
  async run<T>(operation: string, requests: readonly LockRequest[], body: () => Promise<T>): Promise<T> {
    this.#acquire(operation, requests);
    let completion: Promise<unknown> | undefined;
    try {
      return await body();
    } catch (error) {
      completion = error instanceof StorageError && error.kind === "StillRunning" ? error.completion : undefined;
      throw error;
    } finally {
      if (completion === undefined) this.#release(requests);
      else completion.then(() => {}, () => {}).then(() => this.#release(requests));
    }
  }

  #acquire(operation: string, requests: readonly LockRequest[]): void {
    for (const { key, mode } of requests) {
      const held = this.#held.get(key);
      if (held !== undefined && (mode === "exclusive" || held.mode === "exclusive")) {
        throw new StorageError(
          "Busy",
          `${operation} of ${key}: ${held.operation} of it is running; try again when it is done`,
        );
      }
    }
    for (const { key, mode } of requests) {
      const holders = this.#held.get(key)?.holders ?? 0;
      this.#held.set(key, { mode, holders: holders + 1, operation });
    }
  }

  #release(requests: readonly LockRequest[]): void {
    for (const { key } of requests) {
      const held = this.#held.get(key);
      if (held === undefined) continue;
      if (--held.holders === 0) this.#held.delete(key);
    }
  }
}
