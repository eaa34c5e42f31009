/**
 * A cache of a selection of objects that keeps itself up to date: it lists, watches with bookmarks, resumes where a
 * watch ended, and lists again when the revision is too old.
 *
 * @module
 */

import { getLogger } from "@logtape/logtape";
import { type ApiClient, ApiError, isGone, isNotFound, type Selection, type WatchEvent } from "../client/client.ts";
import { type Backoff, backoffMs, type Clock, nextTurn, sleep, systemClock } from "../../base/clock.ts";
import { keyOf, type KubeObject, type Resource } from "../api/objects.ts";

/** Options of an {@linkcode Informer}. */
export interface InformerOptions<T> extends Selection {
  /** Makes of an object what is kept of it; all of it, when absent. */
  transform?: ((object: T) => T) | undefined;
  /** The delay between attempts while the server does not answer; from half a second to 10 s. */
  backoff?: Backoff | undefined;
  /**
   * Milliseconds after which a kind that the server does not have is looked for again. Until it exists, the informer is
   * not synced. When absent, a missing kind is a failure like any other.
   */
  missingKindRetryMs?: number | undefined;
  /** Time. */
  clock?: Clock | undefined;
}

/**
 * Called after a change, with the object now, `undefined` when it was deleted, and before, `undefined` when it is new.
 * An object that disappeared while the server did not answer is reported like a deleted one.
 */
export type Listener<T> = (key: string, now: T | undefined, before: T | undefined) => void;

/** Options of {@linkcode Informer.subscribe}. */
export interface SubscribeOptions {
  /** Whether the listener is called for the objects that are in the cache already; yes, when absent. */
  readonly replay?: boolean | undefined;
}

/** The number of objects that a replay goes through before other tasks of the event loop have their turn. */
const OBJECTS_PER_TURN = 250;

/** Options of {@linkcode Informer.waitFor}. */
export interface WaitOptions {
  /** Cancels the wait. */
  signal?: AbortSignal | undefined;
  /** The time limit in milliseconds; none, when absent. */
  timeoutMs?: number | undefined;
}

/**
 * The time without a message after which the server counts as not answering, in milliseconds. An API server sends a
 * bookmark about every minute (Kubernetes, API concepts, watch bookmarks). An agent may renew its Lease three minutes
 * after the last time, and is silent after five: so an outage that makes it late has to be longer than this.
 */
const MAX_CONTACT_GAP_MS = 110_000;

/** The delay after consecutive failures to read the objects. */
const BACKOFF: Backoff = { startMs: 500, capMs: 10_000 };

/** A cache of a selection of objects that keeps itself up to date. */
export class Informer<T extends KubeObject> {
  /** The resource that it lists and watches. */
  readonly resource: Resource<T>;
  /** Settles when the first list is in. */
  readonly synced: Promise<void>;
  readonly #client: ApiClient;
  readonly #options: InformerOptions<T>;
  readonly #clock: Clock;
  readonly #log = getLogger(["denolith", "informer"]);
  readonly #listeners = new Set<Listener<T>>();
  /** The checks of those who wait for the object of a key. There may be thousands, so each is called for its key only. */
  readonly #waiters = new Map<string, Set<() => void>>();
  readonly #setSynced: () => void;
  #objects = new Map<string, T>();
  #hasSynced = false;
  #isKindMissing = false;
  #isForbidden = false;
  #resourceVersion: string | undefined;
  /** The first and the last message of the server without a longer gap, in the clock's milliseconds. */
  #contact: { readonly since: number; readonly last: number } | undefined;

  /** Creates it; nothing runs before {@linkcode Informer.start}. */
  constructor(client: ApiClient, resource: Resource<T>, options: InformerOptions<T> = {}) {
    this.resource = resource;
    this.#client = client;
    this.#options = options;
    this.#clock = options.clock ?? systemClock;
    const { promise, resolve } = Promise.withResolvers<void>();
    [this.synced, this.#setSynced] = [promise, resolve];
  }

  /** Reports whether the first list is complete. */
  get hasSynced(): boolean {
    return this.#hasSynced;
  }

  /** Reports whether this process lacks the right to list or watch, by the last answer. */
  get isForbidden(): boolean {
    return this.#isForbidden;
  }

  /**
   * Returns since when the server has answered without a longer gap, in the clock's milliseconds; `undefined` while it
   * does not answer.
   */
  get connectedSince(): number | undefined {
    return this.#isContactLost() ? undefined : this.#contact?.since;
  }

  /** Returns the object of a key from the cache. */
  get(key: string): T | undefined {
    return this.#objects.get(key);
  }

  /** Returns all objects of the cache. */
  list(): T[] {
    return [...this.#objects.values()];
  }

  /**
   * Calls the listener for all objects of the cache, and for every change from now on.
   *
   * @returns a function that ends the subscription
   */
  subscribe(listener: Listener<T>, { replay = true }: SubscribeOptions = {}): () => void {
    this.#listeners.add(listener);
    if (replay) { for (const [key, object] of this.#objects) this.#notify(listener, key, object, undefined); }
    return () => void this.#listeners.delete(listener);
  }

  /**
   * Calls a listener for all objects of the cache, as new ones. Other tasks of the event loop run in between, since
   * there may be very many; the listener is called for each object as it is then.
   *
   * @param signal ends the replay early
   */
  async replay(listener: Listener<T>, signal: AbortSignal): Promise<void> {
    let count = 0;
    // objects that are added meanwhile come last, as changes do anyway
    for (const [key, object] of this.#objects) {
      if (count++ === OBJECTS_PER_TURN) {
        await nextTurn();
        count = 1;
      }
      if (signal.aborted) return;
      this.#notify(listener, key, object, undefined);
    }
  }

  /**
   * Waits until a predicate holds for the object of a key. The predicate is first called when the first list is
   * complete.
   *
   * @returns the object, or `undefined` when the predicate holds for its absence
   * @throws {Error} when the time limit passes; with the reason of the signal when it is aborted
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
      cleanups.push(this.#addWaiter(key, check));
      if (this.#hasSynced) check();
      else void this.synced.then(() => cleanups.length > 0 && check());
    });
  }

  /**
   * Waits until the cache shows a change, so that it is not made again. That the time limit passes is not an error:
   * controllers are level-triggered.
   */
  async waitForCache(key: string, predicate: (object: T | undefined) => boolean, options: WaitOptions): Promise<void> {
    await this.waitFor(key, predicate, options).catch(() => {});
  }

  /** Keeps the cache up to date until the signal is aborted; never fails. */
  async start(signal: AbortSignal): Promise<void> {
    const backoff = this.#options.backoff ?? BACKOFF;
    let failures = 0;
    while (!signal.aborted) {
      try {
        if (this.#resourceVersion === undefined) await this.#list(signal);
        const startedAt = this.#clock.now();
        const hasReceived = await this.#watch(signal, () => failures = 0);
        // A server that ends watches at once, without an event, is failing, too.
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
        this.#isForbidden = error instanceof ApiError && error.status === 403;
        if (mustRelist(error)) this.#resourceVersion = undefined;
        this.#log.warn("listing and watching failed", { resource: this.resource.plural, failures, error });
        if (isGone(error) && failures === 1) continue;
      }
      if (failures > 0) await sleep(this.#clock, backoffMs(backoff, failures, this.#clock), signal);
    }
  }

  /**
   * Lists all objects. Listeners are called for each page as it comes: other tasks of the event loop run while the next one
   * is requested, and there is never more than one page in memory beside what is kept.
   */
  async #list(signal: AbortSignal): Promise<void> {
    /** The keys that were listed; not needed when none was known before. */
    const listed = this.#objects.size === 0 ? undefined : new Set<string>();
    let revision: string | undefined;
    const pages = this.#client.listPages(this.resource, { ...this.#selection(), signal });
    for await (const { items, resourceVersion } of pages) {
      this.#recordContact();
      [this.#isKindMissing, this.#isForbidden] = [false, false];
      revision = resourceVersion;
      for (const item of items) {
        const key = keyOf(item);
        listed?.add(key);
        const before = this.#objects.get(key);
        if (before?.metadata.resourceVersion !== item.metadata.resourceVersion) this.#set(key, item, before);
      }
    }
    if (listed !== undefined) this.#removeOthers(listed);
    this.#resourceVersion = revision;
    this.#hasSynced = true;
    this.#setSynced();
  }

  /** Removes the objects that do not exist any more. */
  #removeOthers(listed: ReadonlySet<string>): void {
    for (const [key, before] of this.#objects) {
      if (listed.has(key)) continue;
      this.#objects.delete(key);
      this.#notifyAll(key, undefined, before);
    }
  }

  #isContactLost(): boolean {
    return this.#contact === undefined || this.#clock.now() - this.#contact.last > MAX_CONTACT_GAP_MS;
  }

  #recordContact(): void {
    const now = this.#clock.now();
    this.#contact = { since: this.#isContactLost() ? now : this.#contact!.since, last: now };
  }

  /** Clears the cache, since the server does not have the kind, or does not have it any more. */
  #clearMissingKind(): void {
    if (this.#isKindMissing) return;
    const { plural: resource, group } = this.resource;
    this.#log.info("the cluster does not have the kind; retrying at intervals", { resource, group });
    const previous = this.#objects;
    [this.#isKindMissing, this.#objects, this.#resourceVersion] = [true, new Map(), undefined];
    for (const [key, old] of previous) this.#notifyAll(key, undefined, old);
  }

  /**
   * Processes one watch to its end.
   *
   * @returns whether an event came
   */
  async #watch(signal: AbortSignal, onEvent: () => void): Promise<boolean> {
    let hasReceived = false;
    const from = { ...this.#selection(), resourceVersion: this.#resourceVersion!, signal };
    for await (const event of this.#client.watch(this.resource, from)) {
      hasReceived = true;
      onEvent();
      this.#recordContact();
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
    this.#set(key, object, before);
  }

  /** Keeps an object that is new or changed. */
  #set(key: string, object: T, before: T | undefined): void {
    const now = this.#transform(object);
    this.#objects.set(key, now);
    this.#notifyAll(key, now, before);
  }

  #selection(): Selection {
    const { namespace, labelSelector, fieldSelector, metadataOnly } = this.#options;
    return { namespace, labelSelector, fieldSelector, metadataOnly };
  }

  #transform(object: T): T {
    return this.#options.transform?.(object) ?? object;
  }

  #notifyAll(key: string, now: T | undefined, before: T | undefined): void {
    // a listener that is added meanwhile is called, too, and one that is removed is not
    for (const listener of this.#listeners) this.#notify(listener, key, now, before);
    const waiters = this.#waiters.get(key);
    if (waiters !== undefined) { for (const check of [...waiters]) check(); }
  }

  /** Adds a check that is called after each change of a key. @returns a function that removes it */
  #addWaiter(key: string, check: () => void): () => void {
    const waiters = this.#waiters.get(key) ?? new Set();
    this.#waiters.set(key, waiters.add(check));
    return () => {
      waiters.delete(check);
      if (waiters.size === 0) this.#waiters.delete(key);
    };
  }

  /** Calls a listener. A failure of the listener must not end the watch. */
  #notify(listener: Listener<T>, key: string, now: T | undefined, before: T | undefined): void {
    try {
      listener(key, now, before);
    } catch (error) {
      this.#log.error("a listener failed", { resource: this.resource.plural, key, error });
    }
  }
}

/**
 * Reports whether the watch cannot be resumed, because the server said so or for another reason that only a list
 * resolves.
 */
function mustRelist(error: unknown): boolean {
  return !(error instanceof ApiError) || (error.status !== 0 && error.status !== 429);
}
