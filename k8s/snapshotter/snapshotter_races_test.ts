import { assert, assertEquals } from "@std/assert";
import { until } from "../../tests/fake/cluster.ts";
import { FakeClock } from "../../tests/fake/clock.ts";
import { interrupted } from "../../tests/fake/interrupted_client.ts";
import { type ContentWish, idOf, SnapshotCluster } from "../../tests/fake/snapshots.ts";
import { CallError, Code, type CsiCalls } from "../sidecars/csi_client.ts";
import { BEING_CREATED } from "./snapshot_content.ts";
import { volumeSnapshotClasses, volumeSnapshotContents } from "../api/snapshot_objects.ts";
import { Snapshotter, type SnapshotterOptions } from "./snapshotter.ts";

const LEFT_NOTHING = { content: undefined, snapshots: [] };

/** Told before and after each request that is no list and no watch, and each call; it may wait, or fail. */
type OnStep = (step: string) => Promise<void>;

/** What a snapshotter works with, with someone in between. */
function stepwise(s: SnapshotCluster, name: string, onStep: OnStep): SnapshotterOptions {
  const around = <A extends unknown[], T>(call: string, body: (...args: A) => Promise<T>) => async (...args: A) => {
    await onStep(`before ${call}`);
    const answer = await body(...args);
    await onStep(`after ${call}`);
    return answer;
  };
  const { driver } = s;
  const csi: Pick<CsiCalls, "createSnapshot" | "deleteSnapshot" | "findSnapshot"> = {
    createSnapshot: around("createSnapshot", driver.createSnapshot.bind(driver)),
    deleteSnapshot: around("deleteSnapshot", driver.deleteSnapshot.bind(driver)),
    findSnapshot: around("findSnapshot", driver.findSnapshot.bind(driver)),
  };
  const wrap: Parameters<SnapshotCluster["options"]>[1] = (client) =>
    interrupted(client, (request, when) => onStep(`${when} ${request}`));
  return { ...s.options(name, wrap), csi };
}

/** A snapshot's life: it is taken, seen to be usable, and removed. */
async function live(s: SnapshotCluster, wish?: ContentWish): Promise<void> {
  s.driver.snapshotsReady = false;
  s.add("content", wish);
  await s.when((now) => now?.status?.readyToUse === false);
  s.driver.snapshots.get(idOf("content"))!.ready = true;
  await s.ready();
  await s.leave();
  await s.gone();
}

/** The steps of such a life. */
async function stepsOfLife(): Promise<string[]> {
  await using s = await SnapshotCluster.start();
  const steps: string[] = [];
  const stop = s.run(stepwise(s, "first", (step) => Promise.resolve(void steps.push(step))));
  await live(s);
  await stop();
  return steps;
}

Deno.test("a snapshotter that is killed at any step is followed by one that goes on, with one snapshot and then none", async (t) => {
  const steps = await stepsOfLife();
  assert(steps.length >= 18, steps.join());
  for (const [at, name] of steps.entries()) {
    await t.step(`step ${at + 1}, ${name}`, async () => {
      await using s = await SnapshotCluster.start();
      let count = 0;
      const killed = Promise.withResolvers<void>();
      // From then on nothing that it does reaches anyone.
      const stop = s.run(stepwise(s, "first", () => {
        if (count++ < at) return Promise.resolve();
        killed.resolve();
        return Promise.reject(new Error("killed"));
      }));
      const life = live(s);
      await Promise.race([killed.promise, life]);
      await stop();
      s.run(s.options("second"));
      await life;
      assertEquals(s.state(), LEFT_NOTHING);
      const taken = s.driver.calls.filter(({ call }) => call === "createSnapshot").length;
      assert(taken <= 2, `it was asked for ${taken} times`);
    });
  }
});

/** The steps of taking a snapshot. */
const TAKING = [
  "before patch volumesnapshotcontents",
  "after patch volumesnapshotcontents",
  "before createSnapshot",
  "after createSnapshot",
  "before second patch volumesnapshotcontents",
  "after second patch volumesnapshotcontents",
  "before third patch volumesnapshotcontents",
  "after third patch volumesnapshotcontents",
];

/** Calls something once, at one of the steps of taking. */
function atStep(at: string, call: () => Promise<void>): { onStep: OnStep; reached: Promise<void> } {
  const counts = new Map<string, number>();
  const reached = Promise.withResolvers<void>();
  const onStep = async (step: string) => {
    const count = (counts.get(step) ?? 0) + 1;
    counts.set(step, count);
    const ordinal = ["", "", "second ", "third "][count] ?? `${count}th `;
    if (step.replace(" ", ` ${ordinal}`) !== at) return;
    await call();
    reached.resolve();
  };
  return { onStep, reached: reached.promise };
}

for (const at of TAKING) {
  Deno.test(`a VolumeSnapshot deleted ${at} leaves nothing`, async () => {
    await using s = await SnapshotCluster.start();
    const { onStep, reached } = atStep(at, () => s.leave());
    s.run(stepwise(s, "loop", onStep));
    s.add();
    await reached;
    await s.gone();
    assertEquals(s.state(), LEFT_NOTHING);
    const begun = s.driver.count("createSnapshot");
    assertEquals([begun <= 1, s.driver.count("deleteSnapshot")], [true, begun]);
  });

  Deno.test(`a VolumeSnapshot deleted ${at} leaves a content with the policy Retain as it is`, async () => {
    await using s = await SnapshotCluster.start();
    const { onStep, reached } = atStep(at, () => s.leave());
    s.run(stepwise(s, "loop", onStep));
    s.add("content", { spec: { deletionPolicy: "Retain" } });
    await reached;
    // What was not begun then is not begun any more.
    if (s.driver.count("createSnapshot") > 0 || s.state().content!.begun) await s.ready();
    s.add("other");
    await s.ready("other");
    await s.remove();
    await s.gone();
    assertEquals(s.driver.count("deleteSnapshot"), 0);
    assertEquals(s.driver.snapshots.size, s.driver.count("createSnapshot"));
  });

  Deno.test(`a content that is deleted ${at} goes with its VolumeSnapshot, and leaves nothing`, async () => {
    await using s = await SnapshotCluster.start();
    const { onStep, reached } = atStep(at, () => s.remove());
    s.run(stepwise(s, "loop", onStep));
    s.add();
    await reached;
    await s.ready();
    await s.leave();
    await s.gone();
    assertEquals(s.state(), LEFT_NOTHING);
  });
}

/** A content whose VolumeSnapshot and class go while it is in doubt whether its snapshot is being taken. */
async function leftInDoubt(s: SnapshotCluster, { times = 1, done = true } = {}): Promise<void> {
  const gate = Promise.withResolvers<void>();
  const error = new CallError(Code.DeadlineExceeded, "no answer");
  for (let n = 0; n < times; n++) s.driver.next("createSnapshot", { error, done, until: gate.promise });
  const called = s.driver.called("createSnapshot");
  s.add();
  await called;
  await s.leave();
  await s.cluster.remove(volumeSnapshotClasses, { name: "snap" });
  gate.resolve();
}

Deno.test("a VolumeSnapshot deleted while it is in doubt has the request repeated until it settles, and the snapshot removed", async () => {
  await using s = await SnapshotCluster.start();
  s.run();
  await leftInDoubt(s, { times: 3 });
  await s.gone();
  assertEquals(s.driver.calls.map(({ call }) => call), [...Array(4).fill("createSnapshot"), "deleteSnapshot"]);
  assertEquals(s.state(), LEFT_NOTHING);
});

Deno.test("a VolumeSnapshot deleted while it is in doubt is done with when the request fails for good", async () => {
  await using s = await SnapshotCluster.start();
  s.run();
  const failure = { error: new CallError(Code.ResourceExhausted, "no room") };
  await leftInDoubt(s, { done: false });
  s.driver.next("createSnapshot", failure);
  await s.gone();
  assertEquals(s.driver.calls.map(({ call }) => call), Array(2).fill("createSnapshot"));
});

Deno.test("what is in doubt is settled by another snapshotter, too, when class and VolumeSnapshot are gone", async () => {
  await using s = await SnapshotCluster.start();
  const stop = s.run(s.options("first"));
  const gate = Promise.withResolvers<void>();
  s.driver.next("createSnapshot", { error: new CallError(Code.Canceled, "ended"), done: true, until: gate.promise });
  const called = s.driver.called("createSnapshot");
  s.add();
  await called;
  const stopped = stop();
  gate.resolve();
  await stopped;
  await s.leave();
  await s.cluster.remove(volumeSnapshotClasses, { name: "snap" });
  s.run(s.options("second"));
  await s.gone();
  assertEquals(s.state(), LEFT_NOTHING);
});

Deno.test("what is in doubt and wanted waits for its class", async () => {
  await using s = await SnapshotCluster.start();
  s.run();
  const gate = Promise.withResolvers<void>();
  s.driver.next("createSnapshot", { error: new CallError(Code.Unavailable, "?"), until: gate.promise });
  const called = s.driver.called("createSnapshot");
  s.add();
  await called;
  await s.cluster.remove(volumeSnapshotClasses, { name: "snap" });
  gate.resolve();
  await s.when((now) => now?.status?.error?.message?.includes("there is no such VolumeSnapshotClass") ?? false);
  assertEquals(s.state().content!.begun, true);
  s.addClass("snap", { snapSize: "20%" });
  await s.ready();
  assertEquals([...s.driver.snapshots.values()].map(({ request }) => request.parameters), [{ snapSize: "20%" }]);
});

Deno.test("an old copy has no snapshot taken of a content that is gone", async () => {
  await using s = await SnapshotCluster.start();
  const { onStep, reached } = atStep("before get volumesnapshotcontents", async () => {
    // Another one was here meanwhile, and this one has not seen it.
    await s.patch("content", { metadata: { finalizers: [] } });
    await s.remove();
  });
  s.run(stepwise(s, "loop", onStep));
  s.driver.next("createSnapshot", { error: new CallError(Code.Unavailable, "?") });
  s.add();
  await reached;
  s.add("other");
  await s.ready("other");
  assertEquals([...s.driver.snapshots.keys()], [idOf("other")]);
});

Deno.test("what another one wrote meanwhile is looked at again, although that is no change of what is wanted", async () => {
  await using s = await SnapshotCluster.start();
  const clock = new FakeClock();
  const { onStep, reached } = atStep("before get volumesnapshotcontents", async () => {
    const merge = { status: { snapshotHandle: idOf("content"), readyToUse: true } };
    await s.cluster.client.patch(volumeSnapshotContents, { name: "content" }, { merge, subresource: "status" });
  });
  s.run({ ...stepwise(s, "loop", onStep), clock });
  s.add("content", { metadata: { annotations: { [BEING_CREATED]: "yes" } } });
  await reached;
  await until(() => clock.untilNext === 1_000, "a later turn");
  assertEquals(s.state().content!.begun, true);
  await clock.advance(1_000);
  await s.ready();
  assertEquals(s.driver.calls, []);
});

Deno.test("what was begun for a content is not asked for on behalf of its namesake", async () => {
  await using s = await SnapshotCluster.start();
  const begun = { annotations: { [BEING_CREATED]: "yes" } };
  const { onStep, reached } = atStep("before get volumesnapshotcontents", async () => {
    await s.patch("content", { metadata: { finalizers: [] } });
    await s.remove();
    const volumeSnapshotRef = { namespace: "default", name: "other", uid: "uid-of-other" };
    s.add("content", { metadata: begun, spec: { source: { volumeHandle: "v2" }, volumeSnapshotRef } });
  });
  s.run(stepwise(s, "loop", onStep));
  s.add("content", { metadata: begun });
  await reached;
  await s.ready();
  assertEquals([...s.driver.snapshots.values()].map(({ request }) => request.volumeId), ["v2"]);
});

Deno.test("a namesake that was made while a snapshot was taken gets nothing of it", async () => {
  await using s = await SnapshotCluster.start();
  const { onStep, reached } = atStep("after second createSnapshot", async () => {
    await s.patch("content", { metadata: { finalizers: [] } });
    await s.remove();
    s.add("content", { spec: { source: { snapshotHandle: idOf("before") } } });
  });
  s.run(stepwise(s, "loop", onStep));
  s.add("before");
  await s.ready("before");
  s.add("content");
  await reached;
  assertEquals((await s.ready()).status!.snapshotHandle, idOf("before"));
});

Deno.test("two snapshotters at once take one snapshot for each content, and remove it", async () => {
  await using s = await SnapshotCluster.start();
  for (const name of ["first", "second"]) s.run(s.options(name));
  const names = Array.from({ length: 8 }, (_, n) => `content-${n}`);
  for (const name of names) s.add(name);
  for (const name of names) await s.ready(name);
  assertEquals(s.driver.snapshots.size, 8);
  for (const name of names) await s.leave(name);
  for (const name of names) await s.gone(name);
  assertEquals(s.driver.snapshots.size, 0);
});

Deno.test("a snapshotter that was stopped and is run again goes on", async () => {
  await using s = await SnapshotCluster.start();
  const snapshotter = new Snapshotter(s.options());
  const stop = s.cluster.run((signal) => snapshotter.run(signal));
  s.add("one");
  await s.ready("one");
  await stop();
  snapshotter.poke();
  s.add("two");
  s.cluster.run((signal) => snapshotter.run(signal));
  await s.ready("two");
  assertEquals(s.driver.count("createSnapshot"), 2);
});
