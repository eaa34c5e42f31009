import { assert, assertEquals, assertRejects } from "@std/assert";
import { timesACopy } from "../../tests/fake/speed.ts";
import { nextTurn } from "../../base/clock.ts";
import { BlockBuffer, isZeros, runsOf } from "./blocks.ts";
import { MAX_DATA_BYTES } from "./protocol.ts";

Deno.test("isZeros() sees a single bit anywhere, at any offset and length", () => {
  for (const [offset, length] of [[0, 0], [0, 1], [1, 65_537], [3, 200_001], [512, 65_536]] as const) {
    const buffer = new ArrayBuffer(offset + length + 1);
    new Uint8Array(buffer).fill(0xff, 0, offset).fill(0xff, offset + length);
    const bytes = new Uint8Array(buffer, offset, length);
    assertEquals(isZeros(bytes), true);
    for (const at of [0, length >> 1, 65_535, 65_536, length - 1].filter((at) => at >= 0 && at < length)) {
      bytes[at] = 0x80;
      assertEquals(isZeros(bytes), false, `${at} of ${length}`);
      bytes[at] = 0;
    }
  }
});

Deno.test("runsOf() divides a block at the runs that have data", () => {
  const block = new Uint8Array(4 * 65_536 + 512);
  block[65_536] = 1;
  assertEquals(runsOf(block), [
    { isZero: true, offset: 0, length: 65_536 },
    { isZero: false, offset: 65_536, length: 65_536 },
    { isZero: true, offset: 131_072, length: 131_584 },
  ]);
});

Deno.test("isZeros() is fast also where V8 compiles nothing, as in the driver", async () => {
  const ratio = await timesACopy(import.meta.resolve("./blocks.ts"), "isZeros", "one");
  assert(ratio > 0 && ratio < 30, `it takes ${ratio} times as long as a copy`);
});

/** Returns a block of one byte. */
function blockOf(byte: number, length = MAX_DATA_BYTES) {
  return new Uint8Array(length).fill(byte);
}

Deno.test("BlockBuffer fills one block while the receiver has the other, and waits before a third", async () => {
  const received: (readonly [first: number, last: number, length: number])[] = [];
  let release = Promise.withResolvers<void>();
  const blocks = new BlockBuffer(async (block) => {
    await release.promise;
    received.push([block[0]!, block.at(-1)!, block.length]); // nothing has overwritten it meanwhile
  });
  await blocks.add(blockOf(1));
  await blocks.add(blockOf(2, MAX_DATA_BYTES - 1));
  assertEquals(received, []);
  let isAdded = false;
  const adding = blocks.add(blockOf(2, 1)).then(() => isAdded = true);
  await nextTurn();
  assertEquals([isAdded, received], [false, []]);
  const first = release;
  release = Promise.withResolvers();
  first.resolve();
  await adding;
  assertEquals(received, [[1, 1, MAX_DATA_BYTES]]);
  await blocks.add(blockOf(3, 10));
  release.resolve();
  await blocks.end();
  assertEquals(received, [[1, 1, MAX_DATA_BYTES], [2, 2, MAX_DATA_BYTES], [3, 3, 10]]);
});

Deno.test("BlockBuffer throws what the receiver failed with at the next block or at the end, and gives it no other one", async () => {
  let calls = 0;
  const blocks = new BlockBuffer(() => {
    calls++;
    return Promise.reject(new Error("gone"));
  });
  await blocks.add(blockOf(1));
  await blocks.settle();
  await assertRejects(() => blocks.add(blockOf(2)), Error, "gone");
  await assertRejects(() => blocks.end(), Error, "gone");
  assertEquals(calls, 1);
});
