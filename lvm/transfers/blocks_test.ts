import { assert, assertEquals } from "@std/assert";
import { timesACopy } from "../../tests/fake/speed.ts";
import { isZeros, runsOf } from "./blocks.ts";

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
