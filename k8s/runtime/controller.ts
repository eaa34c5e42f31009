/**
 * A controller: informers enqueue the keys that may need work, and a queue has each reconciled.
 *
 * @module
 */

import { getLogger } from "@logtape/logtape";
import { type Clock, sleep, systemClock, waitForAbort } from "../../base/clock.ts";
import type { Informer, Listener, SubscribeOptions } from "./informer.ts";
import type { KubeObject } from "../api/objects.ts";
import { type QueueOptions, WorkQueue } from "./queue.ts";

/** The result of a reconcile attempt of a key. */
export interface ReconcileResult {
  /** The loop's name. */
  readonly controller: string;
  /** The key. */
  readonly key: string;
  /** Its duration, in milliseconds. */
  readonly ms: number;
  /** The error, when it failed. */
  readonly error?: unknown;
}

/**
 * The outcome of a reconcile attempt that did not fail. Without one, a step was taken. Otherwise it says why there was
 * nothing to do, or what has the key reconciled again: a time, or a named change that somebody reports.
 */
export type ReconcileOutcome =
  | void
  | { readonly nothingToDo: string }
  | { readonly requeueAfterMs: number; readonly waitsFor?: string }
  | { readonly waitsFor: string };

/** Options of a {@linkcode Controller}. */
export interface ControllerOptions extends Omit<QueueOptions, "onDepth"> {
  /** Its name, in the log and in figures. */
  name: string;
  /**
   * Compares the actual state with the desired one, and takes the next step. It is level-triggered, so it may be called
   * at any time, for any key. When it throws, the key is retried with a growing delay; `requeueAfterMs` enqueues the
   * key again after some milliseconds; `waitsFor` names the change for which somebody enqueues it. Both, and why there is
   * `nothingToDo`, are in the log at level debug. The signal is aborted when the controller has to stop.
   */
  reconcile: (key: string, signal: AbortSignal) => Promise<ReconcileOutcome>;
  /** Called after every reconcile attempt. */
  onReconciled?: ((result: ReconcileResult) => void) | undefined;
  /** Called whenever the number of keys that wait for a worker changes. */
  onDepth?: ((controller: string, depth: number) => void) | undefined;
  /** Milliseconds that reconcile attempts have to finish when the controller is stopped; 10,000. */
  drainMs?: number | undefined;
  /** Milliseconds that {@linkcode Controller.waitForCache} waits at most; 10,000. */
  cacheWaitMs?: number | undefined;
}

/** A controller. */
export class Controller {
  /** Its name. */
  readonly name: string;
  readonly #options: ControllerOptions;
  readonly #clock: Clock;
  readonly #queue: WorkQueue;
  /** What the last attempts of keys wait for. */
  readonly #waits = new Map<string, string>();
  readonly #stopping = new AbortController();
  #stopSignal: AbortSignal | undefined;
  readonly #sources: Promise<void>[] = [];
  readonly #unsubscribers: (() => void)[] = [];
  /** Call listeners for what was in the caches already. */
  readonly #replays: ((signal: AbortSignal) => Promise<void>)[] = [];

  /** Creates it; nothing runs before {@linkcode Controller.run}. */
  constructor(options: ControllerOptions) {
    this.name = options.name;
    this.#options = options;
    this.#clock = options.clock ?? systemClock;
    const { name, onDepth, ...queue } = options;
    onDepth?.(name, 0);
    this.#queue = new WorkQueue((key) => this.#reconcile(key), {
      ...queue,
      ...(onDepth && { onDepth: (depth) => onDepth(name, depth) }),
    });
  }

  /** Enqueues a key. */
  add(key: string): void {
    this.#queue.add(key);
  }

  /** Enqueues a key at once, also after failures: what it waits for has happened. */
  wake(key: string): void {
    this.#queue.wake(key);
  }

  /** Enqueues a key after some milliseconds; an earlier time that was set before is kept. */
  addAfter(key: string, ms: number): void {
    this.#queue.addAfter(key, ms);
  }

  /** Returns what has a key reconciled again: its turn, a delay, or what it waits for; `undefined` when nothing does. */
  nextAttempt(key: string): string | undefined {
    return this.#queue.stateOf(key) ?? this.#waits.get(key);
  }

  /**
   * Enqueues keys whenever an object of an informer changes: the key of the object, or those that `keys` returns for
   * it. `keys` is called for the object as it was and as it is. Without `replay`, the objects that are in the cache
   * already are left out.
   */
  watch<T extends KubeObject>(
    informer: Informer<T>,
    keys?: (object: T) => Iterable<string>,
    options?: SubscribeOptions,
  ): this {
    return this.subscribe(informer, (key, now, before) => {
      if (keys === undefined) return this.add(key);
      for (const object of [before, now]) {
        if (object !== undefined) {
          for (const other of keys(object)) this.add(other);
        }
      }
    }, options);
  }

  /**
   * Calls a listener for every change of an informer until the controller stops. Unless `replay` is false, it is also
   * called for each object that is in the cache already, by {@linkcode Controller.run}, before any key is reconciled.
   */
  subscribe<T extends KubeObject>(
    informer: Informer<T>,
    listener: Listener<T>,
    { replay = true }: SubscribeOptions = {},
  ): this {
    this.#sources.push(informer.synced);
    this.#unsubscribers.push(informer.subscribe(listener, { replay: false }));
    // the first pages of a list may be in the cache already, and those that come call the listener themselves
    if (replay) this.#replays.push((signal) => informer.replay(listener, signal));
    return this;
  }

  /**
   * Waits until a cache shows a change, so that it is not made again; not for longer than `cacheWaitMs`, and not when the
   * controller stops.
   */
  async waitForCache<T extends KubeObject>(
    informer: Informer<T>,
    key: string,
    predicate: (object: T | undefined) => boolean,
  ): Promise<void> {
    const timeoutMs = this.#options.cacheWaitMs ?? 10_000;
    await informer.waitForCache(key, predicate, { signal: this.#stopSignal, timeoutMs });
  }

  /**
   * Runs until the signal is aborted, from when all informers have synced. Reconcile attempts in progress then have
   * `drainMs` to finish before they are aborted.
   */
  async run(signal: AbortSignal): Promise<void> {
    this.#stopSignal = signal;
    const stopped = waitForAbort(signal);
    await Promise.race([Promise.all(this.#sources), stopped]);
    await Promise.all(this.#replays.splice(0).map((replay) => replay(signal)));
    if (!signal.aborted) this.#queue.start();
    await stopped;
    for (const undo of this.#unsubscribers.splice(0)) undo();
    await this.#drain();
  }

  async #drain(): Promise<void> {
    const drained = new AbortController();
    const done = this.#queue.stop().then(() => drained.abort());
    await sleep(this.#clock, this.#options.drainMs ?? 10_000, drained.signal);
    this.#stopping.abort(new Error(`${this.name}: the controller stops`));
    await Promise.race([done, sleep(this.#clock, 1_000, drained.signal)]);
  }

  async #reconcile(key: string): Promise<void> {
    const { reconcile, onReconciled } = this.#options;
    const startedAt = this.#clock.now();
    const notify = (outcome: { error?: unknown }) =>
      onReconciled?.({ controller: this.name, key, ms: this.#clock.now() - startedAt, ...outcome });
    try {
      this.#waits.delete(key);
      const outcome = await reconcile(key, this.#stopping.signal);
      if (outcome !== undefined) this.#schedule(key, outcome);
      notify({});
    } catch (error) {
      const failures = this.#queue.failures(key) + 1;
      getLogger(["denolith", this.name]).warn("reconciling failed", { key, failures, error });
      notify({ error });
      throw error;
    }
  }

  #schedule(key: string, outcome: Exclude<ReconcileOutcome, void>): void {
    const log = getLogger(["denolith", this.name]);
    if ("nothingToDo" in outcome) return log.debug("nothing to do", { key, because: outcome.nothingToDo });
    if (outcome.waitsFor !== undefined) log.debug("waiting", { key, for: outcome.waitsFor });
    if ("requeueAfterMs" in outcome) this.#queue.addAfter(key, outcome.requeueAfterMs);
    else this.#waits.set(key, outcome.waitsFor);
  }
}
