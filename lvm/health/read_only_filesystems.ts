/**
 * The volumes whose filesystems the kernel has made read-only or shut down, for reports without a request.
 *
 * Only their mounts show it, and no event reports a change of it. So these are read whenever the groups are observed.
 *
 * @module
 */

import { type LogicalVolume, lvsOf, type VolumeGroup } from "../model/report.ts";
import type { Exec } from "../exec.ts";
import { mountProblem, type Problem } from "./health.ts";
import type { VolumeId } from "../../base/ids.ts";
import { type Mount, readMountStates } from "../host/mounts.ts";
import { ownedVolumeId } from "../model/tags.ts";

/** A volume whose filesystem the kernel has made read-only. */
export interface ReadOnlyFilesystem {
  /** The LV of the volume. */
  readonly lv: LogicalVolume;
  /** The group of the LV. */
  readonly group: VolumeGroup;
  /** The problem to report. */
  readonly problem: Problem<"FilesystemReadOnly">;
}

/** Keeps the last result from the mount table. */
export class ReadOnlyFilesystems {
  readonly #exec: Exec;
  readonly #driver: string;
  readonly #onError: (error: unknown) => void;
  #readOnly: ReadonlyMap<VolumeId, ReadOnlyFilesystem> = new Map();

  /**
   * Creates an object without any known filesystem until {@linkcode observe} is called.
   *
   * @param onError called when the mount table cannot be read; the next report retries
   */
  constructor(exec: Exec, driver: string, onError: (error: unknown) => void) {
    this.#exec = exec;
    this.#driver = driver;
    this.#onError = onError;
  }

  /**
   * Checks the volumes in a report. It reads the mount table if one of them is open. If that fails, the previous result
   * stays, and the caller does not fail.
   */
  async observe(groups: readonly VolumeGroup[]): Promise<void> {
    const open = lvsOf(groups).filter(({ lv }) => lv.open)
      .map(({ group, lv }) => ({ id: ownedVolumeId(this.#driver, lv.tags), lv, group }))
      .filter(({ id }) => id !== undefined);
    let mounts: Mount[] = [];
    try {
      if (open.length > 0) mounts = await readMountStates(this.#exec);
    } catch (error) {
      return this.#onError(error);
    }
    this.#readOnly = new Map(open.flatMap(({ id, lv, group }) => {
      const problem = mountProblem(lv, mounts);
      return problem === undefined ? [] : [[id!, { lv, group, problem }]];
    }));
  }

  /** Returns the problem of a volume's filesystem, as last observed. */
  problemOf(id: VolumeId): Problem<"FilesystemReadOnly"> | undefined {
    return this.#readOnly.get(id)?.problem;
  }

  /** Returns all such filesystems, as last observed. */
  list(): ReadOnlyFilesystem[] {
    return [...this.#readOnly.values()];
  }
}
