/**
 * The logical sectors of volume groups, which are those of their disks.
 *
 * LVM does not report them. A disk keeps them while it is there, so they are read once, and again when a group has other disks.
 *
 * @module
 */

import { defined } from "../../base/defined.ts";
import { StorageError } from "../../base/error.ts";
import type { Exec } from "../exec.ts";
import type { VolumeGroup } from "../model/report.ts";
import { readSectorBytes } from "../host/device.ts";

/** Reads the sectors of groups, and remembers them. */
export class GroupSectors {
  readonly #exec: Exec;
  /** The size in bytes, by the group and its disks. */
  #known: ReadonlyMap<string, bigint | undefined> = new Map();

  /** Creates an object that knows nothing yet. */
  constructor(exec: Exec) {
    this.#exec = exec;
  }

  /** Adds the sectors to the groups of a report ({@linkcode VolumeGroup.sectorBytes}). Those that cannot be read are left out. */
  async addTo<G extends VolumeGroup>(groups: readonly G[]): Promise<G[]> {
    const known = this.#known;
    this.#known = new Map(
      await Promise.all(groups.map(async (group) => {
        const key = keyOf(group);
        return [key, known.get(key) ?? await this.#read(group.pvPaths)] as const;
      })),
    );
    return groups.map((group) => ({ ...group, ...defined({ sectorBytes: this.#known.get(keyOf(group)) }) }));
  }

  async #read(paths: readonly string[]): Promise<bigint | undefined> {
    if (paths.length === 0) return undefined; // lsblk would list all
    try {
      return await readSectorBytes(this.#exec, paths);
    } catch (error) {
      if (error instanceof StorageError) return undefined; // it is read with the next report
      throw error;
    }
  }
}

function keyOf({ uuid, pvPaths }: VolumeGroup): string {
  return [uuid, ...pvPaths].join(" ");
}
