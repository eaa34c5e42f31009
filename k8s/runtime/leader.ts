/**
 * Leader election by a Lease, which is acquired and renewed by compare-and-swap on its revision. The age of a renewal
 * is measured by this process's own clock, from when it saw the record change, so that clocks need not agree. A Lease
 * fences nothing: repeated work must be harmless.
 *
 * @module
 */

import { getLogger } from "@logtape/logtape";
import { type ApiClient, isAlreadyExists, isConflict, orAbsent } from "../client/client.ts";
import { type Clock, sleep, systemClock } from "../../lvm/clock.ts";
import { type Lease, leases } from "../api/objects.ts";

/** Options of a {@linkcode LeaderElection}. The durations are those of the official sidecars. */
export interface LeaderElectionOptions {
  /** The Lease. */
  lease: { readonly name: string; readonly namespace: string };
  /** The identity of this process: a name that no other one has. */
  identity: string;
  /** Milliseconds without a renewal after which a holder counts as gone; 15,000. */
  leaseDurationMs?: number | undefined;
  /**
   * Milliseconds without a renewal after which this process stops leading; 10,000, and less than `leaseDurationMs`.
   */
  renewDeadlineMs?: number | undefined;
  /** Milliseconds between attempts to acquire or renew the Lease; 2,000. */
  retryPeriodMs?: number | undefined;
  /** Called when this process becomes the leader, and when it is no longer. */
  onChange?: ((leading: boolean) => void) | undefined;
  /** Time. */
  clock?: Clock | undefined;
}

/** An election for one Lease. */
export class LeaderElection {
  readonly #client: ApiClient;
  readonly #options: LeaderElectionOptions;
  readonly #clock: Clock;
  readonly #leaseDurationMs: number;
  readonly #renewDeadlineMs: number;
  readonly #retryPeriodMs: number;
  readonly #log = getLogger(["denolith", "leader"]);
  /** The Lease that was last observed, and when it changed. */
  #observed: { lease: Lease; at: number } | undefined;
  #isLeading = false;

  /** Creates it; nothing runs before {@linkcode LeaderElection.run}. */
  constructor(client: ApiClient, options: LeaderElectionOptions) {
    this.#client = client;
    this.#options = options;
    this.#clock = options.clock ?? systemClock;
    this.#leaseDurationMs = options.leaseDurationMs ?? 15_000;
    this.#renewDeadlineMs = options.renewDeadlineMs ?? 10_000;
    this.#retryPeriodMs = options.retryPeriodMs ?? 2_000;
  }

  /** Reports whether this process is the leader. */
  get isLeading(): boolean {
    return this.#isLeading;
  }

  /**
   * Stands for election until the signal is aborted; never fails. Each time it is won, `onLead` is called, and its signal is
   * aborted when the Lease is lost or this process is to stop. When `onLead` is done by itself, the Lease is given up as well.
   * After a clean end the Lease is free, so that another takes it at its next try; not before `onLead` is done.
   */
  async run(signal: AbortSignal, onStartedLeading: (signal: AbortSignal) => Promise<void>): Promise<void> {
    while (!signal.aborted) {
      if (await this.#tryAcquireOrRenew(signal)) await this.#lead(signal, onStartedLeading);
      // With jitter, so that candidates do not ask at the same time.
      if (!signal.aborted) await sleep(this.#clock, this.#retryPeriodMs * (0.9 + this.#clock.random() / 5), signal);
    }
  }

  async #lead(signal: AbortSignal, onStartedLeading: (signal: AbortSignal) => Promise<void>): Promise<void> {
    const stopping = new AbortController();
    const stop = () => stopping.abort(signal.reason);
    signal.addEventListener("abort", stop);
    if (signal.aborted) stop();
    this.#setLeading(true);
    const work = Promise.resolve().then(() => onStartedLeading(stopping.signal)).catch((error: unknown) => {
      if (!stopping.signal.aborted) this.#log.error("the leader's work failed", { ...this.#logFields(), error });
    });
    const done = new AbortController();
    // Renewed until the work has ended, also while it stops: until then no other process may start.
    const renewing = this.#renew(done.signal).then((lost) => {
      if (!lost) return;
      this.#setLeading(false);
      stopping.abort(new Error(`${this.#options.lease.name}: the lease was lost`));
    });
    await work;
    done.abort();
    await renewing;
    signal.removeEventListener("abort", stop);
    if (this.#isLeading) await this.#release();
    this.#setLeading(false);
  }

  /**
   * Renews the Lease until the signal is aborted; answers whether it was lost before. When the process was stalled for so
   * long that it did not even try to renew, it tries once before it gives up: nobody else may have taken the Lease.
   */
  async #renew(signal: AbortSignal): Promise<boolean> {
    let renewedAt = this.#clock.now();
    let hasFailed = false;
    while (true) {
      await sleep(this.#clock, this.#retryPeriodMs, signal);
      if (signal.aborted) return false;
      const remainingMs = this.#renewDeadlineMs - (this.#clock.now() - renewedAt);
      if (remainingMs <= 0 && hasFailed) return true;
      const deadline = new AbortController();
      const abort = () => deadline.abort(new Error("renewing the lease: no longer of use"));
      const cancel = this.#clock.after(Math.max(remainingMs, this.#retryPeriodMs), abort);
      signal.addEventListener("abort", abort);
      const startedAt = this.#clock.now();
      hasFailed = !await this.#tryAcquireOrRenew(deadline.signal);
      if (!hasFailed) renewedAt = startedAt;
      cancel();
      signal.removeEventListener("abort", abort);
      if (signal.aborted) continue;
      if (this.#holder() !== this.#options.identity || (hasFailed && remainingMs <= 0)) return true;
    }
  }

  /** Takes or renews the Lease, if it is free or ours; answers whether it is ours now. */
  async #tryAcquireOrRenew(signal: AbortSignal): Promise<boolean> {
    try {
      return await this.#acquireOrRenew(signal);
    } catch (error) {
      if (isConflict(error) || isAlreadyExists(error)) return false;
      if (!signal.aborted) this.#log.warn("asking for the lease failed", { ...this.#logFields(), error });
      return false;
    }
  }

  async #acquireOrRenew(signal: AbortSignal): Promise<boolean> {
    const request = { signal, timeoutMs: this.#renewDeadlineMs / 2 };
    const { lease: at, identity } = this.#options;
    const now = `${this.#clock.date().toISOString().slice(0, -1)}000Z`;
    const record = {
      holderIdentity: identity,
      leaseDurationSeconds: Math.ceil(this.#leaseDurationMs / 1000),
      renewTime: now,
    };
    const found = await orAbsent(this.#client.get(leases, at, request));
    if (found === undefined) {
      const spec = { ...record, acquireTime: now, leaseTransitions: 0 };
      this.#observe(await this.#client.create(leases, { metadata: { ...at }, spec }, request));
      return true;
    }
    this.#observe(found);
    const { lease, at: observedAt } = this.#observed!;
    const holder = this.#holder();
    const unchangedMs = this.#clock.now() - observedAt;
    // The duration in the record of the holder wins.
    const { leaseDurationSeconds } = lease.spec ?? {};
    const validMs = leaseDurationSeconds ? leaseDurationSeconds * 1000 : this.#leaseDurationMs;
    if (holder !== "" && holder !== identity && unchangedMs < validMs) return false;
    // A record of this process from before, while it does not lead, is acquired at once.
    const isTransition = holder !== identity || !this.#isLeading;
    const spec = {
      ...lease.spec,
      ...record,
      ...(isTransition ? { acquireTime: now, leaseTransitions: (lease.spec?.leaseTransitions ?? 0) + 1 } : {}),
    };
    this.#observe(await this.#client.replace(leases, { ...lease, spec }, request));
    return true;
  }

  async #release(): Promise<void> {
    const { identity, lease: at } = this.#options;
    try {
      const lease = await this.#client.get(leases, at, { timeoutMs: this.#retryPeriodMs });
      if (lease.spec?.holderIdentity !== identity) return;
      // As client-go releases it: without a holder, and expired in a second.
      const spec = { ...lease.spec, holderIdentity: "", leaseDurationSeconds: 1 };
      await this.#client.replace(leases, { ...lease, spec }, { timeoutMs: this.#retryPeriodMs });
    } catch (error) {
      this.#log.warn("giving the lease back failed; it will run out", { ...this.#logFields(), error });
    }
  }

  #observe(lease: Lease): void {
    if (this.#observed?.lease.metadata.resourceVersion !== lease.metadata.resourceVersion) {
      this.#observed = { lease, at: this.#clock.now() };
    }
  }

  #holder(): string {
    return this.#observed?.lease.spec?.holderIdentity ?? "";
  }

  #logFields(): { lease: string } {
    return { lease: this.#options.lease.name };
  }

  #setLeading(leading: boolean): void {
    if (this.#isLeading === leading) return;
    this.#isLeading = leading;
    this.#log.info(leading ? "leading" : "no longer leading", {
      ...this.#logFields(),
      identity: this.#options.identity,
    });
    this.#options.onChange?.(leading);
  }
}

/** The sidecars whose place a loop can take. */
export type Sidecar = "csi-provisioner" | "csi-resizer" | "csi-snapshotter" | "snapshot-controller";

/**
 * Returns the name of the Lease that an official sidecar holds for a driver, so that it and the loop in its place never
 * work at the same time (csi-provisioner 6.3.0, csi-resizer 2.3.0, csi-snapshotter and snapshot-controller 8.7.0, each
 * with the `sanitizeName` of csi-lib-utils).
 */
export function sidecarLeaseName(sidecar: Sidecar, driverName: string): string {
  switch (sidecar) {
    case "csi-provisioner":
      return sanitize(driverName);
    case "csi-resizer":
      return sanitize(`external-resizer-${driverName}`);
    case "csi-snapshotter":
      return sanitize(`external-snapshotter-leader-${driverName}`);
    case "snapshot-controller":
      return "snapshot-controller-leader";
  }
}

/** Returns the name of the Lease of a controller that replaces no sidecar. */
export function controllerLeaseName(controller: string, driverName: string): string {
  return sanitize(`${controller}-${driverName}`);
}

function sanitize(name: string): string {
  const clean = name.replace(/[^a-zA-Z0-9-]/g, "-");
  return clean.endsWith("-") ? `${clean}X` : clean;
}
