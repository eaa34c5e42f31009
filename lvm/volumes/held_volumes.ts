/**
 * Volumes that are moved to another node: their LV here is held, so that nobody begins to use it, and an LV that was filled
 * for them becomes theirs.
 *
 * @module
 */

import { contentDevice } from "../encryption/mapping.ts";
import { StorageError } from "../../base/error.ts";
import { deviceMounts, filesystemMounts, readMounts } from "../host/mounts.ts";
import type { VolumeId } from "../../base/ids.ts";
import type { Lvm } from "../client/client.ts";
import type { VolumeFinder } from "../inventory/volume_finder.ts";
import { lvchangeTags } from "../model/commands.ts";
import { lvPath } from "../model/report.ts";
import { markAdopted, markHeld } from "../model/tags.ts";

/** Options of {@linkcode HeldVolumes}. */
export interface HeldVolumesOptions {
  /** LVM on this machine. */
  readonly lvm: Lvm;
  /** Finds the volumes. */
  readonly finder: VolumeFinder;
  /** Called before a volume is changed. */
  readonly onChange: (id: VolumeId) => void;
}

/** Holds volumes, and adopts their LVs. The only state is that of LVM's tags. */
export class HeldVolumes {
  readonly #options: HeldVolumesOptions;

  /** Creates the service; it keeps no state. */
  constructor(options: HeldVolumesOptions) {
    this.#options = options;
  }

  /**
   * Records that nobody may begin to use a volume, or that it may be used again. Who uses it may go on. Requires the
   * volume's lock, which staging has, too.
   *
   * @throws {StorageError} `NotFound`, `Lost`, `Busy`
   */
  async set(id: VolumeId, held: boolean): Promise<void> {
    const { lvm, finder, onChange } = this.#options;
    onChange(id);
    const volume = finder.require(await lvm.report(), id);
    if ((volume.tags.held ?? false) === held) return;
    await lvm.change(volume.group, lvchangeTags(markHeld(held), lvPath(volume)));
  }

  /** Returns what uses a volume, in words; `undefined` when nothing does. @throws {StorageError} */
  async userOf(id: VolumeId): Promise<string | undefined> {
    const { lvm, finder } = this.#options;
    const volume = finder.require(await lvm.report(), id);
    const mounts = await readMounts(lvm.exec);
    const [mount] = [filesystemMounts, deviceMounts].flatMap((find) => find(mounts, contentDevice(volume.lv)));
    if (mount !== undefined) return `its mount ${mount.target}`;
    return volume.lv.open ? `a program that has ${volume.lv.devicePath} open` : undefined;
  }

  /**
   * Makes the LV of a volume that of another one. Requires the locks of both.
   *
   * @throws {StorageError} `Unavailable` when the first one does not exist, is not complete or is in use; those of {@linkcode
   * VolumeFinder.locate}
   */
  async adopt(from: VolumeId, id: VolumeId): Promise<void> {
    const { lvm, finder, onChange } = this.#options;
    [from, id].forEach(onChange);
    const found = finder.locate(await lvm.report(), from);
    const operation = `creating volume ${id} from the logical volume of ${from}`;
    if (found.state !== "present" || found.volume.tags.copied !== undefined) {
      throw new StorageError("Unavailable", `${operation}: that does not exist, or is not complete`);
    }
    const user = await this.userOf(from);
    if (user !== undefined) throw new StorageError("Unavailable", `${operation}: ${user} uses it`);
    const { volume } = found;
    await lvm.change(volume.group, lvchangeTags(markAdopted(volume.tags, id), lvPath(volume)));
  }
}
