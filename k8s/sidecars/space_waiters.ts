/**
 * Objects that wait for free space on nodes. They are woken when a node has more, and only those that it may help.
 *
 * @module
 */

/** A node that has more free space than before. */
export interface FreeSpaceGrowth {
  /** The node's name. */
  readonly nodeName: string;
  /** The largest volume that one of its groups or thin pools may take now, in bytes. */
  readonly largestBytes: bigint;
}

/** The space that an object waits for. */
export interface AwaitedSpace {
  /** The nodes where it may be; any node, when absent. */
  readonly nodeNames?: Iterable<string> | undefined;
  /** The least space that helps, in bytes. */
  readonly bytes: bigint;
}

/** An object to be tried again. */
export interface WokenKey {
  /** Its key. */
  readonly key: string;
  /** Milliseconds until the attempt. */
  readonly delayMs: number;
}

/** The first delay between a wake-up and the attempt, in milliseconds. */
const START_DELAY_MS = 1_000;

/** The longest delay between a wake-up and the attempt, in milliseconds. */
const MAX_DELAY_MS = 60_000;

/** An object that waits. */
interface Waiter {
  readonly nodeNames: ReadonlySet<string> | undefined;
  readonly bytes: bigint;
  /** The number of attempts after a wake-up that found no space either. */
  readonly failedWakes: number;
  /** Whether it was woken since it began to wait. */
  isWoken: boolean;
}

/** The objects that wait for free space, by key. */
export class SpaceWaiters {
  readonly #waiters = new Map<string, Waiter>();

  /** Adds an object for which there was no space, or notes that there was none again after it was woken. */
  add(key: string, { nodeNames, bytes }: AwaitedSpace): void {
    const before = this.#waiters.get(key);
    this.#waiters.set(key, {
      nodeNames: nodeNames && new Set(nodeNames),
      bytes,
      failedWakes: (before?.failedWakes ?? 0) + (before?.isWoken ? 1 : 0),
      isWoken: false,
    });
  }

  /** Removes an object, which does not wait for space any more. */
  delete(key: string): void {
    this.#waiters.delete(key);
  }

  /** Wakes the objects that a node may have space for now. */
  wake({ nodeName, largestBytes }: FreeSpaceGrowth): WokenKey[] {
    const woken: WokenKey[] = [];
    for (const [key, { nodeNames, bytes }] of this.#waiters) {
      if (bytes > largestBytes || !(nodeNames?.has(nodeName) ?? true)) continue;
      const delayMs = this.wakeKey(key);
      if (delayMs !== undefined) woken.push({ key, delayMs });
    }
    return woken;
  }

  /**
   * Wakes an object, once until it waits again. The delay doubles with each wake-up that did not help, because a node may
   * refuse a volume although it has the space.
   *
   * @returns milliseconds until the attempt, or `undefined` when the object does not wait or is woken already
   */
  wakeKey(key: string): number | undefined {
    const waiter = this.#waiters.get(key);
    if (waiter === undefined || waiter.isWoken) return undefined;
    waiter.isWoken = true;
    return Math.min(MAX_DELAY_MS, START_DELAY_MS * 2 ** Math.min(waiter.failedWakes, 10));
  }
}
