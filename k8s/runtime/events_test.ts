import { assertEquals } from "@std/assert";
import { trackedClient } from "../../tests/fake/tracked_client.ts";
import { FakeApiServer } from "../../tests/fake/api_server.ts";
import { FakeClock, flushPromises } from "../../tests/fake/clock.ts";
import type { ApiClient } from "../client/client.ts";
import { EventRecorder } from "./events.ts";
import { HttpClient } from "../client/http_client.ts";
import { events, persistentVolumeClaims, persistentVolumes } from "../api/objects.ts";

function scene(options: { burst?: number } = {}) {
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
  await using s = scene();
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

Deno.test("EventRecorder: of a cluster-scoped object it goes to the namespace default; a long message is cut", async () => {
  await using s = scene();
  const volume = s.fake.put(persistentVolumes, { metadata: { name: "pv" } });
  s.recorder.record(volume, "Normal", "Long", "x".repeat(2000));
  await s.pass(0);
  const [event] = s.fake.objects(events);
  assertEquals([event?.metadata.namespace, event?.message?.length], ["default", 1024]);
});

Deno.test("EventRecorder: what is said again is counted, and written every ten seconds at most", async () => {
  await using s = scene();
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
  await using s = scene();
  s.recorder.record(s.claim, "Normal", "Again", "still so");
  await s.pass(0);
  using other = new HttpClient({ url: s.fake.url }, { userAgent: "someone else" });
  await other.delete(events, s.fake.objects(events)[0]!.metadata as { name: string; namespace: string });
  s.recorder.record(s.claim, "Normal", "Again", "still so");
  await s.pass(10_000);
  assertEquals(s.written(), ["Again 2"]);
});

Deno.test("EventRecorder: many different ones are spread over time", async () => {
  await using s = scene({ burst: 3 });
  for (let one = 0; one < 6; one++) s.recorder.record(s.claim, "Normal", `Reason${one}`, "so it is");
  await s.pass(0);
  assertEquals(s.written().length, 3);
  await s.pass(3_000);
  assertEquals(s.written().length, 6);
});

Deno.test("EventRecorder retries while the server is unreachable, but not after a refusal; neither fails the caller", async () => {
  await using s = scene();
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
