/**
 * Which volumes have filesystems that the kernel has stopped writing to, for those who tell of it without being asked.
 *
 * It is seen in the mount table alone, and nobody is told when it changes, so it is looked at whenever the groups are surveyed.
 *
 * @module
 */

import type { Exec } from "../exec.ts";
import { mountProblem, type Problem } from "./health.ts";
import type { VolumeId } from "../ids.ts";
import { type Mount, readMounts } from "../host/mounts.ts";
import type { LogicalVolume, VolumeGroup } from "../model/report.ts";
import { ownedVolumeId } from "../model/tags.ts";

/** A volume with such a filesystem. */
export interface ReadOnlyFilesystem {
  /** Its LV. */
  readonly lv: LogicalVolume;
  /** The group that the LV is in. */
  readonly group: VolumeGroup;
  /** What to tell of it. */
  readonly problem: Problem<"FilesystemReadOnly">;
}

/** Keeps what the mount table last said. */
export class ReadOnlyFilesystems {
  readonly #exec: Exec;
  readonly #driver: string;
  readonly #onError: (error: unknown) => void;
  #readOnly: ReadonlyMap<VolumeId, ReadOnlyFilesystem> = new Map();

  /** Knows of none before {@linkcode observe}. Is told what failed; it is looked again with the next survey. */
  constructor(exec: Exec, driver: string, onError: (error: unknown) => void) {
    this.#exec = exec;
    this.#driver = driver;
    this.#onError = onError;
  }

  /**
   * Looks at the volumes in a report. The mount table is read if one of them is open; if it cannot be, what was seen before
   * stays, and nobody else's work fails for it.
   */
  async observe(groups: readonly VolumeGroup[]): Promise<void> {
    const open = groups.flatMap((group) =>
      group.lvs.filter((lv) => lv.open).map((lv) => ({ id: ownedVolumeId(this.#driver, lv.tags), lv, group }))
    ).filter(({ id }) => id !== undefined);
    let mounts: Mount[] = [];
    try {
      if (open.length > 0) mounts = await readMounts(this.#exec);
    } catch (error) {
      return this.#onError(error);
    }
    this.#readOnly = new Map(open.flatMap(({ id, lv, group }) => {
      const problem = mountProblem(lv, mounts);
      return problem === undefined ? [] : [[id!, { lv, group, problem }]];
    }));
  }

  /** What is wrong with the filesystem of a volume, as it was last seen. */
  problemOf(id: VolumeId): Problem<"FilesystemReadOnly"> | undefined {
    return this.#readOnly.get(id)?.problem;
  }

  /** All that were stopped when it was last looked at. */
  list(): ReadOnlyFilesystem[] {
    return [...this.#readOnly.values()];
  }
}
