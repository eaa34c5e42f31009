import { assert, assertEquals, assertRejects } from "@std/assert";
import { configure, type LogRecord, reset } from "@logtape/logtape";
import { type Thing, things } from "../../tests/contract/api_suite.ts";
import { FakeApiServer } from "../../tests/fake/cluster/api_server.ts";
import { TcpProxy } from "../../tests/fake/tcp_proxy.ts";
import { FakeClock } from "../../tests/fake/clock.ts";
import { type ApiClient, ApiError } from "../client/client.ts";
import { HttpClient, type HttpClientOptions } from "../client/http_client.ts";
import { Informer, type InformerOptions } from "./informer.ts";
import { soon, waitUntil } from "../../tests/fake/wait_until.ts";

/** Starts a fake server, a network to it, and an informer of things, which is synced. */
async function harness(options: InformerOptions<Thing> = {}, client: Partial<HttpClientOptions> = {}) {
  const fake = FakeApiServer.start({ resources: [things] });
  const network = new TcpProxy(fake.url);
  const http = new HttpClient({ url: network.urlThrough(fake.url) }, {
    userAgent: "denolith/test (informer)",
    ...client,
  });
  const informer = new Informer(http, things, { backoff: { startMs: 5, capMs: 20 }, ...options });
  const stop = new AbortController();
  for (const name of ["a", "b"]) fake.put(things, { metadata: { name }, spec: { size: "1" } });
  const running = informer.start(stop.signal);
  await informer.synced;
  return {
    fake,
    network,
    http,
    informer,
    /** Returns its list and watch requests. */
    requests: () =>
      fake.requests.filter(({ method }) => method === "GET").map(({ query }) =>
        query.get("watch") ? `watch ${query.get("resourceVersion")}` : "list"
      ),
    waitForWatch: () => waitUntil(() => fake.watchCount > 0, "a watch"),
    setSize: (name: string, size: string) => http.patch(things, { name }, { merge: { spec: { size } } }),
    waitForSize: (name: string, size: string) => waitFor(informer, name, (thing) => thing?.spec?.size === size),
    waitFor: (name: string, predicate: (thing: Thing | undefined) => boolean) => waitFor(informer, name, predicate),
    [Symbol.asyncDispose]: async () => {
      stop.abort();
      await running;
      http[Symbol.dispose]();
      await network[Symbol.asyncDispose]();
      await fake[Symbol.asyncDispose]();
    },
  };
}

/** Waits for an object by a wait that has no limit of its own, or one of a clock that stands still. */
async function waitFor(informer: Informer<Thing>, name: string, predicate: (thing: Thing | undefined) => boolean) {
  return await soon(informer.waitFor(name, predicate), `thing ${name}`);
}

Deno.test("Informer: has the existing objects and their changes, and notifies its subscribers", async () => {
  await using s = await harness();
  assertEquals(s.informer.list().map(({ metadata }) => metadata.name), ["a", "b"]);
  const notifications: unknown[] = [];
  s.informer.subscribe((key, now, before) => notifications.push([key, now?.spec?.size, before?.spec?.size]));
  await s.setSize("a", "2");
  await s.waitForSize("a", "2");
  await s.http.delete(things, { name: "b" });
  await s.waitFor("b", (thing) => thing === undefined);
  assertEquals(notifications, [["a", "1", undefined], ["b", "1", undefined], ["a", "2", "1"], ["b", undefined, "1"]]);
  assertEquals(s.requests().filter((one) => one === "list").length, 1);
});

Deno.test("Informer: goes on where a watch ended, by bookmark where nothing else came, without a list", async () => {
  await using s = await harness();
  await s.waitForWatch();
  s.fake.put(things, { metadata: { name: "c" } });
  await s.waitFor("c", (thing) => thing !== undefined);
  s.fake.sendBookmarks();
  const lastRevision = s.fake.revision;
  s.fake.endWatches();
  await s.setSize("a", "2");
  await s.waitForSize("a", "2");
  assertEquals(s.requests().filter((one) => one === "list").length, 1);
  assertEquals(s.requests().filter((one) => one.startsWith("watch")).at(-1), `watch ${lastRevision}`);
});

Deno.test("Informer: lists again when its revision is too old, and reports what was deleted meanwhile", async () => {
  await using s = await harness();
  await s.waitForWatch();
  const notifications: unknown[] = [];
  s.informer.subscribe((key, now, before) => notifications.push([key, now?.spec?.size, before?.spec?.size]));
  notifications.length = 0;
  s.network.refuse();
  await waitUntil(() => s.fake.watchCount === 0);
  using direct = new HttpClient({ url: s.fake.url }, { userAgent: "someone else" });
  await direct.delete(things, { name: "b" });
  await direct.create(things, { metadata: { name: "c" }, spec: { size: "3" } });
  s.fake.compact();
  s.network.allow();
  await s.waitForSize("c", "3");
  await s.waitFor("b", (thing) => thing === undefined);
  assertEquals(notifications, [["c", "3", undefined], ["b", undefined, "1"]]);
});

Deno.test("Informer sends few requests while the server is unreachable, and is current soon afterwards", async () => {
  await using s = await harness({ backoff: { startMs: 20, capMs: 40 } });
  await s.waitForWatch();
  s.network.refuse();
  await waitUntil(() => s.fake.watchCount === 0);
  using direct = new HttpClient({ url: s.fake.url }, { userAgent: "someone else" });
  await direct.patch(things, { name: "a" }, { merge: { spec: { size: "2" } } });
  s.network.allow();
  await s.waitForSize("a", "2");
  assertEquals(s.requests().filter((one) => one === "list").length, 1);
});

Deno.test("Informer: a connection that is swallowed silently is noticed by its missing sign of life", async () => {
  const reasons: string[] = [];
  const onReconnect = (reason: string) => reasons.push(reason);
  await using s = await harness({}, { readIdleTimeoutMs: 20, pingTimeoutMs: 1_000, onReconnect });
  await s.waitForWatch();
  using direct = new HttpClient({ url: s.fake.url }, { userAgent: "someone else" });
  s.network.freeze();
  await direct.patch(things, { name: "a" }, { merge: { spec: { size: "2" } } });
  await waitUntil(() => reasons.length > 0);
  assertEquals(reasons[0], "no sign of life: no answer within 1000 ms");
  s.network.thaw();
  await s.waitForSize("a", "2");
});

Deno.test.each(["stalledWatches", "unansweredWatches"] as const)(
  "Informer ends a watch without events after a while, although the server answers other requests: %s",
  async (fault) => {
    await using s = await harness({}, { watchIdleTimeoutMs: 50, readIdleTimeoutMs: 10 });
    await s.waitForWatch();
    s.fake.faults[fault] = true;
    s.fake.endWatches();
    await waitUntil(() => s.requests().length > 2);
    s.fake.put(things, { metadata: { name: "c" } });
    s.fake.faults[fault] = false;
    assert(await s.waitFor("c", (thing) => thing !== undefined));
  },
);

Deno.test("Informer: lists again after a restore of etcd, whose server sends nothing for a later revision", async () => {
  await using s = await harness({}, { watchIdleTimeoutMs: 50, readIdleTimeoutMs: 10 });
  await s.waitForWatch();
  const { revision } = s.fake;
  for (let n = 0; n < 10; n++) await s.setSize("a", `${n + 2}`);
  await s.waitForSize("a", "11");
  s.fake.collection(things).delete({ name: "b", namespace: undefined });
  await s.waitFor("b", (thing) => thing === undefined);
  s.fake.rewind(revision);
  s.fake.put(things, { metadata: { name: "b" } });
  await s.informer.waitFor("b", (thing) => thing !== undefined, { timeoutMs: 5_000 });
  await s.setSize("a", "1");
  await s.waitForSize("a", "1");
});

Deno.test("Informer: waitFor() ends with its time, its signal, or the predicate's failure", async () => {
  await using s = await harness();
  const never = () => false;
  await assertRejects(
    () => s.informer.waitFor("a", never, { timeoutMs: 1 }),
    Error,
    "waiting for things a: not so within 1 ms",
  );
  const stop = new AbortController();
  const waiting = s.informer.waitFor("a", never, { signal: stop.signal });
  stop.abort(new Error("enough"));
  await assertRejects(() => waiting, Error, "enough");
  const fails = () => {
    throw new Error("no such thing");
  };
  await assertRejects(() => s.informer.waitFor("a", fails), Error, "no such thing");
});

Deno.test("Informer: keeps only what matches its selection, and no managed fields", async () => {
  await using s = await harness({ fieldSelector: "metadata.name=a", transform: ({ metadata }) => ({ metadata }) });
  const managed = { name: "a", managedFields: [{}] };
  await s.http.patch(things, { name: "a" }, { merge: { metadata: managed, spec: { size: "2" } } });
  const kept = await s.informer.waitFor("a", (thing) => thing?.metadata.generation === 2);
  assertEquals([s.informer.list().length, kept?.spec], [1, undefined]);
  assertEquals("managedFields" in kept!.metadata, false);
});

Deno.test("Informer tries a dozen times while the server is unreachable for a minute, and within ten seconds afterwards", async () => {
  const clock = new FakeClock();
  const requestTimes: number[] = [];
  let isUnavailable = true;
  const listPages = async function* () {
    requestTimes.push(clock.now());
    if (isUnavailable) throw new ApiError("list things: away", { status: 0, reason: "Unreachable" });
    yield { items: [], resourceVersion: "1" };
  };
  const stop = new AbortController();
  const ended = new Promise<IteratorResult<never>>((resolve) =>
    stop.signal.addEventListener("abort", () => resolve({ done: true, value: undefined }))
  );
  const watch = () => ({ [Symbol.asyncIterator]: () => ({ next: () => ended }) });
  const informer = new Informer({ listPages, watch } as unknown as ApiClient, things, { clock });
  const running = informer.start(stop.signal);
  await clock.advance(60_000);
  assert(requestTimes.length >= 8 && requestTimes.length <= 13, `${requestTimes}`);
  isUnavailable = false;
  await clock.advance(10_000);
  assertEquals(informer.hasSynced, true);
  stop.abort();
  await running;
});

/** Captures what is logged, as level and message, until it is disposed of. */
async function captureLogs(): Promise<AsyncDisposable & { lines: string[] }> {
  const lines: string[] = [];
  const sink = ({ level, rawMessage }: LogRecord) => void lines.push(`${level}: ${rawMessage}`);
  await configure({
    reset: true,
    sinks: { lines: sink },
    loggers: [
      { category: ["denolith", "informer"], sinks: ["lines"], lowestLevel: "debug" },
      { category: ["logtape", "meta"], sinks: [], lowestLevel: "error" },
    ],
  });
  return { lines, [Symbol.asyncDispose]: reset };
}

Deno.test("Informer: a kind that need not be there is looked for from time to time, which is said once", async () => {
  await using fake = FakeApiServer.start();
  using http = new HttpClient({ url: fake.url }, { userAgent: "denolith/test (informer)" });
  await using log = await captureLogs();
  const { lines } = log;
  const clock = new FakeClock();
  const informer = new Informer(http, things, { missingKindRetryMs: 60_000, clock });
  const notifications: unknown[] = [];
  informer.subscribe((key, now) => notifications.push([key, now !== undefined]));
  const stop = new AbortController();
  const running = informer.start(stop.signal);
  /** Looks once more, and comes back when that was in vain. */
  const waitForRetries = async (times: number) => {
    for (const end = times + fake.requests.length; fake.requests.length < end;) {
      await waitUntil(() => clock.pendingTimers === 1);
      assertEquals(clock.msUntilNextTimer, 60_000);
      await clock.advance(60_000);
    }
    await waitUntil(() => clock.pendingTimers === 1);
  };
  await waitUntil(() => fake.requests.length === 1);
  await waitForRetries(3);
  assertEquals([informer.hasSynced, notifications], [false, []]);
  assertEquals(lines, ["info: the cluster does not have the kind; retrying at intervals"]);

  fake.addResource(things);
  fake.put(things, { metadata: { name: "a" } });
  await clock.advance(60_000);
  await waitFor(informer, "a", (thing) => thing !== undefined);
  await waitUntil(() => fake.watchCount === 1);
  await clock.advance(1_000);
  fake.removeResource(things);
  await waitFor(informer, "a", (thing) => thing === undefined);
  await waitForRetries(2);
  assertEquals([informer.list(), notifications], [[], [["a", true], ["a", false]]]);
  assertEquals(lines.length, 2);
  fake.addResource(things);
  fake.put(things, { metadata: { name: "b" } });
  await clock.advance(60_000);
  await waitFor(informer, "b", (thing) => thing !== undefined);
  assertEquals(lines.filter((line) => !line.startsWith("info: ")), []);
  stop.abort();
  await running;
});

Deno.test("Informer: a kind that should be there and is not is a failure", async () => {
  await using fake = FakeApiServer.start();
  using http = new HttpClient({ url: fake.url }, { userAgent: "denolith/test (informer)" });
  await using log = await captureLogs();
  const { lines } = log;
  const informer = new Informer(http, things, { backoff: { startMs: 1, capMs: 1 } });
  const stop = new AbortController();
  const running = informer.start(stop.signal);
  await waitUntil(() => lines.length > 2);
  assertEquals([...new Set(lines)], ["warning: listing and watching failed"]);
  stop.abort();
  await running;
});

Deno.test("Informer: a listener that fails is logged, and ends neither the watch nor the other listeners", async () => {
  const logged: string[] = [];
  await configure({
    sinks: { memory: ({ rawMessage, properties }: LogRecord) => void logged.push(`${rawMessage}: ${properties.key}`) },
    loggers: [
      { category: "denolith", sinks: ["memory"], lowestLevel: "error" },
      { category: ["logtape", "meta"], sinks: [] },
    ],
  });
  try {
    await using s = await harness();
    const seen: string[] = [];
    s.informer.subscribe((key) => {
      if (key === "b") throw new Error("this listener cannot take b");
    });
    s.informer.subscribe((key) => void seen.push(key));
    await s.setSize("a", "2");
    await s.waitForSize("a", "2");
    assertEquals([seen, new Set(logged)], [["a", "b", "a"], new Set(["a listener failed: b"])]);
  } finally {
    await reset();
  }
});
