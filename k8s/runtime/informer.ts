/**
 * A copy of a selection of objects that keeps itself up to date: list, watch with bookmarks, resume where the watch ended, list
 * again when the revision is too old.
 *
 * @module
 */

import { getLogger } from "@logtape/logtape";
import { type ApiClient, ApiError, isGone, isNotFound, type Selection, type WatchEvent } from "../client/client.ts";
import { type Backoff, backoffMs, type Clock, sleep, systemClock } from "../../lvm/clock.ts";
import { keyOf, type KubeObject, type Resource } from "../api/objects.ts";

/** How an {@linkcode Informer} behaves. */
export interface InformerOptions<T> extends Selection {
  /** Makes of an object what is kept of it; without `metadata.managedFields`, when absent. */
  transform?: ((object: T) => T) | undefined;
  /** How waiting grows while the server is away; from half a second to 10 s. */
  backoff?: Backoff | undefined;
  /**
   * For a kind that the server need not have: milliseconds after which it is looked for again. Until it is there, the informer
   * is not synced. Otherwise a kind that is not there is a failure like any other.
   */
  missingKindRetryMs?: number | undefined;
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
  #isKindMissing = false;
  #resourceVersion: string | undefined;

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
    for (const [key, object] of this.#objects) this.#notify(listener, key, object, undefined);
    return () => void this.#listeners.delete(listener);
  }

  /** Tells everyone of every object again, as a change from itself to itself. */
  resync(): void {
    for (const [key, object] of this.#objects) this.#notifyAll(key, object, object);
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
      const cleanups: (() => void)[] = [];
      const finish = (call: () => void) => {
        for (const step of cleanups.splice(0)) step();
        call();
      };
      const check = () => {
        if (!this.#hasSynced) return;
        const object = this.#objects.get(key);
        try {
          if (predicate(object)) finish(() => resolve(object));
        } catch (error) {
          finish(() => reject(error));
        }
      };
      if (signal?.aborted) return reject(signal.reason);
      const abort = () => finish(() => reject(signal?.reason));
      signal?.addEventListener("abort", abort);
      cleanups.push(() => signal?.removeEventListener("abort", abort));
      if (timeoutMs !== undefined) {
        const timeoutError = () =>
          new Error(`waiting for ${this.resource.plural} ${key}: not so within ${timeoutMs} ms`);
        cleanups.push(this.#clock.after(timeoutMs, () => finish(() => reject(timeoutError()))));
      }
      const listener: Listener<T> = (changed) => changed === key && check();
      this.#listeners.add(listener);
      cleanups.push(() => this.#listeners.delete(listener));
      if (this.#hasSynced) check();
      else void this.synced.then(() => cleanups.length > 0 && check());
    });
  }

  /**
   * Waits until the copy shows what was done, so that it is not done again; no longer than the options say. That it was not
   * seen then is no failure: whoever works by the copy is level-triggered.
   */
  async waitForCache(key: string, predicate: (object: T | undefined) => boolean, options: WaitOptions): Promise<void> {
    await this.waitFor(key, predicate, options).catch(() => {});
  }

  /** Keeps the copy up to date until the signal is aborted; never fails. */
  async start(signal: AbortSignal): Promise<void> {
    const backoff = this.#options.backoff ?? { startMs: 500, capMs: 10_000 };
    let failures = 0;
    while (!signal.aborted) {
      try {
        if (this.#resourceVersion === undefined) await this.#list(signal);
        const startedAt = this.#clock.now();
        const hasReceived = await this.#watch(signal, () => failures = 0);
        // A server that ends watches at once, without a word, is failing, too.
        failures = hasReceived || this.#clock.now() - startedAt >= 1000 ? 0 : failures + 1;
      } catch (error) {
        if (signal.aborted) return;
        const { missingKindRetryMs } = this.#options;
        if (missingKindRetryMs !== undefined && isNotFound(error)) {
          this.#clearMissingKind();
          await sleep(this.#clock, missingKindRetryMs, signal);
          continue;
        }
        failures++;
        if (mustRelist(error)) this.#resourceVersion = undefined;
        this.#log.warn("listing and watching failed", { resource: this.resource.plural, failures, error });
        if (isGone(error) && failures === 1) continue;
      }
      if (failures > 0) await sleep(this.#clock, backoffMs(backoff, failures, this.#clock), signal);
    }
  }

  async #list(signal: AbortSignal): Promise<void> {
    const { items, resourceVersion } = await this.#client.list(this.resource, { ...this.#selection(), signal });
    this.#isKindMissing = false;
    const previous = this.#objects;
    this.#objects = new Map(items.map((item) => [keyOf(item), this.#transform(item)]));
    this.#resourceVersion = resourceVersion;
    for (const [key, object] of this.#objects) {
      const old = previous.get(key);
      if (old?.metadata.resourceVersion !== object.metadata.resourceVersion) this.#notifyAll(key, object, old);
    }
    for (const [key, old] of previous) if (!this.#objects.has(key)) this.#notifyAll(key, undefined, old);
    this.#hasSynced = true;
    this.#setSynced();
  }

  /** The server has no such kind, or no longer: then there are no such objects. */
  #clearMissingKind(): void {
    if (this.#isKindMissing) return;
    const { plural: resource, group } = this.resource;
    this.#log.info("the cluster has no such kind; it is looked for from time to time", { resource, group });
    const previous = this.#objects;
    [this.#isKindMissing, this.#objects, this.#resourceVersion] = [true, new Map(), undefined];
    for (const [key, old] of previous) this.#notifyAll(key, undefined, old);
  }

  /** Follows one watch to its end; answers whether something came. */
  async #watch(signal: AbortSignal, onEvent: () => void): Promise<boolean> {
    let hasReceived = false;
    const from = { ...this.#selection(), resourceVersion: this.#resourceVersion!, signal };
    for await (const event of this.#client.watch(this.resource, from)) {
      hasReceived = true;
      onEvent();
      this.#apply(event);
    }
    return hasReceived;
  }

  #apply({ type, object }: WatchEvent<T>): void {
    this.#resourceVersion = object.metadata.resourceVersion ?? this.#resourceVersion;
    if (type === "BOOKMARK") return;
    const key = keyOf(object);
    const before = this.#objects.get(key);
    if (type === "DELETED") {
      this.#objects.delete(key);
      this.#notifyAll(key, undefined, before ?? this.#transform(object));
      return;
    }
    const now = this.#transform(object);
    this.#objects.set(key, now);
    this.#notifyAll(key, now, before);
  }

  #selection(): Selection {
    const { namespace, labelSelector, fieldSelector } = this.#options;
    return { namespace, labelSelector, fieldSelector };
  }

  #transform(object: T): T {
    delete (object.metadata as { managedFields?: unknown }).managedFields;
    return this.#options.transform?.(object) ?? object;
  }

  #notifyAll(key: string, now: T | undefined, before: T | undefined): void {
    for (const listener of [...this.#listeners]) this.#notify(listener, key, now, before);
  }

  /** A listener that fails must not end the watch. */
  #notify(listener: Listener<T>, key: string, now: T | undefined, before: T | undefined): void {
    try {
      listener(key, now, before);
    } catch (error) {
      this.#log.error("a listener failed", { resource: this.resource.plural, key, error });
    }
  }
}

/** Whether what was seen may not be resumed: the server said so, or something that only a list settles. */
function mustRelist(error: unknown): boolean {
  return !(error instanceof ApiError) || (error.status !== 0 && error.status !== 429);
}
