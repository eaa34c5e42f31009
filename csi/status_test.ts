import { status } from "@grpc/grpc-js";
import { assertEquals } from "@std/assert";
import { StorageError } from "../base/error.ts";
import { STATUS_CODES, statusOf, unimplemented } from "./status.ts";

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
  assertEquals(statusOf(new StorageError("Busy", "b")), { code: status.ABORTED, details: "b" });
  assertEquals(statusOf(new TypeError("t")), { code: status.INTERNAL, details: "TypeError: t" });
  assertEquals(statusOf("s"), { code: status.INTERNAL, details: "s" });
  assertEquals(statusOf(unimplemented("M")).code, status.UNIMPLEMENTED);
});
