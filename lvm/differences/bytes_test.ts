import { assert, assertEquals } from "@std/assert";
import { isSameBytes } from "./bytes.ts";

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
  const code = `
    import { isSameBytes } from ${JSON.stringify(import.meta.resolve("./bytes.ts"))};
    const [one, other] = [new Uint8Array(4 << 20), new Uint8Array(4 << 20)];
    const shortest = (action) => Math.min(...Array.from({ length: 5 }, () => {
      const start = performance.now();
      action();
      return performance.now() - start;
    }));
    console.log(shortest(() => isSameBytes(one, other)) / shortest(() => other.set(one)));`;
  const args = ["eval", "--no-config", "--v8-flags=--lite-mode", code];
  const { stdout } = await new Deno.Command(Deno.execPath(), { args }).output();
  const ratio = Number(new TextDecoder().decode(stdout));
  assert(ratio > 0 && ratio < 30, `it takes ${ratio} times as long as a copy`);
});
