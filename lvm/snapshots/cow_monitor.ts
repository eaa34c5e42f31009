/**
 * Grows the stores of copy-on-write snapshots before they overflow.
 *
 * It looks at the reports that are read anyway ({@linkcode CowMonitor.observe}), and reads one itself only while there are stores
 * that could overflow: once a minute, and every ten seconds while one of them fills. Whatever it does is decided by the last
 * report alone, so there is nothing to remember: after a crash the next report shows what is left to do.
 *
 * Where the host's LVM grows snapshots itself, by dmeventd (lvm.conf(5), snapshot_autoextend_threshold), that is left to it.
 *
 * @module
 */

import { readConfiguration, snapshotAutoextendThreshold } from "../model/configuration.ts";
import { StorageError } from "../error.ts";
import { type Locks, snapshotLock, volumeLock } from "../locks.ts";
import type { Lvm } from "../model/client.ts";
import type { VolumeGroup } from "../model/report.ts";
import { formatBytes } from "../size.ts";
import {
  cowsAtRisk,
  type CowUsage,
  decideCowExtension,
  nextCheckMs,
  type SnapshotAutoextend,
} from "./cow_autoextend.ts";
import type { Clock } from "../clock.ts";
import { BackgroundWorker } from "../worker.ts";

/** Who is told of stores. */
export interface CowListener {
  /** A store was grown to a size in bytes. */
  readonly onSnapshotExtended: (cow: CowUsage, size: bigint) => void;
  /** A store ought to grow and cannot; why, and what to do. Told once, until it grows. */
  readonly onSnapshotCannotExtend: (cow: CowUsage, why: string) => void;
}

/** What {@linkcode CowMonitor} needs. */
export interface CowMonitorOptions extends CowListener {
  /** LVM on this machine. */
  readonly lvm: Lvm;
  /** The driver's name: whose snapshots these are. */
  readonly driver: string;
  /** Locks by volume and snapshot: what is being deleted or grown is left alone. */
  readonly locks: Locks;
  /** When stores are grown; without it, never. */
  readonly autoextend: SnapshotAutoextend | undefined;
  /** Is told what failed; it is tried again later. */
  readonly onError: (error: unknown) => void;
  /** The clock; the machine's by default. */
  readonly clock?: Clock;
}

/** The background work for the stores of one driver on this machine. */
export class CowMonitor {
  readonly #options: CowMonitorOptions;
  readonly #worker: BackgroundWorker;
  /** The UUIDs of stores of which it was told that they cannot grow. */
  readonly #reported = new Set<string>();
  /** What the last report showed to be done. */
  #due: readonly CowUsage[] = [];
  /** The delay after which a report is read, in milliseconds; `undefined` while no COW space can overflow. */
  #nextCheckMs: number | undefined;
  #extending = false;

  /** Makes it; it does nothing before it sees a report. */
  constructor(options: CowMonitorOptions) {
    this.#options = options;
    const { onError, clock } = options;
    this.#worker = new BackgroundWorker({ pass: () => this.#pass(), onError, retryMs: RETRY_MS, clock });
  }

  /** Looks at a report; what has to be done is done in the background. */
  observe(groups: readonly VolumeGroup[]): void {
    const { autoextend, driver } = this.#options;
    if (autoextend === undefined || this.#extending) return; // another report is read after an extension
    const cows = cowsAtRisk(groups, driver);
    this.#nextCheckMs = nextCheckMs(cows, autoextend);
    this.#worker.wakeAfter(this.#nextCheckMs);
    for (const uuid of this.#reported.difference(new Set(cows.map(({ lv }) => lv.uuid)))) this.#reported.delete(uuid);
    this.#due = cows.filter((cow) => {
      const { kind } = decideCowExtension(cow, autoextend);
      return kind === "extend" || (kind === "cannotExtend" && !this.#reported.has(cow.lv.uuid));
    });
    if (this.#due.length > 0) this.#worker.wake();
  }

  /** Waits until nothing is being done. */
  idle(): Promise<void> {
    return this.#worker.idle();
  }

  /** Stops the background work after the command that is running. */
  stop(): Promise<void> {
    return this.#worker.stop();
  }

  /** Does what the last report showed, or reads a report, which comes back by {@linkcode CowMonitor.observe}. */
  async #pass(): Promise<void> {
    const { lvm, autoextend, onError } = this.#options;
    const due = this.#due;
    this.#due = [];
    if (due.length === 0 || autoextend === undefined) return void await lvm.report();
    let extended = false;
    this.#extending = true;
    try {
      if (snapshotAutoextendThreshold(await readConfiguration(lvm.exec)) !== undefined) return;
      for (const cow of due) extended = !this.#worker.stopped && await this.#extend(cow, autoextend) || extended;
    } catch (error) {
      onError(error);
    } finally {
      this.#extending = false;
      if (extended) this.#worker.wake(); // what was free for one is not free for the next
      else this.#worker.wakeAfter(this.#nextCheckMs);
    }
  }

  /** Grows a store; answers whether it did. */
  async #extend(cow: CowUsage, autoextend: SnapshotAutoextend): Promise<boolean> {
    const { lvm, locks, onSnapshotExtended, onError } = this.#options;
    const { id, source, lv, group } = cow;
    const decision = decideCowExtension(cow, autoextend);
    if (decision.kind === "none") return false;
    if (decision.kind === "cannotExtend") {
      this.#reportCannotExtend(
        cow,
        `volume group ${group.name} has ${formatBytes(group.free)} free, of which none can be taken`,
      );
      return false;
    }
    const held = [{ ...snapshotLock(id), mode: "shared" as const }, volumeLock(source, "shared")];
    const extend = ["lvextend", "--size", `${decision.size}b`, `${group.name}/${lv.name}`];
    try {
      await locks.run("growth of the store", held, () => lvm.change(group, extend));
    } catch (error) {
      if (!(error instanceof StorageError)) throw error;
      if (error.kind === "NoSpace") this.#reportCannotExtend(cow, error.message);
      // being deleted, deleted, or grown by somebody else: the next look shows it
      else if (error.kind !== "Busy" && error.kind !== "NotFound") onError(error);
      return false;
    }
    this.#reported.delete(lv.uuid);
    onSnapshotExtended(cow, decision.size);
    return true;
  }

  #reportCannotExtend(cow: CowUsage, why: string): void {
    if (this.#reported.has(cow.lv.uuid)) return;
    this.#reported.add(cow.lv.uuid);
    const { group, lv, usedPercent } = cow;
    this.#options.onSnapshotCannotExtend(
      cow,
      `the store ${group.name}/${lv.name} is ${
        Math.floor(usedPercent)
      } % full and cannot be grown: ${why}. When it is full, the ` +
        `snapshot is lost: free space in the volume group (delete volumes or snapshots, or vgextend)`,
    );
  }
}

/** When a report that failed is read again, in milliseconds. */
const RETRY_MS = 60_000;
