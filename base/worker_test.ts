import { assert, assertEquals } from "@std/assert";
import { FakeClock, flushPromises } from "../tests/fake/clock.ts";
import { currentRequestId, withRequestId } from "./request_id.ts";
import { BackgroundWorker } from "./worker.ts";

/** Creates a worker whose passes end when the test ends them. */
function harness(retryMs?: number) {
  const clock = new FakeClock();
  const [passes, errors] = [[] as PromiseWithResolvers<void>[], [] as unknown[]];
  const pass = () => {
    passes.push(Promise.withResolvers<void>());
    return passes.at(-1)!.promise;
  };
  const worker = new BackgroundWorker({ pass, onError: (error) => errors.push(error), retryMs, clock });
  const end = async () => {
    passes.at(-1)!.resolve();
    await flushPromises();
  };
  return { clock, passes, errors, worker, end };
}

Deno.test("wake() starts a pass at once, and those during a pass share the next one", async () => {
  const { passes, worker, end } = harness();
  assertEquals(worker.running, false);
  worker.wake();
  assertEquals([passes.length, worker.running], [1, true]);
  for (let i = 0; i < 3; i++) worker.wake();
  await flushPromises();
  assertEquals(passes.length, 1, "one pass at a time");
  await end();
  assertEquals([passes.length, worker.running], [2, true]);
  await end();
  await worker.idle();
  assertEquals([passes.length, worker.running], [2, false]);
});

Deno.test("a wake is not lost, at whatever moment around the end of a pass it comes", async () => {
  for (let ticks = 0; ticks < 12; ticks++) {
    const { passes, worker } = harness();
    worker.wake();
    passes[0]!.resolve();
    for (let tick = 0; tick < ticks; tick++) await undefined;
    worker.wake();
    await flushPromises();
    assertEquals(passes.length, 2, `after ${ticks} ticks`);
    passes[1]!.resolve();
    await worker.idle();
  }
});

Deno.test("a pass may wake its worker, also before it waits for anything", async () => {
  let passes = 0;
  const pass = () => {
    if (++passes < 3) worker.wake();
    return Promise.resolve();
  };
  const worker = new BackgroundWorker({ pass, onError: (error) => assert(!error) });
  worker.wake();
  await worker.idle();
  assertEquals(passes, 3);
});

Deno.test("wakeAfter() wakes once after the last time that was set, and not when a pass began before", async () => {
  const { clock, passes, worker, end } = harness();
  worker.wakeAfter(1_000);
  worker.wakeAfter(5_000);
  assertEquals([worker.active, worker.running], [true, false]);
  await clock.advance(4_999);
  assertEquals(passes.length, 0);
  await clock.advance(1);
  assertEquals(passes.length, 1);
  await end();
  worker.wakeAfter(1_000);
  worker.wakeAfter(undefined);
  assertEquals([worker.active, clock.pendingTimers], [false, 0]);
  worker.wakeAfter(1_000);
  worker.wake();
  assertEquals(clock.pendingTimers, 0);
  worker.wakeAfter(2_000);
  await end();
  assertEquals([passes.length, clock.msUntilNextTimer], [2, 2_000], "what a pass sets holds after it");
  await worker.stop();
});

Deno.test("a pass that fails is reported, and repeated after retryMs, or at once when it was woken meanwhile", async () => {
  const { clock, passes, errors, worker, end } = harness(1_000);
  worker.wake();
  passes[0]!.reject("first");
  await flushPromises();
  assertEquals([errors, passes.length, clock.msUntilNextTimer], [["first"], 1, 1_000]);
  await clock.advance(1_000);
  assertEquals(passes.length, 2);
  worker.wake();
  passes[1]!.reject("second");
  await flushPromises();
  assertEquals([errors.length, passes.length, clock.pendingTimers], [2, 3, 0]);
  await end();
  assertEquals([worker.active, clock.pendingTimers], [false, 0], "what went well is not repeated");
});

Deno.test("stop() waits for the pass that is running, and nothing begins after it", async () => {
  const { clock, passes, worker, end } = harness(1_000);
  worker.wake();
  worker.wake();
  worker.wakeAfter(500);
  let stopped = false;
  const stop = worker.stop().then(() => stopped = true);
  await flushPromises();
  assertEquals([worker.stopped, stopped], [true, false]);
  await end();
  await stop;
  worker.wake();
  worker.wakeAfter(1);
  await clock.advance(10_000);
  assertEquals([passes.length, worker.active, clock.pendingTimers], [1, false, 0]);
});

Deno.test("onError may set the time of the next pass", async () => {
  const [clock, times] = [new FakeClock(), [] as number[]];
  const pass = () => Promise.reject(times.push(clock.now()));
  const worker = new BackgroundWorker({ pass, onError: () => worker.wakeAfter(10 ** times.length), clock });
  worker.wake();
  await clock.advance(200);
  assertEquals(times, [0, 10, 110]);
  await worker.stop();
});

Deno.test("BackgroundWorker's passes belong to no request, whatever request wakes it", async () => {
  const ids: (string | undefined)[] = [];
  const worker = new BackgroundWorker({
    pass: () => Promise.resolve(void ids.push(currentRequestId())),
    onError: () => {},
  });
  withRequestId("one", () => worker.wake());
  await worker.idle();
  worker.wake();
  await worker.idle();
  assertEquals(ids, [undefined, undefined]);
});
