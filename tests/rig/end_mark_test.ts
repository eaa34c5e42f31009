import { assertEquals } from "@std/assert";
import { EndMark } from "./end_mark.ts";

const MARK = "\0end-1\n";

/** Scans a text that comes in chunks of `size` bytes. @returns what is shown, and whether its end was found */
function scan(text: string, size: number): { shown: string; ended: boolean } {
  const bytes = new TextEncoder().encode(text);
  const mark = new EndMark(new TextEncoder().encode(MARK));
  let shown = "";
  for (let at = 0; at < bytes.length; at += size) {
    const scanned = mark.push(bytes.subarray(at, at + size));
    shown += String.fromCharCode(...scanned.output);
    if (scanned.isEnded) return { shown, ended: true };
  }
  return { shown, ended: false };
}

Deno.test("EndMark finds the mark however the stream is divided", () => {
  for (let size = 1; size <= 20; size++) {
    assertEquals(scan(`one\r\ntwo\n${MARK}three`, size), { shown: "one\r\ntwo\n", ended: true });
  }
});

Deno.test("EndMark lets through what only begins like the mark", () => {
  for (let size = 1; size <= 20; size++) {
    assertEquals(scan(`a\0end-2\n\0\0en${MARK}`, size), { shown: "a\0end-2\n\0\0en", ended: true });
    assertEquals(scan("a\0end-1b", size), { shown: "a\0end-1b", ended: false });
  }
});

Deno.test("EndMark holds nothing back that cannot be the mark", () => {
  const mark = new EndMark(new TextEncoder().encode(MARK));
  assertEquals(mark.push(new Uint8Array([65, 66])).output, new Uint8Array([65, 66]));
});
