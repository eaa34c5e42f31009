/**
 * A copy of a selection of objects that keeps itself up to date: list, watch with bookmarks, resume where the watch ended, list
 * again when the revision is too old.
 *
 * @module
 */

import { getLogger } from "@logtape/logtape";
import { type ApiClient, ApiError, isGone, isNotFound, type Selection, type WatchEvent } from "../client/client.ts";
import { type Backoff, backoffMs, type Clock, sleep, systemClock } from "./clock.ts";
import { keyOf, type KubeObject, type Resource } from "../api/objects.ts";

/** How an {@linkcode Informer} behaves. */
export interface InformerOptions<T> extends Selection {
  /** Makes of an object what is kept of it; without `metadata.managedFields`, when absent. */
  keep?: ((object: T) => T) | undefined;
  /** How waiting grows while the server is away; from half a second to 10 s. */
  backoff?: Backoff | undefined;
  /**
   * For a kind that the server need not have: milliseconds after which it is looked for again. Until it is there, the informer
   * is not synced. Otherwise a kind that is not there is a failure like any other.
   */
  absentMs?: number | undefined;
  /** Time. */
  clock?: Clock | undefined;
}

/**
 * Told of a change: the object now, undefined when it is gone, and as it was before, undefined when it is new. What vanished
 * while the server was away is told like what was deleted.
 */
export type Listener<T> = (key: string, now: T | undefined, before: T | undefined) => void;

/** How long {@linkcode Informer.waitFor} waits. */
export interface WaitOptions {
  /** Ends the waiting. */
  signal?: AbortSignal | undefined;
  /** Milliseconds; for ever, when absent. */
  timeoutMs?: number | undefined;
}

/** A copy of a selection of objects that keeps itself up to date. */
export class Informer<T extends KubeObject> {
  /** What it lists and watches. */
  readonly resource: Resource<T>;
  /** Settles when the first list is in. */
  readonly synced: Promise<void>;
  readonly #client: ApiClient;
  readonly #options: InformerOptions<T>;
  readonly #clock: Clock;
  readonly #log = getLogger(["denolith", "informer"]);
  readonly #listeners = new Set<Listener<T>>();
  readonly #setSynced: () => void;
  #objects = new Map<string, T>();
  #hasSynced = false;
  #absent = false;
  #revision: string | undefined;

  /** Does nothing before {@linkcode Informer.start}. */
  constructor(client: ApiClient, resource: Resource<T>, options: InformerOptions<T> = {}) {
    this.resource = resource;
    this.#client = client;
    this.#options = options;
    this.#clock = options.clock ?? systemClock;
    const { promise, resolve } = Promise.withResolvers<void>();
    [this.synced, this.#setSynced] = [promise, resolve];
  }

  /** Whether the first list is in. */
  get hasSynced(): boolean {
    return this.#hasSynced;
  }

  /** The object of that key, as last seen. */
  get(key: string): T | undefined {
    return this.#objects.get(key);
  }

  /** All objects, as last seen. */
  list(): T[] {
    return [...this.#objects.values()];
  }

  /** Tells of all objects that are there already, and of every change from now on, until the answer is called. */
  subscribe(listener: Listener<T>): () => void {
    this.#listeners.add(listener);
    for (const [key, object] of this.#objects) this.#tell(listener, key, object, undefined);
    return () => void this.#listeners.delete(listener);
  }

  /** Tells everyone of every object again, as a change from itself to itself. */
  resync(): void {
    for (const [key, object] of this.#objects) this.#tellAll(key, object, object);
  }

  /**
   * The object of that key as soon as the predicate holds of it, undefined where it holds of its absence. Nothing is asked
   * before the first list is in.
   *
   * @throws {Error} when the time is over; with the signal's reason when that is aborted
   */
  waitFor(
    key: string,
    predicate: (object: T | undefined) => boolean,
    { signal, timeoutMs }: WaitOptions = {},
  ): Promise<T | undefined> {
    return new Promise((resolve, reject) => {
      const undo: (() => void)[] = [];
      const settle = (call: () => void) => {
        for (const step of undo.splice(0)) step();
        call();
      };
      const look = () => {
        if (!this.#hasSynced) return;
        const object = this.#objects.get(key);
        try {
          if (predicate(object)) settle(() => resolve(object));
        } catch (error) {
          settle(() => reject(error));
        }
      };
      if (signal?.aborted) return reject(signal.reason);
      const abort = () => settle(() => reject(signal?.reason));
      signal?.addEventListener("abort", abort);
      undo.push(() => signal?.removeEventListener("abort", abort));
      if (timeoutMs !== undefined) {
        const late = () => new Error(`waiting for ${this.resource.plural} ${key}: not so within ${timeoutMs} ms`);
        undo.push(this.#clock.after(timeoutMs, () => settle(() => reject(late()))));
      }
      const listener: Listener<T> = (changed) => changed === key && look();
      this.#listeners.add(listener);
      undo.push(() => this.#listeners.delete(listener));
      if (this.#hasSynced) look();
      else void this.synced.then(() => undo.length > 0 && look());
    });
  }

  /**
   * Waits until the copy shows what was done, so that it is not done again; no longer than the options say. That it was not
   * seen then is no failure: whoever works by the copy is level-triggered.
   */
  async seen(key: string, predicate: (object: T | undefined) => boolean, options: WaitOptions): Promise<void> {
    await this.waitFor(key, predicate, options).catch(() => {});
  }

  /** Keeps the copy up to date until the signal is aborted; never fails. */
  async start(signal: AbortSignal): Promise<void> {
    const backoff = this.#options.backoff ?? { startMs: 500, capMs: 10_000 };
    let failures = 0;
    while (!signal.aborted) {
      try {
        if (this.#revision === undefined) await this.#list(signal);
        const began = this.#clock.now();
        const seen = await this.#watch(signal, () => failures = 0);
        // A server that ends watches at once, without a word, is failing, too.
        failures = seen || this.#clock.now() - began >= 1000 ? 0 : failures + 1;
      } catch (error) {
        if (signal.aborted) return;
        const { absentMs } = this.#options;
        if (absentMs !== undefined && isNotFound(error)) {
          this.#forget();
          await sleep(this.#clock, absentMs, signal);
          continue;
        }
        failures++;
        if (mustList(error)) this.#revision = undefined;
        this.#log.warn("listing and watching failed", { resource: this.resource.plural, failures, error });
        if (isGone(error) && failures === 1) continue;
      }
      if (failures > 0) await sleep(this.#clock, backoffMs(backoff, failures, this.#clock), signal);
    }
  }

  async #list(signal: AbortSignal): Promise<void> {
    const { items, resourceVersion } = await this.#client.list(this.resource, { ...this.#selection(), signal });
    this.#absent = false;
    const before = this.#objects;
    this.#objects = new Map(items.map((item) => [keyOf(item), this.#keep(item)]));
    this.#revision = resourceVersion;
    for (const [key, object] of this.#objects) {
      const old = before.get(key);
      if (old?.metadata.resourceVersion !== object.metadata.resourceVersion) this.#tellAll(key, object, old);
    }
    for (const [key, old] of before) if (!this.#objects.has(key)) this.#tellAll(key, undefined, old);
    this.#hasSynced = true;
    this.#setSynced();
  }

  /** The server has no such kind, or no longer: then there are no such objects. */
  #forget(): void {
    if (this.#absent) return;
    const { plural: resource, group } = this.resource;
    this.#log.info("the cluster has no such kind; it is looked for from time to time", { resource, group });
    const before = this.#objects;
    [this.#absent, this.#objects, this.#revision] = [true, new Map(), undefined];
    for (const [key, old] of before) this.#tellAll(key, undefined, old);
  }

  /** Follows one watch to its end; answers whether something came. */
  async #watch(signal: AbortSignal, onEvent: () => void): Promise<boolean> {
    let seen = false;
    const from = { ...this.#selection(), resourceVersion: this.#revision!, signal };
    for await (const event of this.#client.watch(this.resource, from)) {
      seen = true;
      onEvent();
      this.#apply(event);
    }
    return seen;
  }

  #apply({ type, object }: WatchEvent<T>): void {
    this.#revision = object.metadata.resourceVersion ?? this.#revision;
    if (type === "BOOKMARK") return;
    const key = keyOf(object);
    const before = this.#objects.get(key);
    if (type === "DELETED") {
      this.#objects.delete(key);
      this.#tellAll(key, undefined, before ?? this.#keep(object));
      return;
    }
    const now = this.#keep(object);
    this.#objects.set(key, now);
    this.#tellAll(key, now, before);
  }

  #selection(): Selection {
    const { namespace, labelSelector, fieldSelector } = this.#options;
    return { namespace, labelSelector, fieldSelector };
  }

  #keep(object: T): T {
    delete (object.metadata as { managedFields?: unknown }).managedFields;
    return this.#options.keep?.(object) ?? object;
  }

  #tellAll(key: string, now: T | undefined, before: T | undefined): void {
    for (const listener of [...this.#listeners]) this.#tell(listener, key, now, before);
  }

  /** A listener that fails must not end the watch. */
  #tell(listener: Listener<T>, key: string, now: T | undefined, before: T | undefined): void {
    try {
      listener(key, now, before);
    } catch (error) {
      this.#log.error("a listener failed", { resource: this.resource.plural, key, error });
    }
  }
}

/** Whether what was seen may not be resumed: the server said so, or something that only a list settles. */
function mustList(error: unknown): boolean {
  return !(error instanceof ApiError) || (error.status !== 0 && error.status !== 429);
}
