/**
 * Target: what another agent sends in a transfer.
 *
 * @module
 */

import { assert } from "@std/assert";
import fc from "fast-check";
import { StorageError } from "../../base/error.ts";
import { snapshotIdOf, volumeIdOf } from "../../base/ids.ts";
import { Bandwidth, readJson } from "../../lvm/transfers/connection.ts";
import { decodeRequest, encodeRequest } from "../../lvm/transfers/protocol.ts";
import { receiveRange } from "../../lvm/transfers/receiver.ts";
import { serveTransfer } from "../../lvm/transfers/sender.ts";
import { ByteDevices, connectionPair } from "../fake/machine/byte_devices.ts";
import { statelessTarget, type Target } from "./target.ts";

const SIZE = 4 << 20;
const [SOURCE, DESTINATION] = ["/dev/source", "/dev/destination"];

const REQUEST = {
  ...{ driver: "lvm.denolith.dev", node: "b", snapshot: snapshotIdOf("s"), volume: volumeIdOf("v") },
  ...{ offset: 0n, length: BigInt(SIZE) },
};

/** What a sender really answers, of a small device: with data, zeros and the end. */
const ANSWER = await recordAnswer();

/** The changes of bytes: at each place, a byte that replaces another one; and after how many bytes the answer ends. */
type Changes = { readonly places: [number, number][]; readonly end: number };

/** What another agent sends: changed answers, which must not be taken for data, and requests. */
export const TRANSFER_TARGET: Target = statelessTarget<Changes>({
  name: "transfer",
  description: "requests and answers of transfers between agents",
  inputs: fc.record({
    places: fc.array(fc.tuple(fc.nat(ANSWER.length - 1), fc.nat(255)), { maxLength: 5 }),
    end: fc.oneof(fc.constant(ANSWER.length), fc.nat(ANSWER.length)),
  }),
  testRuns: 30,
  check: async ({ places, end }) => {
    await checkAnswer(changedBytes(ANSWER, places).subarray(0, end));
    const request = encodeRequest(REQUEST);
    await checkRequest(changedBytes(request, places.map(([at, byte]) => [at % request.length, byte])).subarray(0, end));
  },
});

function changedBytes(bytes: Uint8Array, places: readonly (readonly [number, number])[]): Uint8Array<ArrayBuffer> {
  const changed = Uint8Array.from(bytes);
  for (const [at, byte] of places) changed[at % changed.length] = byte;
  return changed;
}

/** Feeds an answer to a receiver. */
async function checkAnswer(answer: Uint8Array<ArrayBuffer>): Promise<void> {
  const devices = new ByteDevices();
  const device = new Uint8Array(SIZE);
  devices.add(DESTINATION, device);
  const [reader, writer] = connectionPair();
  const sending = writer.write(answer).then(() => writer.close(), () => {});
  const draining = readJson(writer).catch(() => {});
  const options = {
    ...{ exec: devices, bandwidth: new Bandwidth() },
    destination: { path: DESTINATION, size: BigInt(SIZE), skipsZeros: true },
  };
  const error = await receiveRange(reader, REQUEST, options).then(() => undefined, (error) => error);
  await Promise.all([sending, draining]);
  const isUnchanged = answer.length === ANSWER.length && answer.every((byte, at) => byte === ANSWER[at]);
  if (isUnchanged) return assert(error === undefined, String(error));
  assert(error instanceof StorageError, `a changed answer was accepted, or: ${error}`);
  assert(error.message.length < 2_000);
  const expected = sourceBytes();
  assert(device.every((byte, at) => byte === 0 || byte === expected[at]), "what has no digest was written");
}

/** Feeds a request to a decoder. What it accepts can be written and read again. */
async function checkRequest(bytes: Uint8Array<ArrayBuffer>): Promise<void> {
  const [reader, writer] = connectionPair();
  const sending = writer.write(bytes).then(() => writer.close(), () => {});
  try {
    const request = decodeRequest(await readJson(reader));
    const [again, back] = connectionPair();
    const writing = back.write(encodeRequest(request));
    assert(JSON.stringify(decodeRequest(await readJson(again)), texts) === JSON.stringify(request, texts));
    await writing;
  } catch (error) {
    assert(error instanceof StorageError, String(error));
  } finally {
    reader.close();
    await sending;
  }
}

function texts(_key: string, value: unknown): unknown {
  return typeof value === "bigint" ? `${value}` : value;
}

function sourceBytes(): Uint8Array {
  const bytes = new Uint8Array(SIZE);
  bytes.fill(1, 0, 1000).fill(2, 200_000, 200_500);
  return bytes;
}

/** Returns all bytes that a sender sends for the request. */
async function recordAnswer(): Promise<Uint8Array> {
  const devices = new ByteDevices();
  devices.add(SOURCE, sourceBytes());
  const [reader, writer] = connectionPair();
  const serving = serveTransfer(writer, {
    ...{ exec: devices, bandwidth: new Bandwidth() },
    open: () => Promise.resolve({ path: SOURCE, size: BigInt(SIZE) }),
  });
  await reader.write(encodeRequest(REQUEST));
  const parts: number[] = [];
  const buffer = new Uint8Array(64 << 10);
  for (let count = await reader.read(buffer); count !== null; count = await reader.read(buffer)) {
    parts.push(...buffer.subarray(0, count));
  }
  await serving;
  return Uint8Array.from(parts);
}
