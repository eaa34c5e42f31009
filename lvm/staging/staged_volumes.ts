/**
 * What this process remembers of the volumes that it staged, so that it need not read it again.
 *
 * Nothing depends on it: after a restart nothing is remembered, and all of it is read. Who changes a volume makes the process
 * forget it. Nothing is formatted, wiped or removed because of what is remembered.
 *
 * @module
 */

import type { Mount } from "../host/mounts.ts";
import type { VolumeId } from "../../base/ids.ts";
import type { Volume } from "../inventory/volume.ts";

/** What is remembered of one volume. */
interface Memory {
  /** The LV that this is about. */
  readonly lvUuid: string;
  /** The size of the LV that its filesystem fills; absent while that is not known. */
  readonly filled?: {
    /** In bytes. */
    readonly bytes: bigint;
    /** In blocks of the filesystem; absent since it was created, when it was never smaller. */
    readonly blocks?: string;
  };
  /** The volume according to a report during the call that staged it, and the path; absent while it is not staged. */
  readonly staged?: { readonly volume: Volume; readonly path: string };
}

/** The sizes of blocks of ext2, ext3 and ext4, in bytes (mke2fs(8), `-b`). */
const EXT_BLOCK_BYTES = [1024n, 2048n, 4096n];

/** The volumes that this process staged. */
export class StagedVolumes {
  readonly #memories = new Map<VolumeId, Memory>();

  /** Remembers that the filesystem of a volume was created by this process, and fills its LV. */
  setCreated(volume: Volume): void {
    this.#update(volume, { filled: { bytes: volume.lv.size } });
  }

  /** Reports whether the filesystem of a volume is one that this process created, and has not resized. */
  isCreated({ id, lv }: Volume): boolean {
    const memory = this.#memories.get(id);
    return memory?.lvUuid === lv.uuid && memory.filled?.bytes === lv.size && memory.filled.blocks === undefined;
  }

  /**
   * Remembers that the filesystem of a volume was resized by this process, and fills its LV.
   *
   * @param printed what the program printed; only resize2fs(8) prints the number of blocks
   */
  setResized(volume: Volume, printed: string): void {
    const blocks = / (\d+) \(\d+k\) blocks long/.exec(printed)?.[1];
    if (blocks !== undefined) this.#update(volume, { filled: { bytes: volume.lv.size, blocks } });
  }

  /**
   * Reports whether the filesystem of a volume fills its LV: this process made it so, and the check of the filesystem found
   * that many blocks. An administrator may have put back the content that the LV had when it was smaller.
   *
   * @param check what the check printed; only e2fsck(8) prints the number of blocks
   */
  isFilled({ id, lv }: Volume, check: string): boolean {
    const memory = this.#memories.get(id);
    if (memory?.lvUuid !== lv.uuid || memory.filled?.bytes !== lv.size) return false;
    const blocks = /\/(\d+) blocks$/m.exec(check)?.[1];
    if (memory.filled.blocks !== undefined) return blocks === memory.filled.blocks;
    return EXT_BLOCK_BYTES.some((bytes) => `${lv.size / bytes}` === blocks);
  }

  /** Remembers a volume whose filesystem is mounted at the path. */
  setStaged(volume: Volume, path: string): void {
    // without what else is in the group: each volume would keep a whole report in memory
    const group = { ...volume.group, lvs: [], pvs: [], tags: [] };
    this.#update(volume, { staged: { volume: { ...volume, group }, path } });
  }

  /**
   * Returns a volume as it was when this process mounted its filesystem at a path, if it is still mounted there, from the device
   * of the same name and number. While it is mounted, no other LV can have the number. An administrator may have unmounted it,
   * and then another LV may have the number, but under another name.
   *
   * @param mounts all mounts
   */
  stagedAt(id: VolumeId, path: string, mounts: readonly Mount[]): Volume | undefined {
    const staged = this.#memories.get(id)?.staged;
    const mount = mounts.findLast(({ target }) => target === path);
    if (staged?.path !== path || mount === undefined) return undefined;
    const { lv } = staged.volume;
    // btrfs has a number of its own
    const isSameNumber = mount.deviceNumber === lv.deviceNumber || mount.fsType === "btrfs";
    return mount.source === lv.devicePath && isSameNumber ? staged.volume : undefined;
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
