/**
 * Answers the request of another agent for a range of a snapshot.
 *
 * @module
 */

import { StorageError } from "../error.ts";
import type { Exec } from "../exec.ts";
import type { Bandwidth } from "./bandwidth.ts";
import { BlockBuffer, runsOf } from "./blocks.ts";
import { asStorageError, type Connection, readJson } from "./connection.ts";
import { readRange } from "./device_streams.ts";
import { digestOf, RangeDigest } from "./digest.ts";
import {
  type Bytes,
  decodeRequest,
  encodeFailure,
  encodeHead,
  encodeHeader,
  encodeRefusal,
  type TransferRequest,
} from "./protocol.ts";

/** The device of a snapshot that may be read. */
export interface SourceDevice {
  /** The path of its node. */
  readonly path: string;
  /** Its size in bytes. */
  readonly size: bigint;
}

/** Options of {@linkcode serveTransfer}. */
export interface SenderOptions {
  /** Runs commands. */
  readonly exec: Exec;
  /** Bounds what is sent. */
  readonly bandwidth: Bandwidth;
  /** Returns the device for a request. @throws {StorageError} the reason why it is refused */
  readonly open: (request: TransferRequest) => Promise<SourceDevice>;
  /** Called after bytes of data were sent. */
  readonly onSent?: (bytes: number) => void;
}

/**
 * Answers one request, and closes the connection.
 *
 * @param received the JSON of the request, if it was read already
 * @throws {StorageError} what was sent to the other end, or that it is gone
 */
export async function serveTransfer(
  connection: Connection,
  options: SenderOptions,
  received?: Uint8Array,
): Promise<void> {
  let encode = encodeRefusal;
  try {
    const request = decodeRequest(received ?? await readJson(connection));
    const device = await options.open(request);
    await connection.write(encodeHead(device));
    encode = encodeFailure;
    await sendRange(connection, request, device, options);
  } catch (error) {
    const failure = asStorageError(error);
    await connection.write(encode(failure)).catch(() => {}); // the other end may be gone
    throw failure;
  } finally {
    connection.close();
  }
}

async function sendRange(
  connection: Connection,
  request: TransferRequest,
  { path, size }: SourceDevice,
  { exec, bandwidth, onSent = () => {} }: SenderOptions,
): Promise<void> {
  const { offset } = request;
  const rest = size > offset ? size - offset : 0n;
  const length = rest < request.length ? rest : request.length;
  const [digest, blocks] = [new RangeDigest(request, { size }), new BlockBuffer()];
  let left = Number(length);
  const sendBlock = async (block: Bytes) => {
    left -= block.length;
    if (left < 0) throw new StorageError("CommandFailed", `reading ${path}: it has more than its ${size} bytes`);
    for (const { isZero, offset, length } of runsOf(block)) {
      if (isZero) {
        digest.addZeros(length);
        await connection.write(encodeHeader({ kind: "zeros", length }));
        continue;
      }
      await bandwidth.take(length);
      const data = block.subarray(offset, offset + length);
      const dataDigest = await digestOf(data);
      digest.addData(length, dataDigest);
      await connection.write(encodeHeader({ kind: "data", length }));
      await connection.write(dataDigest);
      await connection.write(data);
      onSent(length);
    }
  };
  if (length > 0n) await readRange(exec, path, { offset, length }, (part) => blocks.add(part, sendBlock));
  await blocks.end(sendBlock);
  if (left > 0) throw new StorageError("CommandFailed", `reading ${path}: ${left} bytes of ${length} are missing`);
  await connection.write(encodeHeader({ kind: "end" }));
  await connection.write(await digest.end());
}
