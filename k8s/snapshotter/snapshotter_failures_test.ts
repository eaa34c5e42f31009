import { assertEquals, assertMatch } from "@std/assert";
import { waitUntil } from "../../tests/fake/cluster/control_plane.ts";
import { FakeClock } from "../../tests/fake/clock.ts";
import { TcpProxy } from "../../tests/fake/tcp_proxy.ts";
import { SnapshotControlPlane, snapshotHandle, snapshotUid } from "../../tests/fake/cluster/snapshot_control_plane.ts";
import { hangingClient } from "../../tests/fake/cluster/intercepted_client.ts";
import { CallError, Code } from "../sidecars/csi_client.ts";
import { HttpClient } from "../client/http_client.ts";
import { volumeSnapshotClasses, volumeSnapshotContents } from "../api/snapshot_objects.ts";
import { snapshotNameOf } from "./snapshot_content.ts";

/** Starts a cluster and a snapshotter. */
async function harness() {
  const snapshots = await SnapshotControlPlane.start();
  snapshots.run();
  return snapshots;
}

/** Returns the requests about snapshots other than lists and watches: the method and the kind of each. */
function writes(s: SnapshotControlPlane): string[] {
  const path = "/apis/snapshot.storage.k8s.io/v1/volumesnapshotcontents/content";
  return s.controlPlane.requestsOf().map((one) => one.replace(path, "").trim());
}

for (
  const [what, error] of [
    ["Canceled", new CallError(Code.Canceled, "?")],
    ["DeadlineExceeded", new CallError(Code.DeadlineExceeded, "?")],
    ["Unavailable", new CallError(Code.Unavailable, "?")],
    ["Aborted", new CallError(Code.Aborted, "?")],
    ["no code at all", new TypeError("?")],
  ] as const
) {
  Deno.test(`after ${what} a content stays marked, and the request is repeated until its outcome is known`, async () => {
    await using s = await harness();
    const gate = Promise.withResolvers<void>();
    s.driver.injectFault("createSnapshot", { error });
    s.driver.injectFault("createSnapshot", { error, waitFor: gate.promise });
    s.addContent();
    await waitUntil(() => s.driver.callCount("createSnapshot") === 2, "the repetition");
    assertEquals(s.state().content, { guarded: true, begun: true, handle: undefined });
    gate.resolve();
    await s.waitUntilReady();
    const [first, ...others] = s.driver.calls.map(({ request }) => request);
    assertEquals(others, [first!, first!]);
    // It was marked once, and once no longer.
    assertEquals(writes(s).filter((one) => one === "PATCH").length, 2);
  });
}

for (
  const [what, code] of [
    ["InvalidArgument", Code.InvalidArgument],
    ["NotFound", Code.NotFound],
    ["ResourceExhausted", Code.ResourceExhausted],
    ["Internal", Code.Internal],
  ] as const
) {
  Deno.test(`after ${what} a content is not marked any more, says what went wrong, and is tried again`, async () => {
    await using s = await harness();
    const gate = Promise.withResolvers<void>();
    s.driver.injectFault("createSnapshot", { error: new CallError(code, "snapSize 200%: too much") });
    s.driver.injectFault("createSnapshot", { waitFor: gate.promise });
    s.addContent();
    const { status, metadata } = (await s.waitFor((now) => now?.status?.error !== undefined))!;
    assertEquals([status!.error!.message, status!.readyToUse], ["snapSize 200%: too much", false]);
    assertMatch(status!.error!.time!, /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$/);
    assertEquals(metadata.annotations ?? {}, {});
    assertEquals(await s.controlPlane.waitForEvent("SnapshotCreationFailed"), "snapSize 200%: too much");
    gate.resolve();
    assertEquals((await s.waitUntilReady()).status!.error, undefined);
    assertEquals(s.driver.callCount("createSnapshot"), 2);
  });
}

/** Starts a snapshotter with a fake clock, and a content whose snapshot has failed six times. */
async function harnessAfterFailures(code: number) {
  const s = await SnapshotControlPlane.start();
  const clock = new FakeClock();
  const results: unknown[] = [];
  s.run({
    ...s.options(),
    clock,
    backoff: { startMs: 1_000, capMs: 300_000 },
    onReconciled: ({ error }) => results.push(error),
  });
  s.addSnapshotClass("odd", {});
  for (let n = 0; n < 6; n++) s.driver.injectFault("createSnapshot", { error: new CallError(code, `no, ${n}`) });
  s.addContent("content", { spec: { volumeSnapshotClassName: "odd" } });
  const waitForFailures = (times: number) => waitUntil(() => results.length === times, `${times} failures`);
  await waitForFailures(1);
  for (let times = 2; times <= 6; times++) {
    await clock.advance(clock.msUntilNextTimer);
    await waitForFailures(times);
  }
  // The next turn would come in half a minute.
  return { s, clock, waitForFailures, [Symbol.asyncDispose]: () => s[Symbol.asyncDispose]() };
}

Deno.test("what fails for long is tried ever more rarely, whatever the loop itself writes of it", async () => {
  await using f = await harnessAfterFailures(Code.Internal);
  await f.s.waitFor((now) => now?.status?.error?.message === "no, 5");
  assertEquals(f.clock.msUntilNextTimer, 24_000);
  await f.clock.advance(23_000);
  assertEquals(f.s.driver.callCount("createSnapshot"), 6);
  await f.clock.advance(1_000);
  await f.s.waitUntilReady();
});

Deno.test("what failed for long is tried again within a second of a change of its class", async () => {
  await using f = await harnessAfterFailures(Code.InvalidArgument);
  await f.s.controlPlane.remove(volumeSnapshotClasses, { name: "odd" });
  // each change may be seen by itself, and brings a turn of its own
  await waitUntil(() => f.clock.msUntilNextTimer <= 1_000, "an earlier turn");
  await f.clock.advance(1_000);
  f.s.addSnapshotClass("odd", { snapSize: "1%" });
  await waitUntil(() => f.clock.msUntilNextTimer <= 1_000, "an earlier turn");
  await f.clock.advance(1_000);
  await f.s.waitUntilReady();
});

Deno.test("a snapshot that failed for lack of space is retried within a second after space became free", async () => {
  await using f = await harnessAfterFailures(Code.ResourceExhausted);
  f.s.controlPlane.wakeUps.wake("space", { nodeName: "a", largestBytes: 1n << 50n });
  await f.clock.advance(1_000);
  await f.s.waitUntilReady();
});

Deno.test("what failed for another reason does not care for more space", async () => {
  await using f = await harnessAfterFailures(Code.Internal);
  f.s.controlPlane.wakeUps.wake("space", { nodeName: "a", largestBytes: 1n << 50n });
  assertEquals(f.clock.msUntilNextTimer, 24_000);
});

Deno.test("what failed for long goes within a second when its VolumeSnapshot is deleted", async () => {
  await using f = await harnessAfterFailures(Code.Internal);
  await f.s.releaseContent();
  await waitUntil(() => f.clock.msUntilNextTimer <= 1_000, "an earlier turn");
  await f.clock.advance(1_000);
  await f.s.waitUntilDeleted();
  assertEquals(f.s.driver.callCount("deleteSnapshot"), 0);
});

Deno.test("a secret that cannot be read is reported, and one that is deleted before its snapshot does not block the deletion", async () => {
  await using s = await harness();
  const annotation = "snapshot.storage.kubernetes.io/deletion-secret";
  const annotations = { [`${annotation}-name`]: "gone", [`${annotation}-namespace`]: "system" };
  s.addContent("content", { metadata: { annotations } });
  assertMatch(await s.controlPlane.waitForEvent("SnapshotCreationFailed"), /^get secrets gone: NotFound/);
  assertEquals(s.driver.calls, []);
  s.addContent("other");
  await s.waitUntilReady("other");
  await s.patch("other", { metadata: { annotations } });
  await s.releaseContent("other");
  await s.waitUntilDeleted("other");
  assertEquals(s.driver.snapshots.size, 0);
  s.addContent("third");
  await s.waitUntilReady("third");
  await s.patch("third", { metadata: { annotations } });
  s.controlPlane.api.faults.forbidden.add("secrets"); // the right to read it went with its namespace
  await s.releaseContent("third");
  await s.waitUntilDeleted("third");
});

Deno.test("an API server that is away for a while costs no second snapshot", async () => {
  await using s = await harness();
  const gate = Promise.withResolvers<void>();
  s.driver.injectFault("createSnapshot", { waitFor: gate.promise });
  const called = s.driver.waitForCall("createSnapshot");
  s.addContent();
  await called;
  s.controlPlane.api.faults.refuse = { status: 500, times: 5 };
  gate.resolve();
  await s.waitUntilReady();
  assertEquals([s.driver.snapshots.size, s.controlPlane.eventReasons()], [1, []]);
});

Deno.test("changes by others between any two writes cost no second call, and nothing that they wrote", async () => {
  await using s = await harness();
  s.controlPlane.api.faults.conflicts = 1;
  s.addContent();
  await s.waitUntilReady();
  for (let n = 0; n < 3; n++) {
    const gate = Promise.withResolvers<void>();
    s.driver.injectFault("createSnapshot", { waitFor: gate.promise });
    const called = s.driver.waitForCall("createSnapshot");
    s.addContent(`content-${n}`);
    await called;
    await s.patch(`content-${n}`, { metadata: { labels: { mine: "yes" }, annotations: { mine: "yes" } } });
    s.controlPlane.api.faults.conflicts = n;
    gate.resolve();
    const { metadata } = await s.waitUntilReady(`content-${n}`);
    assertEquals([metadata.labels, metadata.annotations], [{ mine: "yes" }, { mine: "yes" }]);
  }
  assertEquals(s.driver.callCount("createSnapshot"), 4);
});

Deno.test("a watch that breaks, and a revision that is too old, keep no content from being seen", async () => {
  await using s = await SnapshotControlPlane.start();
  const { api } = s.controlPlane;
  await using network = new TcpProxy(api.url);
  using client = new HttpClient({ url: network.urlThrough(api.url) }, { userAgent: "loop" });
  const stop = s.run({ ...s.options(), client });
  s.addContent("before");
  await s.waitUntilReady("before");
  network.refuse();
  s.addContent("during");
  await s.releaseContent("before");
  api.compact();
  network.allow();
  await s.waitUntilReady("during");
  await s.waitUntilDeleted("before");
  assertEquals(s.state("during").snapshots, [snapshotHandle("during")]);
  await stop();
});

Deno.test("without the kinds of snapshots nothing happens, and they are used as soon as they are seen", async () => {
  await using s = await SnapshotControlPlane.start({ withKinds: false });
  const results: string[] = [];
  const stop = s.run({ ...s.options(), onReconciled: ({ key }) => results.push(key) });
  const lists = () =>
    s.controlPlane.api.requests.filter(({ path, headers }) =>
      path.startsWith("/apis/snapshot.storage.k8s.io/") && headers.get("user-agent") === "loop"
    ).length;
  await waitUntil(() => lists() >= 3, "some looks for them");
  assertEquals(results, []);
  s.addKinds();
  s.addSnapshotClass("snap", {});
  s.addContent();
  await s.waitUntilReady();
  for (const resource of [volumeSnapshotContents, volumeSnapshotClasses]) s.controlPlane.api.removeResource(resource);
  const before = lists();
  await waitUntil(() => lists() >= before + 3, "more looks for them");
  s.addKinds();
  s.addSnapshotClass("snap", {});
  s.addContent("again");
  await s.waitUntilReady("again");
  await stop();
});

Deno.test("a content that was deleted while its snapshot was being taken waits for nothing any more", async () => {
  await using s = await SnapshotControlPlane.start();
  const reconciled: string[] = [];
  s.run({
    ...s.options(),
    onReconciled: ({ key }) => void reconciled.push(key),
    backoff: { startMs: 600_000, capMs: 600_000 },
  });
  s.driver.injectFault("createSnapshot", { error: new CallError(Code.Unavailable, "?") });
  s.addContent("gone");
  await waitUntil(() => reconciled.length > 0, "the attempt");
  await s.patch("gone", { metadata: { finalizers: [] } });
  await s.remove("gone");
  s.addContent("next"); // which is seen after the end of the first
  await waitUntil(() => reconciled.includes("next"), "the next content");
  const count = reconciled.length;
  s.controlPlane.wakeUps.wake("request", snapshotNameOf(snapshotUid("gone")));
  await s.waitUntilReady("next");
  assertEquals(reconciled.slice(count).filter((key) => key === "gone"), []);
});

Deno.test("a snapshotter that ends does not wait for the status of a content", async () => {
  await using s = await SnapshotControlPlane.start();
  const options = s.options();
  const hanging = hangingClient(options.client, "patch volumesnapshotcontents");
  const stop = s.run({ ...options, client: hanging.client });
  s.addContent();
  await hanging.asked;
  const stopped = stop();
  assertEquals(await hanging.ended, "aborted");
  await stopped;
});

Deno.test("a snapshot without space is tried again only when the node of its volume has more", async () => {
  await using s = await SnapshotControlPlane.start();
  const nodeOfVolume = (handle: string) => handle === "v1" ? "a" : undefined;
  s.run({ ...s.options(), nodeOfVolume, backoff: { startMs: 600_000, capMs: 600_000 } });
  s.driver.injectFault("createSnapshot", { error: new CallError(Code.ResourceExhausted, "vg is full") });
  s.addContent();
  await s.controlPlane.waitForEvent("SnapshotCreationFailed");
  s.controlPlane.wakeUps.wake("space", { nodeName: "b", largestBytes: 1n << 50n });
  await new Promise((resolve) => setTimeout(resolve, 50));
  assertEquals(s.driver.callCount("createSnapshot"), 1);
  s.controlPlane.wakeUps.wake("space", { nodeName: "a", largestBytes: 1n << 50n });
  await s.waitUntilReady();
});
