import { assertEquals, assertRejects } from "@std/assert";
import { StorageError } from "../../base/error.ts";
import { ExclusiveChanges } from "./exclusive_changes.ts";

const group = { uuid: "u", name: "data" };
const nothing = () => Promise.resolve();

Deno.test("changes wait for a body that changes their group alone, and those of other groups do not", async () => {
  const changes = new ExclusiveChanges();
  const { promise, resolve } = Promise.withResolvers<void>();
  const order: string[] = [];
  const body = changes.run([group], nothing, 1000, () => promise.then(() => void order.push("body")));
  const change = changes.wait(group).then(() => order.push("change"));
  await changes.wait({ uuid: "other" });
  order.push("other");
  assertEquals([changes.isHeld(group), changes.isHeld({ uuid: "other" })], [true, false]);
  resolve();
  await Promise.all([body, change]);
  assertEquals(order, ["other", "body", "change"]);
  assertEquals(changes.isHeld(group), false);
});

Deno.test("a body begins after the changes that run, and not at all when these run for long", async () => {
  const changes = new ExclusiveChanges();
  const running = Promise.withResolvers<void>();
  const order: string[] = [];
  const body = changes.run([group], () => running.promise, 1000, () => Promise.resolve(void order.push("body")));
  order.push("change");
  running.resolve();
  await body;
  assertEquals(order, ["change", "body"]);
  const late = changes.run([group], () => new Promise(() => {}), 1, nothing);
  assertEquals((await assertRejects(() => late, StorageError, "run for long")).kind, "Busy");
  assertEquals(changes.isHeld(group), false);
});

Deno.test("two bodies do not change a group at the same time", async () => {
  const changes = new ExclusiveChanges();
  const { promise, resolve } = Promise.withResolvers<void>();
  const first = changes.run([group], nothing, 1000, () => promise);
  const second = changes.run([group], nothing, 1000, nothing);
  assertEquals((await assertRejects(() => second, StorageError, "data")).kind, "Busy");
  resolve();
  await first;
});
