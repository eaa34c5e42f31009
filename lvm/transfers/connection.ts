/**
 * The connection of a transfer, as its two ends see it.
 *
 * @module
 */

import { type Clock, withinDeadline } from "../clock.ts";
import { StorageError } from "../error.ts";
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

/** Reads the JSON of a request or a head. @throws {StorageError} `Unavailable` when it ends before, or is too long */
export async function readJson(connection: Connection): Promise<Bytes> {
  const buffer = new Uint8Array(MAX_JSON_BYTES);
  const length = decodeLength(await readAll(connection, buffer.subarray(0, 4)));
  return await readAll(connection, buffer.subarray(0, length));
}

/** The time after which a sender that has found nothing more says so, in milliseconds: less than connections may be idle. */
const PULSE_MS = 15_000;

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
  const message = error instanceof Error ? error.message : String(error);
  return new StorageError("Unavailable", `connection to another agent: ${message}`, { cause: error });
}
