import { assert, assertEquals, assertThrows } from "@std/assert";
import fc from "fast-check";
import { StorageError } from "../base/error.ts";
import { MAX_BYTES, roundToExtents } from "../base/size.ts";
import { parseSizeRange, requireName, requirePath } from "./request.ts";

const GiB = 1n << 30n;

/** Parses a range that has only a limit. */
function parseLimit(limitBytes: bigint, defaultBytes = GiB) {
  return parseSizeRange({ requiredBytes: 0n, limitBytes } as Parameters<typeof parseSizeRange>[0], defaultBytes);
}

Deno.test("parseSizeRange() of a limit alone leaves a size in whole extents, if there is one", () => {
  const extents = fc.integer({ min: 10, max: 32 }).map((power) => 1n << BigInt(power));
  fc.assert(fc.property(fc.bigInt(1n, 8n * GiB), extents, (limit, extent) => {
    fc.pre(extent <= limit);
    const size = roundToExtents(parseLimit(limit), extent);
    assert(size <= limit && size % extent === 0n);
  }));
});

Deno.test("parseSizeRange() of a high limit alone returns the default size", () => {
  assertEquals(parseLimit(MAX_BYTES), { required: GiB, limit: MAX_BYTES });
  assertEquals(parseLimit(GiB, 0n), { required: 0n, limit: GiB });
  assertEquals(parseLimit(1n), { required: 1n, limit: 1n });
});

Deno.test("names of 128 characters and paths of 4,096 bytes are accepted, and no longer ones", () => {
  const [name, path] = ["\u{1F4BE}".repeat(128), `/${"a".repeat(255)}`.repeat(16)];
  assertEquals(requireName(name), name);
  assertThrows(() => requireName("a".repeat(129)), StorageError, "longer than 128 characters");
  assertEquals(requirePath("path", path), path);
  assertThrows(() => requirePath("path", path + "/"), StorageError, "longer than 4096 bytes");
  const withLongName = `/a/${"é".repeat(128)}`;
  assertThrows(() => requirePath("path", withLongName), StorageError, "has a name of more than 255 bytes");
});
