import { assertEquals, assertMatch } from "@std/assert";
import { until } from "../../tests/fake/cluster.ts";
import { FakeClock } from "../../tests/fake/clock.ts";
import { FakeNetwork } from "../../tests/fake/network.ts";
import { idOf, SnapshotCluster } from "../../tests/fake/snapshots.ts";
import { CallError, Code } from "../sidecars/csi_client.ts";
import { HttpClient } from "../client/http_client.ts";
import { volumeSnapshotClasses, volumeSnapshotContents } from "../api/snapshot_objects.ts";
import { Snapshotter } from "./snapshotter.ts";

/** A cluster and a snapshotter that runs. */
async function scene() {
  const snapshots = await SnapshotCluster.start();
  snapshots.run();
  return snapshots;
}

/** The requests about snapshots that were no part of listing and watching, in short: the method, and of what. */
function writes(s: SnapshotCluster): string[] {
  const path = "/apis/snapshot.storage.k8s.io/v1/volumesnapshotcontents/content";
  return s.cluster.asked().map((one) => one.replace(path, "").trim());
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
    await using s = await scene();
    const gate = Promise.withResolvers<void>();
    s.driver.next("createSnapshot", { error });
    s.driver.next("createSnapshot", { error, until: gate.promise });
    s.add();
    await until(() => s.driver.count("createSnapshot") === 2, "the repetition");
    assertEquals(s.state().content, { guarded: true, begun: true, handle: undefined });
    gate.resolve();
    await s.ready();
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
    await using s = await scene();
    const gate = Promise.withResolvers<void>();
    s.driver.next("createSnapshot", { error: new CallError(code, "snapSize 200%: too much") });
    s.driver.next("createSnapshot", { until: gate.promise });
    s.add();
    const { status, metadata } = (await s.when((now) => now?.status?.error !== undefined))!;
    assertEquals([status!.error!.message, status!.readyToUse], ["snapSize 200%: too much", false]);
    assertMatch(status!.error!.time!, /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$/);
    assertEquals(metadata.annotations ?? {}, {});
    assertEquals(await s.cluster.event("SnapshotCreationFailed"), "snapSize 200%: too much");
    gate.resolve();
    assertEquals((await s.ready()).status!.error, undefined);
    assertEquals(s.driver.count("createSnapshot"), 2);
  });
}

Deno.test("that another call for the same snapshot is under way is told nobody", async () => {
  await using s = await scene();
  s.driver.next("createSnapshot", { error: new CallError(Code.Aborted, "busy") });
  s.add();
  await s.ready();
  s.driver.next("deleteSnapshot", { error: new CallError(Code.Aborted, "busy") });
  await s.leave();
  await s.gone();
  assertEquals(s.cluster.reasons(), []);
});

/** A snapshotter whose time stands still, and a content whose snapshot has failed six times. */
async function longFailed(code: number) {
  const s = await SnapshotCluster.start();
  const clock = new FakeClock();
  const turns: unknown[] = [];
  const snapshotter = new Snapshotter({
    ...s.options(),
    clock,
    backoff: { startMs: 1_000, capMs: 300_000 },
    onTurn: ({ error }) => turns.push(error),
  });
  s.cluster.run((signal) => snapshotter.run(signal));
  s.addClass("odd", {});
  for (let n = 0; n < 6; n++) s.driver.next("createSnapshot", { error: new CallError(code, `no, ${n}`) });
  s.add("content", { spec: { volumeSnapshotClassName: "odd" } });
  const failed = (times: number) => until(() => turns.length === times, `${times} failures`);
  await failed(1);
  for (let times = 2; times <= 6; times++) {
    await clock.advance(clock.untilNext);
    await failed(times);
  }
  // The next turn would come in half a minute.
  return { s, clock, snapshotter, failed, [Symbol.asyncDispose]: () => s[Symbol.asyncDispose]() };
}

Deno.test("what fails for long is tried ever more rarely, whatever the loop itself writes of it", async () => {
  await using f = await longFailed(Code.Internal);
  await f.s.when((now) => now?.status?.error?.message === "no, 5");
  assertEquals(f.clock.untilNext, 24_000);
  await f.clock.advance(23_000);
  assertEquals(f.s.driver.count("createSnapshot"), 6);
  await f.clock.advance(1_000);
  await f.s.ready();
});

Deno.test("what failed for long is tried again within a second of a change of its class", async () => {
  await using f = await longFailed(Code.InvalidArgument);
  await f.s.cluster.remove(volumeSnapshotClasses, { name: "odd" });
  // each change may be seen by itself, and brings a turn of its own
  await until(() => f.clock.untilNext <= 1_000, "an earlier turn");
  await f.clock.advance(1_000);
  f.s.addClass("odd", { snapSize: "1%" });
  await until(() => f.clock.untilNext <= 1_000, "an earlier turn");
  await f.clock.advance(1_000);
  await f.s.ready();
});

Deno.test("what failed for want of space is tried again within a second of more being there", async () => {
  await using f = await longFailed(Code.ResourceExhausted);
  f.snapshotter.poke();
  await f.clock.advance(1_000);
  await f.s.ready();
});

Deno.test("what failed for another reason does not care for more space", async () => {
  await using f = await longFailed(Code.Internal);
  f.snapshotter.poke();
  assertEquals(f.clock.untilNext, 24_000);
});

Deno.test("what failed for long goes within a second when its VolumeSnapshot is deleted", async () => {
  await using f = await longFailed(Code.Internal);
  await f.s.leave();
  await until(() => f.clock.untilNext <= 1_000, "an earlier turn");
  await f.clock.advance(1_000);
  await f.s.gone();
  assertEquals(f.s.driver.count("deleteSnapshot"), 0);
});

Deno.test("a secret that cannot be read is told, and one that went before its snapshot does not keep that from going", async () => {
  await using s = await scene();
  const annotation = "snapshot.storage.kubernetes.io/deletion-secret";
  const annotations = { [`${annotation}-name`]: "gone", [`${annotation}-namespace`]: "system" };
  s.add("content", { metadata: { annotations } });
  assertMatch(await s.cluster.event("SnapshotCreationFailed"), /^get secrets gone: NotFound/);
  assertEquals(s.driver.calls, []);
  s.add("other");
  await s.ready("other");
  await s.patch("other", { metadata: { annotations } });
  await s.leave("other");
  await s.gone("other");
  assertEquals(s.driver.snapshots.size, 0);
});

Deno.test("an API server that is away for a while costs no second snapshot", async () => {
  await using s = await scene();
  const gate = Promise.withResolvers<void>();
  s.driver.next("createSnapshot", { until: gate.promise });
  const called = s.driver.called("createSnapshot");
  s.add();
  await called;
  s.cluster.api.faults.refuse = { status: 500, times: 5 };
  gate.resolve();
  await s.ready();
  assertEquals([s.driver.snapshots.size, s.cluster.reasons()], [1, []]);
});

Deno.test("changes by others between any two writes cost no second call, and nothing that they wrote", async () => {
  await using s = await scene();
  s.cluster.api.faults.conflicts = 1;
  s.add();
  await s.ready();
  for (let n = 0; n < 3; n++) {
    const gate = Promise.withResolvers<void>();
    s.driver.next("createSnapshot", { until: gate.promise });
    const called = s.driver.called("createSnapshot");
    s.add(`content-${n}`);
    await called;
    await s.patch(`content-${n}`, { metadata: { labels: { mine: "yes" }, annotations: { mine: "yes" } } });
    s.cluster.api.faults.conflicts = n;
    gate.resolve();
    const { metadata } = await s.ready(`content-${n}`);
    assertEquals([metadata.labels, metadata.annotations], [{ mine: "yes" }, { mine: "yes" }]);
  }
  assertEquals(s.driver.count("createSnapshot"), 4);
});

Deno.test("a watch that breaks, and a revision that is too old, keep no content from being seen", async () => {
  await using s = await SnapshotCluster.start();
  const { api } = s.cluster;
  await using network = new FakeNetwork(api.url);
  using client = new HttpClient({ url: network.by(api.url) }, { userAgent: "loop" });
  const stop = s.run({ ...s.options(), client });
  s.add("before");
  await s.ready("before");
  network.refuse();
  s.add("during");
  await s.leave("before");
  api.compact();
  network.allow();
  await s.ready("during");
  await s.gone("before");
  assertEquals(s.state("during").snapshots, [idOf("during")]);
  await stop();
});

Deno.test("without the kinds of snapshots nothing happens, and they are used as soon as they are seen", async () => {
  await using s = await SnapshotCluster.start({ defined: false });
  const turns: string[] = [];
  const stop = s.run({ ...s.options(), onTurn: ({ key }) => turns.push(key) });
  const lists = () =>
    s.cluster.api.requests.filter(({ path, headers }) =>
      path.startsWith("/apis/snapshot.storage.k8s.io/") && headers.get("user-agent") === "loop"
    ).length;
  await until(() => lists() >= 3, "some looks for them");
  assertEquals(turns, []);
  s.define();
  s.addClass("snap", {});
  s.add();
  await s.ready();
  for (const resource of [volumeSnapshotContents, volumeSnapshotClasses]) s.cluster.api.undefine(resource);
  const before = lists();
  await until(() => lists() >= before + 3, "more looks for them");
  s.define();
  s.addClass("snap", {});
  s.add("again");
  await s.ready("again");
  await stop();
});
