/**
 * The keys of a controller that wait for the outcome of a request.
 *
 * @module
 */

import type { Controller } from "../runtime/controller.ts";

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
