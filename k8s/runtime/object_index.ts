/**
 * An index of the objects of an informer, so that nobody has to go through all of them.
 *
 * @module
 */

import type { KubeObject } from "../api/objects.ts";
import type { Informer } from "./informer.ts";

/** The objects of an informer by something other than their keys. */
export class ObjectIndex<T extends KubeObject> {
  readonly #groups = new Map<string, Map<string, T>>();

  /**
   * Subscribes to an informer.
   *
   * @param groupOf returns what an object is looked for by; `undefined` for an object that nobody looks for
   */
  constructor(informer: Pick<Informer<T>, "subscribe">, groupOf: (object: T) => string | undefined) {
    informer.subscribe((key, now, before) => {
      const [group, groupBefore] = [now && groupOf(now), before && groupOf(before)];
      if (groupBefore !== undefined && groupBefore !== group) this.#remove(groupBefore, key);
      if (group === undefined) return;
      const objects = this.#groups.get(group) ?? new Map<string, T>();
      this.#groups.set(group, objects.set(key, now!));
    });
  }

  /** Returns the objects of a group, by their keys. */
  get(group: string): ReadonlyMap<string, T> {
    return this.#groups.get(group) ?? new Map<string, T>();
  }

  #remove(group: string, key: string): void {
    const objects = this.#groups.get(group);
    objects?.delete(key);
    if (objects?.size === 0) this.#groups.delete(group);
  }
}
