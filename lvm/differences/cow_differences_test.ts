import { assertEquals } from "@std/assert";
import fc from "fast-check";
import { comparisons } from "./cow_differences.ts";

const KiB = 1024;

Deno.test("comparisons() reads no more than 4 MiB at a time, and each chunk that may differ once", () => {
  const sorted = fc.uniqueArray(fc.nat({ max: 5000 }), { maxLength: 30 }).map((bounds) => bounds.sort((a, b) => a - b));
  fc.assert(fc.property(sorted, fc.constantFrom(4, 64, 512, 8192), (bounds, chunkKiB) => {
    const ranges = Array.from({ length: Math.floor(bounds.length / 2) }, (_, index) => ({
      begin: bounds[2 * index]!,
      end: bounds[2 * index + 1]!,
    }));
    const most = Math.max(1, 4096 / chunkKiB);
    const reads = [...comparisons(ranges, chunkKiB * KiB)];
    for (const [index, { begin, end }] of reads.entries()) {
      assertEquals([end - begin <= most, begin < end, begin >= (reads[index - 1]?.end ?? 0)], [true, true, true]);
    }
    const counts = new Uint8Array(5001);
    for (const { begin, end } of reads) for (let chunk = begin; chunk < end; chunk++) counts[chunk]!++;
    assertEquals(Math.max(...counts) <= 1, true);
    for (const { begin, end } of ranges) assertEquals(counts.subarray(begin, end).every((count) => count === 1), true);
    const bounded = (chunk: number) => ranges.some(({ begin, end }) => begin <= chunk && chunk < end);
    assertEquals(reads.every(({ begin, end }) => bounded(begin) && bounded(end - 1)), true);
  }));
});
