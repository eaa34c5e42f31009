import { assertEquals } from "@std/assert";
import { WaitingKeys } from "./waiting_keys.ts";

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
