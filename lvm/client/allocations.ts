/**
 * The allocation of space in volume groups with spare space, one command after the other.
 *
 * @module
 */

import { StorageError } from "../../base/error.ts";
import type { VolumeGroup } from "../model/report.ts";
import { describeFree } from "../settings/spare_space.ts";
import { formatBytes } from "../../base/size.ts";

/** Runs the allocations of each group one after the other. */
export class Allocations {
  /** What settles when the last allocation of a group has ended, by the group's UUID. */
  readonly #last = new Map<string, Promise<unknown>>();

  /** Runs a body after those of the group that were given before. */
  run<T>({ uuid }: Pick<VolumeGroup, "uuid">, body: () => Promise<T>): Promise<T> {
    const result = Promise.resolve(this.#last.get(uuid)).then(body);
    const ended = result.then(() => {}, () => {}); // its own caller gets the error
    this.#last.set(uuid, ended);
    void ended.then(() => this.#last.get(uuid) === ended && this.#last.delete(uuid));
    return result;
  }
}

/**
 * Requires that a group has space for volumes.
 *
 * @param groups a report
 * @throws {StorageError} `NoSpace`; `NotFound` when the report does not show the group
 */
export function requireFree(
  groups: readonly VolumeGroup[],
  { uuid, name }: Pick<VolumeGroup, "uuid" | "name">,
  bytes: bigint,
): void {
  const operation = `taking ${formatBytes(bytes)} of volume group ${name}`;
  const group = groups.find((group) => group.uuid === uuid);
  if (group === undefined) throw new StorageError("NotFound", `${operation}: it does not exist any more`);
  if (bytes > group.free) throw new StorageError("NoSpace", `${operation}: it has ${describeFree(group)}`);
}
