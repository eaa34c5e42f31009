import { assertEquals } from "@std/assert";
import { type Thing, things } from "../../tests/contract/api.ts";
import { FakeApiServer } from "../../tests/fake/api_server.ts";
import { FakeClock, settled } from "../../tests/fake/clock.ts";
import { HttpClient } from "../client/http_client.ts";
import { Informer } from "./informer.ts";
import { Loop, type Turn } from "./controller.ts";

Deno.test("Loop: reconciles what is there, what changes, and the keys that an object names, before and now", async () => {
  await using fake = FakeApiServer.start({ resources: [things] });
  fake.put(things, { metadata: { name: "a" }, spec: { nodeName: "n1" } });
  using http = new HttpClient({ url: fake.url }, { userAgent: "denolith/test (loop)" });
  const informer = new Informer(http, things);
  const seen: string[] = [];
  let all = Promise.withResolvers<void>();
  const loop = new Loop({
    name: "test",
    reconcile: (key) => {
      seen.push(key);
      if (key === "n2") all.resolve();
      return Promise.resolve();
    },
  });
  loop.follow(informer).follow(informer, ({ spec }: Thing) => spec?.nodeName === undefined ? [] : [spec.nodeName]);
  const stop = new AbortController();
  const running = [loop.run(stop.signal), informer.start(stop.signal)];
  await informer.synced;
  all = Promise.withResolvers<void>();
  await http.patch(things, { name: "a" }, { merge: { spec: { nodeName: "n2" } } });
  await all.promise;
  stop.abort();
  await Promise.all(running);
  assertEquals(seen, ["a", "n1", "a", "n1", "n2"]);
});

Deno.test("Loop: counts turns, and has another when one failed or asked for it", async () => {
  const clock = new FakeClock();
  const turns: Turn[] = [];
  const answers = [
    () => Promise.reject(new Error("no")),
    () => Promise.resolve({ again: 5_000 }),
    () => Promise.resolve(),
  ];
  const loop = new Loop({
    name: "test",
    clock,
    onTurn: (turn) => turns.push(turn),
    reconcile: () => answers.shift()!(),
  });
  const stop = new AbortController();
  const running = loop.run(stop.signal);
  loop.add("a");
  await clock.advance(749);
  assertEquals(turns.map(({ error }) => error instanceof Error), [true]);
  await clock.advance(1);
  assertEquals(turns.length, 2);
  await clock.advance(4_999);
  assertEquals(turns.length, 2);
  await clock.advance(1);
  assertEquals(turns.map(({ loop, key, error }) => `${loop} ${key} ${error ?? "ok"}`), [
    "test a Error: no",
    "test a ok",
    "test a ok",
  ]);
  stop.abort();
  await running;
  assertEquals(clock.waiting, 0);
});

Deno.test("Loop: when stopped, it lets what was begun be finished, and tells it to end after a time", async () => {
  const clock = new FakeClock();
  const told: string[] = [];
  const loop = new Loop({
    name: "test",
    clock,
    drainMs: 1_000,
    reconcile: (_, signal) =>
      new Promise((resolve) => {
        told.push("begun");
        signal.addEventListener("abort", () => resolve());
      }),
  });
  const stop = new AbortController();
  let over = false;
  const running = loop.run(stop.signal).then(() => over = true);
  loop.add("a");
  await settled();
  stop.abort();
  await clock.advance(999);
  assertEquals([told, over], [["begun"], false]);
  await clock.advance(1);
  await running;
  assertEquals([over, clock.waiting], [true, 0]);
});
