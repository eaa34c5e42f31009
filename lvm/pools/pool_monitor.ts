/**
 * Grows the driver's thin pools before they are full.
 *
 * The kernel is asked how full pools are (dmsetup(8), which reads no disks), and LVM only when one of them is to grow, and as
 * long as one cannot for want of room: of a full pool the kernel says the same for ever, since nothing more is written. Pools of
 * others are left to whoever watches them, mostly dmeventd(8). Without a pool of the driver nothing is asked.
 *
 * @module
 */

import { readPoolUsage } from "../host/device_mapper.ts";
import type { Lvm } from "../model/client.ts";
import { DEFAULT_GROWTH, growthDue, type PoolGrowth, wantsGrowth } from "./pool_growth.ts";
import { growPool } from "./pool_commands.ts";
import type { LogicalVolume, VolumeGroup } from "../model/report.ts";
import { formatBytes } from "../size.ts";
import { isOurPool, poolsOf } from "./pool.ts";

/** What {@linkcode PoolMonitor} needs. */
export interface PoolMonitorOptions {
  /** LVM on this machine. */
  readonly lvm: Lvm;
  /** The driver's name: whose pools these are. */
  readonly driver: string;
  /** When and by how much they grow. */
  readonly growth?: PoolGrowth;
  /** Is told in words of each growth. */
  readonly onGrown: (words: string) => void;
  /** Is told what failed; it is tried again. */
  readonly onError: (error: unknown) => void;
  /** How often the kernel is asked, in milliseconds. */
  readonly everyMs?: number;
}

/** How often the kernel is asked, in milliseconds: a full pool holds writes back for a minute before they fail (lvmthin(7)). */
const EVERY_MS = 10_000;

/** The watch over the driver's pools on this machine. */
export class PoolMonitor {
  readonly #options: PoolMonitorOptions;
  #turn: Promise<void> | undefined;
  #wanted = false;
  #stopped = false;
  #timer: ReturnType<typeof setTimeout> | undefined;
  /** What the kernel said when LVM was last asked, and no pool wanted to grow: unless it says something else, none does. */
  #looked: string | undefined;

  /** Makes it; nothing is done until {@linkcode see} or {@linkcode look}. */
  constructor(options: PoolMonitorOptions) {
    this.#options = options;
  }

  /** Watches from now on, if a report shows that there is a pool of the driver; to be called at the start. */
  see(groups: readonly VolumeGroup[]): void {
    const { driver } = this.#options;
    const isWatching = this.#timer !== undefined || this.#turn !== undefined;
    if (!isWatching && groups.some((group) => poolsOf(group).some((pool) => isOurPool(driver, pool)))) this.look();
  }

  /** Looks for pools of the driver, and watches them from now on; to be called when one was made. */
  look(): void {
    this.#looked = undefined;
    this.#wanted = true;
    if (!this.#stopped) this.#turn ??= this.#turns();
  }

  /** Resolves when nothing is being done. */
  async settled(): Promise<void> {
    while (this.#turn !== undefined) await this.#turn;
  }

  /** Ends after the command that is under way. */
  async stop(): Promise<void> {
    this.#stopped = true;
    clearTimeout(this.#timer);
    await this.#turn;
  }

  async #turns(): Promise<void> {
    clearTimeout(this.#timer);
    let watching = true;
    do {
      this.#wanted = false;
      try {
        watching = await this.#grow();
      } catch (error) {
        this.#looked = undefined;
        this.#options.onError(error);
      }
    } while (this.#wanted && !this.#stopped);
    this.#turn = undefined;
    this.#timer = undefined;
    if (watching && !this.#stopped) {
      this.#timer = setTimeout(() => this.#turn ??= this.#turns(), this.#options.everyMs ?? EVERY_MS);
    }
  }

  /** Grows what is due; answers whether there are pools to watch. */
  async #grow(): Promise<boolean> {
    const { lvm, driver, growth = DEFAULT_GROWTH } = this.#options;
    if (this.#looked !== undefined) {
      const usage = await this.#usage();
      if (usage === this.#looked) return true;
      this.#looked = usage;
    }
    const groups = (await lvm.report()).filter(({ answers }) => answers);
    const ours = groups.flatMap((group) =>
      poolsOf(group).filter((pool) => isOurPool(driver, pool)).map((pool) => ({ group, pool }))
    );
    for (const { group, pool } of ours) {
      if (!this.#stopped) await this.#growOne(group, pool, growth);
    }
    if (ours.some(({ group, pool }) => wantsGrowth(group, pool, growth))) this.#looked = undefined;
    else this.#looked ??= ours.length === 0 ? undefined : await this.#usage();
    return ours.length > 0;
  }

  /** How full pools are, as far as it matters: those that are far from it are all alike. */
  async #usage(): Promise<string> {
    const { growth: { at } = DEFAULT_GROWTH } = this.#options;
    const usage = [...await readPoolUsage(this.#options.lvm.exec)];
    return JSON.stringify(usage.filter(([, { data, metadata }]) => data >= at || metadata >= 50).sort());
  }

  async #growOne(group: VolumeGroup, pool: LogicalVolume, growth: PoolGrowth): Promise<void> {
    const { lvm, onGrown } = this.#options;
    const { data, metadata } = growthDue(group, pool, growth);
    const path = `thin pool ${group.name}/${pool.name}`;
    if (metadata !== undefined) {
      await growPool(lvm, group, pool, { metadata });
      onGrown(
        `the metadata of ${path} grew from ${formatBytes(pool.thinPool!.metadataSize)} to ${formatBytes(metadata)}`,
      );
    }
    if (data === undefined) return;
    await growPool(lvm, group, pool, { data });
    onGrown(`${path} grew from ${formatBytes(pool.size)} to ${formatBytes(data)}`);
  }
}
