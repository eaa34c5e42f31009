import { assertEquals } from "@std/assert";
import { type Thing, things } from "../../tests/contract/api.ts";
import { FakeApiServer } from "../../tests/fake/api_server.ts";
import { FakeClock, flushPromises } from "../../tests/fake/clock.ts";
import { HttpClient } from "../client/http_client.ts";
import { Informer } from "./informer.ts";
import { Controller, type ReconcileResult } from "./controller.ts";

Deno.test("Controller reconciles existing and changed objects, and the keys that an object names or named before", async () => {
  await using fake = FakeApiServer.start({ resources: [things] });
  fake.put(things, { metadata: { name: "a" }, spec: { nodeName: "n1" } });
  using http = new HttpClient({ url: fake.url }, { userAgent: "denolith/test (loop)" });
  const informer = new Informer(http, things);
  const reconciled: string[] = [];
  let all = Promise.withResolvers<void>();
  const controller = new Controller({
    name: "test",
    reconcile: (key) => {
      reconciled.push(key);
      if (key === "n2") all.resolve();
      return Promise.resolve();
    },
  });
  controller.watch(informer).watch(informer, ({ spec }: Thing) => spec?.nodeName === undefined ? [] : [spec.nodeName]);
  const stop = new AbortController();
  const running = [controller.run(stop.signal), informer.start(stop.signal)];
  await informer.synced;
  all = Promise.withResolvers<void>();
  await http.patch(things, { name: "a" }, { merge: { spec: { nodeName: "n2" } } });
  await all.promise;
  stop.abort();
  await Promise.all(running);
  assertEquals(reconciled, ["a", "n1", "a", "n1", "n2"]);
});

Deno.test("Controller counts reconciles, and repeats one that failed or returned requeueAfterMs", async () => {
  const clock = new FakeClock();
  const results: ReconcileResult[] = [];
  const outcomes = [
    () => Promise.reject(new Error("no")),
    () => Promise.resolve({ requeueAfterMs: 5_000 }),
    () => Promise.resolve(),
  ];
  const controller = new Controller({
    name: "test",
    clock,
    onReconciled: (result) => results.push(result),
    reconcile: () => outcomes.shift()!(),
  });
  const stop = new AbortController();
  const running = controller.run(stop.signal);
  controller.add("a");
  await clock.advance(749);
  assertEquals(results.map(({ error }) => error instanceof Error), [true]);
  await clock.advance(1);
  assertEquals(results.length, 2);
  await clock.advance(4_999);
  assertEquals(results.length, 2);
  await clock.advance(1);
  assertEquals(results.map(({ controller, key, error }) => `${controller} ${key} ${error ?? "ok"}`), [
    "test a Error: no",
    "test a ok",
    "test a ok",
  ]);
  stop.abort();
  await running;
  assertEquals(clock.pendingTimers, 0);
});

Deno.test("Controller, when stopped, lets running reconciles finish, and aborts them after a time", async () => {
  const clock = new FakeClock();
  const log: string[] = [];
  const controller = new Controller({
    name: "test",
    clock,
    drainMs: 1_000,
    reconcile: (_, signal) =>
      new Promise((resolve) => {
        log.push("begun");
        signal.addEventListener("abort", () => resolve());
      }),
  });
  const stop = new AbortController();
  let hasStopped = false;
  const running = controller.run(stop.signal).then(() => hasStopped = true);
  controller.add("a");
  await flushPromises();
  stop.abort();
  await clock.advance(999);
  assertEquals([log, hasStopped], [["begun"], false]);
  await clock.advance(1);
  await running;
  assertEquals([hasStopped, clock.pendingTimers], [true, 0]);
});
