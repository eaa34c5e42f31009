/**
 * The connection of a transfer, as its two ends see it, and the bound of what an agent sends and receives.
 *
 * @module
 */

import { type Clock, sleep, systemClock, withinDeadline } from "../../base/clock.ts";
import { messageOf, StorageError } from "../../base/error.ts";
import { type Bytes, decodeLength, MAX_JSON_BYTES } from "./protocol.ts";

/** One end of a connection. A read or write that makes no progress for long fails. */
export interface Connection {
  /** Reads some bytes into a buffer. @returns their number; `null` at the end */
  read(buffer: Bytes): Promise<number | null>;
  /** Writes all bytes. They may be changed when it resolves. */
  write(bytes: Bytes): Promise<void>;
  /** Closes it, also while it is used. */
  close(): void;
}

/** Fills a buffer. @throws {StorageError} `Unavailable` when the connection ends before */
export async function readAll(connection: Pick<Connection, "read">, buffer: Bytes): Promise<Bytes> {
  for (let at = 0; at < buffer.length;) {
    const count = await connection.read(buffer.subarray(at));
    if (count === null) throw new StorageError("Unavailable", "reading from another agent: the connection ended");
    at += count;
  }
  return buffer;
}

/** The time in which a request or a head comes, in milliseconds. */
const JSON_MS = 60_000;

/**
 * Reads the JSON of a request or a head.
 *
 * @throws {StorageError} `Unavailable` when it ends before, is too long, or takes too long: bytes may come one by one
 */
export async function readJson(connection: Pick<Connection, "read">, clock: Clock = systemClock): Promise<Bytes> {
  const read = async () => {
    const buffer = new Uint8Array(MAX_JSON_BYTES);
    const length = decodeLength(await readAll(connection, buffer.subarray(0, 4)));
    return await readAll(connection, buffer.subarray(0, length));
  };
  const json = await withinDeadline(read(), JSON_MS, { clock });
  if (json !== undefined) return json;
  throw new StorageError("Unavailable", `reading from another agent: no whole message in ${JSON_MS / 1000} s`);
}

/** The time after which a sender that has found nothing more says so, in milliseconds: less than connections may be idle. */
const PULSE_MS = 15_000;

/** The most times in a row that a sender says so: for an hour. */
export const MAX_PULSES = 60 * 60_000 / PULSE_MS;

/** Counts how often a sender says that it has found nothing more. */
export class PulseLimit {
  #count = 0;

  /** Counts one more time. @throws {StorageError} `FailedPrecondition` when it is too often */
  add(): void {
    if (++this.#count <= MAX_PULSES) return;
    const why = `its agent has said ${MAX_PULSES} times in a row that it still searches`;
    throw new StorageError("FailedPrecondition", `comparing snapshots on another node: ${why}`);
  }
}

/** Waits for a part of an answer, and informs the other end meanwhile that it comes. */
export async function withPulse<T>(part: Promise<T>, send: () => Promise<void>, clock: Clock): Promise<T> {
  const boxed = part.then((value) => ({ value }));
  boxed.catch(() => {}); // also if the other end is gone before
  for (;;) {
    const done = await withinDeadline(boxed, PULSE_MS, { clock });
    if (done !== undefined) return done.value;
    await send();
  }
}

/** Returns a failure as a storage error: what is none is one of the connection, and passes by itself. */
export function asStorageError(error: unknown): StorageError {
  if (error instanceof StorageError) return error;
  return new StorageError("Unavailable", `connection to another agent: ${messageOf(error)}`, { cause: error });
}

/** Spreads bytes over time. All transfers of an agent share it. */
export class Bandwidth {
  readonly #bytesPerSecond: number | undefined;
  readonly #clock: Clock;
  /** The time at which what was taken has passed, by the clock's `now()`. */
  #passedAt = -Infinity;

  /** Creates a bound. @param bytesPerSecond without it, nothing is bounded */
  constructor(bytesPerSecond?: bigint, clock: Clock = systemClock) {
    this.#bytesPerSecond = bytesPerSecond === undefined ? undefined : Number(bytesPerSecond);
    this.#clock = clock;
  }

  /** Waits until bytes may pass, after those that were taken before. */
  async take(bytes: number): Promise<void> {
    if (this.#bytesPerSecond === undefined) return;
    const now = this.#clock.now();
    const begin = Math.max(now, this.#passedAt);
    this.#passedAt = begin + bytes * 1000 / this.#bytesPerSecond;
    if (begin > now) await sleep(this.#clock, begin - now);
  }
}
