import { assertEquals } from "@std/assert";
import { SpaceWaiters } from "./space_waiters.ts";

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
