/**
 * The events that wait to be written: a bounded queue with new warnings first, then other new events, and last the
 * counts of events that were written before.
 *
 * @module
 */

import type { Clock } from "../../base/clock.ts";
import type { RecordedEvent } from "./event_correlator.ts";

/** The number of events that wait at most. */
const MAX_WAITING = 1000;

/** Options of an {@linkcode EventQueue}. */
export interface EventQueueOptions {
  /** Milliseconds between two writes of one event. */
  readonly repeatIntervalMs: number;
  /** Called when an event became due after such an interval. */
  readonly onDue: () => void;
  /** Called for each new event that is dropped because the queue is full. */
  readonly onDropped: () => void;
  /** Time. */
  readonly clock: Clock;
}

/** The events that wait to be written. */
export class EventQueue {
  readonly #options: EventQueueOptions;
  readonly #warnings = new Set<RecordedEvent>();
  readonly #others = new Set<RecordedEvent>();
  readonly #repeats = new Set<RecordedEvent>();
  /** Events whose interval is not over, with the function that cancels their timer. */
  readonly #delayed = new Map<RecordedEvent, () => void>();

  /** Creates an empty queue. */
  constructor(options: EventQueueOptions) {
    this.#options = options;
  }

  /** Adds an event, unless it waits already. */
  add(event: RecordedEvent): void {
    if (this.#queues.some((queue) => queue.has(event)) || this.#delayed.has(event)) return;
    const { clock, repeatIntervalMs, onDue } = this.#options;
    const waitMs = event.triedAt + repeatIntervalMs - clock.now();
    if (waitMs > 0) {
      const cancel = clock.after(waitMs, () => {
        this.#delayed.delete(event);
        this.#queueOf(event).add(event);
        onDue();
      });
      this.#delayed.set(event, cancel);
    } else this.#queueOf(event).add(event);
    this.#dropExcess();
  }

  /** Takes the event that is to be written next. @returns `undefined` when none is due */
  take(): RecordedEvent | undefined {
    for (const queue of this.#queues) {
      for (const event of queue) {
        queue.delete(event);
        return event;
      }
    }
    return undefined;
  }

  /** Reports whether no event is due. */
  get isEmpty(): boolean {
    return this.#queues.every(({ size }) => size === 0);
  }

  /** Forgets the events whose interval is not over. */
  cancelDelayed(): void {
    for (const cancel of this.#delayed.values()) cancel();
    this.#delayed.clear();
  }

  get #queues(): readonly Set<RecordedEvent>[] {
    return [this.#warnings, this.#others, this.#repeats];
  }

  #queueOf({ isWritten, type }: RecordedEvent): Set<RecordedEvent> {
    if (isWritten) return this.#repeats;
    return type === "Warning" ? this.#warnings : this.#others;
  }

  /** Drops the event that is missed least. The counts of a written event are not lost: its next write has them. */
  #dropExcess(): void {
    const size = this.#delayed.size + this.#queues.reduce((sum, { size }) => sum + size, 0);
    if (size <= MAX_WAITING) return;
    for (const [event, cancel] of this.#delayed) {
      cancel();
      this.#delayed.delete(event);
      return this.#countDropped(event);
    }
    const queue = [this.#repeats, this.#others, this.#warnings].find(({ size }) => size > 0)!;
    const event = queue.values().next().value!;
    queue.delete(event);
    this.#countDropped(event);
  }

  #countDropped({ isWritten }: RecordedEvent): void {
    if (!isWritten) this.#options.onDropped();
  }
}
