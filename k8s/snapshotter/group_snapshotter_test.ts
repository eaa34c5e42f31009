import { assert, assertEquals, assertMatch } from "@std/assert";
import { waitUntil } from "../../tests/fake/control_plane.ts";
import { interceptClient } from "../../tests/fake/intercepted_client.ts";
import { TAKEN_AT } from "../../tests/fake/driver.ts";
import { GroupControlPlane } from "../../tests/fake/group_control_plane.ts";
import { volumeGroupSnapshotContents } from "../api/snapshot_objects.ts";
import { CallError, Code } from "../sidecars/csi_client.ts";
import { GROUP_BEING_CREATED_ANNOTATION, GROUP_CONTENT_FINALIZER } from "./group_content.ts";

const HANDLE = "handle-of-groupsnapshot-uid";

/** Starts a cluster and a group snapshotter. */
async function scene(options?: { withKinds?: boolean }) {
  const cluster = await GroupControlPlane.start(options);
  cluster.run();
  return cluster;
}

Deno.test("a group snapshot is taken, its content lists its snapshots, and it is deleted with all of them", async () => {
  await using s = await scene();
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
  await using s = await scene({ withKinds: false });
  s.addKinds();
  s.addContent();
  await s.waitUntilReady();
});

Deno.test("a group snapshot that is refused says why, is no longer marked, and is tried again", async () => {
  await using s = await scene();
  s.driver.failures.push({ error: new CallError(Code.FailedPrecondition, "volumes of two nodes") });
  s.addContent();
  assertEquals(await s.controlPlane.waitForEvent("GroupSnapshotCreationFailed"), "volumes of two nodes");
  assertEquals((await s.waitUntilReady()).status?.error, undefined);
  assertEquals(s.driver.calls.length, 2);
});

Deno.test("one whose outcome is not known is followed until it is, also when nobody wants it any more", async () => {
  await using s = await scene();
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
  await using s = await scene();
  s.addContent({ volumeGroupSnapshotClassName: "other" });
  assertMatch(await s.controlPlane.waitForEvent("GroupSnapshotCreationFailed"), /"other": there is no such/);
  await s.release();
  await s.waitUntilDeleted();
  s.addContent({}, []);
  await s.controlPlane.client.get(volumeGroupSnapshotContents, { name: "content" });
  assertEquals(s.driver.calls, []);
});

Deno.test("with the policy Retain the group snapshot stays", async () => {
  await using s = await scene();
  s.addContent({ deletionPolicy: "Retain" });
  await s.waitUntilReady();
  await s.release();
  await s.remove();
  await s.waitUntilDeleted();
  assertEquals([...s.driver.groups.keys()], [HANDLE]);
});

Deno.test("a group snapshot that was there before is looked at, and nothing is taken", async () => {
  await using s = await scene();
  s.driver.groups.set("given", { name: "x", volumeIds: ["a"], parameters: {}, secrets: {} });
  const groupSnapshotHandles = { volumeGroupSnapshotHandle: "given", volumeSnapshotHandles: ["snapshot-of-a"] };
  s.addContent({ source: { groupSnapshotHandles } });
  assertEquals((await s.waitUntilReady()).status?.volumeSnapshotInfoList, undefined);
  assertEquals(s.driver.calls, [{
    call: "getGroupSnapshot",
    request: { groupSnapshotId: "given", snapshotIds: ["snapshot-of-a"], secrets: {} },
  }]);
});

Deno.test("a group snapshotter that is killed at any step is followed by one that goes on, and nothing is left", async () => {
  for (let step = 1;; step++) {
    await using s = await GroupControlPlane.start();
    let count = 0;
    const killed = Promise.withResolvers<void>();
    // from then on nothing that it does reaches anyone
    const stop = s.run(s.options("first", (client) =>
      interceptClient(client, () => {
        if (count++ < step) return Promise.resolve();
        killed.resolve();
        return Promise.reject(new Error("killed"));
      })));
    s.addContent();
    const deleted = (async () => {
      await s.waitUntilReady();
      await s.release();
      await s.waitUntilDeleted();
      return "deleted";
    })();
    const outcome = await Promise.race([killed.promise, deleted]);
    await stop();
    s.run(s.options("second"));
    await deleted;
    assertEquals(s.driver.groups.size, 0, `step ${step}`);
    if (outcome === "deleted") return assert(step >= 9, `only ${step} steps`);
  }
});

Deno.test("names of annotations and the finalizer are those of the official csi-snapshotter", () => {
  const prefix = "groupsnapshot.storage.kubernetes.io";
  assertEquals(GROUP_BEING_CREATED_ANNOTATION, `${prefix}/volumegroupsnapshot-being-created`);
  assertEquals(GROUP_CONTENT_FINALIZER, `${prefix}/volumegroupsnapshotcontent-bound-protection`);
});
