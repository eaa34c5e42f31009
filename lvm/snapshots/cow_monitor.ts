/**
 * Grows the stores of copy-on-write snapshots before they overflow.
 *
 * It looks at the reports that are read anyway ({@linkcode StoreKeeper.see}), and reads one itself only while there are stores
 * that could overflow: once a minute, and every ten seconds while one of them fills. Whatever it does is decided by the last
 * report alone, so there is nothing to remember: after a crash the next report shows what is left to do.
 *
 * Where the host's LVM grows snapshots itself, by dmeventd (lvm.conf(5), snapshot_autoextend_threshold), that is left to it.
 *
 * @module
 */

import { autoextendThreshold, readConfiguration } from "../model/configuration.ts";
import { StorageError } from "../error.ts";
import { type Locks, snapshotLock, volumeLock } from "../locks.ts";
import type { Lvm } from "../model/client.ts";
import type { VolumeGroup } from "../model/report.ts";
import { formatBytes } from "../size.ts";
import { needOf, nextLookMs, type Store, type StorePolicy, storesAtRisk } from "./cow_growth.ts";
import { systemTimer, type Timer } from "../clock.ts";

/** Who is told of stores. */
export interface StoreListener {
  /** A store was grown to a size in bytes. */
  readonly onGrown: (store: Store, size: bigint) => void;
  /** A store ought to grow and cannot; why, and what to do. Told once, until it grows. */
  readonly onStuck: (store: Store, why: string) => void;
}

/** What {@linkcode StoreKeeper} needs. */
export interface StoreKeeperOptions extends StoreListener {
  /** LVM on this machine. */
  readonly lvm: Lvm;
  /** The driver's name: whose snapshots these are. */
  readonly driver: string;
  /** Locks by volume and snapshot: what is being deleted or grown is left alone. */
  readonly locks: Locks;
  /** When stores are grown; without it, never. */
  readonly policy: StorePolicy | undefined;
  /** Is told what failed; it is tried again later. */
  readonly onError: (error: unknown) => void;
  /** Time. */
  readonly timer?: Timer;
}

/** The background work for the stores of one driver on this machine. */
export class StoreKeeper {
  readonly #options: StoreKeeperOptions;
  readonly #timer: Timer;
  /** The UUIDs of stores of which it was told that they cannot grow. */
  readonly #told = new Set<string>();
  #pass: Promise<void> | undefined;
  #cancel = () => {};
  #stopped = false;

  /** Makes it; it does nothing before it sees a report. */
  constructor(options: StoreKeeperOptions) {
    this.#options = options;
    this.#timer = options.timer ?? systemTimer;
  }

  /** Looks at a report; what has to be done is done in the background. */
  see(groups: readonly VolumeGroup[]): void {
    const { policy, driver } = this.#options;
    if (policy === undefined || this.#stopped || this.#pass !== undefined) return; // a pass ends with a look of its own
    const stores = storesAtRisk(groups, driver);
    this.#cancel();
    const next = nextLookMs(stores, policy);
    if (next !== undefined) this.#cancel = this.#timer.after(next, () => this.#look());
    for (const uuid of this.#told.difference(new Set(stores.map(({ lv }) => lv.uuid)))) this.#told.delete(uuid);
    const due = stores.filter((store) => {
      const { kind } = needOf(store, policy);
      return kind === "grow" || (kind === "stuck" && !this.#told.has(store.lv.uuid));
    });
    if (due.length > 0) this.#pass = this.#relieve(due, policy);
  }

  /** Resolves when nothing is being done. */
  async settled(): Promise<void> {
    while (this.#pass !== undefined) await this.#pass;
  }

  /** Ends after the command that is under way. */
  async stop(): Promise<void> {
    this.#stopped = true;
    this.#cancel();
    await this.#pass;
  }

  /** Reads a report, which comes back by {@linkcode StoreKeeper.see}. */
  #look(): void {
    const { lvm, onError, policy } = this.#options;
    lvm.report().catch((error) => {
      onError(error);
      if (!this.#stopped && policy !== undefined) this.#cancel = this.#timer.after(RETRY_MS, () => this.#look());
    });
  }

  /** Does what the stores need, as far as it can be done now. */
  async #relieve(due: readonly Store[], policy: StorePolicy): Promise<void> {
    let grown = false;
    try {
      if (autoextendThreshold(await readConfiguration(this.#options.lvm.exec)) !== undefined) return;
      for (const store of due) grown = !this.#stopped && await this.#grow(store, policy) || grown;
    } catch (error) {
      this.#options.onError(error);
    } finally {
      this.#pass = undefined;
      if (grown && !this.#stopped) this.#look(); // what was free for one is not for the next
    }
  }

  /** Grows a store; answers whether it did. */
  async #grow(store: Store, policy: StorePolicy): Promise<boolean> {
    const { lvm, locks, onGrown, onError } = this.#options;
    const { id, source, lv, group } = store;
    const need = needOf(store, policy);
    if (need.kind === "none") return false;
    if (need.kind === "stuck") {
      this.#stuck(store, `volume group ${group.name} has ${formatBytes(group.free)} free, of which none can be taken`);
      return false;
    }
    const held = [{ ...snapshotLock(id), mode: "shared" as const }, volumeLock(source, "shared")];
    const extend = ["lvextend", "--size", `${need.size}b`, `${group.name}/${lv.name}`];
    try {
      await locks.run("growth of the store", held, () => lvm.change(group, extend));
    } catch (error) {
      if (!(error instanceof StorageError)) throw error;
      if (error.kind === "NoSpace") this.#stuck(store, error.message);
      // being deleted, deleted, or grown by somebody else: the next look shows it
      else if (error.kind !== "Busy" && error.kind !== "NotFound") onError(error);
      return false;
    }
    this.#told.delete(lv.uuid);
    onGrown(store, need.size);
    return true;
  }

  #stuck(store: Store, why: string): void {
    if (this.#told.has(store.lv.uuid)) return;
    this.#told.add(store.lv.uuid);
    const { group, lv, percent } = store;
    this.#options.onStuck(
      store,
      `the store ${group.name}/${lv.name} is ${
        Math.floor(percent)
      } % full and cannot be grown: ${why}. When it is full, the ` +
        `snapshot is lost: free space in the volume group (delete volumes or snapshots, or vgextend)`,
    );
  }
}

/** When a report that failed is read again, in milliseconds. */
const RETRY_MS = 60_000;
