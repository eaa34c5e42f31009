import { assertEquals, assertMatch } from "@std/assert";
import { until } from "../../tests/fake/cluster.ts";
import { FakeClock } from "../../tests/fake/clock.ts";
import { TAKEN_AT } from "../../tests/fake/driver.ts";
import { interrupted } from "../../tests/fake/interrupted_client.ts";
import { idOf, SnapshotCluster, uidOf } from "../../tests/fake/snapshots.ts";
import { CallError, Code } from "../sidecars/csi_client.ts";
import { secrets } from "../sidecars/secrets.ts";
import { Snapshotter } from "./snapshotter.ts";
import { CONTENT_FINALIZER } from "./snapshot_content.ts";
import { volumeSnapshotClasses } from "../api/snapshot_objects.ts";

const PATH = "/apis/snapshot.storage.k8s.io/v1/volumesnapshotcontents/content";
const LEFT_NOTHING = { content: undefined, snapshots: [] };

/** A cluster and a snapshotter that runs. */
async function scene() {
  const snapshots = await SnapshotCluster.start();
  snapshots.run();
  return snapshots;
}

Deno.test("a snapshot is taken, and its content says so, by three requests", async () => {
  await using s = await scene();
  s.add();
  const { status } = await s.ready();
  assertEquals(status, {
    snapshotHandle: idOf("content"),
    creationTime: Number(TAKEN_AT),
    restoreSize: 1 << 30,
    readyToUse: true,
  });
  assertEquals(s.driver.calls, [{
    call: "createSnapshot",
    request: { name: `snapshot-${uidOf("content")}`, volumeId: "v1", parameters: { snapSize: "20%" }, secrets: {} },
  }]);
  assertEquals(s.cluster.asked(), [`PATCH ${PATH}`, `PATCH ${PATH}/status`, `PATCH ${PATH}`]);
  assertEquals(s.cluster.reasons(), []);
});

Deno.test("while a snapshot is being taken, its content says so", async () => {
  await using s = await scene();
  const gate = Promise.withResolvers<void>();
  s.driver.next("createSnapshot", { until: gate.promise });
  const called = s.driver.called("createSnapshot");
  s.add();
  await called;
  assertEquals(s.state().content, { guarded: true, begun: true, handle: undefined });
  gate.resolve();
  await s.ready();
});

Deno.test("secrets are those that the snapshot-controller named, and for looking that of the class", async () => {
  await using s = await scene();
  for (const name of ["taking", "looking-content"]) {
    s.cluster.api.put(secrets, { metadata: { name, namespace: "system" }, data: { key: btoa(name) } });
  }
  const prefix = "csi.storage.k8s.io/snapshotter-list-secret";
  s.addClass("secret", {
    [`${prefix}-name`]: "looking-${volumesnapshotcontent.name}",
    [`${prefix}-namespace`]: "system",
  });
  s.driver.snapshotsReady = false;
  const annotation = "snapshot.storage.kubernetes.io/deletion-secret";
  s.add("content", {
    metadata: { annotations: { [`${annotation}-name`]: "taking", [`${annotation}-namespace`]: "system" } },
    spec: { volumeSnapshotClassName: "secret" },
  });
  await until(() => s.driver.count("findSnapshot") > 0, "a look");
  s.driver.snapshots.get(idOf("content"))!.ready = true;
  await s.ready();
  await s.leave();
  await s.gone();
  const used = new Map(s.driver.calls.map(({ call, request }) => [call, request.secrets]));
  assertEquals(Object.fromEntries(used), {
    createSnapshot: { key: "taking" },
    findSnapshot: { key: "looking-content" },
    deleteSnapshot: { key: "taking" },
  });
});

Deno.test("a snapshot that cannot be used yet is looked at until it can, and taken once", async () => {
  await using s = await scene();
  s.driver.snapshotsReady = false;
  s.add();
  await s.when((now) => now?.status?.readyToUse === false);
  await until(() => s.driver.count("findSnapshot") >= 3, "some looks");
  assertEquals(s.state().content, { guarded: true, begun: false, handle: idOf("content") });
  const writes = s.cluster.asked().length;
  await until(() => s.driver.count("findSnapshot") >= 5, "more looks");
  assertEquals(s.cluster.asked().length, writes);
  s.driver.snapshots.get(idOf("content"))!.ready = true;
  await s.ready();
  assertEquals(s.driver.count("createSnapshot"), 1);
});

Deno.test("looks at a snapshot that cannot be used yet become rarer", async () => {
  await using s = await SnapshotCluster.start();
  const clock = new FakeClock();
  s.run({ ...s.options(), clock, backoff: { startMs: 1_000, capMs: 300_000 } });
  s.driver.snapshotsReady = false;
  s.add();
  await s.when((now) => now?.status?.readyToUse === false && s.state().content?.begun === false);
  // Time stands still until the loop has seen that, too: then one turn waits for it.
  await until(() => clock.untilNext === 750, "the next turn");
  const looks = [];
  for (let seconds = 0; seconds < 60; seconds++) {
    await clock.advance(1_000);
    looks.push(s.driver.count("findSnapshot"));
  }
  assertEquals([looks[0], looks[2], looks[5], looks[11], looks[23], looks[47], looks[59]], [1, 2, 3, 4, 5, 6, 6]);
});

Deno.test("a snapshot that was there before has its content filled in, and nothing is taken", async () => {
  await using s = await scene();
  s.add("before");
  await s.ready("before");
  const spec = {
    source: { snapshotHandle: idOf("before") },
    volumeSnapshotRef: { namespace: "default", name: "given" },
  };
  s.add("content", { metadata: { finalizers: [] }, spec });
  const { status } = await s.ready();
  assertEquals(status, {
    snapshotHandle: idOf("before"),
    creationTime: Number(TAKEN_AT),
    restoreSize: 1 << 30,
    readyToUse: true,
  });
  assertEquals([s.driver.count("createSnapshot"), s.driver.count("findSnapshot")], [1, 1]);
});

Deno.test("a snapshot that was there before and is not found is said to be missing, and looked for until it comes", async () => {
  await using s = await scene();
  const handle = idOf("other");
  s.add("content", { spec: { source: { snapshotHandle: handle } } });
  const message = `looking for snapshot ${handle}: lvm.denolith.dev has none of that handle`;
  assertEquals(await s.cluster.event("SnapshotContentCheckandUpdateFailed"), message);
  const failed = await s.when((now) => now?.status?.error !== undefined);
  assertEquals([failed!.status!.error!.message, failed!.status!.readyToUse], [message, false]);
  s.add("other");
  assertEquals((await s.ready()).status!.error, undefined);
  assertEquals(s.driver.count("createSnapshot"), 1);
});

Deno.test("a snapshot whose VolumeSnapshot is deleted is removed, then its content, by two requests", async () => {
  await using s = await scene();
  s.add("content", { metadata: { finalizers: ["other", CONTENT_FINALIZER] } });
  await s.ready();
  const before = s.cluster.asked().length;
  await s.leave();
  await s.when((now) => now?.metadata.finalizers?.length === 1);
  assertEquals(s.cluster.asked().slice(before), [`GET ${PATH}`, `PATCH ${PATH}`]);
  assertEquals(s.kept()!.metadata.finalizers, ["other"]);
  assertEquals([s.driver.snapshots.size, s.driver.count("deleteSnapshot")], [0, 1]);
  await s.patch("content", { metadata: { finalizers: [] } });
  await s.gone();
  assertEquals(s.driver.count("deleteSnapshot"), 1);
});

Deno.test("a snapshot that cannot be removed keeps its content, whose events say why, until it can", async () => {
  await using s = await scene();
  const refusal = { error: new CallError(Code.FailedPrecondition, "a volume is being made from it") };
  for (let n = 0; n < 3; n++) s.driver.next("deleteSnapshot", refusal);
  s.add();
  await s.ready();
  await s.leave();
  assertEquals(await s.cluster.event("SnapshotDeleteError"), "a volume is being made from it");
  await s.gone();
  assertEquals([s.driver.count("deleteSnapshot"), s.driver.snapshots.size], [4, 0]);
});

Deno.test("with the policy Retain the snapshot stays, with its content until that is deleted", async () => {
  await using s = await scene();
  s.add("content", { spec: { deletionPolicy: "Retain" } });
  s.add("other");
  await Promise.all([s.ready(), s.ready("other")]);
  const before = s.cluster.asked().length;
  await s.leave();
  await s.leave("other");
  await s.gone("other");
  assertEquals(s.cluster.asked().slice(before).filter((one) => one.includes(PATH)), []);
  await s.remove();
  await s.gone();
  assertEquals(s.state(), { content: undefined, snapshots: [idOf("content")] });
  assertEquals(s.cluster.asked().slice(before).filter((one) => one.endsWith(PATH)), [`PATCH ${PATH}`]);
});

Deno.test("the last look before a removal is at the original: a policy that just became Retain keeps the snapshot", async () => {
  await using s = await SnapshotCluster.start();
  s.run(s.options("loop", (client) =>
    interrupted(client, async (request, when) => {
      if (request !== "get volumesnapshotcontents" || when === "after") return;
      await s.patch("content", { spec: { deletionPolicy: "Retain" } });
    })));
  s.add();
  await s.ready();
  await s.leave();
  await s.gone();
  assertEquals(s.state(), { content: undefined, snapshots: [idOf("content")] });
  assertEquals(s.driver.count("deleteSnapshot"), 0);
});

Deno.test("the last look before the object is let go is at the original: a policy that just became Delete removes the snapshot", async () => {
  await using s = await SnapshotCluster.start();
  let changed = false;
  s.run(s.options("loop", (client) =>
    interrupted(client, async (request, when) => {
      if (request !== "patch volumesnapshotcontents" || when === "after" || changed) return;
      if (s.kept()?.metadata.deletionTimestamp === undefined) return;
      changed = true;
      await s.patch("content", { spec: { deletionPolicy: "Delete" } });
    })));
  s.add("content", { spec: { deletionPolicy: "Retain" } });
  await s.ready();
  await s.leave();
  await s.remove();
  await s.gone();
  assertEquals(s.state(), LEFT_NOTHING);
});

Deno.test("a content that is deleted before its VolumeSnapshot keeps the snapshot until that is deleted, too", async () => {
  await using s = await scene();
  s.add();
  s.add("other");
  await Promise.all([s.ready(), s.ready("other")]);
  await s.remove();
  await s.leave("other");
  await s.gone("other");
  assertEquals(s.state().snapshots, [idOf("content")]);
  await s.leave();
  await s.gone();
  assertEquals(s.state(), LEFT_NOTHING);
});

Deno.test("a content that no VolumeSnapshot has taken goes by itself, with its snapshot", async () => {
  await using s = await scene();
  s.add("before", { spec: { deletionPolicy: "Retain" } });
  await s.ready("before");
  s.add("content", {
    spec: { source: { snapshotHandle: idOf("before") }, volumeSnapshotRef: { namespace: "default", name: "none" } },
  });
  await s.ready();
  await s.remove();
  await s.gone();
  assertEquals(s.state().snapshots, []);
});

Deno.test("contents of other drivers are left alone, and labels that name a node change nothing", async () => {
  await using s = await scene();
  s.add("foreign", { spec: { driver: "other.example" } });
  s.add("content", { metadata: { labels: { "snapshot.storage.kubernetes.io/managed-by": "somewhere-else" } } });
  await s.ready();
  await s.leave("foreign");
  await s.leave();
  await s.gone();
  assertEquals(s.kept("foreign")!.metadata.finalizers, [CONTENT_FINALIZER]);
  assertEquals(s.cluster.asked().filter((one) => one.includes("foreign")), []);
  assertEquals(s.driver.calls.map(({ call }) => call), ["createSnapshot", "deleteSnapshot"]);
});

Deno.test("nothing is begun before the finalizer is there", async () => {
  await using s = await scene();
  s.add("content", { metadata: { finalizers: [] } });
  s.add("other");
  await s.ready("other");
  assertEquals(s.driver.count("createSnapshot"), 1);
  await s.patch("content", { metadata: { finalizers: [CONTENT_FINALIZER] } });
  await s.ready();
});

Deno.test("a content that names no class, none that there is, or one that cannot be meant says so, until it is mended", async () => {
  await using s = await scene();
  s.addClass("foreign", {}, "other.example");
  s.addClass("broken", { "csi.storage.k8s.io/snapshoter-secret-name": "x" });
  const cases = [
    [{ volumeSnapshotClassName: "gone" }, /^volumeSnapshotClassName "gone": there is no such VolumeSnapshotClass$/],
    [{ volumeSnapshotClassName: "" }, /^volumeSnapshotClassName: none is named$/],
    [{ volumeSnapshotClassName: "foreign" }, /^volumeSnapshotClassName "foreign": it is for other.example$/],
    [{ volumeSnapshotClassName: "broken" }, /snapshoter-secret-name: there is no such key/],
    [{ volumeSnapshotRef: { namespace: "default", name: "x" } }, /no VolumeSnapshot with its uid/],
  ] as const;
  for (const [n, [spec, message]] of cases.entries()) {
    s.add(`content-${n}`, { spec });
    const { status } = (await s.when((now) => now?.status?.error !== undefined, `content-${n}`))!;
    assertMatch(status!.error!.message!, message);
    assertEquals([status!.readyToUse, s.state(`content-${n}`).content!.begun], [false, false]);
  }
  assertEquals(s.driver.calls, []);
  s.addClass("gone", { snapSize: "10%" });
  assertEquals((await s.ready("content-0")).status!.error, undefined);
  await s.cluster.remove(volumeSnapshotClasses, { name: "broken" });
  s.addClass("broken", {});
  await s.ready("content-3");
});

Deno.test("a snapshot that was ready and lost its content is not ready any more, which is told once, and is deleted as any", async () => {
  await using s = await SnapshotCluster.start();
  const clock = new FakeClock();
  let gone = false;
  const options = { ...s.options(), clock, isDoubtful: () => gone };
  const snapshotter = new Snapshotter(options);
  s.run(options, snapshotter);
  s.add();
  await s.ready();
  snapshotter.doubt(idOf("content"));
  assertEquals(s.driver.count("findSnapshot"), 0, "nobody doubts it");

  [gone, s.driver.snapshots.get(idOf("content"))!.ready] = [true, false];
  snapshotter.doubt(idOf("content"));
  const { status } = (await s.when((now) => now?.status?.readyToUse === false))!;
  assertMatch(status!.error!.message!, /its content is gone \(see LVMSnapshot v1-.*\): delete it/);
  await until(() => s.cluster.reasons().length > 0, "an event");
  const written = s.cluster.asked().length;
  await until(() => clock.waiting > 0, "the next look");
  await clock.advance(1_000);
  await until(() => s.driver.count("findSnapshot") > 1, "another look");
  await s.leave();
  await s.gone();
  assertEquals(s.cluster.reasons(), ["SnapshotContentCheckandUpdateFailed"]);
  assertEquals(
    s.cluster.asked().slice(written).filter((request) => request.endsWith("/status")),
    [],
    "nothing new to say",
  );
});

Deno.test("a snapshot that lost its content while nobody led is seen when somebody leads again", async () => {
  await using s = await SnapshotCluster.start();
  s.driver.snapshots.set(idOf("content"), { ready: false } as never);
  s.add("content", { status: { snapshotHandle: idOf("content"), readyToUse: true } });
  s.run({ ...s.options(), isDoubtful: () => true });
  await s.when((now) => now?.status?.readyToUse === false);
});
