/**
 * A loop that makes true what objects ask for: informers say which keys may need work, and a queue has each reconciled.
 *
 * @module
 */

import { getLogger } from "@logtape/logtape";
import { type Clock, sleep, systemClock, waitForAbort } from "../../lvm/clock.ts";
import type { Informer } from "./informer.ts";
import type { KubeObject } from "../api/objects.ts";
import { type QueueOptions, WorkQueue } from "./queue.ts";

/** What a turn of a key came to. */
export interface ReconcileResult {
  /** The loop's name. */
  readonly controller: string;
  /** The key. */
  readonly key: string;
  /** How long it took, in milliseconds. */
  readonly ms: number;
  /** What it failed with. */
  readonly error?: unknown;
}

/** How a {@linkcode Controller} behaves. */
export interface ControllerOptions extends Omit<QueueOptions, "onDepth"> {
  /** Its name, in the log and in figures. */
  name: string;
  /**
   * Looks at what is, and does the next needed step; level-triggered, so it may be called at any time, for any key. When it
   * throws, the key comes back, later each time; `again` asks for another turn after so many milliseconds. The signal is
   * aborted when the loop has to end.
   */
  reconcile: (key: string, signal: AbortSignal) => Promise<void | { requeueAfterMs: number }>;
  /** Told of every turn. */
  onReconciled?: ((result: ReconcileResult) => void) | undefined;
  /** Told whenever the number of keys that wait for a worker changes. */
  onDepth?: ((controller: string, depth: number) => void) | undefined;
  /** Milliseconds in which work that was begun may be finished when the loop is stopped; 10,000. */
  drainMs?: number | undefined;
}

/** A loop. */
export class Controller {
  /** Its name. */
  readonly name: string;
  readonly #options: ControllerOptions;
  readonly #clock: Clock;
  readonly #queue: WorkQueue;
  readonly #stopping = new AbortController();
  readonly #sources: Promise<void>[] = [];
  readonly #unsubscribers: (() => void)[] = [];

  /** Does nothing before {@linkcode Controller.run}. */
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

  /** Has a key reconciled soon. */
  add(key: string): void {
    this.#queue.add(key);
  }

  /**
   * Has keys reconciled whenever an object of an informer changes: its own, or those that `keys` names for it. It is asked for
   * the object as it was and as it is.
   */
  watch<T extends KubeObject>(informer: Informer<T>, keys?: (object: T) => Iterable<string>): this {
    this.#sources.push(informer.synced);
    this.#unsubscribers.push(informer.subscribe((key, now, before) => {
      if (keys === undefined) return this.add(key);
      for (const object of [before, now]) {
        if (object !== undefined) {
          for (const other of keys(object)) this.add(other);
        }
      }
    }));
    return this;
  }

  /**
   * Works until the signal is aborted, once all informers have their first list. What was begun then has `drainMs` to be
   * finished, and is told to end after that.
   */
  async run(signal: AbortSignal): Promise<void> {
    const stopped = waitForAbort(signal);
    await Promise.race([Promise.all(this.#sources), stopped]);
    if (!signal.aborted) this.#queue.start();
    await stopped;
    for (const undo of this.#unsubscribers.splice(0)) undo();
    await this.#drain();
  }

  async #drain(): Promise<void> {
    const drained = new AbortController();
    const done = this.#queue.stop().then(() => drained.abort());
    await sleep(this.#clock, this.#options.drainMs ?? 10_000, drained.signal);
    this.#stopping.abort(new Error(`${this.name}: the loop ends`));
    await Promise.race([done, sleep(this.#clock, 1_000, drained.signal)]);
  }

  async #reconcile(key: string): Promise<void> {
    const { reconcile, onReconciled } = this.#options;
    const startedAt = this.#clock.now();
    const notify = (outcome: { error?: unknown }) =>
      onReconciled?.({ controller: this.name, key, ms: this.#clock.now() - startedAt, ...outcome });
    try {
      const result = await reconcile(key, this.#stopping.signal);
      if (result !== undefined) this.#queue.addAfter(key, result.requeueAfterMs);
      notify({});
    } catch (error) {
      const failures = this.#queue.failures(key) + 1;
      getLogger(["denolith", this.name]).warn("reconciling failed", { key, failures, error });
      notify({ error });
      throw error;
    }
  }
}
