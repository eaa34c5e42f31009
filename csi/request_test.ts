import { assert, assertEquals } from "@std/assert";
import fc from "fast-check";
import { MAX_BYTES, roundToExtents } from "../lvm/size.ts";
import { parseSizeRange } from "./request.ts";

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
