import { assertEquals } from "@std/assert";
import { FakeClock } from "../../tests/fake/clock.ts";
import { sleep } from "./clock.ts";

Deno.test("sleep() comes back when the time is over, or as soon as one of the signals is aborted, and leaves nothing behind", async () => {
  const clock = new FakeClock();
  const [one, other] = [new AbortController(), new AbortController()];
  const elapsed = sleep(clock, 1_000, one.signal, undefined, other.signal);
  await clock.advance(1_000);
  await elapsed;
  const interrupted = sleep(clock, 1_000, one.signal, other.signal);
  other.abort();
  await interrupted;
  await sleep(clock, 1_000, one.signal, other.signal);
  assertEquals(clock.pendingTimers, 0);
});
