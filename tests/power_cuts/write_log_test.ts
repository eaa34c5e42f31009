import { assertEquals, assertRejects } from "@std/assert";
import { type LogEntry, readWriteLog } from "./write_log.ts";

/**
 * The log of a disk of 64 KiB, made by Linux 6.1: a write, a mark, a write of two sectors, a flush, a mark, a write with
 * FUA and a flush before it, a discard, a flush, a write.
 */
const LOG = await Deno.readFile(new URL("../fixtures/write_log.bin", import.meta.url));

const readFrom = (bytes: Uint8Array) => (offset: number, length: number) =>
  Promise.resolve(bytes.subarray(offset, offset + length));

function describe(entry: LogEntry): string {
  if (entry.kind === "flush") return "flush";
  if (entry.kind === "mark") return `mark ${entry.text}`;
  if (entry.kind === "discard") return `discard ${entry.offset}+${entry.length}`;
  const data = new TextDecoder().decode(LOG.subarray(entry.dataOffset, entry.dataOffset + entry.length));
  const words = data.match(/[a-z]+/g)?.join(" ");
  return `write ${entry.offset}+${entry.length}${entry.fua ? " FUA" : ""}: ${words}`;
}

Deno.test("readWriteLog() reads what the kernel recorded, in the order in which it became durable", async () => {
  const { sectorBytes, entries } = await readWriteLog(readFrom(LOG));
  assertEquals(sectorBytes, 512);
  assertEquals(entries.map(describe), [
    "mark first-written",
    "write 1536+512: first",
    "write 5120+1024: first second",
    "flush",
    "mark flushed",
    "write 3584+512 FUA: second",
    "flush",
    "discard 16384+8192",
    "flush",
    "write 4608+512: first",
    "mark dm-log-writes-end",
  ]);
});

Deno.test("readWriteLog() makes two entries of a flush that carries a write", async () => {
  const bytes = LOG.slice();
  const firstWrite = 2 * 512; // after the superblock and the first mark
  bytes[firstWrite + 16]! |= 1;
  const { entries } = await readWriteLog(readFrom(bytes));
  assertEquals(entries.slice(0, 3).map(describe), ["mark first-written", "flush", "write 1536+512: first"]);
});

Deno.test("readWriteLog() refuses what is no log, another version, and a log that ends early", async () => {
  const otherVersion = LOG.slice();
  otherVersion[8] = 2;
  await assertRejects(() => readWriteLog(readFrom(new Uint8Array(512))), Error, "no superblock");
  await assertRejects(() => readWriteLog(readFrom(otherVersion)), Error, "version is 2");
  await assertRejects(() => readWriteLog(readFrom(LOG.subarray(0, 16 * 512))), Error, "ends at byte 8192");
});
