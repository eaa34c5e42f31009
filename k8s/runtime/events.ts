/**
 * Events: what a person sees in `kubectl describe`. Recording never waits and never fails; what is said again is counted in
 * the event that says it already.
 *
 * @module
 */

import { getLogger } from "@logtape/logtape";
import { type ApiClient, isAlreadyExists, isTransient, orAbsent } from "../client/client.ts";
import { backoffMs, type Clock, sleep, systemClock, timestamp } from "../../lvm/clock.ts";
import type { EventReason } from "../api/event_reasons.ts";
import { type Event, events, type KubeObject } from "../api/objects.ts";

/** The type of an event: `Warning` for what somebody may have to act on. */
export type EventType = "Normal" | "Warning";

/** Options of an {@linkcode EventRecorder}. */
export interface EventRecorderOptions {
  /** The reporting component, such as `lvm.denolith.dev/provisioner`. */
  component: string;
  /** The reporting instance: the name of the node or the pod. */
  instance: string;
  /** Milliseconds between writes of an event that is said again and again; 10,000. */
  repeatIntervalMs?: number | undefined;
  /** The maximum number of writes without a delay; 25. */
  burst?: number | undefined;
  /** Milliseconds that each further write has to wait; 1,000. */
  refillIntervalMs?: number | undefined;
  /** Time. */
  clock?: Clock | undefined;
}

/** The longest message that the API takes. */
const MAX_MESSAGE_LENGTH = 1024;
/** The number of events in the cache, whose repetitions are counted instead of written again. */
const MAX_CACHED_EVENTS = 1000;
/** The maximum number of attempts of a write while the server does not answer. */
const MAX_ATTEMPTS = 5;

/** The object of an event. */
type ObjectReference = Event["involvedObject"] & { name: string };

/** Something said of an object. */
interface RecordedEvent {
  readonly key: string;
  readonly object: ObjectReference;
  readonly type: EventType;
  readonly reason: string;
  readonly message: string;
  readonly first: string;
  last: string;
  count: number;
  /** The event that says it, and whether it was written. */
  name: string;
  written: boolean;
  writtenAt: number;
}

/** Records events. */
export class EventRecorder<Reason extends string = EventReason> {
  readonly #client: ApiClient;
  readonly #options: EventRecorderOptions;
  readonly #clock: Clock;
  readonly #recorded = new Map<string, RecordedEvent>();
  readonly #pending = new Map<string, RecordedEvent>();
  readonly #stop = new AbortController();
  readonly #cancels = new Set<() => void>();
  #tokens: number;
  #tokensAt: number;
  #isWriting = false;
  #writing = Promise.resolve();

  /** Writes nothing before something is recorded. */
  constructor(client: ApiClient, options: EventRecorderOptions) {
    this.#client = client;
    this.#options = options;
    this.#clock = options.clock ?? systemClock;
    this.#tokens = options.burst ?? 25;
    this.#tokensAt = this.#clock.now();
  }

  /** Records an event about an object. A message is cut at the limit of the API. */
  record(object: KubeObject, type: EventType, reason: Reason, message: string): void {
    if (this.#stop.signal.aborted) return;
    const truncated = message.length > MAX_MESSAGE_LENGTH ? message.slice(0, MAX_MESSAGE_LENGTH - 1) + "…" : message;
    const key = [object.kind, object.metadata.uid ?? object.metadata.name, type, reason, truncated].join("\n");
    const now = timestamp(this.#clock.date());
    const recorded = this.#recorded.get(key) ?? {
      key,
      object: referenceTo(object),
      type,
      reason,
      message: truncated,
      first: now,
      last: now,
      count: 0,
      name: eventName(object),
      written: false,
      writtenAt: -Infinity,
    };
    recorded.count++;
    recorded.last = now;
    // Moved to the end, so that it is evicted last.
    this.#recorded.delete(key);
    this.#recorded.set(key, recorded);
    if (this.#recorded.size > MAX_CACHED_EVENTS) this.#recorded.delete(this.#recorded.keys().next().value!);
    this.#schedule(recorded);
  }

  /** Settles when what is due is written. */
  async flush(): Promise<void> {
    while (this.#isWriting) await this.#writing;
  }

  /** Takes no more, and settles when what is due is written or given up; within `withinMs`. */
  async stop(timeoutMs: number): Promise<void> {
    for (const cancel of this.#cancels) cancel();
    const flushed = new AbortController();
    const done = this.flush().then(() => flushed.abort());
    await sleep(this.#clock, timeoutMs, flushed.signal);
    this.#stop.abort();
    await done;
  }

  /** Schedules the write within the rate limit. */
  #schedule(recorded: RecordedEvent): void {
    if (this.#pending.has(recorded.key)) return;
    this.#pending.set(recorded.key, recorded);
    const waitMs = recorded.writtenAt + (this.#options.repeatIntervalMs ?? 10_000) - this.#clock.now();
    if (waitMs <= 0) return this.#write();
    const cancel = this.#clock.after(waitMs, () => {
      this.#cancels.delete(cancel);
      this.#write();
    });
    this.#cancels.add(cancel);
  }

  #write(): void {
    if (!this.#isWriting) this.#writing = this.#writePending();
  }

  async #writePending(): Promise<void> {
    this.#isWriting = true;
    while (!this.#stop.signal.aborted) {
      const now = this.#clock.now();
      const recorded = [...this.#pending.values()].find(({ writtenAt }) =>
        now - writtenAt >= (this.#options.repeatIntervalMs ?? 10_000)
      );
      if (recorded === undefined) break;
      await this.#takeToken();
      this.#pending.delete(recorded.key);
      recorded.writtenAt = this.#clock.now();
      await this.#send(recorded);
    }
    this.#isWriting = false; // synchronously with the last check, so that no event is recorded in between
  }

  /** Waits for its turn among all writes. */
  async #takeToken(): Promise<void> {
    const { burst = 25, refillIntervalMs = 1_000 } = this.#options;
    const now = this.#clock.now();
    this.#tokens = Math.min(burst, this.#tokens + (now - this.#tokensAt) / refillIntervalMs);
    this.#tokensAt = now;
    if (this.#tokens < 1) await sleep(this.#clock, (1 - this.#tokens) * refillIntervalMs, this.#stop.signal);
    this.#tokens -= 1;
  }

  async #send(recorded: RecordedEvent): Promise<void> {
    for (let failures = 1; !this.#stop.signal.aborted; failures++) {
      try {
        return await this.#createOrIncrement(recorded);
      } catch (error) {
        if (failures >= MAX_ATTEMPTS || !isTransient(error)) {
          getLogger(["denolith", "events"]).warn("recording an event failed", { reason: recorded.reason, error });
          return;
        }
        await sleep(
          this.#clock,
          backoffMs({ startMs: 1_000, capMs: 15_000 }, failures, this.#clock),
          this.#stop.signal,
        );
      }
    }
  }

  async #createOrIncrement(recorded: RecordedEvent): Promise<void> {
    const { count, last, name } = recorded;
    const { signal } = this.#stop;
    const namespace = recorded.object.namespace ?? "default";
    if (recorded.written) {
      // The API server removes events after an hour.
      const merge = { count, lastTimestamp: last };
      if (await orAbsent(this.#client.patch(events, { name, namespace }, { merge, signal })) !== undefined) return;
    }
    try {
      await this.#client.create(events, this.#event(recorded, { name, namespace }), { signal });
    } catch (error) {
      // The response to an earlier attempt was lost.
      if (!isAlreadyExists(error)) throw error;
    }
    recorded.written = true;
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

function referenceTo({ apiVersion, kind, metadata }: KubeObject): ObjectReference {
  const { name, namespace, uid, resourceVersion } = metadata;
  const fields = { apiVersion, kind, namespace, uid, resourceVersion };
  return { name, ...Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined)) };
}

/** Names of objects may have 253 characters, and so may those of events. */
function eventName({ metadata }: KubeObject): string {
  return `${metadata.name.slice(0, 230)}.${crypto.randomUUID().replaceAll("-", "").slice(0, 16)}`;
}
