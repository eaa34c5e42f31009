import { assertEquals, assertThrows } from "@std/assert";
import { StorageError } from "../../base/error.ts";
import { snapshotIdOf, volumeIdOf } from "../../base/ids.ts";
import {
  decodeFailure,
  decodeHead,
  decodeHeader,
  decodeLength,
  decodeRequest,
  encodeFailure,
  encodeRefusal,
  encodeRequest,
  HEADER_BYTES,
} from "./protocol.ts";

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

Deno.test("a failure of another agent is about nothing of this machine, and has no characters that a terminal acts on", () => {
  const decoded = (code: string, message = "x") => {
    const { kind, message: text } = decodeFailure(new TextEncoder().encode(JSON.stringify({ code, message })));
    return [kind, text];
  };
  for (const kind of ["AlreadyExists", "Lost", "ForeignData", "NoSpace", "Unauthenticated"]) {
    assertEquals(decoded(kind), ["FailedPrecondition", "x"]);
  }
  for (const kind of ["NotFound", "FailedPrecondition", "Unavailable", "InvalidArgument"]) {
    assertEquals(decoded(kind), [kind, "x"]);
  }
  assertEquals(decoded("Newer"), ["CommandFailed", "x"]);
  assertEquals(decoded("InUse", "a\u001b[2J\r\nb\u202ec\u2028d\ud800e 漢 😀")[1], "a [2J b c d e 漢 😀");
  assertEquals(decoded("InUse", "y".repeat(9_000))[1]!.length, 600);
});

Deno.test("a message without a part that it must have is refused in words", () => {
  const request = {
    ...{ driver: "lvm.denolith.dev", node: "node-2", snapshot: snapshotIdOf("s"), volume: volumeIdOf("v") },
    ...{ offset: 0n, length: 4n << 20n },
  };
  const json = encodeRequest(request).subarray(4);
  assertEquals(decodeRequest(json), request);
  const jsonOf = (value: unknown) => new TextEncoder().encode(JSON.stringify(value));
  const sent = JSON.parse(new TextDecoder().decode(json));
  const cases: [expected: string, decode: () => unknown][] = [
    ["a request of nobody", () => decodeRequest(jsonOf({ ...sent, driver: 1 }))],
    ["a request of nobody", () => decodeRequest(jsonOf({ ...sent, node: undefined }))],
    ["a request without ids", () => decodeRequest(jsonOf({ ...sent, volume: 1 }))],
    ["a message of 0 bytes", () => decodeLength(new Uint8Array(4))],
    ["a failure without a message", () => decodeHead(jsonOf({ version: 1, error: null }))],
    ["a failure without a message", () => decodeHead(jsonOf({ version: 1, error: "no" }))],
  ];
  for (const [expected, decode] of cases) {
    assertEquals(assertThrows(decode, StorageError, expected).kind, "Unavailable");
  }
});
