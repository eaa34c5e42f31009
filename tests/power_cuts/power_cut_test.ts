import { assertEquals } from "@std/assert";
import { seededRandom } from "../rig/seeded_random.ts";
import { flushesAfter, marksBefore, type Surviving, survivingWrites } from "./power_cut.ts";
import type { LogEntry } from "./write_log.ts";

const SECTOR = 512;
const mark = (text: string): LogEntry => ({ kind: "mark", text });
const flush: LogEntry = { kind: "flush" };
const write = (sector: number, sectors = 1, fua = false): LogEntry => ({
  kind: "write",
  offset: sector * SECTOR,
  length: sectors * SECTOR,
  dataOffset: 0,
  fua,
});
const logOf = (...entries: LogEntry[]) => ({ sectorBytes: SECTOR, entries });

/** Returns what survives in many power cuts at a flush, each as the sectors that were written. */
function outcomes(log: ReturnType<typeof logOf>, flush: number, orderedSectors = 0): Set<string> {
  const sectors = ({ entry, start, length }: Surviving) =>
    Array.from({ length: length / SECTOR }, (_, i) => (entry.offset + start) / SECTOR + i);
  return new Set(
    Array.from(
      { length: 500 },
      (_, seed) =>
        survivingWrites(log, { flush, random: seededRandom(seed) }, orderedSectors * SECTOR).flatMap(sectors).join(" "),
    ),
  );
}

Deno.test("a power cut loses any part of the writes since the last flush, and none of those before", () => {
  const log = logOf(write(1), flush, write(2), write(3), flush, write(4), flush);
  assertEquals(outcomes(log, 4), new Set(["", "2", "3", "2 3"]));
  assertEquals(survivingWrites(log, { flush: 4 }, 0).map(({ entry }) => entry.offset / SECTOR), [2, 3]);
});

Deno.test("a power cut does not lose a write with FUA", () => {
  assertEquals(outcomes(logOf(flush, write(1, 1, true), write(2), flush), 3), new Set(["1", "1 2"]));
});

Deno.test("a power cut may tear a write at the end of a sector", () => {
  const found = outcomes(logOf(flush, write(8, 3), flush), 2);
  assertEquals(found, new Set(["", "8", "9", "10", "8 9", "9 10", "8 9 10"]));
});

Deno.test("a power cut keeps the order of LVM's own writes, and tears the last one at most", () => {
  const log = logOf(flush, write(1), write(2), write(90), write(3), flush);
  assertEquals(outcomes(log, 5, 10), new Set(["", "1", "1 2", "1 2 3", "90", "1 90", "1 2 90", "1 2 90 3"]));
});

Deno.test("the power is cut at each flush after a mark that has something new", () => {
  const log = logOf(write(1), flush, mark("start"), flush, write(2), flush, flush, mark("created"), flush);
  assertEquals(flushesAfter(log, "start"), [3, 5, 8]);
  assertEquals(marksBefore(log, { flush: 5 }), ["start"]);
  assertEquals(marksBefore(log, { flush: 8 }), ["start", "created"]);
});
