import { assert, assertEquals } from "@std/assert";
import { nextTurn } from "../../base/clock.ts";
import { FakeClock, flushPromises } from "../../tests/fake/clock.ts";
import { type QueueOptions, WorkQueue } from "./queue.ts";
import { waitUntil } from "../../tests/fake/wait_until.ts";

/** Creates a queue whose work waits until the test ends it, with a record of what was begun. */
function testQueue(options: QueueOptions = {}) {
  const clock = new FakeClock();
  const begun: string[] = [];
  const unfinished = new Map<string, PromiseWithResolvers<void>>();
  const queue = new WorkQueue((key) => {
    begun.push(key);
    const work = Promise.withResolvers<void>();
    unfinished.set(key, work);
    return work.promise;
  }, { backoff: { startMs: 1000, capMs: 8000 }, ...options, clock });
  const end = async (key: string, error?: Error) => {
    const work = unfinished.get(key)!;
    if (error === undefined) work.resolve();
    else work.reject(error);
    await flushPromises();
  };
  return { clock, begun, queue, end };
}

Deno.test("WorkQueue: a key that was added twice is worked on once", async () => {
  const { begun, queue, end } = testQueue();
  for (const key of ["a", "b", "a"]) queue.add(key);
  queue.start();
  assertEquals(begun, ["a", "b"]);
  await end("a");
  await end("b");
  assertEquals(begun, ["a", "b"]);
});

Deno.test("WorkQueue gives a key to one worker; a key that is added meanwhile is reconciled again afterwards", async () => {
  const { begun, queue, end } = testQueue();
  queue.start();
  queue.add("a");
  queue.add("a");
  queue.add("a");
  assertEquals(begun, ["a"]);
  await end("a");
  assertEquals(begun, ["a", "a"]);
  await end("a");
  assertEquals(begun, ["a", "a"]);
});

Deno.test("WorkQueue: a key that is woken is worked on at once, also after failures and after the work in progress", async () => {
  const { clock, begun, queue, end } = testQueue();
  queue.start();
  queue.add("a");
  await end("a", new Error("no"));
  queue.add("a");
  assertEquals(begun, ["a"], "a change waits for the shortest delay");
  queue.wake("a");
  assertEquals(begun, ["a", "a"]);
  queue.wake("a");
  await end("a", new Error("no"));
  assertEquals(begun, ["a", "a", "a"]);
  await end("a", new Error("no"));
  await clock.advance(1_100);
  await flushPromises();
  assertEquals(begun.length, 3, "the failures still count");
});

Deno.test("WorkQueue: no more keys than configured are processed at the same time", async () => {
  const { begun, queue, end } = testQueue({ parallel: 2 });
  queue.start();
  for (const key of ["a", "b", "c", "d"]) queue.add(key);
  assertEquals([begun, queue.depth], [["a", "b"], 2]);
  await end("b");
  assertEquals([begun, queue.depth], [["a", "b", "c"], 1]);
  for (const key of ["a", "c", "d"]) await end(key);
  assertEquals([begun.length, queue.depth], [4, 0]);
});

Deno.test("WorkQueue: a key that fails comes back later each time, up to the cap, and soon again after a success", async () => {
  const { clock, begun, queue, end } = testQueue();
  queue.start();
  queue.add("a");
  // With a chance of one half, three quarters of the whole wait.
  for (const wait of [750, 1500, 3000, 6000, 6000]) {
    await end("a", new Error("no"));
    const before = begun.length;
    await clock.advance(wait - 1);
    assertEquals(begun.length, before);
    await clock.advance(1);
    assertEquals(begun.length, before + 1);
  }
  await end("a");
  queue.add("a");
  assertEquals(begun.length, 7);
  await end("a", new Error("no"));
  await clock.advance(750);
  assertEquals(begun.length, 8);
  await end("a");
});

Deno.test("WorkQueue reconciles a failing key that is added soon, but not at once", async () => {
  const { clock, begun, queue, end } = testQueue();
  queue.start();
  queue.add("a");
  for (let failure = 0; failure < 3; failure++) {
    await end("a", new Error("no"));
    queue.add("a");
    await clock.advance(999);
    if (failure > 0) assertEquals(begun.length, failure + 1);
    await clock.advance(1);
    assertEquals(begun.length, failure + 2);
  }
  await end("a");
});

Deno.test("WorkQueue reconciles a failing key soon that was added during the attempt", async () => {
  const { clock, begun, queue, end } = testQueue();
  queue.start();
  queue.add("a");
  for (let failure = 0; failure < 4; failure++) {
    queue.add("a");
    await end("a", new Error("no"));
    await clock.advance(1_000);
    assertEquals(begun.length, failure + 2);
  }
  await end("a");
});

Deno.test("WorkQueue.addAfter() keeps the earlier of two times, and add() replaces both", async () => {
  const { clock, begun, queue, end } = testQueue();
  queue.start();
  queue.addAfter("a", 5000);
  queue.addAfter("a", 2000);
  queue.addAfter("a", 9000);
  await clock.advance(2000);
  assertEquals(begun, ["a"]);
  await end("a");
  queue.addAfter("a", 5000);
  queue.add("a");
  await end("a");
  await clock.advance(60_000);
  assertEquals([begun, clock.pendingTimers], [["a", "a"], 0]);
});

Deno.test("WorkQueue: stop() waits for started keys, and drops the others", async () => {
  const { clock, begun, queue, end } = testQueue({ parallel: 1 });
  queue.start();
  for (const key of ["a", "b"]) queue.add(key);
  queue.addAfter("c", 1000);
  let stopped = false;
  const stopping = queue.stop().then(() => stopped = true);
  await flushPromises();
  assertEquals(stopped, false);
  await end("a", new Error("no"));
  await stopping;
  queue.add("d");
  await clock.advance(60_000);
  assertEquals([begun, clock.pendingTimers], [["a"], 0]);
});

Deno.test("WorkQueue: a key that takes long frees its worker for others, but is worked on once", async () => {
  const { clock, begun, queue, end } = testQueue({ parallel: 2, slowAfterMs: 1_000 });
  queue.start();
  for (const key of ["dead-1", "dead-2", "dead-3", "healthy"]) queue.add(key);
  await clock.advance(999);
  assertEquals(begun, ["dead-1", "dead-2"]);
  await clock.advance(1);
  assertEquals(begun, ["dead-1", "dead-2", "dead-3", "healthy"]);
  queue.add("dead-1");
  await end("healthy");
  queue.add("healthy-2");
  assertEquals(begun.slice(4), ["healthy-2"]);
  for (const key of ["dead-2", "dead-3", "healthy-2"]) await end(key);
  await end("dead-1", new Error("no answer"));
  await clock.advance(1_000);
  assertEquals(begun.slice(5), ["dead-1"]);
  await end("dead-1");
  assertEquals(clock.pendingTimers, 0);
});

Deno.test("WorkQueue: keys that take long are limited, too", async () => {
  const { clock, begun, queue, end } = testQueue({ parallel: 2, slowAfterMs: 1_000 });
  queue.start();
  for (let key = 1; key <= 30; key++) queue.add(`slow-${key}`);
  for (let second = 1; second <= 60; second++) await clock.advance(1_000);
  assertEquals(begun.length, 22, "ten times as many as those that count");
  await end("slow-1");
  assertEquals(begun.length, 23);
});

Deno.test("WorkQueue: stop() waits for keys that took long, too", async () => {
  const { clock, queue, end } = testQueue({ parallel: 1, slowAfterMs: 1_000 });
  queue.start();
  queue.add("slow");
  await clock.advance(2_000);
  let hasStopped = false;
  const stopping = queue.stop().then(() => hasStopped = true);
  await flushPromises();
  assertEquals(hasStopped, false);
  await end("slow");
  await stopping;
});

Deno.test("WorkQueue: lets other tasks of the event loop run between keys that wait for nothing", async () => {
  let turns = 0;
  let longestRun = 0;
  let run = 0;
  const done = Promise.withResolvers<void>();
  let remaining = 1_000;
  const queue = new WorkQueue(() => {
    longestRun = Math.max(longestRun, ++run);
    if (--remaining === 0) done.resolve();
    return Promise.resolve();
  }, { parallel: 100 });
  for (let key = 0; key < 1_000; key++) queue.add(`${key}`);
  queue.start();
  for (; remaining > 0; await nextTurn()) {
    turns++;
    run = 0;
  }
  await done.promise;
  await queue.stop();
  assert(turns >= 10, `other tasks ran ${turns} times`);
  assert(longestRun <= 100, `${longestRun} keys without a pause`);
});

Deno.test("WorkQueue: urgent keys go before those that wait already, in their own order", async () => {
  const { begun, queue, end } = testQueue({ parallel: 1, isUrgent: (key) => key.startsWith("urgent") });
  queue.start();
  for (const key of ["first", "a", "b", "urgent 1", "urgent 2", "c"]) queue.add(key);
  for (let done = 0; done < 6; done++) {
    await waitUntil(() => begun.length > done, "the next key");
    await end(begun[done]!);
  }
  assertEquals(begun, ["first", "urgent 1", "urgent 2", "a", "b", "c"]);
});

Deno.test("WorkQueue: namespaces take turns, however many keys one of them has", async () => {
  const { begun, queue, end } = testQueue({ parallel: 1 });
  for (let n = 0; n < 10_000; n++) queue.add(`storm/${n}`);
  for (const key of ["shop/a", "shop/b", "node", "bank/a"]) queue.add(key);
  queue.start();
  const endNext = async () => {
    await end(begun.at(-1)!);
    await nextTurn();
  };
  for (let n = 0; n < 6; n++) await endNext();
  assertEquals(begun, ["storm/0", "shop/a", "node", "bank/a", "storm/1", "shop/b", "storm/2"]);
  queue.add("shop/c");
  for (let n = 0; n < 2; n++) await endNext();
  assertEquals(begun.slice(-2), ["storm/3", "shop/c"]);
  assertEquals(queue.depth, 9_996);
});

Deno.test("WorkQueue: owners of keys take turns, also while keys are added and woken", async () => {
  const { begun, queue, end } = testQueue({ parallel: 1, ownerOf: (key) => key[0]! });
  queue.start();
  for (const key of ["a1", "a2", "a3", "b1", "a2"]) queue.add(key);
  queue.wake("a3");
  for (let n = 0; n < 3; n++) await end(begun[n]!);
  assertEquals(begun, ["a1", "a2", "b1", "a3"]);
  assertEquals([queue.stateOf("a3"), queue.depth], ["turn", 0]);
});

Deno.test("WorkQueue reports how many keys wait after each turn in which it took some", async () => {
  const depths: number[] = [];
  const { begun, queue } = testQueue({ parallel: 1_000, onDepth: (depth) => depths.push(depth) });
  for (let key = 0; key < 250; key++) queue.add(`${key}`);
  queue.start();
  await waitUntil(() => begun.length === 250, "all keys");
  assertEquals(depths.at(-1), 0);
});
