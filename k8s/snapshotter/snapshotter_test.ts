import { assertEquals, assertMatch } from "@std/assert";
import { waitUntil } from "../../tests/fake/cluster/control_plane.ts";
import { FakeClock } from "../../tests/fake/clock.ts";
import { TAKEN_AT } from "../../tests/fake/cluster/driver.ts";
import { interceptClient } from "../../tests/fake/cluster/intercepted_client.ts";
import { SnapshotControlPlane, snapshotHandle, snapshotUid } from "../../tests/fake/cluster/snapshot_control_plane.ts";
import { CallError, Code } from "../sidecars/csi_client.ts";
import { secrets } from "../sidecars/secrets.ts";
import { CONTENT_FINALIZER } from "./snapshot_content.ts";
import { volumeSnapshotClasses, volumeSnapshotContents } from "../api/snapshot_objects.ts";

const PATH = "/apis/snapshot.storage.k8s.io/v1/volumesnapshotcontents/content";
const LEFT_NOTHING = { content: undefined, snapshots: [] };

/** Starts a cluster and a snapshotter. */
async function harness() {
  const snapshots = await SnapshotControlPlane.start();
  snapshots.run();
  return snapshots;
}

Deno.test("a snapshot is taken, and its content says so, by three requests", async () => {
  await using s = await harness();
  s.addContent();
  const { status } = await s.waitUntilReady();
  assertEquals(status, {
    snapshotHandle: snapshotHandle("content"),
    creationTime: Number(TAKEN_AT),
    restoreSize: 1 << 30,
    readyToUse: true,
  });
  assertEquals(s.driver.calls, [{
    call: "createSnapshot",
    request: {
      name: `snapshot-${snapshotUid("content")}`,
      volumeId: "v1",
      parameters: { snapSize: "20%" },
      secrets: {},
    },
  }]);
  assertEquals(s.controlPlane.requestsOf(), [`PATCH ${PATH}`, `PATCH ${PATH}/status`, `PATCH ${PATH}`]);
  assertEquals(s.controlPlane.eventReasons(), []);
});

Deno.test("while a snapshot is being taken, its content says so", async () => {
  await using s = await harness();
  const gate = Promise.withResolvers<void>();
  s.driver.injectFault("createSnapshot", { waitFor: gate.promise });
  const called = s.driver.waitForCall("createSnapshot");
  s.addContent();
  await called;
  assertEquals(s.state().content, { guarded: true, begun: true, handle: undefined });
  gate.resolve();
  await s.waitUntilReady();
});

Deno.test("secrets are those that the snapshot-controller named, and for looking that of the class", async () => {
  await using s = await harness();
  for (const name of ["taking", "looking-content"]) {
    s.controlPlane.api.put(secrets, { metadata: { name, namespace: "system" }, data: { key: btoa(name) } });
  }
  const prefix = "csi.storage.k8s.io/snapshotter-list-secret";
  s.addSnapshotClass("secret", {
    [`${prefix}-name`]: "looking-${volumesnapshotcontent.name}",
    [`${prefix}-namespace`]: "system",
  });
  s.driver.snapshotsReady = false;
  const annotation = "snapshot.storage.kubernetes.io/deletion-secret";
  s.addContent("content", {
    metadata: { annotations: { [`${annotation}-name`]: "taking", [`${annotation}-namespace`]: "system" } },
    spec: { volumeSnapshotClassName: "secret" },
  });
  await waitUntil(() => s.driver.callCount("findSnapshot") > 0, "a look");
  s.driver.snapshots.get(snapshotHandle("content"))!.ready = true;
  await s.waitUntilReady();
  await s.releaseContent();
  await s.waitUntilDeleted();
  const used = new Map(s.driver.calls.map(({ call, request }) => [call, request.secrets]));
  assertEquals(Object.fromEntries(used), {
    createSnapshot: { key: "taking" },
    findSnapshot: { key: "looking-content" },
    deleteSnapshot: { key: "taking" },
  });
});

Deno.test("a snapshot that cannot be used yet is looked at until it can, and taken once", async () => {
  await using s = await harness();
  s.driver.snapshotsReady = false;
  s.addContent();
  await s.waitFor((now) => now?.status?.readyToUse === false);
  await waitUntil(() => s.driver.callCount("findSnapshot") >= 3, "some looks");
  assertEquals(s.state().content, { guarded: true, begun: false, handle: snapshotHandle("content") });
  const writes = s.controlPlane.requestsOf().length;
  await waitUntil(() => s.driver.callCount("findSnapshot") >= 5, "more looks");
  assertEquals(s.controlPlane.requestsOf().length, writes);
  s.driver.snapshots.get(snapshotHandle("content"))!.ready = true;
  await s.waitUntilReady();
  assertEquals(s.driver.callCount("createSnapshot"), 1);
});

Deno.test("looks at a snapshot that cannot be used yet become rarer", async () => {
  await using s = await SnapshotControlPlane.start();
  const clock = new FakeClock();
  s.run({ ...s.options(), clock, backoff: { startMs: 1_000, capMs: 300_000 } });
  s.driver.snapshotsReady = false;
  s.addContent();
  await s.waitFor((now) => now?.status?.readyToUse === false && s.state().content?.begun === false);
  // Time stands still until the loop has seen that, too: then one turn waits for it.
  await waitUntil(() => clock.msUntilNextTimer === 750, "the next turn");
  const checkCounts = [];
  for (let seconds = 0; seconds < 60; seconds++) {
    await clock.advance(1_000);
    checkCounts.push(s.driver.callCount("findSnapshot"));
  }
  assertEquals([
    checkCounts[0],
    checkCounts[2],
    checkCounts[5],
    checkCounts[11],
    checkCounts[23],
    checkCounts[47],
    checkCounts[59],
  ], [1, 2, 3, 4, 5, 6, 6]);
});

Deno.test("a snapshot that was there before has its content filled in, and nothing is taken", async () => {
  await using s = await harness();
  s.addContent("before");
  await s.waitUntilReady("before");
  const spec = {
    source: { snapshotHandle: snapshotHandle("before") },
    volumeSnapshotRef: { namespace: "default", name: "given" },
  };
  s.addContent("content", { metadata: { finalizers: [] }, spec });
  const { status } = await s.waitUntilReady();
  assertEquals(status, {
    snapshotHandle: snapshotHandle("before"),
    creationTime: Number(TAKEN_AT),
    restoreSize: 1 << 30,
    readyToUse: true,
  });
  assertEquals([s.driver.callCount("createSnapshot"), s.driver.callCount("findSnapshot")], [1, 1]);
});

Deno.test("a snapshot that was there before and is not found is said to be missing, and looked for until it comes", async () => {
  await using s = await harness();
  const handle = snapshotHandle("other");
  s.addContent("content", { spec: { source: { snapshotHandle: handle } } });
  const message = `looking for snapshot ${handle}: lvm.denolith.dev has none of that handle [NoSuchSnapshot]`;
  assertEquals(await s.controlPlane.waitForEvent("SnapshotContentCheckandUpdateFailed"), message);
  const failed = await s.waitFor((now) => now?.status?.error !== undefined);
  assertEquals([failed!.status!.error!.message, failed!.status!.readyToUse], [message, false]);
  s.addContent("other");
  assertEquals((await s.waitUntilReady()).status!.error, undefined);
  assertEquals(s.driver.callCount("createSnapshot"), 1);
});

Deno.test("a snapshot whose VolumeSnapshot is deleted is removed, then its content, by two requests", async () => {
  await using s = await harness();
  s.addContent("content", { metadata: { finalizers: ["other", CONTENT_FINALIZER] } });
  await s.waitUntilReady();
  const before = s.controlPlane.requestsOf().length;
  await s.releaseContent();
  await s.waitFor((now) => now?.metadata.finalizers?.length === 1);
  assertEquals(s.controlPlane.requestsOf().slice(before), [`GET ${PATH}`, `PATCH ${PATH}`]);
  assertEquals(s.storedContent()!.metadata.finalizers, ["other"]);
  assertEquals([s.driver.snapshots.size, s.driver.callCount("deleteSnapshot")], [0, 1]);
  await s.patch("content", { metadata: { finalizers: [] } });
  await s.waitUntilDeleted();
  assertEquals(s.driver.callCount("deleteSnapshot"), 1);
});

Deno.test("a snapshot that cannot be removed keeps its content, whose events say why, until it can", async () => {
  await using s = await harness();
  const refusal = { error: new CallError(Code.FailedPrecondition, "a volume is being made from it") };
  for (let n = 0; n < 3; n++) s.driver.injectFault("deleteSnapshot", refusal);
  s.addContent();
  await s.waitUntilReady();
  await s.releaseContent();
  assertEquals(await s.controlPlane.waitForEvent("SnapshotDeleteError"), "a volume is being made from it");
  await s.waitUntilDeleted();
  assertEquals([s.driver.callCount("deleteSnapshot"), s.driver.snapshots.size], [4, 0]);
});

Deno.test("with the policy Retain the snapshot stays, with its content until that is deleted", async () => {
  await using s = await harness();
  s.addContent("content", { spec: { deletionPolicy: "Retain" } });
  s.addContent("other");
  await Promise.all([s.waitUntilReady(), s.waitUntilReady("other")]);
  const before = s.controlPlane.requestsOf().length;
  await s.releaseContent();
  await s.releaseContent("other");
  await s.waitUntilDeleted("other");
  assertEquals(s.controlPlane.requestsOf().slice(before).filter((one) => one.includes(PATH)), []);
  await s.remove();
  await s.waitUntilDeleted();
  assertEquals(s.state(), { content: undefined, snapshots: [snapshotHandle("content")] });
  assertEquals(s.controlPlane.requestsOf().slice(before).filter((one) => one.endsWith(PATH)), [`PATCH ${PATH}`]);
});

Deno.test("the last look before a removal is at the original: a policy that just became Retain keeps the snapshot", async () => {
  await using s = await SnapshotControlPlane.start();
  s.run(s.options("loop", (client) =>
    interceptClient(client, async (request, when) => {
      if (request !== "get volumesnapshotcontents" || when === "after") return;
      await s.patch("content", { spec: { deletionPolicy: "Retain" } });
    })));
  s.addContent();
  await s.waitUntilReady();
  await s.releaseContent();
  await s.waitUntilDeleted();
  assertEquals(s.state(), { content: undefined, snapshots: [snapshotHandle("content")] });
  assertEquals(s.driver.callCount("deleteSnapshot"), 0);
});

Deno.test("before the finalizer is removed, the object itself is read, not the cache: a policy that just became Delete removes the snapshot", async () => {
  await using s = await SnapshotControlPlane.start();
  let changed = false;
  s.run(s.options("loop", (client) =>
    interceptClient(client, async (request, when) => {
      if (request !== "patch volumesnapshotcontents" || when === "after" || changed) return;
      if (s.storedContent()?.metadata.deletionTimestamp === undefined) return;
      changed = true;
      await s.patch("content", { spec: { deletionPolicy: "Delete" } });
    })));
  s.addContent("content", { spec: { deletionPolicy: "Retain" } });
  await s.waitUntilReady();
  await s.releaseContent();
  await s.remove();
  await s.waitUntilDeleted();
  assertEquals(s.state(), LEFT_NOTHING);
});

Deno.test("a content that is deleted before its VolumeSnapshot keeps the snapshot until that is deleted, too", async () => {
  await using s = await harness();
  s.addContent();
  s.addContent("other");
  await Promise.all([s.waitUntilReady(), s.waitUntilReady("other")]);
  await s.remove();
  await s.releaseContent("other");
  await s.waitUntilDeleted("other");
  assertEquals(s.state().snapshots, [snapshotHandle("content")]);
  await s.releaseContent();
  await s.waitUntilDeleted();
  assertEquals(s.state(), LEFT_NOTHING);
});

Deno.test("a content without a VolumeSnapshot is deleted by itself, with its snapshot", async () => {
  await using s = await harness();
  s.addContent("before", { spec: { deletionPolicy: "Retain" } });
  await s.waitUntilReady("before");
  s.addContent("content", {
    spec: {
      source: { snapshotHandle: snapshotHandle("before") },
      volumeSnapshotRef: { namespace: "default", name: "none" },
    },
  });
  await s.waitUntilReady();
  await s.remove();
  await s.waitUntilDeleted();
  assertEquals(s.state().snapshots, []);
});

Deno.test("contents of other drivers are left alone, and labels that name a node change nothing", async () => {
  await using s = await SnapshotControlPlane.start();
  const reconciled = new Set<string>();
  s.run({ ...s.options(), onReconciled: ({ key }) => reconciled.add(key) });
  s.addContent("foreign", { spec: { driver: "other.example", volumeSnapshotClassName: "other" } });
  s.addContent("content", { metadata: { labels: { "snapshot.storage.kubernetes.io/managed-by": "somewhere-else" } } });
  await s.waitUntilReady();
  await s.releaseContent("foreign");
  await s.releaseContent();
  await s.waitUntilDeleted();
  assertEquals(s.storedContent("foreign")!.metadata.finalizers, [CONTENT_FINALIZER]);
  assertEquals(s.controlPlane.requestsOf().filter((one) => one.includes("foreign")), []);
  assertEquals([...reconciled], ["content"]);
  assertEquals(s.driver.calls.map(({ call }) => call), ["createSnapshot", "deleteSnapshot"]);
});

Deno.test("nothing is started before the finalizer is set", async () => {
  await using s = await harness();
  s.addContent("content", { metadata: { finalizers: [] } });
  s.addContent("other");
  await s.waitUntilReady("other");
  assertEquals(s.driver.callCount("createSnapshot"), 1);
  await s.patch("content", { metadata: { finalizers: [CONTENT_FINALIZER] } });
  await s.waitUntilReady();
});

Deno.test("a content that names no class, none that there is, or one that cannot be meant says so, until it is mended", async () => {
  await using s = await harness();
  s.addSnapshotClass("foreign", {}, "other.example");
  s.addSnapshotClass("broken", { "csi.storage.k8s.io/snapshoter-secret-name": "x" });
  const cases = [
    [
      { volumeSnapshotClassName: "gone" },
      /^volumeSnapshotClassName "gone": there is no such VolumeSnapshotClass \[NoSuchSnapshotClass\]$/,
    ],
    [{ volumeSnapshotClassName: "" }, /^volumeSnapshotClassName: none is named$/],
    [{ volumeSnapshotClassName: "foreign" }, /^volumeSnapshotClassName "foreign": it is for other.example$/],
    [{ volumeSnapshotClassName: "broken" }, /snapshoter-secret-name: there is no such key/],
    [{ volumeSnapshotRef: { namespace: "default", name: "x" } }, /no VolumeSnapshot with its uid/],
  ] as const;
  for (const [n, [spec, message]] of cases.entries()) {
    s.addContent(`content-${n}`, { spec });
    const { status } = (await s.waitFor((now) => now?.status?.error !== undefined, `content-${n}`))!;
    assertMatch(status!.error!.message!, message);
    assertEquals([status!.readyToUse, s.state(`content-${n}`).content!.begun], [false, false]);
  }
  assertEquals(s.driver.calls, []);
  s.addSnapshotClass("gone", { snapSize: "10%" });
  assertEquals((await s.waitUntilReady("content-0")).status!.error, undefined);
  await s.controlPlane.remove(volumeSnapshotClasses, { name: "broken" });
  s.addSnapshotClass("broken", {});
  await s.waitUntilReady("content-3");
});

Deno.test("a ready snapshot that lost its content is no longer ready, is reported once, and can be deleted", async () => {
  await using s = await SnapshotControlPlane.start();
  const clock = new FakeClock();
  let isContentLost = false;
  s.run({ ...s.options(), clock, needsRecheck: () => isContentLost });
  s.addContent();
  await s.waitUntilReady();
  s.controlPlane.wakeUps.wake("unready", snapshotHandle("content"));
  assertEquals(s.driver.callCount("findSnapshot"), 0, "nobody doubts it");

  [isContentLost, s.driver.snapshots.get(snapshotHandle("content"))!.ready] = [true, false];
  s.controlPlane.wakeUps.wake("unready", snapshotHandle("content"));
  const { status } = (await s.waitFor((now) => now?.status?.readyToUse === false))!;
  assertMatch(status!.error!.message!, /its content is lost \(see LVMSnapshot v1-.*\): delete it/);
  await waitUntil(() => s.controlPlane.eventReasons().length > 0, "an event");
  const written = s.controlPlane.requestsOf().length;
  await waitUntil(() => clock.pendingTimers > 0, "the next look");
  await clock.advance(1_000);
  await waitUntil(() => s.driver.callCount("findSnapshot") > 1, "another look");
  await s.releaseContent();
  await s.waitUntilDeleted();
  assertEquals(s.controlPlane.eventReasons(), ["SnapshotContentCheckandUpdateFailed"]);
  assertEquals(
    s.controlPlane.requestsOf().slice(written).filter((request) => request.endsWith("/status")),
    [],
    "nothing new to say",
  );
});

Deno.test("a snapshot that lost its content while there was no leader is found by the next leader", async () => {
  await using s = await SnapshotControlPlane.start();
  s.driver.snapshots.set(snapshotHandle("content"), { ready: false } as never);
  s.addContent("content", { status: { snapshotHandle: snapshotHandle("content"), readyToUse: true } });
  s.run({ ...s.options(), needsRecheck: () => true });
  await s.waitFor((now) => now?.status?.readyToUse === false);
});

Deno.test("the snapshots of a group are neither taken nor deleted alone, also when they are looked at", async () => {
  await using s = await harness();
  s.addContent("other");
  await s.waitUntilReady("other");
  s.driver.calls.length = 0;
  const annotations = { "groupsnapshot.storage.k8s.io/volumeGroupSnapshotHandle": "v1-group" };
  const { volumeSnapshotClassName: _, ...spec } = s.storedContent("other")!.spec;
  s.controlPlane.api.put(volumeSnapshotContents, {
    metadata: { name: "content", finalizers: [CONTENT_FINALIZER], annotations },
    spec,
  });
  const written = { snapshotHandle: snapshotHandle("other"), volumeGroupSnapshotHandle: "v1-group", readyToUse: false };
  await s.controlPlane.client.patch(volumeSnapshotContents, { name: "content" }, {
    merge: { status: written },
    subresource: "status",
  });
  s.driver.snapshotsReady = true;
  assertEquals((await s.waitUntilReady()).status?.error, undefined);
  await s.releaseContent();
  await s.waitUntilDeleted();
  assertEquals(s.driver.calls.map(({ call }) => call), ["findSnapshot"]);
  assertEquals(s.controlPlane.eventReasons(), []);
});

Deno.test("an imported snapshot of a group names it in its status", async () => {
  await using s = await harness();
  s.addContent("other");
  await s.waitUntilReady("other");
  s.driver.groupOfSnapshots = "v1-group";
  s.addContent("content", { spec: { source: { snapshotHandle: snapshotHandle("other") } } });
  assertEquals((await s.waitUntilReady()).status?.volumeGroupSnapshotHandle, "v1-group");
  await s.releaseContent();
  await s.waitUntilDeleted();
  assertEquals([s.driver.callCount("deleteSnapshot"), s.driver.snapshots.size], [0, 1]);
});
