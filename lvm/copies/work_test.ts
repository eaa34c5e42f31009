import { assertEquals } from "@std/assert";
import { type ErrorKind, StorageError } from "../../base/error.ts";
import { newWork, recordBusy, recordFailure, recordSuccess } from "./work.ts";

const RETRY_MS = 60_000;

/** Records failures of a step, one after the other. @returns what the last one left, and the waits in milliseconds */
function fail(count: number, kind: ErrorKind = "CommandFailed", work = newWork()) {
  const waits: number[] = [];
  for (let index = 0; index < count; index++) {
    const now = work.notBefore;
    recordFailure(work, new StorageError(kind, "no"), now, RETRY_MS);
    waits.push(work.notBefore - now);
  }
  return { work, waits };
}

Deno.test("recordFailure() tries a step again seven times, each time later, and gives it up at the eighth failure", () => {
  const { work, waits } = fail(7);
  assertEquals([work.failure, work.lastError], [undefined, "no"]);
  assertEquals(waits, [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000]);
  assertEquals(fail(1, "CommandFailed", work).work.failure?.message, "no");
});

Deno.test("recordFailure() gives up at once when the failure cannot pass, or a new copy is faster", () => {
  assertEquals(fail(1, "FailedPrecondition").work.failure?.kind, "FailedPrecondition");
  assertEquals(fail(1, "Busy", { ...newWork(), unrecoverable: true }).work.failure?.kind, "Busy");
  const work = newWork();
  recordFailure(work, new TypeError("odd"), 0, RETRY_MS);
  assertEquals([work.failure, work.lastError], [undefined, "TypeError: odd"]);
});

Deno.test("recordSuccess() forgets the failures, and recordBusy() counts none", () => {
  const { work } = fail(7);
  recordBusy(work, 10);
  assertEquals([work.notBefore, work.failures], [510, 7]);
  recordSuccess(work);
  assertEquals([work.failures, work.lastError, fail(7, "CommandFailed", work).work.failure], [0, undefined, undefined]);
});
