import { assertEquals } from "@std/assert";
import fc from "fast-check";
import { type ChunkRange, ChunkSet, WINDOW_CHUNKS, windowAt } from "./chunk_set.ts";

const rangesBelow = (end: number) =>
  fc.array(
    fc.tuple(fc.nat({ max: end }), fc.nat({ max: 40 })).map(([begin, length]) => ({ begin, end: begin + length })),
    { maxLength: 12 },
  );

function chunksOf(ranges: Iterable<ChunkRange>): number[] {
  return [...ranges].flatMap(({ begin, end }) => Array.from({ length: end - begin }, (_, index) => begin + index));
}

function setOf(window: ChunkRange, ranges: readonly ChunkRange[]): ChunkSet {
  const set = new ChunkSet(window);
  for (const range of ranges) set.add(range);
  return set;
}

Deno.test("ChunkSet has the chunks that were added within its window, in ranges that do not touch", () => {
  fc.assert(
    fc.property(
      fc.nat({ max: 50 }),
      fc.nat({ max: 200 }),
      rangesBelow(300),
      rangesBelow(300),
      (begin, length, some, cuts) => {
        const window = { begin, end: begin + length };
        const set = setOf(window, some);
        const expected = new Set(chunksOf(some).filter((chunk) => chunk >= begin && chunk < window.end));
        const ranges = [...set.ranges()];
        assertEquals(chunksOf(ranges), [...expected].sort((a, b) => a - b));
        for (const [index, range] of ranges.entries()) assertEquals(range.begin > (ranges[index - 1]?.end ?? -1), true);
        for (const cut of cuts) {
          assertEquals(
            chunksOf(set.ranges(cut)),
            [...expected].filter((chunk) => chunk >= cut.begin && chunk < cut.end).sort((a, b) => a - b),
          );
        }
      },
    ),
  );
});

Deno.test("ChunkSet.separate() leaves what one of two sets has, and what both have", () => {
  fc.assert(fc.property(rangesBelow(200), rangesBelow(200), (some, others) => {
    const window = { begin: 3, end: 150 };
    const [one, other] = [setOf(window, some), setOf(window, others)];
    const [before, otherBefore] = [new Set(chunksOf(one.ranges())), new Set(chunksOf(other.ranges()))];
    one.separate(other);
    const sorted = (chunks: ReadonlySet<number>) => [...chunks].sort((a, b) => a - b);
    assertEquals(chunksOf(one.ranges()), sorted(before.symmetricDifference(otherBefore)));
    assertEquals(chunksOf(other.ranges()), sorted(before.intersection(otherBefore)));
  }));
});

Deno.test("windowAt() divides a device, and the last window ends with it", () => {
  const within = { begin: 5, end: 5 + 2 * WINDOW_CHUNKS + 7 };
  assertEquals([0, 1, 2, 3].map((index) => windowAt(within, index)), [
    { begin: 5, end: 5 + WINDOW_CHUNKS },
    { begin: 5 + WINDOW_CHUNKS, end: 5 + 2 * WINDOW_CHUNKS },
    { begin: 5 + 2 * WINDOW_CHUNKS, end: within.end },
    { begin: within.end, end: within.end },
  ]);
});
