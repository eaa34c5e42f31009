import v8 from "node:v8";
import { runInNewContext } from "node:vm";
import { assert, assertEquals, assertMatch, assertRejects } from "@std/assert";
import { type Thing, things } from "../../tests/contract/api_suite.ts";
import { FakeApiServer, type FakeApiServerOptions } from "../../tests/fake/cluster/api_server.ts";
import { FakeClock, flushPromises } from "../../tests/fake/clock.ts";
import { TcpProxy } from "../../tests/fake/tcp_proxy.ts";
import { ApiError, isTransient } from "./client.ts";
import type { ApiServer } from "./config.ts";
import { HttpClient, type HttpClientOptions } from "./http_client.ts";
import { waitUntil } from "../../tests/fake/wait_until.ts";

const TLS = new URL("../../tests/fixtures/tls/", import.meta.url).pathname;

function harness(options: Partial<HttpClientOptions & FakeApiServerOptions> & { server?: Partial<ApiServer> } = {}) {
  const fake = FakeApiServer.start({ resources: [things], ...options });
  const network = new TcpProxy(fake.url);
  const answers: string[] = [];
  const client = new HttpClient({ url: network.urlThrough(fake.url), ...options.server }, {
    userAgent: "denolith/1.2.3 (test)",
    onRequest: (verb, resource, status) => answers.push(`${verb} ${resource} ${status}`),
    ...options,
  });
  const thing: Thing = fake.put(things, { metadata: { name: "a" } });
  return {
    fake,
    network,
    client,
    answers,
    thing,
    [Symbol.asyncDispose]: async () => {
      client[Symbol.dispose]();
      await network[Symbol.asyncDispose]();
      await fake[Symbol.asyncDispose]();
    },
  };
}

Deno.test("HttpClient: sends its user agent, and reports every response", async () => {
  await using s = harness();
  await s.client.get(things, { name: "a" });
  await assertRejects(() => s.client.get(things, { name: "b" }));
  assertEquals(s.fake.requests[0]?.headers.get("user-agent"), "denolith/1.2.3 (test)");
  assertEquals(s.answers, ["get things 200", "get things 404"]);
});

Deno.test("HttpClient: a name that no object can have leads to no other object", async () => {
  await using s = harness();
  for (const name of ["", ".", "..", "a/status", "../leases/b", "a%2Fstatus", "%2e%2e"]) {
    const error = await assertRejects(() => s.client.get(things, { name }), ApiError, "no object can have this name");
    assertEquals([error.status, error.reason], [404, "NotFound"], name);
  }
  assertEquals(s.fake.requests, []);
});

Deno.test("HttpClient: a watch ends with its signal, also when garbage was collected since it began", async () => {
  await using s = harness();
  const end = new AbortController();
  const watch = s.client.watch(things, { resourceVersion: "0", signal: end.signal })[Symbol.asyncIterator]();
  assertEquals((await watch.next()).value?.type, "ADDED");
  const next = assertRejects(() => watch.next(), Error, "over");
  v8.setFlagsFromString("--expose-gc");
  for (let rounds = 0; rounds < 3; rounds++) {
    runInNewContext("gc")();
    await new Promise((resolve) => setTimeout(resolve)); // references that nobody holds are collected between tasks
  }
  end.abort(new Error("over"));
  await next;
});

Deno.test("HttpClient repeats any request after an overload, as the server requires; after a server error only reads", async () => {
  await using s = harness();
  s.fake.faults.refuse = { status: 429, times: 2, retryAfter: 0 };
  await s.client.create(things, { metadata: { name: "b" } });
  s.fake.faults.refuse = { status: 503, times: 1 };
  await s.client.get(things, { name: "b" });
  s.fake.faults.refuse = { status: 503, times: 1 };
  const refused = await assertRejects(() => s.client.create(things, { metadata: { name: "c" } }), ApiError);
  assert(isTransient(refused));
  s.fake.faults.refuse = { status: 429, times: 10, retryAfter: 60 };
  const busy = await assertRejects(() => s.client.get(things, { name: "b" }), ApiError);
  assertEquals([busy.status, busy.retryAfter], [429, 60_000]);
  assertEquals(s.answers, [
    ...["create things 429", "create things 429", "create things 201"],
    ...["get things 503", "get things 200"],
    ...["create things 503", "get things 429"],
  ]);
});

Deno.test("HttpClient: a request that waits to be sent again ends when the client is closed", async () => {
  const clock = new FakeClock();
  await using s = harness({ clock });
  s.fake.faults.refuse = { status: 503, times: 2 };
  const refused = assertRejects(() => s.client.get(things, { name: "a" }), ApiError, "503");
  await waitUntil(() => s.answers.length > 0, "the first answer");
  await flushPromises();
  s.client[Symbol.dispose]();
  await refused;
  assertEquals([s.answers, clock.pendingTimers], [["get things 503"], 0]);
});

Deno.test("HttpClient: a creation that may have happened is not repeated", async () => {
  await using s = harness();
  s.network.refuse();
  const error = await assertRejects(() => s.client.create(things, { metadata: { name: "b" } }), ApiError);
  assertMatch(error.message, /^create things b: .*(refused|reset|closed|error)/i);
  assertEquals([isTransient(error), error.reason, s.answers], [true, "Unreachable", ["create things 0"]]);
});

Deno.test("HttpClient: an answer that does not come ends the request, and the next one gets a connection of its own", async () => {
  const clock = new FakeClock();
  await using s = harness({ timeoutMs: 50, clock });
  await s.client.get(things, { name: "a" });
  s.network.freeze();
  const merge = { spec: { size: "2" } };
  const patch = s.client.patch(things, { name: "a" }, { merge });
  const [late] = await Promise.all([assertRejects(() => patch, ApiError), clock.advance(50)]);
  assertEquals(late.message, "patch things a: no answer within 50 ms");
  s.network.thaw();
  await s.client.get(things, { name: "a" });
});

Deno.test("HttpClient: a request ends with the reason of its signal", async () => {
  await using s = harness();
  s.network.freeze();
  const stop = new AbortController();
  const pending = s.client.get(things, { name: "a" }, { signal: stop.signal });
  stop.abort(new Error("enough"));
  await assertRejects(() => pending, Error, "enough");
  await assertRejects(() => s.client.list(things, { signal: stop.signal }), Error, "enough");
});

Deno.test("HttpClient: a token file is read again each minute, and once it was refused", async () => {
  const file = await Deno.makeTempFile();
  try {
    const clock = new FakeClock();
    await using s = harness({ server: { token: { file } }, clock });
    const sentAuthorization = async () => {
      await s.client.get(things, { name: "a" }).catch(() => {});
      return s.fake.requests.at(-1)?.headers.get("authorization");
    };
    await Deno.writeTextFile(file, "one\n");
    assertEquals(await sentAuthorization(), "Bearer one");
    await Deno.writeTextFile(file, "two\n");
    await clock.advance(59_999);
    assertEquals(await sentAuthorization(), "Bearer one");
    await clock.advance(1);
    assertEquals(await sentAuthorization(), "Bearer two");
    await Deno.writeTextFile(file, "three\n");
    s.fake.faults.refuse = { status: 401, times: 1 };
    assertEquals(await sentAuthorization(), "Bearer two");
    assertEquals(await sentAuthorization(), "Bearer three");
  } finally {
    await Deno.remove(file);
  }
});

Deno.test("HttpClient: a token that cannot be read again is used as it was, until it can", async () => {
  const file = await Deno.makeTempFile();
  const clock = new FakeClock();
  await using s = harness({ server: { token: { file } }, clock });
  const sentAuthorization = async () => {
    await clock.advance(60_000);
    await s.client.get(things, { name: "a" });
    return s.fake.requests.at(-1)?.headers.get("authorization");
  };
  const failed = await assertRejects(() => s.client.delete(things, { name: "a" }), ApiError);
  assertMatch(failed.message, /: reading the bearer token: .* is empty$/);
  await Deno.writeTextFile(file, "one");
  assertEquals(await sentAuthorization(), "Bearer one");
  await Deno.writeTextFile(file, "");
  assertEquals(await sentAuthorization(), "Bearer one");
  await Deno.remove(file);
  assertEquals(await sentAuthorization(), "Bearer one");
  await Deno.writeTextFile(file, "two");
  assertEquals(await sentAuthorization(), "Bearer two");
  await Deno.remove(file);
});

Deno.test("HttpClient: over TLS, all requests and watches share one connection, and its end is noticed", async () => {
  const [cert, key] = await Promise.all(["server.crt", "server.key"].map((name) => Deno.readTextFile(TLS + name)));
  const server = { ca: { file: `${TLS}ca.crt` } };
  const clock = new FakeClock();
  const keepalive = { readIdleTimeoutMs: 20, pingTimeoutMs: 50, clock };
  await using s = harness({ tls: { cert: cert!, key: key! }, server, ...keepalive });
  const { resourceVersion } = await s.client.list(things);
  const watches = Array.from({ length: 10 }, () => s.client.watch(things, { resourceVersion })[Symbol.asyncIterator]());
  const first = watches.map((watch) => watch.next());
  await Promise.all(Array.from({ length: 20 }, () => s.client.get(things, { name: "a" })));
  await s.client.patch(things, { name: "a" }, { merge: { spec: { size: "2" } } });
  assertEquals((await Promise.all(first)).map(({ value }) => value.object.spec), Array(10).fill({ size: "2" }));
  assertEquals(s.network.connections, 1);
  s.network.freeze();
  const next = watches.map((watch) => assertRejects(() => watch.next(), ApiError));
  await clock.advance(20);
  await clock.advance(50);
  for (const error of await Promise.all(next)) {
    assertEquals(error.message, "watch things: no sign of life: no answer within 50 ms");
  }
  s.network.thaw();
  await s.client.get(things, { name: "a" });
  assertEquals(s.network.connections, 1);
});

Deno.test("HttpClient: watches that end and begin while a sign of life is awaited leave one look at the connection, not two", async () => {
  const clock = new FakeClock();
  await using s = harness({ readIdleTimeoutMs: 20, pingTimeoutMs: 50, clock });
  const { resourceVersion } = await s.client.list(things);
  const watch = (signal: AbortSignal) =>
    s.client.watch(things, { resourceVersion, signal })[Symbol.asyncIterator]().next().catch(() => {});
  const [first, second] = [new AbortController(), new AbortController()];
  const ended = watch(first.signal);
  await waitUntil(() => s.fake.watchCount > 0, "a watch");
  s.network.freeze();
  await clock.advance(20); // a ping is under way
  first.abort();
  await ended;
  const running = watch(second.signal);
  s.network.thaw();
  await waitUntil(() => s.fake.watchCount > 0, "a watch");
  for (let turn = 0; turn < 20; turn++) await flushPromises(); // the answer to the ping comes
  second.abort();
  await running;
  for (const start = performance.now(); clock.pendingTimers > 0 && performance.now() - start < 5_000;) {
    await flushPromises();
  }
  assertEquals(clock.pendingTimers, 0, "somebody still waits, and nobody would end that");
});

Deno.test("HttpClient: a server that the certificate does not speak for is not talked to", async () => {
  const [cert, key] = await Promise.all(["server.crt", "server.key"].map((name) => Deno.readTextFile(TLS + name)));
  await using s = harness({ tls: { cert: cert!, key: key! } });
  const error = await assertRejects(() => s.client.create(things, { metadata: { name: "b" } }), ApiError);
  assertEquals([error.reason, s.fake.requests.length], ["Unreachable", 0]);
});

Deno.test("HttpClient: says why the API server cannot be used, once it has accepted no request for a minute", async () => {
  const clock = new FakeClock();
  await using s = harness({ clock });
  const get = () => s.client.get(things, { name: "a" }).catch(() => {});
  const post = () => s.client.create(things, { metadata: { name: "b" } }).catch(() => {});
  assertEquals(s.client.unavailableReason(), "the API server has not answered yet");
  await get();
  assertEquals(s.client.unavailableReason(), undefined);
  s.network.refuse();
  await clock.advance(60_000);
  await post();
  assertEquals(s.client.unavailableReason(), undefined);
  await clock.advance(1);
  assertMatch(
    s.client.unavailableReason() ?? "",
    /^the API server has accepted no request for 60 s: .*connection refused/i,
  );
  s.network.allow();
  await get();
  assertEquals(s.client.unavailableReason(), undefined);
  for (const [status, reason] of [[401, "HTTP 401"], [503, "HTTP 503"]] as const) {
    await clock.advance(75_000);
    s.fake.faults.refuse = { status, times: 1 };
    await post();
    assertEquals(s.client.unavailableReason(), `the API server has accepted no request for 75 s: ${reason}`);
    await get();
    assertEquals(s.client.unavailableReason(), undefined);
  }
});

Deno.test("HttpClient: an event of a watch shows that the API server can be used", async () => {
  const clock = new FakeClock();
  await using s = harness({ clock, readIdleTimeoutMs: 300_000 });
  const { resourceVersion } = await s.client.list(things);
  const watch = s.client.watch(things, { resourceVersion })[Symbol.asyncIterator]();
  const first = watch.next();
  await waitUntil(() => s.fake.watchCount > 0, "a watch");
  await clock.advance(61_000);
  assertEquals(s.client.unavailableReason(), "the API server has accepted no request for 61 s");
  s.fake.put(things, { metadata: { name: "b" } });
  await first;
  assertEquals(s.client.unavailableReason(), undefined);
  await watch.return(undefined);
});

Deno.test("HttpClient: fetches long lists in pages, and answers what is no object with an error", async () => {
  await using s = harness({ pageSize: 2 });
  for (const name of ["b", "c", "d", "e"]) s.fake.put(things, { metadata: { name } });
  const { items } = await s.client.list(things);
  assertEquals(items.map(({ metadata }) => metadata.name), ["a", "b", "c", "d", "e"]);
  assertEquals(s.answers, Array(3).fill("list things 200"));
});
