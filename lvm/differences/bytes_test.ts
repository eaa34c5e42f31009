import { assert, assertEquals } from "@std/assert";
import { timesACopy } from "../../tests/fake/speed.ts";
import { isSameBytes } from "./cow_differences.ts";

Deno.test("isSameBytes() sees each difference, at any offset, and another length", () => {
  const bytes = Uint8Array.from({ length: 40 }, (_, index) => index);
  for (const [begin, end] of [[0, 0], [0, 40], [3, 17]] as const) {
    const other = bytes.slice(begin, end);
    assertEquals(isSameBytes(bytes.subarray(begin, end), other), true);
    for (let at = 0; at < other.length; at++) {
      other[at]! ^= 1;
      assertEquals(isSameBytes(bytes.subarray(begin, end), other), false);
      other[at]! ^= 1;
    }
  }
  assertEquals(isSameBytes(bytes, bytes.subarray(1)), false);
});

Deno.test("isSameBytes() is fast also where V8 compiles nothing, as in the driver", async () => {
  const ratio = await timesACopy(import.meta.resolve("./cow_differences.ts"), "isSameBytes", "one, other");
  assert(ratio > 0 && ratio < 30, `it takes ${ratio} times as long as a copy`);
});
