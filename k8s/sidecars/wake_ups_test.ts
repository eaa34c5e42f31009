import { assertEquals } from "@std/assert";
import { WakeUps } from "./wake_ups.ts";

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
