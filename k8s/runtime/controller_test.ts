import { assert, assertEquals } from "@std/assert";
import { configure, type LogRecord, reset } from "@logtape/logtape";
import { nextTurn, waitForAbort } from "../../base/clock.ts";
import { type Thing, things } from "../../tests/contract/api_suite.ts";
import { FakeApiServer } from "../../tests/fake/cluster/api_server.ts";
import { FakeClock, flushPromises } from "../../tests/fake/clock.ts";
import { waitUntil } from "../../tests/fake/cluster/control_plane.ts";
import type { ApiClient } from "../client/client.ts";
import { HttpClient } from "../client/http_client.ts";
import { Informer } from "./informer.ts";
import { Controller, type ReconcileOutcome, type ReconcileResult } from "./controller.ts";

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

Deno.test("Controller logs at debug why there was nothing to do, and what a key waits for", async () => {
  const logged: unknown[] = [];
  await configure({
    sinks: {
      memory: ({ level, rawMessage, properties }: LogRecord) => void logged.push([level, rawMessage, properties]),
    },
    loggers: [
      { category: ["denolith", "test"], sinks: ["memory"], lowestLevel: "debug" },
      { category: ["logtape", "meta"], sinks: [] },
    ],
  });
  const outcomes: Record<string, ReconcileOutcome> = {
    settled: { nothingToDo: "it is as it should be" },
    blocked: { waitsFor: "a person" },
    later: { requeueAfterMs: 1_000, waitsFor: "a node" },
    done: undefined,
  };
  const controller = new Controller({
    name: "test",
    clock: new FakeClock(),
    reconcile: (key) => Promise.resolve(outcomes[key]),
  });
  const stop = new AbortController();
  try {
    for (const key of Object.keys(outcomes)) controller.add(key);
    const running = controller.run(stop.signal);
    await flushPromises();
    assertEquals(Object.keys(outcomes).map((key) => controller.nextAttempt(key)), [
      ...[undefined, "a person", "delay", undefined],
    ]);
    stop.abort();
    await running;
  } finally {
    await reset();
  }
  assertEquals(logged, [
    ["debug", "nothing to do", { key: "settled", because: "it is as it should be" }],
    ["debug", "waiting", { key: "blocked", for: "a person" }],
    ["debug", "waiting", { key: "later", for: "a node" }],
  ]);
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

Deno.test("Controller: a cache that is full already is enqueued in parts, and others run in between", async () => {
  await using fake = FakeApiServer.start({ resources: [things] });
  for (let index = 0; index < 2_000; index++) fake.put(things, { metadata: { name: `thing-${index}` } });
  using http = new HttpClient({ url: fake.url }, { userAgent: "denolith/test (loop)" });
  const informer = new Informer(http, things);
  const stop = new AbortController();
  const watching = informer.start(stop.signal);
  await informer.synced;
  const reconciled = new Set<string>();
  const all = Promise.withResolvers<void>();
  const controller = new Controller({
    name: "test",
    parallel: 100,
    reconcile: (key) => {
      if (reconciled.add(key).size === 1_999) all.resolve();
      return Promise.resolve();
    },
  });
  let run = 0;
  let longestRun = 0;
  let seen = 0;
  let isOver = false;
  const otherTasks = (async () => {
    for (; !isOver; await nextTurn()) run = 0;
  })();
  controller.watch(informer, ({ metadata: { name } }) => {
    seen++;
    longestRun = Math.max(longestRun, ++run);
    return name === "thing-7" ? [] : [name];
  });
  const running = controller.run(stop.signal);
  await all.promise;
  isOver = true;
  await otherTasks;
  stop.abort();
  await Promise.all([running, watching]);
  assertEquals([seen, reconciled.has("thing-7")], [2_000, false]);
  assert(longestRun <= 500, `${longestRun} objects without a pause`);
});

Deno.test("Controller: reconciles what changes while a full cache is enqueued, and forgets what is deleted", async () => {
  await using fake = FakeApiServer.start({ resources: [things] });
  for (const name of ["a", "b"]) fake.put(things, { metadata: { name } });
  using http = new HttpClient({ url: fake.url }, { userAgent: "denolith/test (loop)" });
  const informer = new Informer(http, things);
  const stop = new AbortController();
  const watching = informer.start(stop.signal);
  await informer.synced;
  const log: string[] = [];
  const controller = new Controller({ name: "test", reconcile: () => Promise.resolve() });
  controller.subscribe(informer, (key, now, before) => {
    log.push(`${key} ${before === undefined ? "is new" : now === undefined ? "is gone" : "changed"}`);
  });
  controller.subscribe(informer, (key) => log.push(`${key} from now on`), { replay: false });
  const end = new AbortController();
  const running = controller.run(end.signal);
  await flushPromises();
  assertEquals(log, ["a is new", "b is new"]);
  await http.patch(things, { name: "a" }, { merge: { spec: { nodeName: "n2" } } });
  await informer.waitFor("a", (now) => now?.spec?.nodeName === "n2");
  assertEquals(log.slice(2), ["a changed", "a from now on"]);
  end.abort();
  await running;
  const { length } = log;
  await http.patch(things, { name: "a" }, { merge: { spec: { nodeName: "n3" } } });
  await informer.waitFor("a", (now) => now?.spec?.nodeName === "n3");
  assertEquals(log.length, length, "it is subscribed no more");
  stop.abort();
  await watching;
});

Deno.test("Controller: reconciles what an informer had before it subscribed, also from an incomplete list", async () => {
  const pages = ["a", "b"].map((name) => ({
    items: [{ metadata: { name, resourceVersion: "1" } }],
    resourceVersion: "1",
  }));
  const isRequested = Promise.withResolvers<void>();
  const client = {
    listPages: async function* () {
      yield pages[0];
      await isRequested.promise;
      yield pages[1];
    },
    // deno-lint-ignore require-yield
    watch: async function* (_: unknown, { signal }: { signal: AbortSignal }) {
      await waitForAbort(signal);
    },
  } as Partial<ApiClient> as ApiClient;
  const informer = new Informer(client, things);
  const stop = new AbortController();
  const watching = informer.start(stop.signal);
  await waitUntil(() => informer.get("a") !== undefined, "the first page");
  assertEquals(informer.hasSynced, false);
  const reconciled: string[] = [];
  const controller = new Controller({ name: "test", reconcile: (key) => Promise.resolve(void reconciled.push(key)) });
  const running = controller.watch(informer).run(stop.signal);
  isRequested.resolve();
  await waitUntil(() => reconciled.length === 2, "both objects");
  stop.abort();
  await Promise.all([running, watching]);
  assertEquals(reconciled.sort(), ["a", "b"]);
});
