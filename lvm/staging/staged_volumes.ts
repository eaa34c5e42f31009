/**
 * What this process remembers of the volumes that it staged, so that it need not read it again.
 *
 * Nothing depends on it: after a restart nothing is remembered, and all of it is read. Who changes a volume makes the process
 * forget it. Nothing is formatted, wiped or removed because of what is remembered.
 *
 * @module
 */

import { filesystemMounts, type Mount } from "../host/mounts.ts";
import type { VolumeId } from "../ids.ts";
import type { Volume } from "../inventory/volume.ts";

/** What is remembered of one volume. */
interface Memory {
  /** The LV that this is about. */
  readonly lvUuid: string;
  /** The size of the LV, in bytes, that its filesystem fills; absent while that is not known. */
  readonly filledBytes?: bigint;
  /** The volume according to a report during the call that staged it, and the path; absent while it is not staged. */
  readonly staged?: { readonly volume: Volume; readonly path: string };
}

/** The sizes of blocks of ext2, ext3 and ext4, in bytes (mke2fs(8), `-b`). */
const EXT_BLOCK_BYTES = [1024n, 2048n, 4096n];

/** The volumes that this process staged. */
export class StagedVolumes {
  readonly #memories = new Map<VolumeId, Memory>();

  /** Remembers that the filesystem of a volume was created or resized by this process, and fills its LV. */
  setFilled(volume: Volume): void {
    this.#update(volume, { filledBytes: volume.lv.size });
  }

  /**
   * Reports whether the filesystem of a volume fills its LV: this process made it so, and the check of the filesystem found
   * that many blocks. An administrator may have put back the content that the LV had when it was smaller.
   *
   * @param check what the check printed; only e2fsck(8) prints the number of blocks
   */
  isFilled({ id, lv }: Volume, check: string): boolean {
    const memory = this.#memories.get(id);
    if (memory?.lvUuid !== lv.uuid || memory.filledBytes !== lv.size) return false;
    const blocks = /\/(\d+) blocks$/m.exec(check)?.[1];
    return EXT_BLOCK_BYTES.some((bytes) => `${lv.size / bytes}` === blocks);
  }

  /** Remembers a volume whose filesystem is mounted at the path. */
  setStaged(volume: Volume, path: string): void {
    // without what else is in the group: each volume would keep a whole report in memory
    const group = { ...volume.group, lvs: [], pvs: [], tags: [] };
    this.#update(volume, { staged: { volume: { ...volume, group }, path } });
  }

  /**
   * Returns a volume as it was when this process mounted its filesystem at a path, if it is still mounted there, from the same
   * device: meanwhile no other LV can have had the device.
   *
   * @param mounts all mounts
   */
  stagedAt(id: VolumeId, path: string, mounts: readonly Mount[]): Volume | undefined {
    const staged = this.#memories.get(id)?.staged;
    const mount = mounts.findLast(({ target }) => target === path);
    if (staged?.path !== path || mount === undefined) return undefined;
    return filesystemMounts([mount], staged.volume.lv).length > 0 ? staged.volume : undefined;
  }

  /** Forgets where a volume is staged. */
  setUnstaged(id: VolumeId): void {
    const memory = this.#memories.get(id);
    if (memory === undefined) return;
    const { staged: _, ...rest } = memory;
    this.#memories.set(id, rest);
  }

  /** Forgets a volume. Called before it is deleted, extended, or modified. */
  forget(id: VolumeId): void {
    this.#memories.delete(id);
  }

  #update({ id, lv }: Volume, change: Omit<Memory, "lvUuid">): void {
    const memory = this.#memories.get(id);
    this.#memories.set(id, { ...(memory?.lvUuid === lv.uuid ? memory : { lvUuid: lv.uuid }), ...change });
  }
}
