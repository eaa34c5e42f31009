/**
 * Locks by key. A second caller fails at once instead of waiting (CSI spec, "Concurrency": ABORTED).
 *
 * @module
 */

import { lateCompletion, StorageError } from "./error.ts";
import { type GroupSnapshotId, type KindAndId, memberSnapshotIdOf, type SnapshotId, type VolumeId } from "./ids.ts";

/** The mode of a lock: held alone, or together with other holders in the shared mode. */
export type LockMode = "exclusive" | "shared";

/** A key to lock and the mode. */
export interface LockRequest {
  /** The key. */
  readonly key: string;
  /** The mode. */
  readonly mode: LockMode;
}

/** Returns the lock that an operation on a volume needs. Operations that copy from the volume share it. */
export function volumeLock(id: VolumeId, mode: LockMode = "exclusive"): LockRequest {
  return { key: `volume ${id}`, mode };
}

/** Returns the lock that an operation on a snapshot needs. */
export function snapshotLock(id: SnapshotId, mode: LockMode = "exclusive"): LockRequest {
  return { key: `snapshot ${id}`, mode };
}

/** Returns the locks that creating a volume needs: its own, and that of its source, shared with other copies of the source. */
export function volumeCreationLocks(id: VolumeId, source: KindAndId | undefined): LockRequest[] {
  if (source === undefined) return [volumeLock(id)];
  const sourceLock = source.kind === "volume" ? volumeLock(source.id, "shared") : snapshotLock(source.id, "shared");
  return [volumeLock(id), sourceLock];
}

/** Returns the locks that taking a snapshot needs: its own, and that of its volume, shared with other copies of the volume. */
export function snapshotCreationLocks(id: SnapshotId, source: VolumeId): LockRequest[] {
  return [snapshotLock(id), volumeLock(source, "shared")];
}

/** Returns the lock that an operation on a group snapshot needs. */
export function groupSnapshotLock(id: GroupSnapshotId): LockRequest {
  return { key: `group snapshot ${id}`, mode: "exclusive" };
}

/** Returns the locks that taking a group snapshot needs: nothing may read or change its volumes while they are suspended. */
export function groupSnapshotCreationLocks(id: GroupSnapshotId, sources: readonly VolumeId[]): LockRequest[] {
  const locks = sources.flatMap((source) => [volumeLock(source), snapshotLock(memberSnapshotIdOf(id, source))]);
  return [groupSnapshotLock(id), ...locks];
}

/** A set of locks by key. */
export class Locks {
  readonly #held = new Map<string, { mode: LockMode; holders: number; operation: string }>();
  /** The ends of what runs by {@linkcode Locks.runYielding}, by its keys. */
  readonly #yielding = new Map<string, Promise<unknown>>();

  /**
   * Runs `body` while it holds the locks, and then releases them in any case. When `body` fails because a command is still
   * running, the locks are held until that command has ended.
   *
   * @param operation a name of the operation, for the error messages of others
   * @param body gets a function that releases some of the locks before it ends
   * @throws {StorageError} `Busy`, at once, when one of the locks is held in a mode that excludes the requested one.
   */
  async run<T>(
    operation: string,
    requests: readonly LockRequest[],
    body: (release: (some: readonly LockRequest[]) => void) => Promise<T>,
  ): Promise<T> {
    const yielding = () => requests.map(({ key }) => this.#yielding.get(key)).find((end) => end !== undefined);
    for (let end = yielding(); end !== undefined; end = yielding()) await end;
    this.#acquire(operation, requests);
    return await this.#runHolding(requests, body);
  }

  /**
   * Runs `body` as {@linkcode Locks.run} does, for work that those need who come meanwhile: they wait for its end, unless one of
   * its commands outlasts its deadline.
   */
  async runYielding(operation: string, requests: readonly LockRequest[], body: () => Promise<void>): Promise<void> {
    this.#acquire(operation, requests);
    const run = this.#runHolding(requests, body).finally(() => {
      for (const { key } of requests) this.#yielding.delete(key);
    });
    for (const { key } of requests) this.#yielding.set(key, run.catch(() => {}));
    await run;
  }

  async #runHolding<T>(
    requests: readonly LockRequest[],
    body: (release: (some: readonly LockRequest[]) => void) => Promise<T>,
  ): Promise<T> {
    const held = new Set(requests);
    const release = (some: Iterable<LockRequest>) => this.#release([...some].filter((each) => held.delete(each)));
    let completion: Promise<unknown> | undefined;
    try {
      return await body(release);
    } catch (error) {
      completion = lateCompletion(error);
      throw error;
    } finally {
      if (completion === undefined) release(held);
      else completion.then(() => {}, () => {}).then(() => release(held));
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
      const { holders, mode: own } = this.#held.get(key) ?? { holders: 0, mode };
      // one that is exclusive by now is this caller's
      this.#held.set(key, { mode: own === "exclusive" ? own : mode, holders: holders + 1, operation });
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
