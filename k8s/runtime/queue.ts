/**
 * A queue of keys to work on: a key is in it once, is worked on by one worker at a time, and comes back later when that failed.
 *
 * @module
 */

import { type Backoff, backoffMs, type Clock, nextTurn, systemClock } from "../../base/clock.ts";

/** Options of a {@linkcode WorkQueue}. */
export interface QueueOptions {
  /** The number of keys that are processed at the same time; 4. */
  parallel?: number | undefined;
  /**
   * Milliseconds after which a key that is being processed does not count among `parallel` any more: it waits for
   * somebody else, such as a node that is down, and other keys are not to wait for it. There are at most ten such keys
   * for each of `parallel`. It always counts, when absent.
   */
  slowAfterMs?: number | undefined;
  /** The delay after consecutive failures of a key; {@linkcode DEFAULT_BACKOFF}, when absent. */
  backoff?: Backoff | undefined;
  /** Reports whether a key that is enqueued is processed before those that are not urgent; none is, when absent. */
  isUrgent?: ((key: string) => boolean) | undefined;
  /**
   * Returns whose a key is that is enqueued: the owners take turns, so that nobody waits for all keys of another one. By default it
   * is the namespace of a key `namespace/name`, and nobody's if the key has none.
   */
  ownerOf?: ((key: string) => string) | undefined;
  /** Called whenever the number of keys that wait for a worker changes. */
  onDepth?: ((depth: number) => void) | undefined;
  /** Time. */
  clock?: Clock | undefined;
}

/** The delay after consecutive failures of a key of most controllers. */
export const DEFAULT_BACKOFF: Backoff = { startMs: 1_000, capMs: 300_000 };

/** The number of keys that are taken before other tasks of the event loop have their turn. Some take 10 ms each. */
const KEYS_PER_TURN = 5;

/**
 * The number of keys that take long for each worker. Beyond it they keep their workers, so that a slow API server does
 * not get ever more requests.
 */
const SLOW_KEYS_PER_WORKER = 10;

/** Keys that wait. Their owners take turns, and each has its keys in the order in which they came. */
class Turns {
  readonly #owners = new Map<string, string>();
  readonly #keys = new Map<string, Set<string>>();

  get size(): number {
    return this.#owners.size;
  }

  has(key: string): boolean {
    return this.#owners.has(key);
  }

  add(key: string, owner: string): void {
    if (this.#owners.has(key)) return;
    this.#owners.set(key, owner);
    const keys = this.#keys.get(owner);
    if (keys === undefined) this.#keys.set(owner, new Set([key]));
    else keys.add(key);
  }

  delete(key: string): void {
    const owner = this.#owners.get(key);
    if (owner === undefined) return;
    this.#owners.delete(key);
    const keys = this.#keys.get(owner)!;
    keys.delete(key);
    if (keys.size === 0) this.#keys.delete(owner);
  }

  /** Returns the next key without those that were taken, and gives its owner the last turn. */
  take(): string | undefined {
    const next = this.#keys.entries().next().value;
    if (next === undefined) return undefined;
    const [owner, keys] = next;
    const [key] = keys as Iterable<string>;
    this.#keys.delete(owner);
    this.#keys.set(owner, keys);
    this.delete(key!);
    return key;
  }

  clear(): void {
    this.#owners.clear();
    this.#keys.clear();
  }
}

/** A key's later turn. */
interface DelayedAdd {
  readonly at: number;
  readonly cancel: () => void;
}

/** A queue of keys. The work takes a key; when it fails, the key comes back by itself, later each time. */
export class WorkQueue {
  readonly #work: (key: string) => Promise<void>;
  readonly #parallel: number;
  readonly #slowAfterMs: number | undefined;
  readonly #backoff: Backoff;
  readonly #clock: Clock;
  readonly #onDepth: (depth: number) => void;
  readonly #isUrgent: (key: string) => boolean;
  readonly #ownerOf: (key: string) => string;
  readonly #urgent = new Turns();
  readonly #ready = new Turns();
  /** The keys that have a worker, with the time at which they got it; the oldest first. */
  readonly #active = new Map<string, number>();
  /** The keys that are still processed after they took long, and have no worker any more. */
  readonly #slow = new Set<string>();
  /** Cancels the timer for the next key that takes long. It is set only while other keys wait for a worker. */
  #cancelSlowTimer: (() => void) | undefined;
  /** Keys that were added while they were worked on. */
  readonly #dirty = new Set<string>();
  /** Keys that were woken while they were worked on. */
  readonly #woken = new Set<string>();
  readonly #delayed = new Map<string, DelayedAdd>();
  readonly #failures = new Map<string, number>();
  #state: "new" | "started" | "stopped" = "new";
  #idleWaiters: (() => void)[] = [];
  /** The keys that were taken since other tasks of the event loop had their turn. */
  #takenInTurn = 0;

  /** Keys are taken at once, and worked on from {@linkcode WorkQueue.start} on. */
  constructor(work: (key: string) => Promise<void>, options: QueueOptions = {}) {
    this.#work = work;
    this.#parallel = options.parallel ?? 4;
    this.#slowAfterMs = options.slowAfterMs;
    this.#backoff = options.backoff ?? DEFAULT_BACKOFF;
    this.#clock = options.clock ?? systemClock;
    this.#isUrgent = options.isUrgent ?? (() => false);
    this.#ownerOf = options.ownerOf ?? ((key) => key.slice(0, Math.max(key.indexOf("/"), 0)));
    this.#onDepth = options.onDepth ?? (() => {});
  }

  /** Returns the number of keys that wait for a worker, without those that are delayed. */
  get depth(): number {
    return this.#urgent.size + this.#ready.size;
  }

  /** Returns whether a key is processed or waits for a worker ("turn"), or for a time ("delay"); `undefined` for others. */
  stateOf(key: string): "turn" | "delay" | undefined {
    if (this.#isProcessed(key) || this.#ready.has(key) || this.#urgent.has(key)) return "turn";
    return this.#delayed.has(key) ? "delay" : undefined;
  }

  /** Returns the number of consecutive failures of a key. */
  failures(key: string): number {
    return this.#failures.get(key) ?? 0;
  }

  /**
   * Enqueues a key. A key that failed is processed after the shortest delay and not at once: its own failure may be
   * what changed the object.
   */
  add(key: string): void {
    if (this.#state === "stopped") return;
    if (this.#isProcessed(key)) this.#dirty.add(key);
    else if (this.#failures.has(key)) this.addAfter(key, this.#backoff.startMs);
    else this.#enqueue(key);
  }

  /** Enqueues a key at once, also after failures: what it waits for has happened. */
  wake(key: string): void {
    if (this.#state === "stopped") return;
    if (this.#isProcessed(key)) this.#woken.add(key);
    else this.#enqueue(key);
  }

  /** Enqueues a key after some milliseconds; an earlier time that was set before is kept. */
  addAfter(key: string, ms: number): void {
    if (this.#state === "stopped" || this.#ready.has(key) || this.#urgent.has(key)) return;
    const at = this.#clock.now() + ms;
    const scheduled = this.#delayed.get(key);
    if (scheduled !== undefined && scheduled.at <= at) return;
    scheduled?.cancel();
    const cancel = this.#clock.after(ms, () => {
      this.#delayed.delete(key);
      if (this.#isProcessed(key)) this.#dirty.add(key);
      else this.#enqueue(key);
    });
    this.#delayed.set(key, { at, cancel });
  }

  /** Begins to work. */
  start(): void {
    if (this.#state !== "new") return;
    this.#state = "started";
    this.#dispatch();
  }

  /** Takes no more keys; settles when the work that was begun is done. What waits is dropped. */
  async stop(): Promise<void> {
    this.#state = "stopped";
    for (const { cancel } of this.#delayed.values()) cancel();
    this.#delayed.clear();
    this.#ready.clear();
    this.#urgent.clear();
    this.#dirty.clear();
    this.#woken.clear();
    this.#cancelSlowTimer?.();
    this.#onDepth(0);
    if (this.#active.size + this.#slow.size > 0) await new Promise<void>((resolve) => this.#idleWaiters.push(resolve));
  }

  #isProcessed(key: string): boolean {
    return this.#active.has(key) || this.#slow.has(key);
  }

  #enqueue(key: string): void {
    this.#delayed.get(key)?.cancel();
    this.#delayed.delete(key);
    if (this.#isUrgent(key)) {
      this.#ready.delete(key);
      this.#urgent.add(key, this.#ownerOf(key));
    } else if (!this.#urgent.has(key)) this.#ready.add(key, this.#ownerOf(key));
    this.#dispatch();
    this.#onDepth(this.depth);
  }

  #dispatch(): void {
    if (this.#state !== "started") return;
    while (this.depth > 0 && this.#hasWorker() && !this.#isTurnOver()) {
      const key = this.#urgent.take() ?? this.#ready.take()!;
      this.#active.set(key, this.#clock.now());
      void this.#process(key);
    }
  }

  /** Reports whether another key may be processed. Keys that take long by now are no longer counted. */
  #hasWorker(): boolean {
    if (this.#active.size < this.#parallel) return true;
    if (this.#slowAfterMs === undefined || this.#slow.size >= this.#parallel * SLOW_KEYS_PER_WORKER) return false;
    const [oldest, startedAt] = this.#active.entries().next().value!;
    const waitMs = startedAt + this.#slowAfterMs - this.#clock.now();
    if (waitMs <= 0) {
      this.#active.delete(oldest);
      this.#slow.add(oldest);
      return true;
    }
    this.#cancelSlowTimer ??= this.#clock.after(waitMs, () => {
      this.#cancelSlowTimer = undefined;
      this.#dispatch();
      this.#onDepth(this.depth);
    });
    return false;
  }

  /**
   * Reports whether enough keys were taken in this turn of the event loop. Otherwise keys that wait for no answer would
   * follow each other for seconds, and no Lease would be renewed meanwhile.
   */
  #isTurnOver(): boolean {
    if (++this.#takenInTurn <= KEYS_PER_TURN) return false;
    if (this.#takenInTurn === KEYS_PER_TURN + 1) {
      void nextTurn().then(() => {
        this.#takenInTurn = 0;
        this.#dispatch();
        this.#onDepth(this.depth);
      });
    }
    return true;
  }

  async #process(key: string): Promise<void> {
    try {
      await this.#work(key);
      this.#failures.delete(key);
    } catch {
      this.#failures.set(key, this.failures(key) + 1);
    }
    this.#slow.delete(key);
    this.#active.delete(key);
    this.#requeue(key);
    this.#dispatch();
    this.#onDepth(this.depth);
    if (this.#active.size + this.#slow.size === 0) { for (const resolve of this.#idleWaiters.splice(0)) resolve(); }
  }

  #requeue(key: string): void {
    const added = this.#dirty.delete(key);
    if (this.#woken.delete(key)) return this.wake(key);
    const failures = this.failures(key);
    if (failures > 0) this.addAfter(key, backoffMs(this.#backoff, failures, this.#clock));
    if (added) this.add(key);
  }
}
