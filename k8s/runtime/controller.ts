/**
 * A loop that makes true what objects ask for: informers say which keys may need work, and a queue has each reconciled.
 *
 * @module
 */

import { getLogger } from "@logtape/logtape";
import { aborted, type Clock, sleep, systemClock } from "./clock.ts";
import type { Informer } from "./informer.ts";
import type { KubeObject } from "../api/objects.ts";
import { type QueueOptions, WorkQueue } from "./queue.ts";

/** What a turn of a key came to. */
export interface Turn {
  /** The loop's name. */
  readonly loop: string;
  /** The key. */
  readonly key: string;
  /** How long it took, in milliseconds. */
  readonly ms: number;
  /** What it failed with. */
  readonly error?: unknown;
}

/** How a {@linkcode Loop} behaves. */
export interface LoopOptions extends Omit<QueueOptions, "onDepth"> {
  /** Its name, in the log and in figures. */
  name: string;
  /**
   * Looks at what is, and does the next needed step; level-triggered, so it may be called at any time, for any key. When it
   * throws, the key comes back, later each time; `again` asks for another turn after so many milliseconds. The signal is
   * aborted when the loop has to end.
   */
  reconcile: (key: string, signal: AbortSignal) => Promise<void | { again: number }>;
  /** Told of every turn. */
  onTurn?: ((turn: Turn) => void) | undefined;
  /** Told whenever the number of keys that wait for a worker changes. */
  onDepth?: ((loop: string, depth: number) => void) | undefined;
  /** Milliseconds in which work that was begun may be finished when the loop is stopped; 10,000. */
  drainMs?: number | undefined;
}

/** A loop. */
export class Loop {
  /** Its name. */
  readonly name: string;
  readonly #options: LoopOptions;
  readonly #clock: Clock;
  readonly #queue: WorkQueue;
  readonly #ending = new AbortController();
  readonly #sources: Promise<void>[] = [];
  readonly #undo: (() => void)[] = [];

  /** Does nothing before {@linkcode Loop.run}. */
  constructor(options: LoopOptions) {
    this.name = options.name;
    this.#options = options;
    this.#clock = options.clock ?? systemClock;
    const { name, onDepth, ...queue } = options;
    onDepth?.(name, 0);
    this.#queue = new WorkQueue((key) => this.#turn(key), {
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
  follow<T extends KubeObject>(informer: Informer<T>, keys?: (object: T) => Iterable<string>): this {
    this.#sources.push(informer.synced);
    this.#undo.push(informer.subscribe((key, now, before) => {
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
    const stopped = aborted(signal);
    await Promise.race([Promise.all(this.#sources), stopped]);
    if (!signal.aborted) this.#queue.start();
    await stopped;
    for (const undo of this.#undo.splice(0)) undo();
    await this.#drain();
  }

  async #drain(): Promise<void> {
    const drained = new AbortController();
    const done = this.#queue.stop().then(() => drained.abort());
    await sleep(this.#clock, this.#options.drainMs ?? 10_000, drained.signal);
    this.#ending.abort(new Error(`${this.name}: the loop ends`));
    await Promise.race([done, sleep(this.#clock, 1_000, drained.signal)]);
  }

  async #turn(key: string): Promise<void> {
    const { reconcile, onTurn } = this.#options;
    const started = this.#clock.now();
    const told = (rest: { error?: unknown }) =>
      onTurn?.({ loop: this.name, key, ms: this.#clock.now() - started, ...rest });
    try {
      const answer = await reconcile(key, this.#ending.signal);
      if (answer !== undefined) this.#queue.addAfter(key, answer.again);
      told({});
    } catch (error) {
      const failures = this.#queue.failures(key) + 1;
      getLogger(["denolith", this.name]).warn("reconciling failed", { key, failures, error });
      told({ error });
      throw error;
    }
  }
}
