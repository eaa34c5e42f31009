/**
 * Changes of volume groups that nothing else of this process may come between.
 *
 * @module
 */

import { withinDeadline } from "../../base/clock.ts";
import { StorageError } from "../../base/error.ts";
import type { VolumeGroup } from "../model/report.ts";

/** Keeps the changes of groups waiting while a body changes them alone. */
export class ExclusiveChanges {
  /** What settles when the body of a group has ended, by the group's UUID. */
  readonly #bodies = new Map<string, Promise<unknown>>();

  /** Reports whether a body changes a group alone. */
  isHeld(group: Pick<VolumeGroup, "uuid">): boolean {
    return this.#bodies.has(group.uuid);
  }

  /** Waits until no body changes a group alone. */
  async wait(group: Pick<VolumeGroup, "uuid">): Promise<void> {
    for (let body = this.#bodies.get(group.uuid); body !== undefined; body = this.#bodies.get(group.uuid)) await body;
  }

  /**
   * Runs a body. Changes of the groups that begin meanwhile wait for its end.
   *
   * @param running settles when the changes that have begun already have ended
   * @param waitMs how long to wait for them, in milliseconds
   * @throws {StorageError} `Busy` when they do not end in that time, or another body changes one of the groups
   */
  async run<T>(
    groups: readonly Pick<VolumeGroup, "uuid" | "name">[],
    running: () => Promise<unknown>,
    waitMs: number,
    body: () => Promise<T>,
  ): Promise<T> {
    const busy = groups.find(({ uuid }) => this.#bodies.has(uuid));
    if (busy !== undefined) throw busyError(busy, "a group snapshot in it is being taken");
    const { promise, resolve } = Promise.withResolvers<void>();
    for (const { uuid } of groups) this.#bodies.set(uuid, promise);
    try {
      const ended = await withinDeadline(running().then(() => true), waitMs);
      if (!ended) throw busyError(groups[0]!, "commands that change something run for long");
      return await body();
    } finally {
      for (const { uuid } of groups) this.#bodies.delete(uuid);
      resolve();
    }
  }
}

function busyError({ name }: Pick<VolumeGroup, "name">, reason: string): StorageError {
  return new StorageError("Busy", `changing volume group ${name} alone: ${reason}; try again later`);
}
