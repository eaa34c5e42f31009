/**
 * Volumes that are moved to another node: their LV here is held, so that nobody begins to use it, and an LV that was filled
 * for them becomes theirs.
 *
 * @module
 */

import type { LocatedLv } from "../model/report.ts";
import { type Mount, mountsOf, readMounts } from "../host/mounts.ts";
import { contentDevice } from "../encryption/mapping.ts";
import { StorageError } from "../../base/error.ts";
import type { VolumeId } from "../../base/ids.ts";
import type { Lvm } from "../client/client.ts";
import type { VolumeFinder } from "../inventory/volume_finder.ts";
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
    await lvm.changeTags(volume, markHeld(held));
  }

  /** Returns what uses a volume, in words; `undefined` when nothing does. @throws {StorageError} */
  async userOf(id: VolumeId): Promise<string | undefined> {
    const { lvm, finder } = this.#options;
    return await userOf(lvm, finder.require(await lvm.report(), id));
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
    await lvm.changeTags(volume, markAdopted(volume.tags, id, volume.lv.tags));
  }
}

/** Returns the first mount of an LV, or of what its content is on; `undefined` without one. */
export async function mountOf({ exec }: Lvm, { lv }: LocatedLv): Promise<Mount | undefined> {
  return mountsOf(await readMounts(exec), contentDevice(lv))[0];
}

/** Returns what uses an LV, in words; `undefined` when nothing does. */
export async function userOf(lvm: Lvm, located: LocatedLv): Promise<string | undefined> {
  const mount = await mountOf(lvm, located);
  if (mount !== undefined) return `its mount ${mount.target}`;
  return located.lv.open ? `a program that has ${located.lv.devicePath} open` : undefined;
}
