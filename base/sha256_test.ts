import { assertEquals } from "@std/assert";
import { createHash } from "node:crypto";
import fc from "fast-check";
import { sha256Hex } from "./sha256.ts";

const reference = (text: string) => createHash("sha256").update(text).digest("hex");

Deno.test("sha256Hex() is that of other programs, for every length around the limits of blocks", () => {
  assertEquals(sha256Hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"); // FIPS 180
  for (let length = 0; length <= 300; length++) {
    const text = "x".repeat(length);
    assertEquals(sha256Hex(text), reference(text), `${length} bytes`);
  }
});

Deno.test("sha256Hex() is that of other programs for any text", () => {
  fc.assert(fc.property(fc.string({ maxLength: 80, unit: "grapheme" }), (text) => sha256Hex(text) === reference(text)));
});
