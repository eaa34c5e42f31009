/**
 * The parts of an informer that its subscribers use, over objects that a test changes.
 *
 * @module
 */

import type { KubeObject } from "../../../k8s/api/objects.ts";
import type { Listener } from "../../../k8s/runtime/informer.ts";

/** An informer whose objects a test changes. */
export class FakeInformer<T extends KubeObject> {
  readonly #objects = new Map<string, T>();
  readonly #listeners: Listener<T>[] = [];

  /** See {@linkcode Informer.subscribe}; it cannot be ended. */
  subscribe(listener: Listener<T>): () => void {
    this.#listeners.push(listener);
    return () => {};
  }

  /** Returns the object of a key. */
  get(key: string): T | undefined {
    return this.#objects.get(key);
  }

  /** Returns all objects. */
  list(): T[] {
    return [...this.#objects.values()];
  }

  /** Changes or removes an object, and calls the listeners. */
  set(key: string, now: T | undefined): void {
    const before = this.#objects.get(key);
    if (now === undefined) this.#objects.delete(key);
    else this.#objects.set(key, now);
    for (const listener of this.#listeners) listener(key, now, before);
  }
}
