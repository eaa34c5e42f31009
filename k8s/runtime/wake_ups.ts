/**
 * Wake-ups of what waits: whoever observes a change names it, and knows nothing of those who wait for it. Controllers note
 * which of their keys wait for a request, and which for space.
 *
 * @module
 */

import type { Controller } from "./controller.ts";

/** The kinds of wake-ups, each with what a wake-up is about. */
export interface WakeUpSubjects {
  /** A node has more free space. */
  readonly space: FreeSpaceGrowth;
  /** Less of the free space of a node is reserved: a volume does not take what it was to have. */
  readonly unreserved: FreeSpaceGrowth;
  /** The outcome of a request for a volume, a snapshot or a group snapshot is known; its name. */
  readonly request: string;
  /** The outcome of the expansion of a volume is known; the handle of the volume. */
  readonly expansion: string;
  /** The deletion of a volume, a snapshot or a group snapshot may succeed, which could not before; the handle. */
  readonly deletion: string;
  /** A snapshot that was ready is not ready any more; its handle. */
  readonly unready: string;
}

/** A kind of wake-ups. */
export type WakeUpKind = keyof WakeUpSubjects;

/** The handler of one kind. */
type Handler<K extends WakeUpKind> = (subject: WakeUpSubjects[K]) => void;

/** The wake-ups of a process. */
export class WakeUps {
  readonly #handlers: { readonly [K in WakeUpKind]: Set<Handler<K>> } = {
    space: new Set(),
    unreserved: new Set(),
    request: new Set(),
    expansion: new Set(),
    deletion: new Set(),
    unready: new Set(),
  };

  /** Wakes what waits for a subject. A wake-up that nobody waits for does nothing. */
  wake<K extends WakeUpKind>(kind: K, subject: WakeUpSubjects[K]): void {
    for (const handler of this.#handlers[kind]) handler(subject);
  }

  /** Calls the handler for each wake-up of a kind until the signal is aborted. */
  on<K extends WakeUpKind>(kind: K, handler: Handler<K>, signal: AbortSignal): void {
    if (signal.aborted) return;
    this.#handlers[kind].add(handler);
    signal.addEventListener("abort", () => this.#handlers[kind].delete(handler), { once: true });
  }
}

/**
 * The keys that wait for an outcome, by the request's name or the handle of its object. A key waits for one thing at a
 * time. One that is woken waits no more: the next attempt adds it again.
 */
export class WaitingKeys {
  readonly #keys = new Map<string, Set<string>>();
  /** What each key waits for. */
  readonly #awaited = new Map<string, string>();

  /** Adds the key that waits for a request or an object, and not for what it waited for before. */
  add(awaited: string, key: string): void {
    this.delete(key);
    this.#awaited.set(key, awaited);
    this.#keys.set(awaited, (this.#keys.get(awaited) ?? new Set()).add(key));
  }

  /** Removes a key, which waits for nothing any more. */
  delete(key: string): void {
    const awaited = this.#awaited.get(key);
    if (awaited === undefined) return;
    this.#awaited.delete(key);
    const keys = this.#keys.get(awaited)!;
    keys.delete(key);
    if (keys.size === 0) this.#keys.delete(awaited);
  }

  /** Wakes the keys that wait for a request or an object. */
  wake(awaited: string, controller: Pick<Controller, "wake">): void {
    for (const key of [...this.#keys.get(awaited) ?? []]) {
      this.delete(key);
      controller.wake(key);
    }
  }
}

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
