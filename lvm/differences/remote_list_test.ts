import { assert, assertEquals, assertRejects } from "@std/assert";
import fc from "fast-check";
import { connectionPair, type Way } from "../../tests/fake/machine/byte_devices.ts";
import { FakeClock } from "../../tests/fake/clock.ts";
import { waitForAbort } from "../../base/clock.ts";
import { StorageError } from "../../base/error.ts";
import { snapshotIdOf } from "../../base/ids.ts";
import { readJson } from "../transfers/connection.ts";
import { encodeRequest } from "../transfers/protocol.ts";
import { volumeIdOf } from "../../base/ids.ts";
import type { Extent, ListRequest } from "./differences.ts";
import { decodeListRequest, encodeListHead, encodeListRequest, isListRequest } from "./list_protocol.ts";
import { receiveList, serveList } from "./remote_list.ts";

const SIZE = 1n << 40n;
const [base, target] = [snapshotIdOf("b"), snapshotIdOf("t")];
const request = { driver: "lvm.denolith.dev", base, target, from: 0n, groupSize: 4096 };

/** What one end makes. */
type Make = (request: ListRequest) => AsyncGenerator<readonly Extent[], void>;

/** Serves a list of what is made. @returns the end of the reader, the end of serving, and the request */
function serve(make: Make, { allow = () => Promise.resolve(), clock = new FakeClock(), ...way }: Way & {
  readonly allow?: () => Promise<void>;
  readonly clock?: FakeClock;
} = {}) {
  const [reader, writer] = connectionPair(way);
  const closed = async () => {
    while (await writer.read(new Uint8Array(1)) !== null);
  };
  const requests: ListRequest[] = [];
  const list = (request: ListRequest) => {
    requests.push(request);
    return Promise.resolve({ size: SIZE, identity: "a b", extents: make(request) });
  };
  const serving = readJson(writer).then((bytes) =>
    serveList({ ...writer, closed }, bytes, { allow, differences: { list }, clock })
  ).then(() => "complete", (error: StorageError) => error.kind);
  return { reader, serving, requests };
}

async function read(list: { readonly extents: AsyncIterable<readonly Extent[]> }): Promise<Extent[]> {
  const all: Extent[] = [];
  for await (const group of list.extents) all.push(...group);
  return all;
}

/** Returns ranges by the lengths of gaps and ranges. */
function extentsOf(lengths: readonly (readonly [gap: number, length: number])[]): Extent[] {
  let end = 0n;
  return lengths.map(([gap, length]) => {
    const offset = end + BigInt(gap);
    end = offset + BigInt(length);
    return { offset, length: BigInt(length) };
  });
}

Deno.test("any list arrives as it was made, in its groups, however the connection cuts it", async () => {
  const ranges = fc.tuple(fc.nat(1 << 20), fc.integer({ min: 1, max: 1 << 20 }));
  await fc.assert(
    fc.asyncProperty(
      fc.array(fc.array(ranges, { minLength: 1, maxLength: 50 }), { maxLength: 8 }),
      fc.integer({ min: 1, max: 100_000 }),
      async (groups, maxRead) => {
        const all = extentsOf(groups.flat());
        let at = 0;
        const made = groups.map(({ length }) => all.slice(at, at += length));
        const { reader, serving, requests } = serve(async function* () {
          yield* await Promise.resolve(made);
        }, { maxRead });
        const list = await receiveList(reader, request);
        const received: (readonly Extent[])[] = [];
        for await (const group of list.extents) received.push(group);
        assertEquals([list.size, list.identity, received, await serving], [SIZE, "a b", made, "complete"]);
        const { driver: _, ...asked } = request;
        assertEquals({ ...requests[0], driver: undefined, signal: undefined }, {
          ...asked,
          driver: undefined,
          signal: undefined,
        });
      },
    ),
    { numRuns: 30 },
  );
});

Deno.test("the next ranges are made when the ones before are taken", async () => {
  let made = 0;
  const { reader, serving } = serve(async function* () {
    for (;;) yield await Promise.resolve([{ offset: BigInt(++made), length: 1n }]);
  });
  const { extents } = await receiveList(reader, request);
  for (let index = 1; index <= 5; index++) {
    await extents.next();
    assert(made <= index + 1, `${made} made after ${index}`);
  }
  await extents.return();
  assertEquals(await serving, "Unavailable");
});

Deno.test("a failure arrives with its kind and its words: before the list, and in it", async () => {
  const failure = new StorageError("FailedPrecondition", "it overflowed");
  const before = serve(async function* () {}, { allow: () => Promise.reject(failure) });
  const refused = await assertRejects(() => receiveList(before.reader, request), StorageError, "it overflowed");
  assertEquals([refused.kind, await before.serving, before.requests], [failure.kind, failure.kind, []]);
  const within = serve(async function* () {
    yield [{ offset: 0n, length: 1n }];
    throw await Promise.resolve(failure);
  });
  const list = await receiveList(within.reader, request);
  assertEquals(((await list.extents.next()).value as Extent[]).length, 1);
  const broken = await assertRejects(() => list.extents.next(), StorageError, "it overflowed");
  assertEquals([broken.kind, await within.serving], [failure.kind, failure.kind]);
});

Deno.test("a list that is cut off anywhere is no list", async () => {
  const made = async function* () {
    for (let index = 0n; index < 3n; index++) yield await Promise.resolve([{ offset: index, length: 1n }]);
  };
  let total = 0;
  const whole = serve(made, { change: (bytes) => (total += bytes.length, bytes) });
  await read(await receiveList(whole.reader, request));
  for (let cut = 0; cut < total; cut++) {
    const change: Way["change"] = (bytes, offset) => bytes.subarray(0, Math.max(0, cut - offset));
    const { reader, serving } = serve(made, { change });
    const error = await assertRejects(async () => await read(await receiveList(reader, request)), StorageError);
    assertEquals(error.kind, "Unavailable", `cut after ${cut} of ${total}`);
    await serving;
  }
});

Deno.test("a sender that finds nothing for long says that it is there", async () => {
  const clock = new FakeClock();
  const gate = Promise.withResolvers<void>();
  const sent: number[] = [];
  const { reader } = serve(async function* () {
    await gate.promise;
    yield [{ offset: 7n, length: 1n }];
  }, { clock, change: (bytes) => (sent.push(bytes.length), bytes) });
  const list = await receiveList(reader, request);
  const reading = read(list);
  for (let minute = 0; minute < 3; minute++) {
    const before = sent.length;
    await clock.advance(60_000);
    assert(sent.length > before, "something was sent in a minute");
  }
  gate.resolve();
  assertEquals(await reading, [{ offset: 7n, length: 1n }]);
});

Deno.test("when the reader has gone, what is read for it is ended", async () => {
  const making = Promise.withResolvers<void>();
  const { reader, serving } = serve(async function* ({ signal }) {
    making.resolve();
    await waitForAbort(signal!);
    yield* await Promise.reject<Extent[][]>(new StorageError("Unavailable", "ended"));
  });
  await receiveList(reader, request);
  await making.promise;
  reader.close();
  assertEquals(await serving, "Unavailable");
});

Deno.test("whatever another process sends, it is refused, or read within bounds", async () => {
  const heads = [new Uint8Array(0), encodeListHead(), new Uint8Array([...encodeListHead(), 1, 0, 0, 0, 8])];
  await fc.assert(
    fc.asyncProperty(fc.constantFrom(...heads), fc.uint8Array({ maxLength: 200 }), async (head, bytes) => {
      const [reader, writer] = connectionPair();
      const sending = (async () => {
        await readJson(writer);
        await writer.write(new Uint8Array([...head, ...bytes]));
        writer.close();
      })().catch(() => {});
      try {
        const { size, extents } = await receiveList(reader, request);
        for (const { offset, length } of await read({ extents })) assert(offset + length <= size && length > 0n);
      } catch (error) {
        assert(error instanceof StorageError, String(error));
      }
      reader.close();
      await sending;
    }),
    { numRuns: 500 },
  );
});

Deno.test("requests for lists are distinguished from those for data, and are checked", () => {
  const json = (bytes: Uint8Array) => bytes.subarray(4);
  const data = { driver: "d", node: "n", snapshot: target, volume: volumeIdOf("v"), offset: 0n, length: 4n << 20n };
  assertEquals(
    [json(encodeListRequest(request)), json(encodeRequest(data)), new TextEncoder().encode("[")].map(isListRequest),
    [true, false, false],
  );
  assertEquals(decodeListRequest(json(encodeListRequest(request))), request);
  const { base: _, ...allocated } = request;
  assertEquals(decodeListRequest(json(encodeListRequest(allocated))), allocated);
  const good = JSON.parse(new TextDecoder().decode(json(encodeListRequest(request))));
  const wrong = [
    { target: "x" },
    { target: undefined },
    { base: 1 },
    { driver: undefined },
    { from: 0 },
    { from: "-1" },
    { from: "9223372036854775808" },
    { groupSize: 0 },
    { groupSize: 4097 },
    { groupSize: "1" },
    { version: 2 },
  ];
  for (const change of wrong) {
    const bytes = new TextEncoder().encode(JSON.stringify({ ...good, ...change }));
    try {
      decodeListRequest(bytes);
    } catch (error) {
      assertEquals((error as StorageError).kind, "Unavailable", JSON.stringify(change));
      continue;
    }
    throw new Error(`${JSON.stringify(change)} was accepted`);
  }
});
