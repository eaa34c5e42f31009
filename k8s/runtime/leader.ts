/**
 * Leader election by a Lease, which is acquired and renewed by compare-and-swap on its revision. The age of a renewal
 * is measured by this process's own clock, from when it saw the record change, so that clocks need not agree. A Lease
 * fences nothing: repeated work must be harmless.
 *
 * The holder renews with one request, on the revision that its last renewal returned. The others watch the Lease and
 * send nothing until it is released or expires.
 *
 * @module
 */

import { getLogger } from "@logtape/logtape";
import {
  type ApiClient,
  isAlreadyExists,
  isConflict,
  orAbsent,
  orAbsentOrChanged,
  type RequestOptions,
} from "../client/client.ts";
import { type Clock, sleep, systemClock } from "../../base/clock.ts";
import { type Lease, leases } from "../api/objects.ts";

// The durations are those of the official sidecars.

/** Milliseconds without a renewal after which a holder counts as gone. */
const LEASE_DURATION_MS = 15_000;

/** Milliseconds without a renewal after which this process stops leading. */
const RENEW_DEADLINE_MS = 10_000;

/**
 * Milliseconds between renewals. The renewals of all elections of a process are sent at the same moments, so that the process
 * wakes up once for them.
 */
const RENEW_INTERVAL_MS = 5_000;

/** Milliseconds between attempts after one that failed, and while the Lease cannot be watched. */
const RETRY_PERIOD_MS = 2_000;

/** Options of a {@linkcode LeaderElection}. */
export interface LeaderElectionOptions {
  /** The Lease. */
  lease: { readonly name: string; readonly namespace: string };
  /** The identity of this process: a name that no other one has. */
  identity: string;
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
  readonly #log = getLogger(["denolith", "leader"]);
  /** The Lease that was last observed, and when it changed. */
  #observed: { lease: Lease; at: number } | undefined;
  /** True when the Lease may have changed without being observed. */
  #isStale = true;
  #isLeading = false;
  /** When the request was sent that last wrote this process's record: nobody else can count the term from earlier on. */
  #renewedAt = -Infinity;

  /** Creates it; nothing runs before {@linkcode LeaderElection.run}. */
  constructor(client: ApiClient, options: LeaderElectionOptions) {
    this.#client = client;
    this.#options = options;
    this.#clock = options.clock ?? systemClock;
  }

  /** Reports whether this process is the leader. */
  get isLeading(): boolean {
    return this.#isLeading;
  }

  /**
   * Stands for election until the signal is aborted; never fails. Each time it is won, `onLead` is called, and its signal is
   * aborted when the Lease is lost or this process is to stop. When `onLead` is done by itself, the Lease is given up as well.
   * After a clean end the Lease is free, so that another takes it at once; not before `onLead` is done.
   */
  async run(signal: AbortSignal, onStartedLeading: (signal: AbortSignal) => Promise<void>): Promise<void> {
    while (!signal.aborted) {
      if (!await this.#tryAcquireOrRenew(signal)) await this.#waitForTurn(signal);
      else {
        // a process that was stopped meanwhile reads the answer when another one may hold the Lease
        if (this.#untilDeadlineMs() > 0) await this.#lead(signal, onStartedLeading);
        await this.#pause(signal); // another one goes first
      }
    }
  }

  /** Waits for the retry period, with jitter, so that candidates do not ask at the same time. */
  async #pause(signal: AbortSignal): Promise<void> {
    await sleep(this.#clock, RETRY_PERIOD_MS * (0.9 + this.#clock.random() / 5), signal);
  }

  /**
   * Waits until the Lease is free or expired, as far as a watch of it shows. A watch that shows nothing any more makes it
   * look expired; then the attempt to acquire it fails, because its revision is another one. A Lease that was deleted is
   * not free: its holder leads until its next renewal, which creates it again.
   */
  async #waitForTurn(signal: AbortSignal): Promise<void> {
    // nobody holds it, and it could not be written: the API server refuses it, or does not answer
    if (this.#observed !== undefined && this.#validForMs() <= 0) return await this.#pause(signal);
    const turn = new AbortController();
    const end = () => turn.abort();
    signal.addEventListener("abort", end);
    if (signal.aborted) end();
    let cancel = () => {};
    const setTimer = () => {
      cancel();
      cancel = this.#clock.after(this.#validForMs(), end);
    };
    if (this.#observed !== undefined) setTimer();
    try {
      for await (const { type, object } of this.#watch(turn.signal)) {
        if (type === "BOOKMARK") continue;
        if (type === "DELETED") this.#isStale = true;
        else if (isNewer(object, this.#observed?.lease)) this.#observe(object);
        if (this.#validForMs() <= 0) return end();
        setTimer();
      }
    } catch (error) {
      if (!turn.signal.aborted) {
        this.#isStale = true;
        this.#log.debug("watching the lease failed", { ...this.#logFields(), error });
      }
    } finally {
      cancel();
      signal.removeEventListener("abort", end);
    }
    if (!turn.signal.aborted) await this.#pause(signal);
  }

  #watch(signal: AbortSignal) {
    const { lease: { name, namespace } } = this.#options;
    const { resourceVersion } = this.#observed?.lease.metadata ?? {};
    if (resourceVersion === undefined) return [];
    const selection = { namespace, fieldSelector: `metadata.name=${name}` };
    return this.#client.watch(leases, { ...selection, resourceVersion, signal });
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
   * long that it did not even try to renew, it tries once before it gives up, unless another one may have taken the Lease.
   */
  async #renew(signal: AbortSignal): Promise<boolean> {
    let hasFailed = false;
    while (true) {
      const delayMs = hasFailed
        ? Math.min(RETRY_PERIOD_MS, this.#untilDeadlineMs())
        : Math.min(this.#untilNextRenewalMs(), this.#untilDeadlineMs() - RETRY_PERIOD_MS);
      await sleep(this.#clock, Math.max(0, delayMs), signal);
      if (signal.aborted) return false;
      const remainingMs = this.#untilDeadlineMs();
      const untilExpiryMs = remainingMs + LEASE_DURATION_MS - RENEW_DEADLINE_MS;
      if (untilExpiryMs <= 0 || (remainingMs <= 0 && hasFailed)) return true;
      const deadline = new AbortController();
      const abort = () => deadline.abort(new Error("renewing the lease: no longer of use"));
      const limitMs = remainingMs > 0 ? remainingMs : Math.min(RETRY_PERIOD_MS, untilExpiryMs);
      const cancel = this.#clock.after(limitMs, abort);
      signal.addEventListener("abort", abort);
      hasFailed = !await this.#tryAcquireOrRenew(deadline.signal);
      cancel();
      signal.removeEventListener("abort", abort);
      if (signal.aborted) continue;
      if (this.#holder() !== this.#options.identity || (hasFailed && remainingMs <= 0)) return true;
    }
  }

  /** Returns the time after which this process must not lead without another renewal, in milliseconds. */
  #untilDeadlineMs(): number {
    return this.#renewedAt + RENEW_DEADLINE_MS - this.#clock.now();
  }

  /** Returns the time until the moment at which all elections of the process renew, in milliseconds. */
  #untilNextRenewalMs(): number {
    return RENEW_INTERVAL_MS - this.#clock.now() % RENEW_INTERVAL_MS;
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

  /**
   * Writes the record over the one that was observed. The Lease is read only when there is none, or when that one may no
   * longer be, or is not, the stored one.
   */
  async #acquireOrRenew(signal: AbortSignal): Promise<boolean> {
    const request = { signal, timeoutMs: RENEW_DEADLINE_MS / 2 };
    if (this.#observed !== undefined && !this.#isStale) {
      const written = await this.#write(request);
      if (written !== "changed") return written === "ours";
    }
    const found = await orAbsent(this.#client.get(leases, this.#options.lease, request));
    if (found === undefined) {
      if (this.#isHeldByAnother()) return false;
      const spec = { ...this.#record(), acquireTime: this.#now(), leaseTransitions: 0 };
      const metadata = { ...this.#options.lease };
      await this.#writeRecord(() => this.#client.create(leases, { metadata, spec }, request));
      return true;
    }
    this.#isStale = false;
    this.#observe(found);
    return await this.#write(request) === "ours";
  }

  /**
   * Replaces the record that was observed by this process's, unless another one holds the Lease.
   *
   * @returns `changed` when it is no longer the stored one
   */
  async #write(request: RequestOptions): Promise<"ours" | "held" | "changed"> {
    const { lease } = this.#observed!;
    const { identity } = this.#options;
    if (this.#isHeldByAnother()) return "held";
    // A record of this process from before, while it does not lead, is acquired at once.
    const isTransition = this.#holder() !== identity || !this.#isLeading;
    const spec = {
      ...lease.spec,
      ...this.#record(),
      ...(isTransition ? { acquireTime: this.#now(), leaseTransitions: (lease.spec?.leaseTransitions ?? 0) + 1 } : {}),
    };
    const write = () => orAbsentOrChanged(this.#client.replace(leases, { ...lease, spec }, request));
    return await this.#writeRecord(write) ? "ours" : "changed";
  }

  /** Writes this process's record; answers whether that was possible. */
  async #writeRecord(write: () => Promise<Lease | undefined>): Promise<boolean> {
    const sentAt = this.#clock.now();
    const written = await write();
    if (written === undefined) return false;
    [this.#renewedAt, this.#isStale] = [sentAt, false];
    this.#observe(written);
    return true;
  }

  #record() {
    return {
      holderIdentity: this.#options.identity,
      leaseDurationSeconds: Math.ceil(LEASE_DURATION_MS / 1000),
      renewTime: this.#now(),
    };
  }

  #now(): string {
    return `${this.#clock.date().toISOString().slice(0, -1)}000Z`;
  }

  #isHeldByAnother(): boolean {
    return this.#holder() !== this.#options.identity && this.#validForMs() > 0;
  }

  /** Returns how long the observed record is still valid, in milliseconds. The duration in it wins. */
  #validForMs(): number {
    if (this.#holder() === "") return 0;
    const { lease: { spec }, at } = this.#observed!;
    const durationMs = spec?.leaseDurationSeconds ? spec.leaseDurationSeconds * 1000 : LEASE_DURATION_MS;
    return at + durationMs - this.#clock.now();
  }

  async #release(): Promise<void> {
    if (this.#holder() !== this.#options.identity) return;
    const request = { timeoutMs: RETRY_PERIOD_MS };
    // As client-go releases it: without a holder, and expired in a second.
    const released = (lease: Lease) => ({
      ...lease,
      spec: { ...lease.spec, holderIdentity: "", leaseDurationSeconds: 1 },
    });
    try {
      const { lease } = this.#observed!;
      if (await orAbsentOrChanged(this.#client.replace(leases, released(lease), request)) !== undefined) return;
      const now = await this.#client.get(leases, this.#options.lease, request);
      if (now.spec?.holderIdentity !== this.#options.identity) return;
      await this.#client.replace(leases, released(now), request);
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

/** Reports whether a record is at a later revision than another one. Revisions are numbers in one order (KEP-5504). */
function isNewer({ metadata: { resourceVersion = "0" } }: Lease, known: Lease | undefined): boolean {
  return known === undefined || BigInt(resourceVersion) > BigInt(known.metadata.resourceVersion ?? "0");
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
