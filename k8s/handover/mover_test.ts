import { assertEquals, assertStringIncludes } from "@std/assert";
import { StorageError } from "../../base/error.ts";
import { snapshotIdOf, transferSnapshotName } from "../../base/ids.ts";
import { KEY, move, NAME, RECORD } from "../../tests/fake/cluster/move_objects.ts";
import {
  begun,
  complete,
  COPY,
  heldVolume,
  lvmNodeOf,
  movableVolume,
  MoverHarness,
  removing,
} from "../../tests/fake/cluster/mover_harness.ts";
import { ApiError } from "../client/client.ts";
import { LVM_VOLUME_FINALIZER, lvmNodes, lvmSnapshots, lvmVolumes, MOVE_ANNOTATION } from "../api/lvm_objects.ts";
import { persistentVolumeClaims, persistentVolumes } from "../api/objects.ts";
import { type LvmMove, MOVE_FINALIZER } from "./moves.ts";
import { affinityTo } from "./persistent_volume.ts";

const WHILE_USED = "copies it while it may be used";

/** Makes the objects those of a move when the volume is on the other node. */
function moved(s: MoverHarness): void {
  s.restore(lvmVolumes, movableVolume({ spec: { ...movableVolume().spec, nodeName: "b" } }));
  s.change(persistentVolumes, "pv", (object) => ({
    ...object,
    spec: { ...object.spec, nodeAffinity: affinityTo("b", KEY) },
  }));
}

Deno.test("a Mover begins with the copy, while the volume may be used, and records events of the LVMMove and the claim", async () => {
  await using s = await MoverHarness.start();
  s.addMove();
  const { metadata, status } = await s.waitForMessage(WHILE_USED);
  assertEquals(metadata.finalizers, [MOVE_FINALIZER]);
  assertEquals([status?.state, status?.copyMode, status?.differences], ["Copying", "Online", 0]);
  assertEquals(s.calls, ["begin copy on b", "take full snapshot"]);
  const started = "Normal MoveStarted: moves from node a to node b, online, so that it is copied while it is used";
  assertEquals(s.events, [`LVMMove ${started}`, `PersistentVolumeClaim ${started}`]);
  assertEquals(s.volume?.spec.held, undefined);
});

Deno.test("a Mover leaves moves of other drivers alone, and finished ones", async () => {
  await using s = await MoverHarness.start();
  s.addMove({ driverName: "other" });
  await s.waitForReconcile();
  s.addMove({}, { ...begun({ state: "Failed" }), metadata: move().metadata });
  await s.waitForReconcile();
  assertEquals(s.calls, []);
  assertEquals(s.move?.status, { state: "Failed", copyMode: "Offline" });
});

Deno.test("a Mover looks again at a move that waits, after a minute and when objects change that it depends on", async () => {
  await using s = await MoverHarness.start();
  s.addMove();
  await s.waitForMessage(WHILE_USED);
  const [snapshot] = s.api.objects(lvmSnapshots);
  const labels = { changed: "now" };
  const changes: Record<string, () => void> = {
    "the copy": () => s.setVolume({ copy: { copied: "1Mi" } }, COPY),
    "the volume": () => s.setVolume({ size: "36Mi" }),
    "a snapshot": () => s.restore(lvmSnapshots, { ...snapshot!, metadata: { ...snapshot!.metadata, labels } }),
    "the first LVMNode": () => s.restore(lvmNodes, lvmNodeOf("a", { free: "512Mi" })),
    "the other LVMNode": () => s.restore(lvmNodes, lvmNodeOf("b", { free: "512Mi" })),
    "the other CSINode": () => s.register("b", ["d", "other"]),
    "the PersistentVolume": () =>
      s.change(persistentVolumes, "pv", (object) => ({ ...object, metadata: { ...object.metadata, labels } })),
    "the claim": () =>
      s.change(persistentVolumeClaims, "c", (object) => ({ ...object, metadata: { ...object.metadata, labels } })),
  };
  for (const [what, change] of Object.entries(changes)) {
    await s.waitUntilIdle(); // what follows from the change before is not due to this one
    const { length } = s.reconciled;
    change();
    await s.waitForReconcile().catch((error) => {
      throw new Error(what, { cause: error });
    });
    assertEquals(s.reconciled.slice(length).every(({ key, error }) => key === NAME && error === undefined), true, what);
  }
  await s.clock.advance(59_000);
  const { length } = s.reconciled;
  await s.clock.advance(1_000);
  assertEquals(s.reconciled.length >= length, true);
  await s.waitForMessage(WHILE_USED);
});

Deno.test("a Mover writes nothing when it looks at a move again that waits", async () => {
  await using s = await MoverHarness.start();
  s.addMove();
  await s.waitForMessage(WHILE_USED);
  s.setVolume({ copy: { copied: "0", received: "1Mi", snapshot: snapshotIdOf(transferSnapshotName(COPY, 0)) } }, COPY);
  await s.waitForMessage("waits for the agent of node a");
  assertEquals(s.move?.status?.stages, [{ difference: 0, received: "1Mi", held: false }]);
  const writes = () => s.api.requests.filter(({ method }) => method === "PATCH").length;
  const before = writes();
  for (const changed of ["now", "later"]) {
    const reconciled = s.waitForReconcile();
    s.change(lvmNodes, "b", (object) => ({ ...object, metadata: { ...object.metadata, labels: { changed } } }));
    await reconciled;
  }
  assertEquals(writes() - before, 0);
});

Deno.test("a Mover waits until the driver is registered on the other node, and then goes on", async () => {
  await using s = await MoverHarness.start((s) => s.register("b", ["other"]));
  s.addMove();
  const { status } = await s.waitForMessage("waits until the driver is registered on node b");
  assertEquals([status?.state, s.calls], ["Holding", []]);
  assertEquals(
    await s.waitForEvent("MoveWaiting"),
    "LVMMove Normal MoveWaiting: waits until the driver is registered on node b",
  );
  s.register("b");
  await s.waitForMessage(WHILE_USED);
});

Deno.test("a Mover holds no volume while the driver is not registered, or an agent silent, and asks for its disks", async () => {
  await using s = await MoverHarness.start((s) => {
    s.restore(lvmNodes, lvmNodeOf("a", { free: "4Mi" }));
    s.register("b", []);
  });
  s.addMove();
  await s.waitForMessage("waits until the driver is registered on node b");
  s.silent.add("a");
  s.register("b");
  const { status } = await s.waitForState("Failed");
  assertStringIncludes(status!.error!.message, "The data are on its disks alone: bring the node back");
  assertEquals([status!.error!.code, s.volume?.spec.held], ["FailedPrecondition", undefined]);
});

Deno.test("a Mover that is about to hold a volume waits for silent agents, and those of another driver", async () => {
  await using s = await MoverHarness.start();
  s.addMove();
  await s.waitForMessage(WHILE_USED);
  s.silent.add("b");
  s.setVolume({ copy: { copied: "0", received: "1Mi", snapshot: snapshotIdOf(transferSnapshotName(COPY, 0)) } }, COPY);
  await s.waitForMessage("the agent of node b has not reported for minutes");
  assertEquals(s.volume?.spec.held, undefined);
  s.silent.clear();
  s.restore(lvmNodes, lvmNodeOf("a", { driver: "other" }));
  await s.waitForMessage("node a has no agent of the driver");
  assertEquals(s.volume?.spec.held, undefined);
  s.restore(lvmNodes, lvmNodeOf("a"));
  await s.waitForMessage("waits for the agent of node a");
  assertEquals(s.volume?.spec.held, true);
});

/** The steps before which the agent of the other node must be there. */
const GUARDED: Readonly<
  Record<string, { change: (s: MoverHarness) => void; move: Partial<LvmMove>; isDone: (s: MoverHarness) => boolean }>
> = {
  "record the PersistentVolume": {
    change: complete,
    move: begun(),
    isDone: ({ move }) => move?.status?.persistentVolume !== undefined,
  },
  "record the removal": {
    change: (s) => {
      complete(s);
      s.change(persistentVolumes, "pv", (object) => ({
        ...object,
        metadata: { ...object.metadata, annotations: { ...object.metadata.annotations, [MOVE_ANNOTATION]: "m" } },
        spec: { ...object.spec, nodeAffinity: affinityTo("b", KEY), persistentVolumeReclaimPolicy: "Retain" },
      }));
    },
    move: begun({ ...RECORD, state: "Switching" }),
    isDone: ({ move }) => move?.status?.removing === true,
  },
  "remove the volume": { change: complete, move: removing, isDone: ({ calls }) => calls.includes("delete volume") },
};

for (const [what, { change, move: object, isDone }] of Object.entries(GUARDED)) {
  Deno.test(`a Mover does not ${what} while the agent of the other node is away`, async () => {
    await using s = await MoverHarness.start((s) => {
      change(s);
      s.silent.add("b");
    });
    s.addMove({}, object);
    await s.waitForMessage("the agent of node b has not reported for minutes");
    assertEquals(isDone(s), false);
    s.silent.clear();
    s.silent.add("a"); // what is left to do, its agent does when it is back
    s.restore(lvmNodes, lvmNodeOf("b", { free: "512Mi" }));
    await s.waitUntil(() => isDone(s), what);
  });
}

for (const [what, name] of [["source", "a"], ["target", "b"]] as const) {
  Deno.test(`a Mover says that the agent of the ${what} is away while it copies a volume, and that nobody can use it`, async () => {
    await using s = await MoverHarness.start((s) => s.restore(lvmVolumes, heldVolume()));
    s.addMove({}, begun());
    await s.waitForMessage("copies it");
    s.silent.add(name);
    s.restore(lvmNodes, lvmNodeOf("b", { free: "512Mi" }));
    const away = `the agent of node ${name} has not reported for minutes`;
    const { status } = await s.waitForMessage(`copies it: ${away}`);
    assertEquals([status?.state, status?.heldTime !== undefined], ["Copying", true]);
    assertStringIncludes(await s.waitForEvent("MoveWaiting"), away);
    s.silent.clear();
    s.restore(lvmNodes, lvmNodeOf("b"));
    await s.waitUntil(() => s.move?.status?.message === "copies it", "the copy");
  });
}

Deno.test("a Mover finishes the removal of a volume whose deletion has begun, although an agent is away", async () => {
  await using s = await MoverHarness.start((s) => {
    complete(s);
    const { metadata } = heldVolume();
    const deletionTimestamp = "2026-01-01T00:00:00Z";
    s.restore(
      lvmVolumes,
      heldVolume({ metadata: { ...metadata, finalizers: [LVM_VOLUME_FINALIZER], deletionTimestamp } }),
    );
    s.silent.add("b");
    s.failures.delete = new StorageError("Unavailable", "no answer");
  });
  s.addMove({}, removing);
  await s.waitForMessage("no answer");
  assertEquals(s.calls.includes("delete volume"), true);
});

Deno.test("a Mover goes on offline when the copy cannot be begun, and says why", async () => {
  await using s = await MoverHarness.start((s) => s.failures.begin = new StorageError("NoSpace", "node b is full"));
  s.addMove();
  const { status } = await s.waitForMessage("waits for the agent of node a");
  assertEquals([status?.copyMode, status?.offlineReason, s.volume?.spec.held], ["Offline", "node b is full", true]);
  assertEquals(s.events.filter((text) => text.startsWith("LVMMove Warning")), [
    "LVMMove Warning MoveOffline: goes on offline: node b is full",
  ]);
  s.restore(lvmVolumes, heldVolume());
  const failed = await s.waitForState("Failed");
  assertEquals(failed.status?.error, { code: "NoSpace", reason: "NoSpace", message: "node b is full" });
  assertEquals(await s.waitForEvent("MoveFailed"), "LVMMove Warning MoveFailed: stays on node a: node b is full");
  assertEquals(s.volume?.spec.held, undefined);
});

for (const kind of ["Unavailable", "Busy", "StillRunning"] as const) {
  Deno.test(`a Mover tries a copy again that could not be begun because of ${kind}, and says why`, async () => {
    await using s = await MoverHarness.start((s) => s.failures.begin = new StorageError(kind, "not now"));
    s.addMove();
    const { status } = await s.waitForMessage("not now");
    assertEquals([status?.copyMode, status?.error], ["Online", undefined]);
    delete s.failures.begin;
    await s.advanceUntil(() => s.move?.status?.message === WHILE_USED, WHILE_USED);
  });
}

Deno.test("a Mover does not take missing agents for missing space", async () => {
  await using s = await MoverHarness.start();
  s.failures.begin = () => {
    s.silent.add("b"); // it was there when the step was decided
    return new StorageError("NoSpace", "no node has space");
  };
  s.addMove();
  const { status } = await s.waitForMessage("no node has space");
  assertEquals([status?.copyMode, status?.error], ["Online", undefined]);
});

Deno.test("a Mover says what a node or the API server refuses, and tries again", async () => {
  await using s = await MoverHarness.start((s) => {
    complete(s);
    s.failures.delete = new StorageError("InUse", "a pod uses it");
  });
  s.addMove({}, removing);
  const { status } = await s.waitForMessage("a pod uses it");
  assertEquals([status?.removing, status?.error], [true, undefined]);
  s.failures.delete = new ApiError("deleting it: Forbidden: a policy", { status: 403, reason: "Forbidden" });
  await s.advanceUntil(() => s.move?.status?.message?.includes("a policy") ?? false, "the policy");
  s.failures.delete = new ApiError("deleting it: failed calling webhook", { status: 500, reason: "InternalError" });
  await s.advanceUntil(() => s.move?.status?.message?.includes("failed calling webhook") ?? false, "the webhook");
  delete s.failures.delete;
  await s.advanceUntil(() => s.volume?.spec.nodeName === "b", "a volume on node b");
});

Deno.test("a Mover writes once what is refused again and again", async () => {
  await using s = await MoverHarness.start((s) => {
    complete(s);
    s.failures.delete = new ApiError("deleting it: Forbidden: a policy", { status: 403, reason: "Forbidden" });
  });
  s.addMove({}, removing);
  await s.waitForMessage("a policy");
  const { resourceVersion } = s.move!.metadata;
  const { length } = s.reconciled;
  await s.advanceUntil(() => s.reconciled.length >= length + 3, "three more attempts");
  assertEquals([s.move!.metadata.resourceVersion, s.move!.status?.message?.includes("a policy")], [
    resourceVersion,
    true,
  ]);
});

Deno.test("a Mover says nothing of a write that is only late, or comes from an old copy", async () => {
  for (const status of [409, 429, 503]) {
    await using s = await MoverHarness.start(complete);
    s.failures.delete = new ApiError("not now", { status, reason: "Conflict" });
    s.addMove({}, removing);
    await s.waitUntil(() => s.reconciled.some(({ error }) => error instanceof ApiError), "the failure");
    assertEquals(s.move?.status?.message, "");
    delete s.failures.delete;
    await s.advanceUntil(() => s.volume?.spec.nodeName === "b", "a volume on node b");
  }
});

Deno.test("a Mover records the end of a move when it is written, not when somebody changed the LVMMove meanwhile", async () => {
  await using s = await MoverHarness.start(moved);
  s.api.faults.conflicts = 1;
  s.addMove({}, removing);
  await s.waitUntil(() => s.reconciled.length === 1, "the first attempt");
  assertEquals([s.api.faults.conflicts, s.move?.status?.state, s.events], [0, "Removing", []]);
  await s.advanceUntil(() => s.move?.status?.state === "Complete", "Complete");
  await s.waitForEvent("Moved");
});

Deno.test("a Mover waits while definitions are too old, says so, and takes no step", async () => {
  await using s = await MoverHarness.start();
  s.outdatedDefinitions = "the definitions are too old";
  s.addMove();
  await s.waitForMessage(s.outdatedDefinitions);
  assertEquals(await s.waitForEvent("MoveWaiting"), "LVMMove Normal MoveWaiting: the definitions are too old");
  assertEquals(s.calls, []);
  s.outdatedDefinitions = undefined;
  await s.clock.advance(60_000);
  await s.waitForMessage(WHILE_USED);
  assertEquals(s.calls, ["begin copy on b", "take full snapshot"]);
});
