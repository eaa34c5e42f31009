import { status } from "@grpc/grpc-js";
import { BinaryReader, WireType } from "@bufbuild/protobuf/wire";
import { assertEquals, assertMatch } from "@std/assert";
import { StorageError } from "../base/error.ts";
import { STATUS_CODES, statusOf, statusProto, unimplemented } from "./status.ts";

Deno.test("every kind of failure has the code that the spec's error tables name", () => {
  assertEquals(Object.fromEntries(Object.entries(STATUS_CODES).map(([kind, code]) => [kind, status[code]])), {
    InvalidArgument: "INVALID_ARGUMENT",
    OutOfRange: "OUT_OF_RANGE",
    NotFound: "NOT_FOUND",
    AlreadyExists: "ALREADY_EXISTS",
    InUse: "FAILED_PRECONDITION",
    Unauthenticated: "UNAUTHENTICATED",
    FailedPrecondition: "FAILED_PRECONDITION",
    Lost: "FAILED_PRECONDITION",
    ForeignData: "FAILED_PRECONDITION",
    NoSpace: "RESOURCE_EXHAUSTED",
    Busy: "ABORTED",
    StillRunning: "ABORTED",
    Unavailable: "UNAVAILABLE",
    CommandFailed: "INTERNAL",
  });
});

Deno.test("statusOf() returns a message that gRPC can send: short, and without half of a character", () => {
  assertEquals(statusOf(new StorageError("Busy", "a\ud83d")).details, "a\ufffd");
  assertEquals(statusOf(new StorageError("Busy", "é".repeat(100_000))).details.length, 4096);
  encodeURI(statusOf(new StorageError("Busy", "a" + "💾".repeat(100_000))).details);
});

Deno.test("statusOf() keeps the message, and maps unknown errors to INTERNAL", () => {
  assertEquals(statusOf(new StorageError("Busy", "b")), { code: status.ABORTED, details: "b", reason: "Busy" });
  assertEquals(statusOf(new TypeError("t")), { code: status.INTERNAL, details: "TypeError: t" });
  assertEquals(statusOf("s"), { code: status.INTERNAL, details: "s" });
  assertEquals(statusOf(unimplemented("M")).code, status.UNIMPLEMENTED);
});

/** Reads the fields of a message, whose values are numbers, texts or messages. */
function fieldsOf(bytes: Uint8Array): (readonly [field: number, value: number | string])[] {
  const reader = new BinaryReader(bytes);
  const fields: (readonly [number, number | string])[] = [];
  while (reader.pos < reader.len) {
    const [field, type] = reader.tag();
    fields.push([field, type === WireType.Varint ? reader.int32() : new TextDecoder().decode(reader.bytes())]);
  }
  return fields;
}

Deno.test("a status has the reason at the end of its message, and in an ErrorInfo", () => {
  const error = new StorageError("OutOfRange", "expanding v: é".repeat(2_000), { reason: "NoSpace" });
  const failure = statusOf(error);
  assertEquals([failure.reason, failure.details.length], ["NoSpace", 4096]);
  assertMatch(failure.details, /^expanding v: é.*… \[NoSpace\]$/);
  const [code, message, details] = fieldsOf(statusProto(failure)); // google.rpc.Status
  assertEquals([code, message], [[1, status.OUT_OF_RANGE], [2, failure.details]]);
  const [url, info] = fieldsOf(new TextEncoder().encode(`${details![1]}`)); // google.protobuf.Any
  assertEquals(url, [1, "type.googleapis.com/google.rpc.ErrorInfo"]);
  assertEquals(fieldsOf(new TextEncoder().encode(`${info![1]}`)), [[1, "NoSpace"], [2, "lvm.denolith.dev"]]);
  assertEquals(fieldsOf(statusProto(statusOf(new TypeError("t")))).length, 2);
});
