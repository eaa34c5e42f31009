import { Buffer } from "node:buffer";
import { assert, assertEquals, assertRejects } from "@std/assert";
import fc from "fast-check";
import { ByteDevices, connectionPair, type Way } from "../../tests/fake/machine/byte_devices.ts";
import { FakeClock } from "../../tests/fake/clock.ts";
import { nextTurn } from "../../base/clock.ts";
import { StorageError } from "../../base/error.ts";
import { snapshotIdOf, volumeIdOf } from "../../base/ids.ts";
import { isZeros } from "./blocks.ts";
import { Bandwidth, readJson } from "./connection.ts";
import { RangeDigest } from "./digest.ts";
import { encodeHead, encodeHeader, MAX_DATA_BYTES, type TransferRequest } from "./protocol.ts";
import { type ReceivedRange, receiveRange } from "./receiver.ts";
import { serveTransfer } from "./sender.ts";
import { randomRuns } from "../../tests/rig/sample.ts";

const UNIT = MAX_DATA_BYTES;
const [SOURCE, DESTINATION] = ["/dev/source", "/dev/destination"];

/** Returns a request for a range in units. */
function requestFor(offset: number, length: number): TransferRequest {
  return {
    ...{ driver: "lvm.denolith.dev", node: "node-2", snapshot: snapshotIdOf("s"), volume: volumeIdOf("v") },
    ...{ offset: BigInt(offset * UNIT), length: BigInt(length * UNIT) },
  };
}

/** Returns a device with some bytes that are not zero: runs of them at offsets. */
function deviceWith(size: number, runs: readonly (readonly [offset: number, length: number])[]): Uint8Array {
  const bytes = new Uint8Array(size);
  for (const [offset, length] of runs) {
    for (let at = offset; at < Math.min(offset + length, size); at++) bytes[at] = (at * 31 + length) % 255 + 1;
  }
  return bytes;
}

function isSame(a: Uint8Array, b: Uint8Array): boolean {
  return Buffer.from(a.buffer).equals(b);
}

/** Transfers a range. @returns the outcome, and the bytes of data that were sent */
async function transfer(
  devices: ByteDevices,
  request: TransferRequest,
  { skipsZeros = false, ...way }: Way & { readonly skipsZeros?: boolean } = {},
): Promise<ReceivedRange & { readonly sent: number }> {
  const [reader, writer] = connectionPair(way);
  let sent = 0;
  const serving = serveTransfer(writer, {
    ...{ exec: devices, bandwidth: new Bandwidth() },
    open: () => Promise.resolve({ path: SOURCE, size: BigInt(devices.get(SOURCE).length) }),
    onSent: (bytes) => sent += bytes,
  }).catch(() => {});
  const size = BigInt(devices.get(DESTINATION).length);
  try {
    const destination = { path: DESTINATION, size, skipsZeros };
    return {
      ...await receiveRange(reader, request, { exec: devices, bandwidth: new Bandwidth(), destination }),
      sent,
    };
  } finally {
    await serving;
  }
}

function devicesWith(source: Uint8Array, destination: Uint8Array): ByteDevices {
  const devices = new ByteDevices();
  devices.add(SOURCE, source);
  devices.add(DESTINATION, destination);
  return devices;
}

Deno.test("any range of any device arrives as it is, over what was there, and zeros are left out", async () => {
  const size = 3 * UNIT + 512;
  await fc.assert(
    fc.asyncProperty(
      fc.array(fc.tuple(fc.nat(size), fc.nat(300_000)), { maxLength: 4 }),
      fc.nat(3),
      fc.integer({ min: 1, max: 5 }),
      fc.integer({ min: 1, max: 1 << 20 }),
      async (runs, offset, length, maxRead) => {
        const source = deviceWith(size, runs);
        const destination = new Uint8Array(size + 1024).fill(7);
        const expected = destination.slice();
        const end = Math.min((offset + length) * UNIT, size);
        expected.set(source.subarray(offset * UNIT, end), offset * UNIT);
        const devices = devicesWith(source, destination);
        const got = await transfer(devices, requestFor(offset, length), { maxRead: Math.max(maxRead, 4096) });
        assertEquals([got.size, got.end], [BigInt(size), BigInt(end)]);
        assert(expected.every((byte, at) => byte === destination[at]), "the destination has what the source has");
        const data = runs.reduce((sum, [, length]) => sum + length + 2 * (64 << 10), 0);
        assert(got.sent <= data, `${got.sent} bytes sent for ${data}`);
      },
    ),
    { numRuns: randomRuns(5, 50) },
  );
});

Deno.test("whatever byte of the answer is changed, and wherever it is cut off, the range is not taken for complete", async () => {
  const source = deviceWith(UNIT + 4096, [[0, 2000], [70_000, 100], [UNIT, 4096]]);
  let answered = 0;
  await transfer(devicesWith(source, new Uint8Array(source.length)), requestFor(0, 2), {
    change: (bytes) => (answered += bytes.length, bytes),
  });
  await fc.assert(
    fc.asyncProperty(fc.nat(answered - 1), fc.nat(254), fc.boolean(), async (at, difference, cuts) => {
      const change: Way["change"] = (bytes, offset) => {
        if (at < offset || at >= offset + bytes.length) return bytes;
        if (cuts) return bytes.subarray(0, at - offset);
        bytes[at - offset] = (bytes[at - offset]! + difference + 1) % 256;
        return bytes;
      };
      const destination = new Uint8Array(source.length);
      const failure = await transfer(devicesWith(source, destination), requestFor(0, 2), { change }).catch((error) =>
        error
      );
      assert(failure instanceof StorageError, failure);
      assert(destination.every((byte, at) => byte === 0 || byte === source[at]), "nothing else was written");
    }),
    { numRuns: randomRuns(15, 200) },
  );
});

Deno.test("what is received or read while the part before is written or sent does not overwrite it", async () => {
  const source = new Uint8Array(4 * UNIT);
  for (let unit = 0; unit < 4; unit++) source.fill(unit + 1, unit * UNIT, (unit + 1) * UNIT);
  const destination = new Uint8Array(source.length);
  const { received } = await transfer(devicesWith(source, destination), requestFor(0, 4));
  assertEquals([received, isSame(source, destination)], [source.length, true]);
});

Deno.test("a range of several segments is written by several commands, each read back, with zeros across their ends", async () => {
  const size = 40 * UNIT;
  const source = deviceWith(size, [[15 * UNIT + 5, 10], [33 * UNIT, 3]]);
  const destination = new Uint8Array(size).fill(7);
  const devices = devicesWith(source, destination);
  const { end } = await transfer(devices, requestFor(0, 64));
  assertEquals([end, isSame(source, destination)], [BigInt(size), true]);
  const seen = devices.commands.filter((command) => command.includes(DESTINATION));
  assertEquals(seen.map((command) => /(?:seek|skip)=\d+/.exec(command)![0]).toSorted(), [
    ...["seek=0", "seek=16", "seek=32", "skip=0", "skip=16", "skip=32"],
  ]);

  const [reader, writer] = connectionPair();
  const request = requestFor(0, 64);
  const sending = (async () => {
    await readJson(writer);
    const digest = new RangeDigest(request, { size: BigInt(size) });
    digest.add({ kind: "zeros", length: size });
    await writer.write(encodeHead({ size: BigInt(size) }));
    await writer.write(encodeHeader({ kind: "zeros", length: size })); // another version may send them at once
    await writer.write(encodeHeader({ kind: "end" }));
    await writer.write(await digest.end());
  })();
  const options = {
    ...{ exec: devices, bandwidth: new Bandwidth() },
    destination: { path: DESTINATION, size: BigInt(size), skipsZeros: false },
  };
  await receiveRange(reader, request, options);
  await sending;
  assert(isZeros(destination));
});

const KNOWN = { id: snapshotIdOf("base"), uuid: "abcdef-0123" };

/** Applies the difference between two devices to a third, answer by answer. @returns the bytes that were sent, by answer */
async function transferDifference(
  { base, target, destination }: Record<"base" | "target" | "destination", Uint8Array>,
  changed: readonly (readonly [offset: number, length: number])[],
  { differenceBytes = 256n << 20n, ...way }: Way & { readonly differenceBytes?: bigint } = {},
): Promise<number[]> {
  destination.set(base);
  const devices = devicesWith(target, destination);
  const sent: number[] = [];
  for (let offset = 0n; offset < BigInt(target.length);) {
    const request = { ...requestFor(0, 1024), base: KNOWN, offset };
    const [reader, writer] = connectionPair(way);
    sent.push(0);
    const serving = serveTransfer(writer, {
      ...{ exec: devices, bandwidth: new Bandwidth(), differenceBytes },
      open: ({ base, offset: from }) => {
        assertEquals(base, KNOWN);
        const left = changed.map(([at, length]) => ({ offset: BigInt(at), length: BigInt(length) }))
          .filter(({ offset, length }) => offset + length > from);
        const groups = (async function* () {
          for (const each of left) yield await Promise.resolve([each]);
        })();
        return Promise.resolve({ path: SOURCE, size: BigInt(target.length), uuid: "other", changed: groups });
      },
      onSent: (bytes) => sent[sent.length - 1]! += bytes,
    });
    serving.catch(() => {}); // the reader fails, too
    const options = {
      ...{ exec: devices, bandwidth: new Bandwidth() },
      destination: { path: DESTINATION, size: BigInt(destination.length), skipsZeros: true },
    };
    const got = await receiveRange(reader, request, options);
    await serving;
    assertEquals([got.uuid, got.end > offset], ["other", true]);
    offset = got.end;
  }
  return sent;
}

Deno.test("any difference arrives, over the data of the base, and little else is sent", async () => {
  const size = 2 * UNIT + 4096;
  await fc.assert(
    fc.asyncProperty(
      fc.uniqueArray(fc.nat(size / 4096 - 1), { maxLength: 12 }),
      fc.integer({ min: 8, max: 40 }),
      fc.boolean(),
      fc.boolean(),
      async (chunks, units, erases, isSmall) => {
        const base = deviceWith(size, [[0, size]]);
        const target = base.slice();
        const changed = chunks.sort((a, b) => a - b).map((chunk) => [chunk * 4096, 4096] as const);
        for (const [offset, length] of changed) target.fill(erases ? 0 : 99, offset, offset + length);
        const destination = new Uint8Array(size);
        const differenceBytes = BigInt(units) * 65536n;
        const sent = await transferDifference(
          { base, target, destination },
          changed,
          isSmall ? { differenceBytes } : {},
        );
        assert(isSame(target, destination), "the destination has what the target has");
        assert(
          sent.reduce((a, b) => a + b) <= chunks.length * (65536 + (1 << 20)),
          `${sent} sent for ${chunks.length}`,
        );
        assert(!isSmall || sent.every((bytes) => BigInt(bytes) <= differenceBytes), "each answer is bounded");
      },
    ),
    { numRuns: randomRuns(5, 50) },
  );
});

Deno.test("whatever byte of an answer with a difference is changed, and wherever it is cut off, it is not taken for complete", async () => {
  const base = deviceWith(2 * UNIT, [[0, 2 * UNIT]]);
  const target = base.slice().fill(0, 65536, 131072).fill(9, UNIT + 4096, UNIT + 8192);
  const changed = [[65536, 65536], [UNIT + 4096, 4096]] as const;
  const devices = () => ({ base, target, destination: new Uint8Array(base.length) });
  let answered = 0;
  await transferDifference(devices(), changed, { change: (bytes) => (answered += bytes.length, bytes) });
  await fc.assert(
    fc.asyncProperty(fc.nat(answered - 1), fc.nat(254), fc.boolean(), async (at, difference, cuts) => {
      const change: Way["change"] = (bytes, offset) => {
        if (at < offset || at >= offset + bytes.length) return bytes;
        if (cuts) return bytes.subarray(0, at - offset);
        bytes[at - offset] = (bytes[at - offset]! + difference + 1) % 256;
        return bytes;
      };
      const failure = await transferDifference(devices(), changed, { change }).catch((error) => error);
      assert(failure instanceof StorageError, failure);
    }),
    { numRuns: randomRuns(15, 200) },
  );
});

Deno.test("what is the same as in a base is refused where none was named", async () => {
  const devices = devicesWith(new Uint8Array(UNIT), new Uint8Array(UNIT));
  const [reader, writer] = connectionPair();
  const sending = (async () => {
    await readJson(writer);
    await writer.write(encodeHead({ size: BigInt(UNIT) }));
    await writer.write(encodeHeader({ kind: "same", length: UNIT }));
  })();
  const options = {
    ...{ exec: devices, bandwidth: new Bandwidth() },
    destination: { path: DESTINATION, size: BigInt(UNIT), skipsZeros: false },
  };
  await assertRejects(() => receiveRange(reader, requestFor(0, 1), options), StorageError, "as in no base");
  await sending.catch(() => {});
});

Deno.test("a disk that returns other data is found out also in a segment before the last", async () => {
  const size = 20 * UNIT;
  const devices = devicesWith(deviceWith(size, [[0, 100]]), new Uint8Array(size));
  devices.onRead = (path, bytes) => {
    if (path === DESTINATION && bytes.length > 10 * UNIT) bytes[50]! ^= 1;
    return bytes;
  };
  await assertRejects(() => transfer(devices, requestFor(0, 20)), StorageError, "has not what was written");
});

Deno.test("a range beyond the end is empty, and has the size", async () => {
  const devices = devicesWith(deviceWith(UNIT, [[0, 100]]), new Uint8Array(UNIT));
  const { size, end, sent } = await transfer(devices, requestFor(1, 4));
  assertEquals([size, end, sent], [BigInt(UNIT), BigInt(UNIT), 0]);
  assertEquals((await transfer(devices, requestFor(2, 1))).end, BigInt(2 * UNIT));
  assertEquals(devices.commands.filter((command) => command.includes(`if=${DESTINATION}`)), []);
});

Deno.test("dd writes past the page cache, skips zeros only where they may be skipped, and reads back what it wrote", async () => {
  for (const skipsZeros of [true, false]) {
    const devices = devicesWith(deviceWith(UNIT, [[0, 100]]), new Uint8Array(UNIT));
    await transfer(devices, requestFor(0, 1), { skipsZeros });
    assertEquals(devices.commands.toSorted(), [
      `dd if=${DESTINATION} bs=4194304 skip=0 count=1 iflag=direct,fullblock status=none`,
      `dd if=${SOURCE} bs=4194304 skip=0 count=1 iflag=direct,fullblock status=none`,
      `dd of=${DESTINATION} bs=4194304 seek=0 iflag=fullblock oflag=direct conv=fsync,nocreat,notrunc${
        skipsZeros ? ",sparse" : ""
      } status=none`,
    ]);
  }
});

Deno.test("a disk that returns other data than was written is found out, also where zeros were", async () => {
  for (const at of [50, 200_000]) {
    const devices = devicesWith(deviceWith(UNIT, [[0, 100]]), new Uint8Array(UNIT));
    devices.onRead = (path, bytes) => {
      if (path === DESTINATION) bytes[at]! ^= 1;
      return bytes;
    };
    await assertRejects(() => transfer(devices, requestFor(0, 1)), StorageError, "has not what was written");
  }
});

Deno.test("a disk that returns less than was written is found out", async () => {
  const devices = devicesWith(deviceWith(UNIT, [[0, 100]]), new Uint8Array(UNIT));
  devices.onRead = (path, bytes) => path === DESTINATION ? bytes.subarray(0, UNIT - 512) : bytes;
  await assertRejects(() => transfer(devices, requestFor(0, 1)), StorageError, "has not what was written");
});

Deno.test("a source that ends early, or that is larger than the new volume, is refused in words", async () => {
  const devices = devicesWith(deviceWith(2 * UNIT, [[0, 100]]), new Uint8Array(2 * UNIT));
  devices.onRead = (path, bytes) => path === SOURCE ? bytes.subarray(0, UNIT) : bytes;
  await assertRejects(() => transfer(devices, requestFor(0, 2)), StorageError, "4194304 bytes of 8388608 are missing");
  const small = devicesWith(new Uint8Array(2 * UNIT), new Uint8Array(UNIT));
  const error = await assertRejects(() => transfer(small, requestFor(0, 2)), StorageError, "the new volume only");
  assertEquals(error.kind, "OutOfRange");
});

Deno.test("a refusal arrives with its kind, and nothing is read or written", async () => {
  const devices = devicesWith(new Uint8Array(UNIT), new Uint8Array(UNIT));
  const [reader, writer] = connectionPair();
  const serving = serveTransfer(writer, {
    ...{ exec: devices, bandwidth: new Bandwidth() },
    open: () => Promise.reject(new StorageError("NotFound", "no such snapshot")),
  });
  const destination = { path: DESTINATION, size: BigInt(UNIT), skipsZeros: false };
  const options = { exec: devices, bandwidth: new Bandwidth(), destination };
  const error = await assertRejects(
    () => receiveRange(reader, requestFor(0, 1), options),
    StorageError,
    "no such snapshot",
  );
  await assertRejects(() => serving, StorageError, "no such snapshot");
  assertEquals([error.kind, devices.commands], ["NotFound", []]);
});

Deno.test("what is sent in all transfers of an agent has one bound", async () => {
  const clock = new FakeClock();
  const bandwidth = new Bandwidth(1000n, clock);
  const passed: string[] = [];
  const take = (name: string, bytes: number) => bandwidth.take(bytes).then(() => passed.push(name));
  const all = [take("a", 2000), take("b", 1000), take("c", 1)];
  await nextTurn();
  assertEquals([passed, clock.pendingTimers], [["a"], 2], "the first part waits for no time");
  await clock.advance(1_999);
  assertEquals(passed, ["a"]);
  await clock.advance(1);
  assertEquals(passed, ["a", "b"]);
  await clock.advance(1_000);
  await Promise.all(all);
  assertEquals(passed, ["a", "b", "c"]);
  await new Bandwidth(undefined, clock).take(1e12);
});
