/**
 * Wake-ups of what waits: whoever observes a change names it, and knows nothing of those who wait for it.
 *
 * @module
 */

import type { FreeSpaceGrowth } from "./space_waiters.ts";

/** The kinds of wake-ups, each with what a wake-up is about. */
export interface WakeUpSubjects {
  /** A node has more free space. */
  readonly space: FreeSpaceGrowth;
  /** Less of the free space of a node is reserved: a volume does not take what it was to have. */
  readonly unreserved: FreeSpaceGrowth;
  /** The outcome of a request for a volume, a snapshot or a group snapshot is known; its name. */
  readonly request: string;
  /** The outcome of the expansion of a volume is known; the handle of the volume. */
  readonly expansion: string;
  /** The deletion of a volume, a snapshot or a group snapshot may succeed, which could not before; the handle. */
  readonly deletion: string;
  /** A snapshot that was ready is not ready any more; its handle. */
  readonly unready: string;
}

/** A kind of wake-ups. */
export type WakeUpKind = keyof WakeUpSubjects;

/** The handler of one kind. */
type Handler<K extends WakeUpKind> = (subject: WakeUpSubjects[K]) => void;

/** The wake-ups of a process. */
export class WakeUps {
  readonly #handlers: { readonly [K in WakeUpKind]: Set<Handler<K>> } = {
    space: new Set(),
    unreserved: new Set(),
    request: new Set(),
    expansion: new Set(),
    deletion: new Set(),
    unready: new Set(),
  };

  /** Wakes what waits for a subject. A wake-up that nobody waits for does nothing. */
  wake<K extends WakeUpKind>(kind: K, subject: WakeUpSubjects[K]): void {
    for (const handler of this.#handlers[kind]) handler(subject);
  }

  /** Calls the handler for each wake-up of a kind until the signal is aborted. */
  on<K extends WakeUpKind>(kind: K, handler: Handler<K>, signal: AbortSignal): void {
    if (signal.aborted) return;
    this.#handlers[kind].add(handler);
    signal.addEventListener("abort", () => this.#handlers[kind].delete(handler), { once: true });
  }
}
