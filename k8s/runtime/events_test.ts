import { assertEquals } from "@std/assert";
import { trackedClient } from "../../tests/fake/cluster/tracked_client.ts";
import { FakeApiServer } from "../../tests/fake/cluster/api_server.ts";
import { FakeClock, flushPromises } from "../../tests/fake/clock.ts";
import { type ApiClient, ApiError } from "../client/client.ts";
import { EventRecorder, type EventRecorderOptions } from "./events.ts";
import { HttpClient } from "../client/http_client.ts";
import { events, persistentVolumeClaims, persistentVolumes } from "../api/objects.ts";

function harness(options: Partial<EventRecorderOptions> = {}) {
  const fake = FakeApiServer.start();
  const http = new HttpClient({ url: fake.url }, { userAgent: "denolith/test (events)" });
  const { client, advance } = trackedClient(http);
  const clock = new FakeClock();
  const recorder = new EventRecorder<string>(client, {
    component: "lvm.denolith.dev/test",
    instance: "node-1",
    clock,
    ...options,
  });
  const claim = fake.put(persistentVolumeClaims, { metadata: { name: "data", namespace: "shop" } });
  return {
    fake,
    claim,
    recorder,
    pass: (ms: number) => advance(clock, ms),
    written: () => fake.objects(events).map(({ reason, count }) => `${reason} ${count}`),
    [Symbol.asyncDispose]: async () => {
      const stopped = recorder.stop(1_000);
      await advance(clock, 2_000);
      await stopped;
      http[Symbol.dispose]();
      await fake[Symbol.asyncDispose]();
    },
  };
}

Deno.test("EventRecorder: an event names its object, its reporter, and what happened", async () => {
  await using s = harness();
  s.recorder.record(s.claim, "Warning", "ProvisioningFailed", "no volume group has room");
  await s.pass(0);
  const [event] = s.fake.objects(events);
  const { name, namespace, uid, resourceVersion } = s.claim.metadata;
  assertEquals<unknown>(event?.involvedObject, {
    apiVersion: "v1",
    kind: "PersistentVolumeClaim",
    name,
    namespace,
    uid,
    resourceVersion,
  });
  assertEquals([event?.metadata.namespace, event?.type, event?.count], ["shop", "Warning", 1]);
  assertEquals([event?.reason, event?.message], ["ProvisioningFailed", "no volume group has room"]);
  assertEquals([event?.source, event?.reportingInstance], [
    { component: "lvm.denolith.dev/test", host: "node-1" },
    "node-1",
  ]);
});

Deno.test("EventRecorder: of a cluster-scoped object it goes to the namespace default; a long message is cut, not within a character", async () => {
  await using s = harness();
  const volume = s.fake.put(persistentVolumes, { metadata: { name: "pv" } });
  s.recorder.record(volume, "Normal", "Long", "x".repeat(2000));
  s.recorder.record(volume, "Normal", "Emoji", "x".repeat(1022) + "😀".repeat(100));
  await s.pass(0);
  const [event, emoji] = s.fake.objects(events).sort((a, b) => a.reason! < b.reason! ? 1 : -1);
  assertEquals([event?.metadata.namespace, event?.message?.length], ["default", 1024]);
  assertEquals(emoji?.message, "x".repeat(1022) + "…");
});

Deno.test("EventRecorder: what is said again is counted, and written every ten seconds at most", async () => {
  await using s = harness();
  for (let time = 0; time < 49; time++) {
    s.recorder.record(s.claim, "Normal", "Again", "still so");
    await s.pass(200);
  }
  assertEquals(s.written(), ["Again 1"]);
  await s.pass(10_000);
  assertEquals(s.written(), ["Again 49"]);
  assertEquals(s.fake.requests.map(({ method }) => method), ["POST", "PATCH"]);
});

Deno.test("EventRecorder creates an event again that the server has deleted", async () => {
  await using s = harness();
  s.recorder.record(s.claim, "Normal", "Again", "still so");
  await s.pass(0);
  using other = new HttpClient({ url: s.fake.url }, { userAgent: "someone else" });
  await other.delete(events, s.fake.objects(events)[0]!.metadata as { name: string; namespace: string });
  s.recorder.record(s.claim, "Normal", "Again", "still so");
  await s.pass(10_000);
  assertEquals(s.written(), ["Again 2"]);
});

Deno.test("EventRecorder: many different ones are spread over time", async () => {
  await using s = harness({ burst: 3 });
  for (let one = 0; one < 6; one++) s.recorder.record(s.claim, "Normal", `Reason${one}`, "so it is");
  await s.pass(0);
  assertEquals(s.written().length, 3);
  await s.pass(3_000);
  assertEquals(s.written().length, 6);
});

Deno.test("EventRecorder retries while the server is unreachable, but not after a refusal; neither fails the caller", async () => {
  await using s = harness();
  s.fake.faults.refuse = { status: 500, times: 2 };
  s.recorder.record(s.claim, "Normal", "Later", "so it is");
  await s.pass(5_000);
  assertEquals(s.written(), ["Later 1"]);
  s.fake.faults.refuse = { status: 403, times: 1 };
  s.recorder.record(s.claim, "Normal", "Never", "so it is");
  await s.pass(60_000);
  assertEquals(s.written(), ["Later 1"]);
});

Deno.test("EventRecorder: what is said at the very moment at which an earlier event is written is written, too", async () => {
  for (let moment = 0; moment < 20; moment++) {
    const answer = Promise.withResolvers<void>();
    const written: string[] = [];
    const client = {
      create: (_: unknown, { reason }: { reason: string }) => {
        written.push(reason);
        return reason === "First" ? answer.promise : Promise.resolve();
      },
    } as unknown as ApiClient;
    const recorder = new EventRecorder<string>(client, { component: "test", instance: "test", clock: new FakeClock() });
    const object = { kind: "Node", metadata: { name: "n1" } };
    recorder.record(object, "Normal", "First", "");
    await flushPromises();
    answer.resolve();
    for (let step = 0; step < moment; step++) await Promise.resolve();
    recorder.record(object, "Normal", "Second", "");
    await flushPromises();
    assertEquals(written, ["First", "Second"], `after ${moment} steps`);
  }
});

/** A recorder over a client that only notes the reasons of what is written, and objects to record events about. */
function writer(options: Partial<EventRecorderOptions> = {}) {
  const clock = new FakeClock();
  const writes: string[] = [];
  const server = { isAway: false };
  const write = (reason: string) => {
    if (server.isAway) return Promise.reject(new ApiError("away", { status: 503, reason: "Unavailable" }));
    writes.push(reason);
    return Promise.resolve({});
  };
  const client = {
    create: (_: unknown, { reason }: { reason: string }) => write(reason),
    patch: (_: unknown, __: unknown, { merge: { count } }: { merge: { count: number } }) => write(`count ${count}`),
  } as unknown as ApiClient;
  const recorder = new EventRecorder<string>(client, { component: "test", instance: "test", clock, ...options });
  const claim = (index: number) => ({
    kind: "PersistentVolumeClaim",
    metadata: { name: `claim-${index}`, namespace: "shop", uid: `uid-${index}` },
  });
  return { clock, writes, server, recorder, claim };
}

Deno.test("EventRecorder: the failures of 300 claims are written within seconds, although each has another event", async () => {
  const { clock, writes, recorder, claim } = writer();
  for (let index = 0; index < 300; index++) {
    recorder.record(claim(index), "Normal", "Provisioning", "creating a volume");
    recorder.record(claim(index), "Warning", "ProvisioningFailed", "no space");
  }
  await clock.advance(15_000);
  assertEquals(writes.filter((reason) => reason === "ProvisioningFailed").length, 300);
  await clock.advance(15_000);
  assertEquals(writes.length, 600);
});

Deno.test("EventRecorder: a warning is written before what waits, and what is new before what is repeated", async () => {
  const { clock, writes, recorder, claim } = writer({ burst: 1, refillIntervalMs: 1_000, repeatIntervalMs: 1_000 });
  recorder.record(claim(0), "Warning", "Old", "");
  await clock.advance(2_000);
  for (let time = 0; time < 2; time++) recorder.record(claim(0), "Warning", "Old", "");
  recorder.record(claim(1), "Normal", "Normal1", "");
  recorder.record(claim(1), "Normal", "Normal2", "");
  recorder.record(claim(2), "Warning", "Warning", "");
  await clock.advance(10_000);
  // the second write was begun before the others were recorded
  assertEquals(writes, ["Old", "count 2", "Warning", "Normal1", "Normal2", "count 3"]);
});

Deno.test("EventRecorder: while the server is away it keeps 1,000 events, warnings first, and counts those it drops", async () => {
  let dropped = 0;
  const { clock, writes, server, recorder, claim } = writer({ onDropped: () => dropped++ });
  server.isAway = true;
  recorder.record(claim(-1), "Normal", "First", "");
  await clock.advance(0); // it is being written
  for (let index = 0; index < 10; index++) recorder.record(claim(index), "Warning", "Warning", "");
  for (let index = 0; index < 3_000; index++) recorder.record(claim(index), "Normal", "Normal", "");
  for (let index = 10; index < 20; index++) recorder.record(claim(index), "Warning", "Warning", "");
  assertEquals(dropped, 2_020);
  server.isAway = false;
  await clock.advance(120_000);
  assertEquals(writes.slice(1, 21), Array(20).fill("Warning"));
  assertEquals(writes.length, 1_001);
});

Deno.test("EventRecorder: an object has 25 writes and one more every five minutes; others do not wait for it", async () => {
  let dropped = 0;
  const { clock, writes, recorder, claim } = writer({ onDropped: () => dropped++ });
  for (let index = 0; index < 40; index++) recorder.record(claim(0), "Warning", `Loud${index}`, "");
  recorder.record(claim(1), "Warning", "Quiet", "");
  await clock.advance(10_000);
  assertEquals([writes.length, writes.includes("Quiet"), dropped], [26, true, 15]);
  await clock.advance(300_000);
  recorder.record(claim(0), "Warning", "Loud39", "");
  recorder.record(claim(0), "Warning", "Loud38", "");
  await clock.advance(10_000);
  assertEquals(writes.slice(26), ["Loud39"]);
});

Deno.test("EventRecorder: after ten messages of one reason the further ones are combined in one event", async () => {
  await using s = harness();
  for (let index = 0; index < 13; index++) s.recorder.record(s.claim, "Warning", "Failed", `${index} MiB free`);
  await s.pass(60_000);
  const messages = s.fake.objects(events).map(({ message, count }) => `${message} ${count}`);
  assertEquals(messages.length, 11);
  assertEquals(messages.at(-1), "(combined from similar events): 12 MiB free 3");
  s.recorder.record(s.claim, "Warning", "Failed", "0 MiB free");
  s.recorder.record(s.claim, "Warning", "Failed", "99 MiB free");
  await s.pass(60_000);
  const counts = s.fake.objects(events).map(({ message, count }) => `${message} ${count}`);
  assertEquals([counts.length, counts[0], counts.at(-1)], [
    11,
    "0 MiB free 2",
    "(combined from similar events): 99 MiB free 4",
  ]);
  await s.pass(700_000);
  s.recorder.record(s.claim, "Warning", "Failed", "100 MiB free");
  await s.pass(0);
  assertEquals(s.fake.objects(events).at(-1)?.message, "100 MiB free");
});

Deno.test("EventRecorder tries five times while the server does not answer", async () => {
  await using s = harness();
  const attempts = () => s.fake.requests.filter(({ method }) => method === "POST").length;
  s.fake.faults.refuse = { status: 500, times: 100 };
  s.recorder.record(s.claim, "Normal", "Never", "so it is");
  for (let minute = 0; minute < 10; minute++) await s.pass(60_000);
  assertEquals([attempts(), s.written()], [5, []]);
});
