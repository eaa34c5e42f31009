/**
 * Extends the COW space of snapshots before they overflow.
 *
 * The monitor observes the reports that are read anyway ({@linkcode CowMonitor.observe}). It reads reports itself only
 * while COW space could overflow: once a minute, and every ten seconds while any COW space is at half its threshold. It
 * decides from the last report alone and keeps no other state: after a crash the next report shows what is left to do.
 *
 * Where the host's dmeventd extends snapshots (lvm.conf(5), snapshot_autoextend_threshold), the monitor extends none.
 *
 * @module
 */

import { readConfiguration, snapshotAutoextendThreshold } from "../model/configuration.ts";
import { StorageError } from "../../base/error.ts";
import { type Locks, snapshotLock, volumeLock } from "../../base/locks.ts";
import type { Lvm } from "../client/client.ts";
import type { VolumeGroup } from "../model/report.ts";
import { describeFree } from "../settings/spare_space.ts";
import {
  cowsAtRisk,
  type CowUsage,
  decideCowExtension,
  nextCheckMs,
  type SnapshotAutoextend,
} from "./cow_autoextend.ts";
import type { Clock } from "../../base/clock.ts";
import { BackgroundWorker } from "../../base/worker.ts";
import { lvextend } from "../model/command_lines.ts";

/** Listener to the extension of COW space. */
export interface CowListener {
  /** Called after COW space was extended to a size in bytes. */
  readonly onSnapshotExtended: (cow: CowUsage, size: bigint) => void;
  /**
   * Called when COW space has to be extended and cannot be; `why` names the remedy. Called once until it is extended.
   */
  readonly onSnapshotCannotExtend: (cow: CowUsage, why: string) => void;
}

/** Options of {@linkcode CowMonitor}. */
export interface CowMonitorOptions extends CowListener {
  /** LVM on this machine. */
  readonly lvm: Lvm;
  /** The driver's name: whose snapshots these are. */
  readonly driver: string;
  /**
   * Locks by volume and snapshot. A snapshot is not extended while it is deleted, or its volume is deleted or expanded.
   */
  readonly locks: Locks;
  /** The policy; without it, COW space is never extended. */
  readonly autoextend: SnapshotAutoextend | undefined;
  /** Called with each error. The monitor tries again later. */
  readonly onError: (error: unknown) => void;
  /** The clock; the machine's by default. */
  readonly clock?: Clock;
}

/** The background worker that extends the COW space of one driver's snapshots on this machine. */
export class CowMonitor {
  readonly #options: CowMonitorOptions;
  readonly #worker: BackgroundWorker;
  /** The UUIDs of the LVs of which the monitor reported that they cannot be extended. */
  readonly #reported = new Set<string>();
  /** The COW space that a report showed to need an extension, and the report. */
  #due: { readonly cows: readonly CowUsage[]; readonly groups: readonly VolumeGroup[] } = { cows: [], groups: [] };
  /** The delay after which a report is read, in milliseconds; `undefined` while no COW space can overflow. */
  #nextCheckMs: number | undefined;
  #extending = false;

  /** Creates the monitor. It does nothing before it observes a report. */
  constructor(options: CowMonitorOptions) {
    this.#options = options;
    const { onError, clock } = options;
    this.#worker = new BackgroundWorker({ pass: () => this.#pass(), onError, retryMs: RETRY_MS, clock });
  }

  /** Observes a report. Extensions run in the background. */
  observe(groups: readonly VolumeGroup[]): void {
    const { autoextend, driver } = this.#options;
    if (autoextend === undefined || this.#extending) return; // another report is read after an extension
    const cows = cowsAtRisk(groups, driver);
    this.#nextCheckMs = nextCheckMs(cows, autoextend);
    this.#worker.wakeAfter(this.#nextCheckMs);
    for (const uuid of this.#reported.difference(new Set(cows.map(({ lv }) => lv.uuid)))) this.#reported.delete(uuid);
    const due = cows.filter((cow) => {
      const { kind } = decideCowExtension(cow, autoextend);
      return kind === "extend" || (kind === "cannotExtend" && !this.#reported.has(cow.lv.uuid));
    });
    this.#due = { cows: due, groups };
    if (due.length > 0) this.#worker.wake();
  }

  /** Waits until no background work is running. */
  idle(): Promise<void> {
    return this.#worker.idle();
  }

  /** Stops the background work after the command that is running. */
  stop(): Promise<void> {
    return this.#worker.stop();
  }

  /**
   * Extends what the last report showed to be due, or else reads a report, which calls {@linkcode CowMonitor.observe}.
   */
  async #pass(): Promise<void> {
    const { lvm, autoextend, onError } = this.#options;
    const { cows, groups } = this.#due;
    this.#due = { cows: [], groups: [] };
    if (cows.length === 0 || autoextend === undefined) return void await lvm.report();
    let extended = false;
    this.#extending = true;
    try {
      if (snapshotAutoextendThreshold(await readConfiguration(lvm.exec)) !== undefined) return;
      for (const cow of cows) {
        extended = !this.#worker.stopped && await this.#extend(cow, groups, autoextend) || extended;
      }
    } catch (error) {
      onError(error);
    } finally {
      this.#extending = false;
      if (extended) this.#worker.wake(); // The free space of the group has changed.
      else this.#worker.wakeAfter(this.#nextCheckMs);
    }
  }

  /** Extends COW space that a report showed, and returns whether it was extended. */
  async #extend(
    cow: CowUsage,
    groups: readonly VolumeGroup[],
    autoextend: SnapshotAutoextend,
  ): Promise<boolean> {
    const { lvm, locks, onSnapshotExtended, onError } = this.#options;
    const { id, source, lv, group } = cow;
    const decision = decideCowExtension(cow, autoextend);
    if (decision.kind === "none") return false;
    if (decision.kind === "cannotExtend") {
      this.#reportCannotExtend(
        cow,
        `volume group ${group.name} has ${describeFree(group)}, none of which can be used`,
      );
      return false;
    }
    const held = [snapshotLock(id, "shared"), volumeLock(source, "shared")];
    const extend = lvextend({ size: decision.size }, `${group.name}/${lv.name}`);
    try {
      const isExtended = await locks.run("extension of the COW space", held, async () => {
        // Before the locks were taken, the snapshot may have been deleted. Its LV has the same name still.
        if (!lvm.isCurrent(groups) && !this.#isSame(cow, await lvm.report())) return false;
        await lvm.allocate(group, decision.size - lv.size, extend);
        return true;
      });
      if (!isExtended) return false;
    } catch (error) {
      if (!(error instanceof StorageError)) throw error;
      if (error.kind === "NoSpace") this.#reportCannotExtend(cow, error.message);
      // It is being deleted, or was deleted or extended by another process. The next report shows it.
      else if (error.kind !== "Busy" && error.kind !== "NotFound") onError(error);
      return false;
    }
    this.#reported.delete(lv.uuid);
    onSnapshotExtended(cow, decision.size);
    return true;
  }

  /** Reports whether the COW space is as it was in an earlier report, but for its usage. */
  #isSame({ lv }: CowUsage, groups: readonly VolumeGroup[]): boolean {
    const current = cowsAtRisk(groups, this.#options.driver).find((cow) => cow.lv.uuid === lv.uuid);
    return current?.lv.size === lv.size;
  }

  #reportCannotExtend(cow: CowUsage, why: string): void {
    if (this.#reported.has(cow.lv.uuid)) return;
    this.#reported.add(cow.lv.uuid);
    const { group, lv, usedPercent } = cow;
    this.#options.onSnapshotCannotExtend(
      cow,
      `the COW space ${group.name}/${lv.name} is ${
        Math.floor(usedPercent)
      } % full and cannot be extended: ${why}. When it is full, the ` +
        `snapshot is lost: free space in the volume group (delete volumes or snapshots, or vgextend)`,
    );
  }
}

/** The delay until a failed report is repeated, in milliseconds. */
const RETRY_MS = 60_000;
