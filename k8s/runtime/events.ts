/**
 * Events: what a person sees in `kubectl describe`. Recording never waits and never fails; what is said again is counted in
 * the event that says it already.
 *
 * @module
 */

import { getLogger } from "@logtape/logtape";
import { type ApiClient, isAlreadyExists, isNotFound, isTransient } from "../client/client.ts";
import { backoffMs, type Clock, sleep, systemClock, timestamp } from "./clock.ts";
import { type Event, events, type KubeObject } from "../api/objects.ts";

/** Whether all is well. */
export type EventType = "Normal" | "Warning";

/** How an {@linkcode EventRecorder} behaves. */
export interface RecorderOptions {
  /** Who reports, as in `lvm.denolith.dev/provisioner`. */
  component: string;
  /** Which of them: the node or the pod. */
  instance: string;
  /** Milliseconds between writes of an event that is said again and again; 10,000. */
  repeatMs?: number | undefined;
  /** How many writes may follow each other at once; 25. */
  burst?: number | undefined;
  /** Milliseconds that each further write has to wait; 1,000. */
  everyMs?: number | undefined;
  /** Time. */
  clock?: Clock | undefined;
}

/** The longest message that the API takes. */
const MESSAGE_LENGTH = 1024;
/** How many different events are remembered, to be counted instead of written again. */
const REMEMBERED = 1000;
/** How many times a write is tried while the server is away. */
const TRIES = 5;

/** Which object something is said of. */
type ObjectReference = Event["involvedObject"] & { name: string };

/** Something said of an object. */
interface Said {
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
export class EventRecorder {
  readonly #client: ApiClient;
  readonly #options: RecorderOptions;
  readonly #clock: Clock;
  readonly #said = new Map<string, Said>();
  readonly #due = new Map<string, Said>();
  readonly #stop = new AbortController();
  readonly #cancels = new Set<() => void>();
  #tokens: number;
  #tokensAt: number;
  #isWriting = false;
  #writing = Promise.resolve();

  /** Writes nothing before something is recorded. */
  constructor(client: ApiClient, options: RecorderOptions) {
    this.#client = client;
    this.#options = options;
    this.#clock = options.clock ?? systemClock;
    this.#tokens = options.burst ?? 25;
    this.#tokensAt = this.#clock.now();
  }

  /** Says something of an object. A message is cut where the API's limit is. */
  record(object: KubeObject, type: EventType, reason: string, message: string): void {
    if (this.#stop.signal.aborted) return;
    const cut = message.length > MESSAGE_LENGTH ? message.slice(0, MESSAGE_LENGTH - 1) + "…" : message;
    const key = [object.kind, object.metadata.uid ?? object.metadata.name, type, reason, cut].join("\n");
    const now = timestamp(this.#clock.date());
    const said = this.#said.get(key) ?? {
      key,
      object: referenceTo(object),
      type,
      reason,
      message: cut,
      first: now,
      last: now,
      count: 0,
      name: eventName(object),
      written: false,
      writtenAt: -Infinity,
    };
    said.count++;
    said.last = now;
    // Last said, last forgotten.
    this.#said.delete(key);
    this.#said.set(key, said);
    if (this.#said.size > REMEMBERED) this.#said.delete(this.#said.keys().next().value!);
    this.#plan(said);
  }

  /** Settles when what is due is written. */
  async flush(): Promise<void> {
    while (this.#isWriting) await this.#writing;
  }

  /** Takes no more, and settles when what is due is written or given up; within `withinMs`. */
  async stop(withinMs: number): Promise<void> {
    for (const cancel of this.#cancels) cancel();
    const flushed = new AbortController();
    const done = this.flush().then(() => flushed.abort());
    await sleep(this.#clock, withinMs, flushed.signal);
    this.#stop.abort();
    await done;
  }

  /** Has it written, but not more often than it may be. */
  #plan(said: Said): void {
    if (this.#due.has(said.key)) return;
    this.#due.set(said.key, said);
    const wait = said.writtenAt + (this.#options.repeatMs ?? 10_000) - this.#clock.now();
    if (wait <= 0) return this.#write();
    const cancel = this.#clock.after(wait, () => {
      this.#cancels.delete(cancel);
      this.#write();
    });
    this.#cancels.add(cancel);
  }

  #write(): void {
    if (!this.#isWriting) this.#writing = this.#writeDue();
  }

  async #writeDue(): Promise<void> {
    this.#isWriting = true;
    while (!this.#stop.signal.aborted) {
      const now = this.#clock.now();
      const said = [...this.#due.values()].find(({ writtenAt }) =>
        now - writtenAt >= (this.#options.repeatMs ?? 10_000)
      );
      if (said === undefined) break;
      await this.#token();
      this.#due.delete(said.key);
      said.writtenAt = this.#clock.now();
      await this.#send(said);
    }
    this.#isWriting = false; // in the same breath as the last look, so that nothing is said in between
  }

  /** Waits for its turn among all writes. */
  async #token(): Promise<void> {
    const { burst = 25, everyMs = 1_000 } = this.#options;
    const now = this.#clock.now();
    this.#tokens = Math.min(burst, this.#tokens + (now - this.#tokensAt) / everyMs);
    this.#tokensAt = now;
    if (this.#tokens < 1) await sleep(this.#clock, (1 - this.#tokens) * everyMs, this.#stop.signal);
    this.#tokens -= 1;
  }

  async #send(said: Said): Promise<void> {
    for (let failures = 1; !this.#stop.signal.aborted; failures++) {
      try {
        return await this.#createOrCount(said);
      } catch (error) {
        if (failures >= TRIES || !isTransient(error)) {
          getLogger(["denolith", "events"]).warn("recording an event failed", { reason: said.reason, error });
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

  async #createOrCount(said: Said): Promise<void> {
    const { count, last, name } = said;
    const { signal } = this.#stop;
    const namespace = said.object.namespace ?? "default";
    if (said.written) {
      try {
        const merge = { count, lastTimestamp: last };
        await this.#client.patch(events, { name, namespace }, { merge, signal });
        return;
      } catch (error) {
        // The server forgets events after an hour.
        if (!isNotFound(error)) throw error;
      }
    }
    try {
      await this.#client.create(events, this.#event(said, { name, namespace }), { signal });
    } catch (error) {
      // The answer to an earlier try was lost.
      if (!isAlreadyExists(error)) throw error;
    }
    said.written = true;
  }

  #event({ object, type, reason, message, first, last, count }: Said, metadata: { name: string; namespace: string }) {
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
