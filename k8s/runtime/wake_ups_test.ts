import { assertEquals } from "@std/assert";
import { SpaceWaiters, WaitingKeys, WakeUps } from "./wake_ups.ts";

Deno.test("WakeUps calls the handlers of a kind with the subject until their signals are aborted", () => {
  const wakeUps = new WakeUps();
  const [first, second] = [new AbortController(), new AbortController()];
  const woken: string[] = [];
  wakeUps.on("request", (name) => woken.push(`first ${name}`), first.signal);
  wakeUps.on("request", (name) => woken.push(`second ${name}`), second.signal);
  wakeUps.on("deletion", (handle) => woken.push(`deletion ${handle}`), first.signal);
  wakeUps.wake("request", "pvc-1");
  first.abort();
  wakeUps.wake("request", "pvc-2");
  wakeUps.wake("deletion", "v1");
  wakeUps.on("request", (name) => woken.push(`late ${name}`), first.signal);
  second.abort();
  wakeUps.wake("request", "pvc-3");
  assertEquals(woken, ["first pvc-1", "second pvc-1", "second pvc-2"]);
});

/** Returns the keys that are woken when something has happened, in order. */
function wake(waiting: WaitingKeys, awaited: string): string[] {
  const woken: string[] = [];
  waiting.wake(awaited, { wake: (key) => void woken.push(key) });
  return woken;
}

Deno.test("WaitingKeys wakes each key that waits for the same, once", () => {
  const waiting = new WaitingKeys();
  waiting.add("snapshot", "content-1");
  waiting.add("snapshot", "content-2");
  waiting.add("other", "content-3");
  assertEquals(wake(waiting, "snapshot"), ["content-1", "content-2"]);
  assertEquals(wake(waiting, "snapshot"), []);
});

Deno.test("WaitingKeys forgets a key that is deleted, or waits for something else by now", () => {
  const waiting = new WaitingKeys();
  waiting.add("request", "content-1");
  waiting.add("snapshot", "content-1");
  waiting.add("snapshot", "content-2");
  waiting.delete("content-2");
  assertEquals([wake(waiting, "request"), wake(waiting, "snapshot")], [[], ["content-1"]]);
});

Deno.test("SpaceWaiters: wakes what may be on the node and fits there, once until it waits again", () => {
  const waiters = new SpaceWaiters();
  waiters.add("anywhere", { bytes: 10n });
  waiters.add("on-a", { bytes: 5n, nodeNames: ["a", "b"] });
  waiters.add("on-c", { bytes: 5n, nodeNames: ["c"] });
  waiters.add("gone", { bytes: 1n });
  waiters.delete("gone");
  const wake = (nodeName: string, largestBytes: bigint) =>
    waiters.wake({ nodeName, largestBytes }).map(({ key }) => key);
  assertEquals(wake("a", 4n), []);
  assertEquals(wake("a", 9n), ["on-a"]);
  assertEquals(wake("a", 10n), ["anywhere"]);
  assertEquals(wake("a", 10n), []);
  waiters.add("on-a", { bytes: 5n, nodeNames: ["a", "b"] });
  assertEquals(wake("b", 10n), ["on-a"]);
});

Deno.test("SpaceWaiters: a wake-up that does not help delays the next one, up to a minute", () => {
  const waiters = new SpaceWaiters();
  const delays = Array.from({ length: 8 }, () => {
    waiters.add("claim", { bytes: 1n });
    waiters.add("claim", { bytes: 1n }); // refused again without a wake-up
    return waiters.wake({ nodeName: "a", largestBytes: 1n })[0]?.delayMs;
  });
  assertEquals(delays, [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000]);
  waiters.delete("claim");
  waiters.add("claim", { bytes: 1n });
  assertEquals(waiters.wake({ nodeName: "a", largestBytes: 1n }), [{ key: "claim", delayMs: 1_000 }]);
});
