import { assertEquals } from "@std/assert";
import { formatQuantity } from "../../base/size.ts";
import { quantityToBytes } from "./quantity.ts";

Deno.test("quantityToBytes() parses quantities of Kubernetes, and rounds up", () => {
  const cases: [string | undefined, bigint | undefined][] = [
    ["0", 0n],
    ["1073741824", 1n << 30n],
    ["1Gi", 1n << 30n],
    ["1.5Gi", 3n << 29n],
    ["10G", 10n ** 10n],
    ["+5k", 5000n],
    ["1e9", 10n ** 9n],
    ["1.5E3", 1500n],
    ["5E", 5n * 10n ** 18n],
    ["25e-1", 3n],
    ["100m", 1n],
    ["1500m", 2n],
    [".5Ki", 512n],
    ["1.", 1n],
    ["", undefined],
    [".", undefined],
    [undefined, undefined],
    ["-1Gi", undefined],
    ["1 Gi", undefined],
    ["1gi", undefined],
    ["1Gi1", undefined],
  ];
  for (const [text, bytes] of cases) assertEquals(quantityToBytes(text), bytes, text);
});

Deno.test("formatQuantity() writes bytes as a quantity of the same value", () => {
  for (const bytes of [0n, 1n, 1000n, 1024n, 1n << 30n, (3n << 29n) + 1n, 1536n << 20n, 1n << 62n]) {
    assertEquals(quantityToBytes(formatQuantity(bytes)), bytes);
  }
  assertEquals([formatQuantity(1n << 30n), formatQuantity(1536n << 20n), formatQuantity(1025n)], [
    "1Gi",
    "1536Mi",
    "1025",
  ]);
});

Deno.test("quantityToBytes() knows every suffix", () => {
  const powers = { k: 3n, M: 6n, G: 9n, T: 12n, P: 15n, E: 18n };
  for (const [suffix, power] of Object.entries(powers)) {
    assertEquals(quantityToBytes(`3${suffix}`), 3n * 10n ** power, suffix);
    if (suffix !== "k") assertEquals(quantityToBytes(`3${suffix}i`), 3n << (power / 3n * 10n), `${suffix}i`);
  }
  for (const [suffix, power] of Object.entries({ n: 9n, u: 6n, m: 3n })) {
    assertEquals(quantityToBytes(`${7n * 10n ** power}${suffix}`), 7n, suffix);
    assertEquals(quantityToBytes(`1${suffix}`), 1n, suffix);
  }
});
