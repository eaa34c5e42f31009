/**
 * The keys of a controller that wait for the outcome of a request.
 *
 * @module
 */

import type { Controller } from "../runtime/controller.ts";

/**
 * The keys that wait for an outcome, by the request's name or the handle of its object. A key that is woken waits no
 * more: the next attempt adds it again.
 */
export class WaitingKeys {
  readonly #keys = new Map<string, string>();

  /** Adds the key that waits for a request or an object. */
  add(awaited: string, key: string): void {
    this.#keys.set(awaited, key);
  }

  /** Removes what a key waits for. */
  delete(awaited: string): void {
    this.#keys.delete(awaited);
  }

  /** Removes all keys. */
  clear(): void {
    this.#keys.clear();
  }

  /** Wakes the key that waits for a request or an object, if there is one. */
  wake(awaited: string, controller: Pick<Controller, "wake"> | undefined): void {
    const key = this.#keys.get(awaited);
    if (key === undefined) return;
    this.#keys.delete(awaited);
    controller?.wake(key);
  }
}
