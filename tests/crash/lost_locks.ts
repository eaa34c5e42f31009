/**
 * Mistakes of the kind that interleavings must find: the driver without one of its locks.
 *
 * @module
 */

import type fc from "fast-check";
import { type LockRequest, Locks } from "../../base/locks.ts";
import { PoolReservation } from "../../lvm/pools/pool_reservation.ts";
import { groupRuns, type Run, runs } from "./concurrent_callers.ts";

/** A lock that operations take. */
interface Lock {
  /** The operations, as they name themselves to the lock. */
  readonly operations: readonly string[];
  readonly of: "volume" | "snapshot";
  readonly mode: LockRequest["mode"];
}

/** The locks that are taken from operations, by name. */
const LOCKS = {
  "of a volume that is created": { operations: ["creation"], of: "volume", mode: "exclusive" },
  "of the source volume of a copy": { operations: ["creation"], of: "volume", mode: "shared" },
  "of the source snapshot of a copy": { operations: ["creation"], of: "snapshot", mode: "shared" },
  "of a volume that is deleted": { operations: ["deletion"], of: "volume", mode: "exclusive" },
  "of a volume that is expanded": { operations: ["expansion"], of: "volume", mode: "exclusive" },
  "of a volume that is staged": { operations: ["staging"], of: "volume", mode: "exclusive" },
  "of a volume that is unstaged": { operations: ["unstaging"], of: "volume", mode: "exclusive" },
  "of a volume that is published": { operations: ["publishing"], of: "volume", mode: "exclusive" },
  "of a volume that is unpublished": { operations: ["unpublishing"], of: "volume", mode: "exclusive" },
  "of a volume that is snapshotted": { operations: ["snapshot"], of: "volume", mode: "shared" },
  "of a volume in a group snapshot": { operations: ["group snapshot"], of: "volume", mode: "exclusive" },
  "of a snapshot that is created": { operations: ["snapshot"], of: "snapshot", mode: "exclusive" },
  "of a snapshot that is deleted": { operations: ["deletion"], of: "snapshot", mode: "exclusive" },
} as const satisfies Record<string, Lock>;

/** The name of a lock that can be lost. */
export type LostLock = keyof typeof LOCKS | "of the allocations of a thin pool";

/** The names of all locks that can be lost. */
export const LOST_LOCKS = [...Object.keys(LOCKS), "of the allocations of a thin pool"] as LostLock[];

/** A seed whose runs find that a lock is lost, within a number of runs. */
export interface PinnedSeed {
  readonly lost: LostLock;
  readonly seed: number;
  readonly runs: number;
}

/**
 * Seeds that found something. A change of the driver's commands or of the callers changes what they do. When one finds
 * nothing any more, `deno run -A tests/crash/find_seeds.ts` finds others.
 */
export const PINNED_SEEDS: readonly PinnedSeed[] = [
  { lost: "of a volume that is created", seed: 9, runs: 1 },
  { lost: "of the source volume of a copy", seed: 7, runs: 2 },
  { lost: "of the source snapshot of a copy", seed: 6, runs: 2 },
  { lost: "of a volume that is deleted", seed: 1, runs: 5 },
  { lost: "of a volume that is expanded", seed: 1, runs: 7 },
  { lost: "of a volume that is staged", seed: 6, runs: 6 },
  { lost: "of a volume that is unstaged", seed: 5, runs: 11 },
  { lost: "of a volume that is published", seed: 7, runs: 11 },
  { lost: "of a volume that is unpublished", seed: 8, runs: 2 },
  { lost: "of a volume that is snapshotted", seed: 7, runs: 11 },
  { lost: "of a volume in a group snapshot", seed: 8, runs: 1 },
  { lost: "of a snapshot that is created", seed: 6, runs: 12 },
  { lost: "of a snapshot that is deleted", seed: 17, runs: 4 },
  { lost: "of the allocations of a thin pool", seed: 3, runs: 7 },
];

/** Returns the runs that can find that a lock is lost. */
export function runsFor(lost: LostLock): fc.Arbitrary<Run> {
  return lost === "of a volume in a group snapshot" ? groupRuns : runs;
}

/** Lets all drivers run without a lock, until it is disposed of. */
export function loseLock(name: LostLock): Disposable {
  if (name === "of the allocations of a thin pool") return losePoolLock();
  const { operations, of, mode }: Lock = LOCKS[name];
  const { run } = Locks.prototype;
  Locks.prototype.run = function <T>(
    operation: string,
    requests: readonly LockRequest[],
    body: (release: (some: readonly LockRequest[]) => void) => Promise<T>,
  ) {
    const kept = requests.filter((request) =>
      !(operations.includes(operation) && request.mode === mode && request.key.startsWith(`${of} `))
    );
    return run.call(this, operation, kept, body) as Promise<T>;
  };
  return { [Symbol.dispose]: () => void (Locks.prototype.run = run) };
}

/** Runs each body at once, with a reservation of its own. */
function losePoolLock(): Disposable {
  const { runExclusive } = PoolReservation.prototype;
  PoolReservation.prototype.runExclusive = async function (groups, { uuid }, body) {
    return await body(groups.find((group) => group.uuid === uuid)!);
  };
  return { [Symbol.dispose]: () => void (PoolReservation.prototype.runExclusive = runExclusive) };
}
