import { assert, assertEquals, assertMatch } from "@std/assert";
import { waitUntil } from "../../tests/fake/cluster/control_plane.ts";
import { atStep, interceptCalls, interceptClient, type OnStep } from "../../tests/fake/cluster/intercepted_client.ts";
import { TAKEN_AT } from "../../tests/fake/cluster/driver.ts";
import { GroupControlPlane } from "../../tests/fake/cluster/group_control_plane.ts";
import { volumeGroupSnapshotContents } from "../api/snapshot_objects.ts";
import type { ApiClient } from "../client/client.ts";
import { CallError, Code } from "../sidecars/csi_client.ts";
import { secrets } from "../sidecars/secrets.ts";
import { GROUP_BEING_CREATED_ANNOTATION, GROUP_CONTENT_FINALIZER, groupSnapshotRules } from "./group_content.ts";
import type { GroupSnapshotterOptions } from "./group_snapshotter.ts";

const HANDLE = "handle-of-groupsnapshot-uid";

/** Starts a cluster and a group snapshotter. */
async function harness(options?: { withKinds?: boolean }) {
  const cluster = await GroupControlPlane.start(options);
  cluster.run();
  return cluster;
}

Deno.test("a group snapshot is taken, its content lists its snapshots, and it is deleted with all of them", async () => {
  await using s = await harness();
  s.addContent();
  const { status } = await s.waitUntilReady();
  const info = { creationTime: Number(TAKEN_AT), readyToUse: true, restoreSize: 1 << 30 };
  assertEquals(status, {
    volumeGroupSnapshotHandle: HANDLE,
    creationTime: new Date(Number(TAKEN_AT / 1_000_000n)).toISOString().replace(".000Z", "Z"),
    readyToUse: true,
    volumeSnapshotInfoList: [
      { volumeHandle: "a", snapshotHandle: "snapshot-of-a", ...info },
      { volumeHandle: "b", snapshotHandle: "snapshot-of-b", ...info },
    ],
  });
  await s.release();
  await s.waitUntilDeleted();
  assertEquals(s.driver.groups.size, 0);
  assertEquals(s.driver.calls, [
    {
      call: "createGroupSnapshot",
      request: { name: "groupsnapshot-uid", volumeIds: ["a", "b"], parameters: { snapSize: "20%" }, secrets: {} },
    },
    {
      call: "deleteGroupSnapshot",
      request: { groupSnapshotId: HANDLE, snapshotIds: ["snapshot-of-a", "snapshot-of-b"], secrets: {} },
    },
  ]);
  assertEquals(s.controlPlane.eventReasons(), []);
});

Deno.test("a cluster without the kinds gets group snapshots when they come", async () => {
  await using s = await harness({ withKinds: false });
  s.addKinds();
  s.addContent();
  await s.waitUntilReady();
});

Deno.test("a group snapshot that is refused says why, is no longer marked, and is tried again", async () => {
  await using s = await harness();
  s.driver.failures.push({ error: new CallError(Code.FailedPrecondition, "volumes of two nodes") });
  s.addContent();
  assertEquals(await s.controlPlane.waitForEvent("GroupSnapshotCreationFailed"), "volumes of two nodes");
  assertEquals((await s.waitUntilReady()).status?.error, undefined);
  assertEquals(s.driver.calls.length, 2);
});

Deno.test("one whose outcome is not known is followed until it is, also when nobody wants it any more", async () => {
  await using s = await harness();
  const unknown = { error: new CallError(Code.Unavailable, "the node does not answer"), done: true };
  s.driver.failures.push(unknown, unknown);
  s.addContent();
  await waitUntil(() => s.driver.calls.length > 0, "a call");
  await s.release();
  await s.waitUntilDeleted();
  assertEquals(s.driver.groups.size, 0);
  assertEquals(s.driver.calls.at(-1)?.call, "deleteGroupSnapshot");
});

Deno.test("a content without a class, or without its finalizer, gets no group snapshot", async () => {
  await using s = await harness();
  s.addContent({ volumeGroupSnapshotClassName: "other" });
  assertMatch(await s.controlPlane.waitForEvent("GroupSnapshotCreationFailed"), /"other": there is no such/);
  await s.release();
  await s.waitUntilDeleted();
  s.addContent({}, []);
  await s.controlPlane.client.get(volumeGroupSnapshotContents, { name: "content" });
  assertEquals(s.driver.calls, []);
});

Deno.test("with the policy Retain the group snapshot stays", async () => {
  await using s = await harness();
  s.addContent({ deletionPolicy: "Retain" });
  await s.waitUntilReady();
  await s.release();
  await s.remove();
  await s.waitUntilDeleted();
  assertEquals([...s.driver.groups.keys()], [HANDLE]);
});

Deno.test("a group snapshot that was there before is looked at, and nothing is taken", async () => {
  await using s = await harness();
  s.driver.groups.set("given", { name: "x", volumeIds: ["a"], parameters: {}, secrets: {} });
  const groupSnapshotHandles = { volumeGroupSnapshotHandle: "given", volumeSnapshotHandles: ["snapshot-of-a"] };
  s.addContent({ source: { groupSnapshotHandles } });
  assertEquals((await s.waitUntilReady()).status?.volumeSnapshotInfoList, undefined);
  assertEquals(s.driver.calls, [{
    call: "getGroupSnapshot",
    request: { groupSnapshotId: "given", snapshotIds: ["snapshot-of-a"], secrets: {} },
  }]);
});

for (
  const [what, uid] of [["that no VolumeGroupSnapshot has taken", undefined], [
    "of a VolumeGroupSnapshot",
    "uid",
  ]] as const
) {
  Deno.test(`an imported group snapshot ${what} is deleted with its content, also before its status is known`, async () => {
    await using s = await harness();
    s.driver.groups.set("given", { name: "x", volumeIds: ["a"], parameters: {}, secrets: {} });
    const unknown = { error: new CallError(Code.Unavailable, "the node does not answer") };
    s.driver.failures.push(...Array(20).fill(unknown));
    s.addContent({
      source: {
        groupSnapshotHandles: { volumeGroupSnapshotHandle: "given", volumeSnapshotHandles: ["snapshot-of-a"] },
      },
      volumeGroupSnapshotRef: { namespace: "default", name: "group", ...(uid && { uid }) },
    });
    await waitUntil(() => s.callCount("getGroupSnapshot") > 0, "a check");
    await (uid === undefined ? s.remove() : s.release());
    await s.waitUntilDeleted();
    assertEquals(s.driver.groups.size, 0);
    const request = { groupSnapshotId: "given", snapshotIds: ["snapshot-of-a"], secrets: {} };
    assertEquals(s.driver.calls.at(-1), { call: "deleteGroupSnapshot", request });
  });
}

/** Returns the options of a group snapshotter whose calls and requests `onStep` intercepts. */
function interceptedOptions(s: GroupControlPlane, name: string, onStep: OnStep): GroupSnapshotterOptions {
  const wrap = (client: ApiClient) => interceptClient(client, (request, when) => onStep(`${when} ${request}`));
  const calls = ["createGroupSnapshot", "getGroupSnapshot", "deleteGroupSnapshot"] as const;
  return { ...s.options(name, wrap), csi: interceptCalls(s.driver, calls, onStep) };
}

/** Runs the lifecycle of a group snapshot: it is taken, becomes ready, and is deleted. */
async function runLifecycle(s: GroupControlPlane): Promise<void> {
  s.driver.ready = false;
  s.addContent();
  await completeLifecycle(s);
}

/** Does that for a content that exists. */
async function completeLifecycle(s: GroupControlPlane): Promise<void> {
  await waitUntil(() => s.content?.status?.readyToUse === false, "taken");
  s.driver.ready = true;
  await s.waitUntilReady();
  await s.release();
  await s.waitUntilDeleted();
}

Deno.test("a group snapshotter that is killed at any step is followed by one that goes on, and nothing is left", async (t) => {
  const steps: string[] = [];
  {
    await using s = await GroupControlPlane.start();
    s.run(interceptedOptions(s, "first", (step) => Promise.resolve(void steps.push(step))));
    await runLifecycle(s);
  }
  assert(steps.length >= 18, steps.join());
  for (const [at, name] of steps.entries()) {
    await t.step(`step ${at + 1}, ${name}`, async () => {
      await using s = await GroupControlPlane.start();
      let count = 0;
      const killed = Promise.withResolvers<void>();
      // from then on nothing that it does reaches anyone
      const stop = s.run(interceptedOptions(s, "first", () => {
        if (count++ < at) return Promise.resolve();
        killed.resolve();
        return Promise.reject(new Error("killed"));
      }));
      const lifecycle = runLifecycle(s);
      await Promise.race([killed.promise, lifecycle]);
      await stop();
      s.run(s.options("second"));
      await lifecycle;
      assertEquals(s.driver.groups.size, 0);
      assert(s.callCount("createGroupSnapshot") <= 2);
    });
  }
});

for (
  const at of [
    "before patch volumegroupsnapshotcontents",
    "after patch volumegroupsnapshotcontents",
    "before createGroupSnapshot",
    "after createGroupSnapshot",
    "before second patch volumegroupsnapshotcontents",
    "after second patch volumegroupsnapshotcontents",
    "before third patch volumegroupsnapshotcontents",
    "after third patch volumegroupsnapshotcontents",
  ]
) {
  Deno.test(`a VolumeGroupSnapshot deleted ${at} leaves nothing`, async () => {
    await using s = await GroupControlPlane.start();
    const { onStep, reached } = atStep(at, () => s.release());
    s.run(interceptedOptions(s, "loop", onStep));
    s.addContent();
    await reached;
    await s.waitUntilDeleted();
    assertEquals([s.driver.groups.size, s.callCount("deleteGroupSnapshot")], [0, s.callCount("createGroupSnapshot")]);
  });

  Deno.test(`a VolumeGroupSnapshot deleted ${at} leaves a group snapshot with the policy Retain`, async () => {
    await using s = await GroupControlPlane.start();
    const { onStep, reached } = atStep(at, () => s.release());
    s.run(interceptedOptions(s, "loop", onStep));
    s.addContent({ deletionPolicy: "Retain" });
    await reached;
    // what was not begun then is not begun any more
    const isBegun = s.callCount("createGroupSnapshot") > 0 || groupSnapshotRules.isBeingCreated(s.content!);
    if (isBegun) await s.waitUntilReady();
    await s.remove();
    await s.waitUntilDeleted();
    assertEquals([s.driver.groups.size, s.callCount("deleteGroupSnapshot")], [isBegun ? 1 : 0, 0]);
  });

  Deno.test(`a content that is deleted ${at} goes with its VolumeGroupSnapshot, and leaves nothing`, async () => {
    await using s = await GroupControlPlane.start();
    const { onStep, reached } = atStep(at, () => s.remove());
    s.run(interceptedOptions(s, "loop", onStep));
    s.addContent();
    await reached;
    await s.waitUntilReady();
    await s.release();
    await s.waitUntilDeleted();
    assertEquals(s.driver.groups.size, 0);
  });
}

/** Starts a cluster and a group snapshotter that tries nothing again by itself. */
async function harnessWithoutRetries(options: Partial<GroupSnapshotterOptions> = {}) {
  const s = await GroupControlPlane.start();
  s.run({ ...s.options(), backoff: { startMs: 600_000, capMs: 600_000 }, ...options });
  return s;
}

Deno.test("a group snapshot without space is tried again when the node of its volumes has more, and only then", async () => {
  await using s = await harnessWithoutRetries({ nodeOfVolume: (handle) => handle === "a" ? "node" : "other" });
  s.driver.failures.push({ error: new CallError(Code.ResourceExhausted, "vg is full") });
  s.addContent();
  await s.controlPlane.waitForEvent("GroupSnapshotCreationFailed");
  s.controlPlane.wakeUps.wake("space", { nodeName: "other", largestBytes: 1n << 50n });
  s.controlPlane.wakeUps.wake("space", { nodeName: "node", largestBytes: 1n << 50n });
  await s.waitUntilReady();
  assertEquals(s.driver.calls.length, 2);
});

Deno.test("a group snapshot whose outcome, or whose deletion, is awaited goes on as soon as it is woken", async () => {
  await using s = await harnessWithoutRetries();
  const unknown = { error: new CallError(Code.Unavailable, "the node does not answer"), done: true };
  s.driver.failures.push(unknown);
  s.addContent();
  await s.controlPlane.waitForEvent("GroupSnapshotCreationFailed");
  await waitUntil(() => s.content?.status?.error !== undefined, "the error");
  s.controlPlane.wakeUps.wake("request", "groupsnapshot-uid");
  await s.waitUntilReady();
  s.driver.failures.push({ error: unknown.error });
  await s.release();
  await s.controlPlane.waitForEvent("GroupSnapshotDeleteError");
  s.controlPlane.wakeUps.wake("deletion", HANDLE);
  await s.waitUntilDeleted();
});

Deno.test("a group snapshot of which a snapshot lost its content is no longer ready, and names it once", async () => {
  const lost = new Set<string>();
  await using s = await harnessWithoutRetries({ needsRecheck: (handle) => lost.has(handle) });
  s.addContent();
  await s.waitUntilReady();
  s.controlPlane.wakeUps.wake("unready", "snapshot-of-b");
  lost.add("snapshot-of-b");
  s.driver.ready = false;
  s.controlPlane.wakeUps.wake("unready", "snapshot-of-b");
  await waitUntil(() => s.content?.status?.readyToUse === false, "no longer ready");
  assertMatch(s.content!.status!.error!.message!, /the content of snapshot-of-b is lost/);
  await s.release();
  await s.waitUntilDeleted();
  assertEquals(s.controlPlane.eventReasons(), ["GroupSnapshotContentCheckandUpdateFailed"]);
});

Deno.test("what csi-snapshotter left between the deletion and the finalizer is completed", async () => {
  await using s = await GroupControlPlane.start();
  s.addContent({}, [GROUP_CONTENT_FINALIZER, "other"]);
  const list = [{ volumeHandle: "a", snapshotHandle: "snapshot-of-a" }];
  await s.patchStatus({ volumeSnapshotInfoList: list }); // it removed the handle
  await s.release();
  s.run();
  await waitUntil(() => s.content?.metadata.finalizers?.length === 1, "the finalizer");
  assertEquals([s.content?.metadata.finalizers, s.driver.calls], [["other"], []]);
});

Deno.test("a group snapshot that csi-snapshotter took is not taken again, and its annotation is removed", async () => {
  await using s = await GroupControlPlane.start();
  s.addContent();
  const merge = { metadata: { annotations: { [GROUP_BEING_CREATED_ANNOTATION]: "yes" } } };
  await s.controlPlane.client.patch(volumeGroupSnapshotContents, { name: "content" }, { merge });
  await s.patchStatus({ volumeGroupSnapshotHandle: HANDLE, readyToUse: true });
  s.run();
  await s.waitUntilReady();
  assertEquals(s.driver.calls, []);
});

Deno.test("two group snapshotters at once take one group snapshot, and remove it", async () => {
  await using s = await GroupControlPlane.start();
  for (const name of ["first", "second"]) s.run(s.options(name));
  s.addContent();
  await s.waitUntilReady();
  assertEquals(s.driver.groups.size, 1);
  await s.release();
  await s.waitUntilDeleted();
  assertEquals(s.driver.groups.size, 0);
});

Deno.test("the secret for looking for a group snapshot is that of the class, and others are named by the content", async () => {
  await using s = await GroupControlPlane.start();
  for (const name of ["look-content", "take"]) {
    s.controlPlane.api.put(secrets, { metadata: { name, namespace: "system" }, data: { key: btoa(name) } });
  }
  const prefix = "csi.storage.k8s.io/group-snapshotter-get-secret";
  s.addClass("secret", {
    [`${prefix}-name`]: "look-${volumegroupsnapshotcontent.name}",
    [`${prefix}-namespace`]: "system",
  });
  const annotation = "groupsnapshot.storage.kubernetes.io/deletion-secret";
  const annotations = { [`${annotation}-name`]: "take", [`${annotation}-namespace`]: "system" };
  s.addContent({ volumeGroupSnapshotClassName: "secret" }, undefined, annotations);
  s.driver.ready = false;
  s.run();
  await completeLifecycle(s);
  const used = s.driver.calls.map(({ call, request }) =>
    `${call} ${(request as { secrets: { key: string } }).secrets.key}`
  );
  assertEquals([...new Set(used)].sort(), [
    "createGroupSnapshot take",
    "deleteGroupSnapshot take",
    "getGroupSnapshot look-content",
  ]);
});

Deno.test("names of annotations and the finalizer are those of the official csi-snapshotter", () => {
  const prefix = "groupsnapshot.storage.kubernetes.io";
  assertEquals(GROUP_BEING_CREATED_ANNOTATION, `${prefix}/volumegroupsnapshot-being-created`);
  assertEquals(GROUP_CONTENT_FINALIZER, `${prefix}/volumegroupsnapshotcontent-bound-protection`);
});
