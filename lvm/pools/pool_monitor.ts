/**
 * Grows the driver's thin pools before they are full.
 *
 * The kernel is asked how full pools are (dmsetup(8), which reads no disks), and LVM only when one of them is to grow, and as
 * long as one cannot for want of room: of a full pool the kernel says the same for ever, since nothing more is written. Pools of
 * others are left to whoever watches them, mostly dmeventd(8). Without a pool of the driver nothing is asked.
 *
 * @module
 */

import type { Clock } from "../clock.ts";
import { readPoolUsage } from "../host/device_mapper.ts";
import type { Lvm } from "../model/client.ts";
import { DEFAULT_AUTOEXTEND, isExtensionDue, planPoolExtension, type PoolAutoextend } from "./pool_autoextend.ts";
import { extendPool } from "./pool_commands.ts";
import type { LogicalVolume, VolumeGroup } from "../model/report.ts";
import { formatBytes } from "../size.ts";
import { isDriverPool, poolsOf } from "./pool.ts";
import { BackgroundWorker } from "../worker.ts";

/** What {@linkcode PoolMonitor} needs. */
export interface PoolMonitorOptions {
  /** LVM on this machine. */
  readonly lvm: Lvm;
  /** The driver's name: whose pools these are. */
  readonly driver: string;
  /** When and by how much they grow. */
  readonly autoextend?: PoolAutoextend;
  /** Is told in words of each growth. */
  readonly onExtended: (message: string) => void;
  /** Is told what failed; it is tried again. */
  readonly onError: (error: unknown) => void;
  /** How often the kernel is asked, in milliseconds. */
  readonly intervalMs?: number;
  /** The clock; the machine's by default. */
  readonly clock?: Clock;
}

/** How often the kernel is asked, in milliseconds: a full pool holds writes back for a minute before they fail (lvmthin(7)). */
const INTERVAL_MS = 10_000;

/** The watch over the driver's pools on this machine. */
export class PoolMonitor {
  readonly #options: PoolMonitorOptions;
  readonly #worker: BackgroundWorker;
  /** What the kernel said when LVM was last asked, and no pool wanted to grow: unless it says something else, none does. */
  #lastUsage: string | undefined;

  /** Makes it; nothing is done until {@linkcode observe} or {@linkcode wake}. */
  constructor(options: PoolMonitorOptions) {
    this.#options = options;
    this.#worker = new BackgroundWorker({
      pass: () => this.#pass(),
      onError: (error) => {
        this.#lastUsage = undefined;
        options.onError(error);
      },
      retryMs: options.intervalMs ?? INTERVAL_MS,
      clock: options.clock,
    });
  }

  /** Watches from now on, if a report shows that there is a pool of the driver; to be called at the start. */
  observe(groups: readonly VolumeGroup[]): void {
    const { driver } = this.#options;
    if (!this.#worker.active && groups.some((group) => poolsOf(group).some((pool) => isDriverPool(driver, pool)))) {
      this.wake();
    }
  }

  /** Looks for pools of the driver, and watches them from now on; to be called when one was made. */
  wake(): void {
    this.#lastUsage = undefined;
    this.#worker.wake();
  }

  /** Waits until nothing is being done. */
  idle(): Promise<void> {
    return this.#worker.idle();
  }

  /** Stops the background work after the command that is running. */
  stop(): Promise<void> {
    return this.#worker.stop();
  }

  async #pass(): Promise<void> {
    if (await this.#extendDuePools()) this.#worker.wakeAfter(this.#options.intervalMs ?? INTERVAL_MS);
  }

  /** Grows what is due; answers whether there are pools to watch. */
  async #extendDuePools(): Promise<boolean> {
    const { lvm, driver, autoextend = DEFAULT_AUTOEXTEND } = this.#options;
    if (this.#lastUsage !== undefined) {
      const usage = await this.#readUsage();
      if (usage === this.#lastUsage) return true;
      this.#lastUsage = usage;
    }
    const groups = (await lvm.report()).filter(({ responsive }) => responsive);
    const driverPools = groups.flatMap((group) =>
      poolsOf(group).filter((pool) => isDriverPool(driver, pool)).map((pool) => ({ group, pool }))
    );
    for (const { group, pool } of driverPools) {
      if (!this.#worker.stopped) await this.#extendPool(group, pool, autoextend);
    }
    if (driverPools.some(({ group, pool }) => isExtensionDue(group, pool, autoextend))) this.#lastUsage = undefined;
    else this.#lastUsage ??= driverPools.length === 0 ? undefined : await this.#readUsage();
    return driverPools.length > 0;
  }

  /** How full pools are, as far as it matters: those that are far from it are all alike. */
  async #readUsage(): Promise<string> {
    const { autoextend: { threshold } = DEFAULT_AUTOEXTEND } = this.#options;
    const usage = [...await readPoolUsage(this.#options.lvm.exec)];
    return JSON.stringify(usage.filter(([, { data, metadata }]) => data >= threshold || metadata >= 50).sort());
  }

  async #extendPool(group: VolumeGroup, pool: LogicalVolume, autoextend: PoolAutoextend): Promise<void> {
    const { lvm, onExtended } = this.#options;
    const { data, metadata } = planPoolExtension(group, pool, autoextend);
    const path = `thin pool ${group.name}/${pool.name}`;
    if (metadata !== undefined) {
      await extendPool(lvm, group, pool, { metadata });
      onExtended(
        `the metadata of ${path} grew from ${formatBytes(pool.thinPool!.metadataSize)} to ${formatBytes(metadata)}`,
      );
    }
    if (data === undefined) return;
    await extendPool(lvm, group, pool, { data });
    onExtended(`${path} grew from ${formatBytes(pool.size)} to ${formatBytes(data)}`);
  }
}
