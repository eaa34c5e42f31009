import { assertEquals, assertThrows } from "@std/assert";
import { StorageError } from "../../base/error.ts";
import { type DeltaKind, ThinDeltaReader } from "./thin_delta.ts";

const OUTPUT = Deno.readTextFileSync(new URL("../../tests/fixtures/differences/thin_delta.xml", import.meta.url));

function read(
  text: string,
  pieceLength = text.length + 1,
): { blockBytes: number; ranges: [DeltaKind, number, number][] } {
  const ranges: [DeltaKind, number, number][] = [];
  const reader = new ThinDeltaReader((kind, { begin, end }) => void ranges.push([kind, begin, end]));
  const bytes = new TextEncoder().encode(text);
  for (let at = 0; at < bytes.length; at += pieceLength) reader.take(bytes.subarray(at, at + pieceLength));
  return { blockBytes: reader.end(), ranges };
}

Deno.test("ThinDeltaReader reads what thin_delta prints, whatever the pieces are", () => {
  for (const length of [1, 2, 7, 100, 10_000]) {
    assertEquals(read(OUTPUT, length), {
      blockBytes: 65_536,
      ranges: [
        ["same", 0, 10],
        ["different", 10, 13],
        ["same", 13, 50],
        ["left_only", 50, 54],
        ["same", 54, 100],
        ["right_only", 3000, 3001],
        ["right_only", 4000, 4002],
      ],
    });
  }
});

const WRONG: readonly (readonly [string, string])[] = [
  ["no output", ""],
  ["an output that is cut off", OUTPUT.slice(0, -15)],
  ["a range before the size of a block", `<same begin="0" length="1"/>${OUTPUT}`],
  ["a range of nothing", OUTPUT.replace('length="10"', 'length="0"')],
  ["a range without a length", OUTPUT.replace('length="10"', "")],
  ["a range that no LV has", OUTPUT.replace('begin="4000"', 'begin="140737488355328"')],
  ["a size of blocks that no pool has", OUTPUT.replace('"128"', '"1"')],
  ["another tag", OUTPUT.replace("<same", "<other")],
  ["text between tags", OUTPUT.replace("<diff", "Usage: <diff")],
  ["a tag without an end", `<superblock ${"x".repeat(5000)}`],
];

for (const [name, text] of WRONG) {
  Deno.test(`ThinDeltaReader refuses ${name}`, () => {
    assertEquals(assertThrows(() => read(text), StorageError, "thin_delta").kind, "CommandFailed");
  });
}

Deno.test("ThinDeltaReader keeps a part of a tag up to 4096 characters, and refuses more before the end", () => {
  const reader = new ThinDeltaReader(() => {});
  reader.take(new TextEncoder().encode("<".padEnd(4096)));
  const more = new TextEncoder().encode(" ");
  assertEquals(assertThrows(() => reader.take(more), StorageError, "unexpected").kind, "CommandFailed");
});
