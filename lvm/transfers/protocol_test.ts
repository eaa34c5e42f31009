import { assertEquals } from "@std/assert";
import { StorageError } from "../error.ts";
import { decodeFailure, decodeHeader, decodeLength, encodeFailure, encodeRefusal, HEADER_BYTES } from "./protocol.ts";

Deno.test("a failure arrives with its kind, however long its message is in JSON", () => {
  for (const character of ["a", "\u001b", "\ud800", "漢", "😀", "\\"]) {
    const error = new StorageError("InUse", character.repeat(2_000));
    const failure = encodeFailure(error);
    const header = decodeHeader(failure);
    assertEquals(header, { kind: "failure", length: failure.length - HEADER_BYTES });
    assertEquals(decodeFailure(failure.subarray(HEADER_BYTES)).kind, "InUse");
    const refusal = encodeRefusal(error);
    assertEquals(decodeLength(refusal), refusal.length - 4);
  }
});
