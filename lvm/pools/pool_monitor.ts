/**
 * Extends the driver's thin pools before they are full.
 *
 * The monitor reads the usage of pools from the kernel (dmsetup(8), which reads no physical volumes). It reads a report
 * of LVM only when the usage of a pool above its threshold has changed, and as long as a pool cannot be extended for
 * lack of free space: the usage of a full pool does not change any more. Other pools are left to their owners'
 * monitoring, usually dmeventd(8). Without a pool of the driver, the monitor reads nothing.
 *
 * @module
 */

import type { Clock } from "../../base/clock.ts";
import { readPoolUsage } from "../host/device_mapper.ts";
import type { Lvm } from "../client/client.ts";
import {
  DEFAULT_AUTOEXTEND,
  isDriverPool,
  isExtensionDue,
  planPoolExtension,
  type PoolAutoextend,
  poolsOf,
} from "./pool.ts";
import { extendPool } from "./pool_commands.ts";
import type { LogicalVolume, VolumeGroup } from "../model/report.ts";
import { formatBytes } from "../../base/size.ts";
import { BackgroundWorker } from "../../base/worker.ts";

/** Options of {@linkcode PoolMonitor}. */
export interface PoolMonitorOptions {
  /** LVM on this machine. */
  readonly lvm: Lvm;
  /** The driver's name: whose pools these are. */
  readonly driver: string;
  /** The policy for the extension of pools. */
  readonly autoextend?: PoolAutoextend;
  /** Called with a sentence after a pool was extended. */
  readonly onExtended: (message: string) => void;
  /** Called with each error. The monitor tries again later. */
  readonly onError: (error: unknown) => void;
  /** The interval at which the usage is read, in milliseconds; 10 seconds by default. */
  readonly intervalMs?: number;
  /** The clock; the machine's by default. */
  readonly clock?: Clock;
}

/**
 * The interval at which the usage is read, in milliseconds. A full pool queues writes for a minute before they fail
 * (lvmthin(7)).
 */
const INTERVAL_MS = 10_000;

/** The background worker that extends the driver's pools on this machine. */
export class PoolMonitor {
  readonly #options: PoolMonitorOptions;
  readonly #worker: BackgroundWorker;
  /** The usage at the last report, if no pool was due then. No pool is due while the usage stays the same. */
  #lastUsage: string | undefined;

  /** Creates the monitor. It does nothing before {@linkcode observe} or {@linkcode wake}. */
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

  /** Starts monitoring if a report shows a pool of the driver. Called at the start. */
  observe(groups: readonly VolumeGroup[]): void {
    const { driver } = this.#options;
    if (!this.#worker.active && groups.some((group) => poolsOf(group).some((pool) => isDriverPool(driver, pool)))) {
      this.wake();
    }
  }

  /** Reads a report, and monitors the pools of the driver from now on. Called after a pool was created. */
  wake(): void {
    this.#lastUsage = undefined;
    this.#worker.wake();
  }

  /** Waits until no background work is running. */
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

  /** Extends the pools that are due, and returns whether there are pools to monitor. */
  async #extendDuePools(): Promise<boolean> {
    const { lvm, driver, autoextend = DEFAULT_AUTOEXTEND, onError } = this.#options;
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
      if (this.#worker.stopped) break;
      try {
        await this.#extendPool(group, pool, autoextend);
      } catch (error) {
        onError(error); // the other pools fill up meanwhile
      }
    }
    if (driverPools.some(({ group, pool }) => isExtensionDue(group, pool, autoextend))) this.#lastUsage = undefined;
    else this.#lastUsage ??= driverPools.length === 0 ? undefined : await this.#readUsage();
    return driverPools.length > 0;
  }

  /**
   * Returns the usage of the pools at or above the threshold, as a text that changes with it. Metadata counts from 50
   * percent.
   */
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
        `the metadata of ${path} was extended from ${formatBytes(pool.thinPool!.metadataSize)} to ${
          formatBytes(metadata)
        }`,
      );
    }
    if (data === undefined) return;
    await extendPool(lvm, group, pool, { data });
    onExtended(`${path} was extended from ${formatBytes(pool.size)} to ${formatBytes(data)}`);
  }
}
