/**
 * What another agent may cost that was taken over: whatever it sends, in any order and as often as it likes, is refused or
 * read in bounded time and memory, of both protocols.
 *
 * @module
 */

import { assert, assertEquals, assertRejects } from "@std/assert";
import fc from "fast-check";
import { ByteDevices } from "../../tests/fake/machine/byte_devices.ts";
import { FakeClock } from "../../tests/fake/clock.ts";
import { StorageError } from "../../base/error.ts";
import { snapshotIdOf, volumeIdOf } from "../../base/ids.ts";
import { RUN_BYTES } from "../transfers/blocks.ts";
import { Bandwidth, type Connection, MAX_PULSES } from "../transfers/connection.ts";
import {
  type Bytes,
  concatenate,
  encodeFailure,
  encodeHead,
  encodeHeader,
  encodeJson,
  HEADER_BYTES,
  type TransferRequest,
} from "../transfers/protocol.ts";
import { receiveRange } from "../transfers/receiver.ts";
import { serveTransfer } from "../transfers/sender.ts";
import { encodeExtents, encodeListEnd, encodeListFailure, encodeListHead, encodeSize } from "./list_protocol.ts";
import { receiveList, serveList } from "./remote_list.ts";

const [SIZE, PATH] = [128 * RUN_BYTES, "/dev/destination"];
const FAILURE = new StorageError("NotFound", "it is gone");

/** A frame, by how many came before it. */
type Frame = (count: number) => Bytes;

/** The other end: what it sends first, and the frames that it repeats for ever. */
class HostilePeer implements Connection {
  readonly #frames: readonly Frame[];
  #bytes: Uint8Array;
  /** The number of frames that were read. */
  count = 0;
  isClosed = false;

  constructor(first: Bytes, frames: readonly Frame[]) {
    this.#bytes = first;
    this.#frames = frames;
  }

  read(buffer: Bytes): Promise<number | null> {
    if (this.isClosed || this.count > 100_000) return Promise.resolve(null); // the test fails then
    if (this.#bytes.length === 0) {
      this.#bytes = this.#frames[this.count % this.#frames.length]!(this.count);
      this.count++;
    }
    const length = Math.min(buffer.length, this.#bytes.length);
    buffer.set(this.#bytes.subarray(0, length));
    this.#bytes = this.#bytes.subarray(length);
    return Promise.resolve(length);
  }

  write(): Promise<void> {
    return this.isClosed ? Promise.reject(FAILURE) : Promise.resolve();
  }

  close(): void {
    this.isClosed = true;
  }

  async closed(): Promise<void> {}
}

const request: TransferRequest = {
  ...{ driver: "lvm.denolith.dev", node: "b", snapshot: snapshotIdOf("s"), volume: volumeIdOf("v") },
  ...{ offset: 0n, length: BigInt(SIZE) },
};
const base = { id: snapshotIdOf("base"), uuid: "abcdef-0123" };

async function dataFrame(length: number): Promise<Frame> {
  const data = new Uint8Array(length).fill(1);
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", data));
  const frame = concatenate(encodeHeader({ kind: "data", length }), digest, data);
  return () => frame;
}

const data = await dataFrame(RUN_BYTES);
const smallData = await dataFrame(512);

/** A frame of a type and a length, of which nothing follows. */
function odd(type: number, length: number): Frame {
  const header = new Uint8Array(HEADER_BYTES);
  header[0] = type;
  new DataView(header.buffer).setUint32(1, length);
  return () => header;
}

const TRANSFER_FRAMES: Readonly<Record<string, Frame>> = {
  pulse: () => encodeHeader({ kind: "same", length: 0 }),
  same: () => encodeHeader({ kind: "same", length: RUN_BYTES }),
  smallSame: () => encodeHeader({ kind: "same", length: 512 }),
  zeros: () => encodeHeader({ kind: "zeros", length: RUN_BYTES }),
  smallZeros: () => encodeHeader({ kind: "zeros", length: 512 }),
  allZeros: odd(2, 2 ** 32 - 512),
  ...{ data, smallData, largeData: odd(1, 2 ** 31) },
  end: () => concatenate(encodeHeader({ kind: "end" }), new Uint8Array(32)),
  failure: () => encodeFailure(FAILURE),
  longFailure: odd(4, 2 ** 32 - 1),
  garbage: odd(77, 5),
};

const LIST_FRAMES: Readonly<Record<string, Frame>> = {
  pulse: () => encodeExtents([]),
  next: (count) => encodeExtents([{ offset: BigInt(count), length: 1n }]),
  again: () => encodeExtents([{ offset: 0n, length: 1n }]),
  beyond: () => encodeExtents([{ offset: 1n << 62n, length: 1n << 62n }]),
  many: odd(2, 2 ** 32 - 16),
  size: () => encodeSize({ size: 1n << 40n, identity: "a" }),
  ...{ end: encodeListEnd, failure: () => encodeListFailure(FAILURE), garbage: odd(77, 5) },
};

/** Returns frames that a peer repeats, by their names. */
function namesOf(frames: Readonly<Record<string, Frame>>) {
  return fc.array(fc.constantFrom(...Object.keys(frames)), { minLength: 1, maxLength: 6 });
}

/** The most frames that are read of an answer: each part between its pulses, of which no more than the limit are in a row. */
function mostFrames(parts: number): number {
  return 6 * (parts + 1) + MAX_PULSES + 1;
}

Deno.test("whatever frames a sender repeats for ever, a range ends with a bounded number of them", async () => {
  await fc.assert(
    fc.asyncProperty(namesOf(TRANSFER_FRAMES), fc.boolean(), async (names, hasBase) => {
      const devices = new ByteDevices();
      devices.add(PATH, new Uint8Array(SIZE));
      const peer = new HostilePeer(encodeHead({ size: BigInt(SIZE) }), names.map((name) => TRANSFER_FRAMES[name]!));
      const options = {
        ...{ exec: devices, bandwidth: new Bandwidth(), clock: new FakeClock() },
        destination: { path: PATH, size: BigInt(SIZE), skipsZeros: false },
      };
      const asked = hasBase ? { ...request, base } : request;
      await assertRejects(() => receiveRange(peer, asked, options), StorageError);
      assert(peer.count <= mostFrames(SIZE / RUN_BYTES), `${peer.count} frames of ${names}`);
      assertEquals(peer.isClosed, true);
    }),
    { numRuns: 150, examples: [[["pulse"], true], [["smallZeros"], true], [["smallSame"], true]] },
  );
});

Deno.test("whatever frames a sender repeats for ever, a list ends with a bounded number of them", async () => {
  const size = 200n;
  await fc.assert(
    fc.asyncProperty(namesOf(LIST_FRAMES), async (names) => {
      const first = concatenate(encodeListHead(), encodeSize({ size, identity: "a" }));
      const peer = new HostilePeer(first, names.map((name) => LIST_FRAMES[name]!));
      const asked = { driver: "d", target: request.snapshot, from: 0n, groupSize: 4096 };
      const reading = async () => {
        for await (const _ of (await receiveList(peer, asked, new FakeClock())).extents);
      };
      await reading().catch((error) => assert(error instanceof StorageError, String(error)));
      assert(peer.count <= mostFrames(Number(size)), `${peer.count} frames of ${names}`);
      assertEquals(peer.isClosed, true);
    }),
    { numRuns: 300, examples: [[["pulse"]]] },
  );
});

Deno.test("a sender that only says that it searches is refused in a way that lets all of a snapshot be read", async () => {
  const devices = new ByteDevices();
  const peer = new HostilePeer(encodeHead({ size: BigInt(SIZE) }), [TRANSFER_FRAMES.pulse!]);
  const options = {
    ...{ exec: devices, bandwidth: new Bandwidth(), clock: new FakeClock() },
    destination: { path: PATH, size: BigInt(SIZE), skipsZeros: false },
  };
  const error = await assertRejects(() => receiveRange(peer, { ...request, base }, options), StorageError);
  assertEquals([error.kind, devices.commands, peer.count], ["FailedPrecondition", [], MAX_PULSES + 1]);
});

Deno.test("a request or a head that comes byte by byte ends after a minute, in both protocols", async () => {
  const ends: Record<string, (peer: Connection & { closed(): Promise<void> }, clock: FakeClock) => Promise<unknown>> = {
    "the head of a range": (peer, clock) =>
      receiveRange(peer, request, {
        ...{ exec: new ByteDevices(), bandwidth: new Bandwidth(), clock },
        destination: { path: PATH, size: 0n, skipsZeros: false },
      }),
    "the head of a list": (peer, clock) =>
      receiveList(peer, { driver: "d", target: request.snapshot, from: 0n, groupSize: 1 }, clock),
    "a request": (peer, clock) =>
      serveTransfer(peer, {
        ...{ exec: new ByteDevices(), bandwidth: new Bandwidth(), clock },
        open: () => Promise.reject(FAILURE),
      }),
  };
  for (const [what, end] of Object.entries(ends)) {
    const clock = new FakeClock();
    const long = encodeJson({ padding: "x".repeat(4000) });
    let at = 0;
    const peer = {
      read: (buffer: Bytes) =>
        new Promise<number>((resolve) =>
          clock.after(1000, () => {
            buffer[0] = long[at++]!;
            resolve(1);
          })
        ),
      ...{ write: () => Promise.resolve(), close: () => {}, closed: () => Promise.resolve() },
    };
    const ending = assertRejects(() => end(peer, clock), StorageError, "no whole message in 60 s");
    await clock.advance(60_000);
    assertEquals((await ending).kind, "Unavailable", what);
  }
});

Deno.test("whatever JSON a reader sends as a request, it is refused, and nothing is read for it", async () => {
  await fc.assert(
    fc.asyncProperty(fc.jsonValue(), async (value) => {
      const bytes = encodeJson(value).subarray(4);
      const peer = new HostilePeer(new Uint8Array(0), [() => new Uint8Array(1)]);
      const devices = new ByteDevices();
      const never = () => Promise.reject(new Error("it was accepted"));
      await assertRejects(
        () => serveTransfer(peer, { exec: devices, bandwidth: new Bandwidth(), open: never }, bytes),
        StorageError,
        "reading from another agent",
      );
      const options = { allow: never, differences: { list: never } };
      await assertRejects(() => serveList(peer, bytes, options), StorageError, "reading from another agent");
      assertEquals(devices.commands, []);
    }),
    { numRuns: 200 },
  );
});
