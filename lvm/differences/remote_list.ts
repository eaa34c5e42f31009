/**
 * The two ends of the connection by which another process gets a list of changed blocks.
 *
 * The list is made as its reader takes it: the sender asks for the next ranges when the ones before are on their way. When
 * the reader has gone, what is read for it is ended.
 *
 * @module
 */

import { decodeFailure, decodeHeadJson, encodeRefusal, HEADER_BYTES, protocolError } from "../transfers/protocol.ts";
import { type Clock, systemClock } from "../../base/clock.ts";
import { asStorageError, type Connection, PulseLimit, readAll, readJson, withPulse } from "../transfers/connection.ts";
import type { Differences, Extent, ExtentList } from "./differences.ts";
import {
  decodeExtents,
  decodeListHeader,
  decodeListRequest,
  decodeSize,
  encodeExtents,
  encodeListEnd,
  encodeListFailure,
  encodeListHead,
  encodeListRequest,
  encodeSize,
  MAX_EXTENTS,
  type RemoteListRequest,
} from "./list_protocol.ts";

/** The connection of a sender. */
export interface ListConnection extends Connection {
  /** Resolves when the other end has closed it. Nothing may be read meanwhile. */
  closed(): Promise<void>;
}

/** Options of {@linkcode serveList}. */
export interface ListSenderOptions {
  /** Requires that the list is allowed. @throws {StorageError} the reason why it is refused */
  readonly allow: (request: RemoteListRequest) => Promise<void>;
  /** Makes the list. */
  readonly differences: Pick<Differences, "list">;
  /** Time. */
  readonly clock?: Clock | undefined;
}

/**
 * Answers a request, and closes the connection.
 *
 * @param bytes the JSON of the request
 * @throws {StorageError} what was reported to the other end, or that it is gone
 */
export async function serveList(
  connection: ListConnection,
  bytes: Uint8Array,
  { allow, differences, clock = systemClock }: ListSenderOptions,
): Promise<void> {
  const gone = new AbortController();
  let [encode, extents]: [typeof encodeRefusal, ExtentList["extents"] | undefined] = [encodeRefusal, undefined];
  const waitFor = <T>(part: Promise<T>) => withPulse(part, () => connection.write(encodeExtents([])), clock);
  try {
    const request = decodeListRequest(bytes);
    await allow(request);
    connection.closed().then(() => gone.abort());
    await connection.write(encodeListHead());
    encode = encodeListFailure;
    const list = await waitFor(differences.list({ ...request, signal: gone.signal }));
    extents = list.extents;
    await connection.write(encodeSize(list));
    for (;;) {
      const next = await waitFor(extents.next());
      if (next.done) break;
      await connection.write(encodeExtents(next.value));
    }
    await connection.write(encodeListEnd());
  } catch (error) {
    const failure = asStorageError(error);
    await connection.write(encode(failure)).catch(() => {}); // the other end may be gone
    throw failure;
  } finally {
    gone.abort();
    connection.close();
    await extents?.return();
  }
}

/**
 * Requests a list. The connection is closed when the list ends, or fails.
 *
 * @throws {StorageError} the reason of a refusal; `Unavailable` when the connection breaks. The extents fail likewise
 */
export async function receiveList(
  connection: Connection,
  request: RemoteListRequest,
  clock?: Clock,
): Promise<ExtentList> {
  try {
    await connection.write(encodeListRequest(request));
    decodeHeadJson(await readJson(connection, clock));
    const frames = new FrameReader(connection);
    const first = await frames.next();
    if (first.kind !== "size") throw protocolError("a list without a size");
    const list = decodeSize(first.bytes);
    return { ...list, extents: readExtents(connection, frames, { after: 0n, size: list.size }) };
  } catch (error) {
    connection.close();
    throw asStorageError(error);
  }
}

async function* readExtents(
  connection: Connection,
  frames: FrameReader,
  { after, size }: { after: bigint; size: bigint },
): AsyncGenerator<readonly Extent[], void> {
  try {
    for (;;) {
      const { kind, bytes } = await frames.next();
      if (kind === "end") return;
      if (kind !== "extents") throw protocolError("a list with two sizes");
      const group = decodeExtents(bytes, { after, size });
      const { offset, length } = group.at(-1)!;
      after = offset + length;
      yield group;
    }
  } catch (error) {
    throw asStorageError(error);
  } finally {
    connection.close();
  }
}

/** Reads frames into a buffer for one of them. */
class FrameReader {
  readonly #connection: Connection;
  readonly #buffer = new Uint8Array(16 * MAX_EXTENTS);

  constructor(connection: Connection) {
    this.#connection = connection;
  }

  /** Returns the next frame that says something, until the next call. @throws {StorageError} the failure of the sender */
  async next(): Promise<{ readonly kind: "size" | "extents" | "end"; readonly bytes: Uint8Array }> {
    for (const pulses = new PulseLimit();; pulses.add()) {
      const header = await readAll(this.#connection, this.#buffer.subarray(0, HEADER_BYTES));
      const { kind, length } = decodeListHeader(header);
      const bytes = await readAll(this.#connection, this.#buffer.subarray(0, length));
      if (kind === "failure") throw decodeFailure(bytes);
      if (kind !== "extents" || length > 0) return { kind, bytes };
    }
  }
}
