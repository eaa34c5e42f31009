import { assertEquals, assertThrows } from "@std/assert";
import fc from "fast-check";
import { StorageError } from "./error.ts";
import { formatBytes, formatQuantity, MAX_BYTES, parseQuantity, roundToExtents, roundUp } from "./size.ts";

Deno.test("parseQuantity() reads Kubernetes quantities", () => {
  const cases: [string, bigint | undefined][] = [
    ["0", 0n],
    ["4096", 4096n],
    ["1Ki", 1024n],
    ["1.5Gi", 1610612736n],
    ["100M", 100_000_000n],
    ["0.1", 1n],
    ["8Ei", undefined],
    ["7Ei", 7n << 60n],
    ["9223372036854775807", MAX_BYTES],
    ["9223372036854775808", undefined],
    ["-1", undefined],
    ["1e3", undefined],
    ["", undefined],
    ["1 Gi", undefined],
    ["Gi", undefined],
    ["1.", undefined],
  ];
  for (const [text, bytes] of cases) assertEquals(parseQuantity(text), bytes, text);
});

Deno.test("formatQuantity() takes the largest unit that needs no fraction, and parseQuantity() reads it back", () => {
  const sizes = [0n, 1n, 1023n, 1024n, 1536n, 10n << 30n, (10n << 30n) + 512n, 5n << 60n, MAX_BYTES];
  assertEquals(sizes.map(formatQuantity), [
    ...["0", "1", "1023", "1Ki", "1536", "10Gi", "10737418752", "5Ei", "9223372036854775807"],
  ]);
  fc.assert(fc.property(fc.bigInt(0n, MAX_BYTES), fc.integer({ min: 0, max: 62 }), (number, shift) => {
    const bytes = number >> BigInt(shift) << BigInt(shift);
    assertEquals(parseQuantity(formatQuantity(bytes)), bytes);
  }));
});

Deno.test("roundUp() returns the next multiple", () => {
  fc.assert(fc.property(fc.bigInt(0n, MAX_BYTES), fc.bigInt(1n, 1n << 32n), (bytes, extent) => {
    const rounded = roundUp(bytes, extent);
    assertEquals([rounded % extent, rounded >= bytes, rounded - bytes < extent], [0n, true, true]);
  }));
});

Deno.test("roundToExtents() stays within the range or throws OutOfRange", () => {
  assertEquals(roundToExtents({ required: 1n }, 4n), 4n);
  assertEquals(roundToExtents({ required: 5n, limit: 8n }, 4n), 8n);
  const refused = [
    [{ required: 5n, limit: 7n }, "above the limit of 7"],
    [{ required: MAX_BYTES }, "above the largest size of a volume, 9223372036854775807 (8Ei)"],
  ] as const;
  for (const [range, words] of refused) {
    assertEquals(assertThrows(() => roundToExtents(range, 4n), StorageError, words).kind, "OutOfRange");
  }
});

Deno.test("formatBytes() is short", () => {
  assertEquals([0n, 1023n, 1536n, 10n << 30n, MAX_BYTES].map(formatBytes), [
    "0 B",
    "1023 B",
    "1.50 KiB",
    "10 GiB",
    "7.99 EiB",
  ]);
});
