import { assert, assertEquals } from "@std/assert";
import { waitUntil } from "../../tests/fake/cluster/control_plane.ts";
import { FakeClock } from "../../tests/fake/clock.ts";
import { atStep, interceptCalls, interceptClient, type OnStep } from "../../tests/fake/cluster/intercepted_client.ts";
import {
  type ContentOverrides,
  SnapshotControlPlane,
  snapshotHandle,
} from "../../tests/fake/cluster/snapshot_control_plane.ts";
import { CallError, Code } from "../sidecars/csi_client.ts";
import { BEING_CREATED_ANNOTATION } from "./snapshot_content.ts";
import { volumeSnapshotClasses, volumeSnapshotContents } from "../api/snapshot_objects.ts";
import type { SnapshotterOptions } from "./snapshotter.ts";

const LEFT_NOTHING = { content: undefined, snapshots: [] };

/** Returns the options of a snapshotter whose calls and requests `onStep` intercepts. */
function interceptedOptions(s: SnapshotControlPlane, name: string, onStep: OnStep): SnapshotterOptions {
  const csi = interceptCalls(s.driver, ["createSnapshot", "deleteSnapshot", "findSnapshot"], onStep);
  const wrap: Parameters<SnapshotControlPlane["options"]>[1] = (client) =>
    interceptClient(client, (request, when) => onStep(`${when} ${request}`));
  return { ...s.options(name, wrap), csi };
}

/** Runs the lifecycle of a snapshot: it is created, becomes ready, and is deleted. */
async function runLifecycle(s: SnapshotControlPlane, content?: ContentOverrides): Promise<void> {
  s.driver.snapshotsReady = false;
  s.addContent("content", content);
  await s.waitFor((now) => now?.status?.readyToUse === false);
  s.driver.snapshots.get(snapshotHandle("content"))!.ready = true;
  await s.waitUntilReady();
  await s.releaseContent();
  await s.waitUntilDeleted();
}

/** Returns the steps of such a lifecycle. */
async function lifecycleSteps(): Promise<string[]> {
  await using s = await SnapshotControlPlane.start();
  const steps: string[] = [];
  const stop = s.run(interceptedOptions(s, "first", (step) => Promise.resolve(void steps.push(step))));
  await runLifecycle(s);
  await stop();
  return steps;
}

Deno.test("a snapshotter that is killed at any step is followed by one that goes on, with one snapshot and then none", async (t) => {
  const steps = await lifecycleSteps();
  assert(steps.length >= 18, steps.join());
  for (const [at, name] of steps.entries()) {
    await t.step(`step ${at + 1}, ${name}`, async () => {
      await using s = await SnapshotControlPlane.start();
      let count = 0;
      const crashed = Promise.withResolvers<void>();
      // From then on nothing that it does reaches anyone.
      const stop = s.run(interceptedOptions(s, "first", () => {
        if (count++ < at) return Promise.resolve();
        crashed.resolve();
        return Promise.reject(new Error("killed"));
      }));
      const lifecycle = runLifecycle(s);
      await Promise.race([crashed.promise, lifecycle]);
      await stop();
      s.run(s.options("second"));
      await lifecycle;
      assertEquals(s.state(), LEFT_NOTHING);
      const taken = s.driver.calls.filter(({ call }) => call === "createSnapshot").length;
      assert(taken <= 2, `it was asked for ${taken} times`);
    });
  }
});

/** The steps of taking a snapshot. */
const CREATION_STEPS = [
  "before patch volumesnapshotcontents",
  "after patch volumesnapshotcontents",
  "before createSnapshot",
  "after createSnapshot",
  "before second patch volumesnapshotcontents",
  "after second patch volumesnapshotcontents",
  "before third patch volumesnapshotcontents",
  "after third patch volumesnapshotcontents",
];

for (const at of CREATION_STEPS) {
  Deno.test(`a VolumeSnapshot deleted ${at} leaves nothing`, async () => {
    await using s = await SnapshotControlPlane.start();
    const { onStep, reached } = atStep(at, () => s.releaseContent());
    s.run(interceptedOptions(s, "loop", onStep));
    s.addContent();
    await reached;
    await s.waitUntilDeleted();
    assertEquals(s.state(), LEFT_NOTHING);
    const begun = s.driver.callCount("createSnapshot");
    assertEquals([begun <= 1, s.driver.callCount("deleteSnapshot")], [true, begun]);
  });

  Deno.test(`a VolumeSnapshot deleted ${at} leaves a content with the policy Retain as it is`, async () => {
    await using s = await SnapshotControlPlane.start();
    const { onStep, reached } = atStep(at, () => s.releaseContent());
    s.run(interceptedOptions(s, "loop", onStep));
    s.addContent("content", { spec: { deletionPolicy: "Retain" } });
    await reached;
    // What was not begun then is not begun any more.
    if (s.driver.callCount("createSnapshot") > 0 || s.state().content!.begun) await s.waitUntilReady();
    s.addContent("other");
    await s.waitUntilReady("other");
    await s.remove();
    await s.waitUntilDeleted();
    assertEquals(s.driver.callCount("deleteSnapshot"), 0);
    assertEquals(s.driver.snapshots.size, s.driver.callCount("createSnapshot"));
  });

  Deno.test(`a content that is deleted ${at} goes with its VolumeSnapshot, and leaves nothing`, async () => {
    await using s = await SnapshotControlPlane.start();
    const { onStep, reached } = atStep(at, () => s.remove());
    s.run(interceptedOptions(s, "loop", onStep));
    s.addContent();
    await reached;
    await s.waitUntilReady();
    await s.releaseContent();
    await s.waitUntilDeleted();
    assertEquals(s.state(), LEFT_NOTHING);
  });
}

/** Deletes the VolumeSnapshot and the class of a content while it is uncertain whether its snapshot is created. */
async function leftInDoubt(s: SnapshotControlPlane, { times = 1, done = true } = {}): Promise<void> {
  const gate = Promise.withResolvers<void>();
  const error = new CallError(Code.DeadlineExceeded, "no answer");
  for (let n = 0; n < times; n++) s.driver.injectFault("createSnapshot", { error, done, waitFor: gate.promise });
  const called = s.driver.waitForCall("createSnapshot");
  s.addContent();
  await called;
  await s.releaseContent();
  await s.controlPlane.remove(volumeSnapshotClasses, { name: "snap" });
  gate.resolve();
}

Deno.test("for a VolumeSnapshot that is deleted while uncertain, the request is repeated, and the snapshot deleted", async () => {
  await using s = await SnapshotControlPlane.start();
  s.run();
  await leftInDoubt(s, { times: 3 });
  await s.waitUntilDeleted();
  assertEquals(s.driver.calls.map(({ call }) => call), [...Array(4).fill("createSnapshot"), "deleteSnapshot"]);
  assertEquals(s.state(), LEFT_NOTHING);
});

Deno.test("a VolumeSnapshot that is deleted while uncertain is complete when the request fails finally", async () => {
  await using s = await SnapshotControlPlane.start();
  s.run();
  const failure = { error: new CallError(Code.ResourceExhausted, "no room") };
  await leftInDoubt(s, { done: false });
  s.driver.injectFault("createSnapshot", failure);
  await s.waitUntilDeleted();
  assertEquals(s.driver.calls.map(({ call }) => call), Array(2).fill("createSnapshot"));
});

Deno.test("another snapshotter, too, completes an uncertain request when class and VolumeSnapshot are gone", async () => {
  await using s = await SnapshotControlPlane.start();
  const stop = s.run(s.options("first"));
  const gate = Promise.withResolvers<void>();
  s.driver.injectFault("createSnapshot", {
    error: new CallError(Code.Canceled, "ended"),
    done: true,
    waitFor: gate.promise,
  });
  const called = s.driver.waitForCall("createSnapshot");
  s.addContent();
  await called;
  const stopped = stop();
  gate.resolve();
  await stopped;
  await s.releaseContent();
  await s.controlPlane.remove(volumeSnapshotClasses, { name: "snap" });
  s.run(s.options("second"));
  await s.waitUntilDeleted();
  assertEquals(s.state(), LEFT_NOTHING);
});

Deno.test("an uncertain request that is still needed waits for its class", async () => {
  await using s = await SnapshotControlPlane.start();
  s.run();
  const gate = Promise.withResolvers<void>();
  s.driver.injectFault("createSnapshot", { error: new CallError(Code.Unavailable, "?"), waitFor: gate.promise });
  const called = s.driver.waitForCall("createSnapshot");
  s.addContent();
  await called;
  await s.controlPlane.remove(volumeSnapshotClasses, { name: "snap" });
  gate.resolve();
  await s.waitFor((now) => now?.status?.error?.message?.includes("there is no such VolumeSnapshotClass") ?? false);
  assertEquals(s.state().content!.begun, true);
  s.addSnapshotClass("snap", { snapSize: "20%" });
  await s.waitUntilReady();
  assertEquals([...s.driver.snapshots.values()].map(({ request }) => request.parameters), [{ snapSize: "20%" }]);
});

Deno.test("an old copy has no snapshot taken of a content that is gone", async () => {
  await using s = await SnapshotControlPlane.start();
  const { onStep, reached } = atStep("before get volumesnapshotcontents", async () => {
    // Another one was here meanwhile, and this one has not seen it.
    await s.patch("content", { metadata: { finalizers: [] } });
    await s.remove();
  });
  s.run(interceptedOptions(s, "loop", onStep));
  s.driver.injectFault("createSnapshot", { error: new CallError(Code.Unavailable, "?") });
  s.addContent();
  await reached;
  s.addContent("other");
  await s.waitUntilReady("other");
  assertEquals([...s.driver.snapshots.keys()], [snapshotHandle("other")]);
});

Deno.test("a content that another snapshotter wrote meanwhile is reconciled again, although its inputs are the same", async () => {
  await using s = await SnapshotControlPlane.start();
  const clock = new FakeClock();
  const { onStep, reached } = atStep("before get volumesnapshotcontents", async () => {
    const merge = { status: { snapshotHandle: snapshotHandle("content"), readyToUse: true } };
    await s.controlPlane.client.patch(volumeSnapshotContents, { name: "content" }, { merge, subresource: "status" });
  });
  s.run({ ...interceptedOptions(s, "loop", onStep), clock });
  s.addContent("content", { metadata: { annotations: { [BEING_CREATED_ANNOTATION]: "yes" } } });
  await reached;
  await waitUntil(() => clock.msUntilNextTimer === 1_000, "a later turn");
  assertEquals(s.state().content!.begun, true);
  await clock.advance(1_000);
  await s.waitUntilReady();
  assertEquals(s.driver.calls, []);
});

Deno.test("what was started for a content is not requested for another content of the same name", async () => {
  await using s = await SnapshotControlPlane.start();
  const begun = { annotations: { [BEING_CREATED_ANNOTATION]: "yes" } };
  const { onStep, reached } = atStep("before get volumesnapshotcontents", async () => {
    await s.patch("content", { metadata: { finalizers: [] } });
    await s.remove();
    const volumeSnapshotRef = { namespace: "default", name: "other", uid: "uid-of-other" };
    s.addContent("content", { metadata: begun, spec: { source: { volumeHandle: "v2" }, volumeSnapshotRef } });
  });
  s.run(interceptedOptions(s, "loop", onStep));
  s.addContent("content", { metadata: begun });
  await reached;
  await s.waitUntilReady();
  assertEquals([...s.driver.snapshots.values()].map(({ request }) => request.volumeId), ["v2"]);
});

Deno.test("a content of the same name that was created meanwhile does not get the snapshot", async () => {
  await using s = await SnapshotControlPlane.start();
  const { onStep, reached } = atStep("after second createSnapshot", async () => {
    await s.patch("content", { metadata: { finalizers: [] } });
    await s.remove();
    s.addContent("content", { spec: { source: { snapshotHandle: snapshotHandle("before") } } });
  });
  s.run(interceptedOptions(s, "loop", onStep));
  s.addContent("before");
  await s.waitUntilReady("before");
  s.addContent("content");
  await reached;
  assertEquals((await s.waitUntilReady()).status!.snapshotHandle, snapshotHandle("before"));
});

Deno.test("two snapshotters at once take one snapshot for each content, and remove it", async () => {
  await using s = await SnapshotControlPlane.start();
  for (const name of ["first", "second"]) s.run(s.options(name));
  const names = Array.from({ length: 8 }, (_, n) => `content-${n}`);
  for (const name of names) s.addContent(name);
  for (const name of names) await s.waitUntilReady(name);
  assertEquals(s.driver.snapshots.size, 8);
  for (const name of names) await s.releaseContent(name);
  for (const name of names) await s.waitUntilDeleted(name);
  assertEquals(s.driver.snapshots.size, 0);
});

Deno.test("a snapshotter of a later term of leadership goes on", async () => {
  await using s = await SnapshotControlPlane.start();
  const options = { ...s.options(), needsRecheck: () => true };
  const stop = s.run(options);
  s.addContent("one");
  await s.waitUntilReady("one");
  await stop();
  s.controlPlane.wakeUps.wake("space", { nodeName: "a", largestBytes: 1n << 50n });
  s.controlPlane.wakeUps.wake("unready", snapshotHandle("one")); // nothing runs that could
  s.addContent("two");
  s.run(options);
  await s.waitUntilReady("two");
  assertEquals(s.driver.callCount("createSnapshot"), 2);
});
