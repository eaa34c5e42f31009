/**
 * Events: what a person sees in `kubectl describe`. Recording never waits and never fails; repeated events are aggregated in
 * the event that says it already.
 *
 * Two limits protect the API server. Each object has a token bucket, as in client-go, so that one object cannot take the
 * writes of others. The process has another one, and beyond it new warnings are written first. Memory is bounded, too:
 * see {@linkcode EventQueue}.
 *
 * @module
 */

import { getLogger } from "@logtape/logtape";
import { type ApiClient, isAlreadyExists, isTransient, orAbsent } from "../client/client.ts";
import { type Backoff, backoffMs, type Clock, sleep, systemClock } from "../../base/clock.ts";
import type { EventReason } from "../api/event_reasons.ts";
import { events, type KubeObject } from "../api/objects.ts";
import { EventCorrelator, type EventType, type RecordedEvent, remember } from "./event_correlator.ts";
import { EventQueue } from "./event_queue.ts";
import { TokenBucket } from "./token_bucket.ts";

export type { EventType } from "./event_correlator.ts";

/** Options of an {@linkcode EventRecorder}. */
export interface EventRecorderOptions {
  /** The reporting component, such as `lvm.denolith.dev/provisioner`. */
  component: string;
  /** The reporting instance: the name of the node or the pod. */
  instance: string;
  /** Milliseconds between writes of a repeated event; 10,000. */
  repeatIntervalMs?: number | undefined;
  /** The maximum number of writes without a delay; 100. */
  burst?: number | undefined;
  /** Milliseconds that each further write has to wait; 50. */
  refillIntervalMs?: number | undefined;
  /** Called for each new event that is not written, because it would exceed a limit. */
  onDropped?: (() => void) | undefined;
  /** Time. */
  clock?: Clock | undefined;
}

/** The writes about one object: 25 at once, and one more in five minutes (client-go's EventSourceObjectSpamFilter). */
const OBJECT_LIMIT = { burst: 25, refillIntervalMs: 300_000 };
/** The maximum number of attempts of a write while the server does not answer. */
const MAX_ATTEMPTS = 5;
/** The delay after consecutive failures to record an event. */
const BACKOFF: Backoff = { startMs: 1_000, capMs: 15_000 };
/** The minimum interval between two log lines about dropped events, in milliseconds. */
const DROP_LOG_INTERVAL_MS = 60_000;

/** Records events. */
export class EventRecorder<Reason extends string = EventReason> {
  readonly #client: ApiClient;
  readonly #options: EventRecorderOptions;
  readonly #clock: Clock;
  readonly #log = getLogger(["denolith", "events"]);
  readonly #correlator: EventCorrelator;
  readonly #queue: EventQueue;
  readonly #limit: TokenBucket;
  /** The limit of each object. */
  readonly #objectLimits = new Map<string, TokenBucket>();
  readonly #stop = new AbortController();
  readonly #dropped = { count: 0, loggedAt: -Infinity };
  #isWriting = false;
  #writing = Promise.resolve();

  /** Writes nothing before something is recorded. */
  constructor(client: ApiClient, options: EventRecorderOptions) {
    const { clock = systemClock, burst = 100, refillIntervalMs = 50, repeatIntervalMs = 10_000 } = options;
    this.#client = client;
    this.#options = options;
    this.#clock = clock;
    this.#correlator = new EventCorrelator(clock);
    this.#limit = new TokenBucket({ burst, refillIntervalMs, clock });
    this.#queue = new EventQueue({
      repeatIntervalMs,
      clock,
      onDue: () => this.#write(),
      onDropped: () => this.#countDropped(),
    });
  }

  /** Records an event about an object. A message is cut at the limit of the API. */
  record(object: KubeObject, type: EventType, reason: Reason, message: string): void {
    if (this.#stop.signal.aborted) return;
    this.#queue.add(this.#correlator.count(object, type, reason, message));
    this.#write();
  }

  /** Settles when what is due is written. */
  async flush(): Promise<void> {
    while (this.#isWriting) await this.#writing;
  }

  /** Takes no more, and settles when what is due is written or given up; within `withinMs`. */
  async stop(timeoutMs: number): Promise<void> {
    this.#queue.cancelDelayed();
    const flushed = new AbortController();
    const done = this.flush().then(() => flushed.abort());
    await sleep(this.#clock, timeoutMs, flushed.signal);
    this.#stop.abort();
    this.#queue.cancelDelayed();
    await done;
  }

  #write(): void {
    if (!this.#isWriting && !this.#queue.isEmpty) this.#writing = this.#writePending();
  }

  /** Writes what is due, one event after the other. The next one is chosen when it may be written, not before. */
  async #writePending(): Promise<void> {
    this.#isWriting = true;
    while (!this.#stop.signal.aborted && !this.#queue.isEmpty) {
      const waitMs = this.#limit.waitMs();
      if (waitMs > 0) {
        await sleep(this.#clock, waitMs, this.#stop.signal);
        continue;
      }
      const recorded = this.#queue.take()!;
      if (!this.#limitOf(recorded).tryTake()) {
        if (!recorded.isWritten) this.#countDropped();
        continue;
      }
      this.#limit.tryTake();
      recorded.triedAt = this.#clock.now();
      await this.#send(recorded);
    }
    this.#isWriting = false; // synchronously with the last check, so that no event is recorded in between
  }

  #limitOf({ objectKey }: RecordedEvent): TokenBucket {
    const limit = this.#objectLimits.get(objectKey) ?? new TokenBucket({ ...OBJECT_LIMIT, clock: this.#clock });
    remember(this.#objectLimits, objectKey, limit);
    return limit;
  }

  #countDropped(): void {
    this.#options.onDropped?.();
    this.#dropped.count++;
    const now = this.#clock.now();
    if (now - this.#dropped.loggedAt < DROP_LOG_INTERVAL_MS) return;
    this.#log.warn("events were dropped: too many were recorded", { dropped: this.#dropped.count });
    Object.assign(this.#dropped, { count: 0, loggedAt: now });
  }

  async #send(recorded: RecordedEvent): Promise<void> {
    for (let failures = 1; !this.#stop.signal.aborted; failures++) {
      try {
        return await this.#createOrIncrement(recorded);
      } catch (error) {
        if (failures >= MAX_ATTEMPTS || !isTransient(error)) {
          this.#log.warn("recording an event failed", { reason: recorded.reason, error });
          return;
        }
        await sleep(
          this.#clock,
          backoffMs(BACKOFF, failures, this.#clock),
          this.#stop.signal,
        );
      }
    }
  }

  async #createOrIncrement(recorded: RecordedEvent): Promise<void> {
    const { count, last, message, name } = recorded;
    const { signal } = this.#stop;
    const namespace = recorded.object.namespace ?? "default";
    if (recorded.isWritten) {
      // The API server removes events after an hour.
      const merge = { count, lastTimestamp: last, message };
      if (await orAbsent(this.#client.patch(events, { name, namespace }, { merge, signal })) !== undefined) return;
    }
    try {
      await this.#client.create(events, this.#event(recorded, { name, namespace }), { signal });
    } catch (error) {
      // The response to an earlier attempt was lost.
      if (!isAlreadyExists(error)) throw error;
    }
    recorded.isWritten = true;
  }

  #event(
    { object, type, reason, message, first, last, count }: RecordedEvent,
    metadata: { name: string; namespace: string },
  ) {
    const { component, instance } = this.#options;
    return {
      metadata,
      involvedObject: object,
      type,
      reason,
      message,
      count,
      firstTimestamp: first,
      lastTimestamp: last,
      source: { component, host: instance },
      reportingComponent: component,
      reportingInstance: instance,
    };
  }
}
