import { assert, assertEquals } from "@std/assert";
import { FakeTime } from "@std/testing/time";
import { assertSpyCalls, spy } from "@std/testing/mock";
import { FakeClock } from "../tests/fake/clock.ts";
import { backoffMs, nextTurn, sleep, systemClock, timestamp, withinDeadline } from "./clock.ts";

Deno.test("sleep() returns when the time has passed, or as soon as one of the signals is aborted, and leaves nothing behind", async () => {
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

Deno.test("withinDeadline() returns the promise's value, or undefined after the time limit or an abort, and leaves nothing behind", async () => {
  const [clock, never] = [new FakeClock(), new Promise<string>(() => {})];
  assertEquals(await withinDeadline(Promise.resolve("value"), 1_000, { clock }), "value");
  const late = withinDeadline(never, 1_000, { clock });
  await clock.advance(1_000);
  assertEquals(await late, undefined);
  const controller = new AbortController();
  const aborted = withinDeadline(never, 1_000, { clock, signal: controller.signal });
  controller.abort();
  assertEquals([await aborted, clock.pendingTimers], [undefined, 0]);
  const tooLate = withinDeadline(never, 1_000, { clock, signal: controller.signal });
  assertEquals(await Promise.race([tooLate, nextTurn().then(() => "still waiting")]), undefined);
});

Deno.test("backoffMs() doubles with each failure up to its limit", () => {
  const clock = new FakeClock(); // chance is one half: three quarters of the whole
  const delays = [1, 2, 3, 4, 100].map((failures) => backoffMs({ startMs: 100, capMs: 500 }, failures, clock));
  assertEquals(delays, [75, 150, 300, 375, 375]);
});

Deno.test("timestamp() is in whole seconds", () => {
  assertEquals(timestamp(new Date(Date.UTC(2026, 0, 2, 3, 4, 5, 678))), "2026-01-02T03:04:05Z");
});

Deno.test("systemClock: after() calls back once when the time has passed, unless it is cancelled", () => {
  using time = new FakeTime("2026-01-01T00:00:00Z");
  const [kept, cancelled] = [spy(), spy()];
  systemClock.after(1_000, kept);
  const cancel = systemClock.after(1_000, cancelled);
  time.tick(999);
  assertSpyCalls(kept, 0);
  cancel();
  time.tick(5_000);
  assertSpyCalls(kept, 1);
  assertSpyCalls(cancelled, 0);
  assertEquals(systemClock.date().toISOString(), "2026-01-01T00:00:05.999Z");
});

Deno.test("nextTurn() lets timers and connections go on, however often it is repeated", async () => {
  using listener = Deno.listen({ hostname: "127.0.0.1", port: 0 });
  const accepted = listener.accept();
  const connection = await Deno.connect({ hostname: "127.0.0.1", port: (listener.addr as Deno.NetAddr).port });
  using server = await accepted;
  let timers = 0;
  let received = 0;
  const timer = setInterval(() => timers++, 1);
  const reading = (async () => {
    for await (const chunk of connection.readable) received += chunk.length;
  })();
  await server.write(new Uint8Array(10));
  const end = Date.now() + 10_000;
  while ((timers < 3 || received < 10) && Date.now() < end) await nextTurn();
  clearInterval(timer);
  server.close();
  await reading;
  assert(timers >= 3 && received === 10, `${timers} timers, ${received} bytes`);
});

Deno.test("nextTurn() waits for no timer", async () => {
  let timers = 0;
  const timer = setInterval(() => timers++, 1);
  for (let turn = 0; turn < 1_000; turn++) await nextTurn();
  clearInterval(timer);
  assert(timers < 500, `${timers} timers in 1,000 turns`);
});
