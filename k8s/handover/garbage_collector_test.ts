import { assertEquals } from "@std/assert";
import { move, NAME } from "../../tests/fake/cluster/move_objects.ts";
import {
  begun,
  completeCopy,
  COPY,
  heldVolume,
  movableVolume,
  MOVE_DRIVER,
  MoverHarness,
} from "../../tests/fake/cluster/mover_harness.ts";
import {
  CREATED_ANNOTATION,
  type LvmVolume,
  lvmVolumes,
  MOVE_ANNOTATION,
  RECLAIM_POLICY_ANNOTATION,
} from "../api/lvm_objects.ts";
import { persistentVolumes } from "../api/objects.ts";
import { lvmMoves } from "./moves.ts";

/** Starts a garbage collector. @param change changes the objects before it sees them */
const start = (change: (s: MoverHarness) => void) => MoverHarness.start(change, { collects: true });

/** Retains the PersistentVolume as a move does. */
function retain(s: MoverHarness, how: { phase?: string; driver?: string } = {}): void {
  s.change(persistentVolumes, "pv", (object) => ({
    ...object,
    metadata: {
      ...object.metadata,
      annotations: { ...object.metadata.annotations, [MOVE_ANNOTATION]: "m", [RECLAIM_POLICY_ANNOTATION]: "Delete" },
    },
    spec: {
      ...object.spec,
      csi: { driver: how.driver ?? MOVE_DRIVER, volumeHandle: NAME },
      persistentVolumeReclaimPolicy: "Retain",
    },
    status: { phase: how.phase ?? "Bound" },
  }));
}

const policyOf = (s: MoverHarness) => s.api.objects(persistentVolumes)[0]?.spec?.persistentVolumeReclaimPolicy;

/** Returns the volume on node `b`, which waits for the LV of the copy. */
function taking(status: object = { state: "Pending" }): LvmVolume {
  return movableVolume({
    spec: { ...movableVolume().spec, nodeName: "b", adoptsVolume: COPY },
    status: status as never,
  });
}

/** Waits until something was looked at a number of times. */
async function looked(s: MoverHarness, times = 1): Promise<void> {
  await s.waitUntil(() => s.reconciled.length >= times, `${times} looks`);
}

Deno.test("a MoveGarbageCollector releases a volume that no move holds, and takes the mark off", async () => {
  await using s = await start((s) => s.restore(lvmVolumes, heldVolume()));
  await s.waitUntil(() => s.volume?.spec.held === undefined, "the release");
  assertEquals([s.volume?.metadata.annotations, s.calls], [{}, []]);
});

for (const state of ["Complete", "Failed"] as const) {
  Deno.test(`a MoveGarbageCollector releases a volume whose move is ${state}`, async () => {
    await using s = await start((s) => {
      s.restore(lvmVolumes, heldVolume());
      s.addMove({}, begun({ state }));
    });
    await s.waitUntil(() => s.volume?.spec.held === undefined, "the release");
  });
}

Deno.test("a MoveGarbageCollector leaves what a move needs, and removes it when that ends or is gone", async () => {
  for (const end of ["finished", "gone"] as const) {
    await using s = await start((s) => {
      s.restore(lvmVolumes, heldVolume());
      s.restore(lvmVolumes, completeCopy());
      retain(s);
      s.addMove({}, begun());
    });
    await looked(s, 3);
    assertEquals([s.volume?.spec.held, s.calls, policyOf(s)], [true, [], "Retain"]);
    if (end === "finished") s.change(lvmMoves, NAME, (object) => ({ ...object, ...begun({ state: "Failed" }) }));
    else s.change(lvmMoves, NAME, (object) => ({ ...object, metadata: { ...object.metadata, finalizers: [] } }));
    if (end === "gone") s.remove(lvmMoves, NAME);
    await s.waitUntil(() => s.calls.includes("delete copy") && policyOf(s) === "Delete", end);
    await s.waitUntil(() => s.volume?.spec.held === undefined, end);
    assertEquals(s.calls, ["delete copy"]);
  }
});

Deno.test("a MoveGarbageCollector leaves volumes of other drivers alone, and those that are of no move", async () => {
  const other = (object: LvmVolume) => ({ ...object, spec: { ...object.spec, driverName: "other" } });
  await using s = await start((s) => {
    s.restore(lvmVolumes, other(heldVolume()));
    s.restore(lvmVolumes, other(completeCopy()));
    retain(s, { driver: "other" });
  });
  await looked(s, 3);
  assertEquals([s.volume?.spec.held, s.calls, policyOf(s)], [true, [], "Retain"]);
  await using t = await start((t) => {
    const unmoved = { spec: { ...movableVolume().spec, adoptsVolume: COPY } };
    t.restore(lvmVolumes, movableVolume(unmoved)); // it has the LV
    t.restore(lvmVolumes, { ...movableVolume(), metadata: { name: `v1-${"c".repeat(32)}`, uid: "c" } });
  });
  t.restore(lvmVolumes, completeCopy());
  await t.waitUntil(() => t.calls.length > 0, "the copy");
  assertEquals([t.calls, t.reconciled.every(({ key }) => key.endsWith(COPY))], [["delete copy"], true]);
});

Deno.test("a MoveGarbageCollector deletes the copy of an earlier move, not that of the present one", async () => {
  await using s = await start((s) => {
    s.restore(lvmVolumes, heldVolume());
    s.restore(lvmVolumes, completeCopy());
    s.addMove({}, { ...begun(), metadata: { ...begun().metadata!, uid: "later" } });
  });
  await s.waitUntil(() => s.calls.length > 0, "the copy");
  await looked(s, 2);
  assertEquals([s.calls, s.deleted, s.volume?.spec.held], [["delete copy"], ["k"], true]);
});

/** What keeps the copy of a move that is over. */
const KEEPING: Readonly<Record<string, (s: MoverHarness) => void>> = {
  "its volume waits for its LV": (s) => s.restore(lvmVolumes, taking()),
  "there is no volume": (s) => s.remove(lvmVolumes, NAME),
  "its volume is Lost": (s) => s.setVolume({ state: "Lost" }),
  "its volume is being deleted": (s) => {
    const { metadata } = movableVolume();
    const deletionTimestamp = "2026-01-01T00:00:00Z";
    s.restore(lvmVolumes, movableVolume({ metadata: { ...metadata, finalizers: ["f"], deletionTimestamp } }));
  },
};

for (const [why, change] of Object.entries(KEEPING)) {
  Deno.test(`a MoveGarbageCollector keeps a copy while ${why}, and looks again`, async () => {
    await using s = await start((s) => {
      change(s);
      s.restore(lvmVolumes, completeCopy());
    });
    const looks = () => s.reconciled.filter(({ key }) => key.endsWith(COPY)).length;
    await s.waitUntil(() => looks() === 1, "the first look");
    assertEquals(s.calls, []);
    await s.clock.advance(59_000);
    assertEquals(looks(), 1);
    s.restore(lvmVolumes, movableVolume({ spec: { ...movableVolume().spec, adoptsVolume: COPY } }));
    await s.advanceUntil(() => s.calls.length > 0, "the next look");
    assertEquals(s.calls, ["delete copy"]);
  });
}

Deno.test("a MoveGarbageCollector deletes a volume that waits for an LV when nothing refers to it", async () => {
  await using s = await start((s) => s.restore(lvmVolumes, taking()));
  await looked(s);
  assertEquals(s.calls, [], "its PersistentVolume is there");
  s.change(persistentVolumes, "pv", (object) => ({
    ...object,
    spec: { ...object.spec, csi: { driver: MOVE_DRIVER, volumeHandle: "another" } },
  }));
  await s.advanceUntil(() => s.calls.length > 0, "the deletion");
  assertEquals(s.calls, ["delete volume"]);
});

Deno.test("a MoveGarbageCollector keeps what was restored without its status, before its PersistentVolume", async () => {
  await using s = await start((s) => {
    const { status: _, ...waiting } = taking();
    const annotations = { [CREATED_ANNOTATION]: "true" };
    s.restore(lvmVolumes, { ...waiting, metadata: { ...waiting.metadata, annotations } });
    s.remove(persistentVolumes, "pv");
    s.restore(lvmVolumes, completeCopy());
  });
  await looked(s);
  await s.clock.advance(60_000);
  await looked(s, 2);
  assertEquals(s.calls, []);
});

Deno.test("a MoveGarbageCollector asks the API server for PersistentVolumes that its cache does not have", async () => {
  await using s = await start((s) => s.restore(lvmVolumes, taking()));
  await looked(s);
  const lists = () => s.api.requests.filter(({ path }) => path.endsWith("/persistentvolumes")).length;
  const before = lists();
  s.remove(persistentVolumes, "pv");
  await s.advanceUntil(() => s.calls.length > 0, "the deletion");
  assertEquals(lists() > before, true);
});

Deno.test("a MoveGarbageCollector restores no policy while there is no volume, but that of a Released PersistentVolume", async () => {
  await using s = await start((s) => {
    s.remove(lvmVolumes, NAME);
    retain(s);
  });
  await looked(s);
  assertEquals(policyOf(s), "Retain");
  s.restore(lvmVolumes, movableVolume());
  await s.advanceUntil(() => policyOf(s) === "Delete", "the policy");
  assertEquals(Object.keys(s.api.objects(persistentVolumes)[0]!.metadata.annotations!).length, 1);
  await using t = await start((t) => {
    t.remove(lvmVolumes, NAME);
    retain(t, { phase: "Released" });
  });
  await t.waitUntil(() => policyOf(t) === "Delete", "the policy");
});

Deno.test("a MoveGarbageCollector decides by what the API server has, not by its cache", async () => {
  await using s = await MoverHarness.start((s) => {
    s.restore(lvmVolumes, heldVolume());
    s.restore(lvmVolumes, completeCopy());
    retain(s);
    s.addMove({}, begun());
  }, { collects: true, isBlind: true });
  await looked(s, 3);
  assertEquals([s.volume?.spec.held, s.calls, policyOf(s)], [true, [], "Retain"]);
  assertEquals(s.move?.metadata.uid, move().metadata.uid);
});

/** Returns whether the LVMMove was deleted; the mover would remove its finalizer. */
const isMoveDeleted = (s: MoverHarness) => s.move?.metadata.deletionTimestamp !== undefined;

Deno.test("a MoveGarbageCollector deletes a finished LVMMove when its volume is deleted", async () => {
  await using s = await start((s) => s.addMove({}, begun({ state: "Complete" })));
  await looked(s);
  assertEquals(isMoveDeleted(s), false);
  s.remove(lvmVolumes, NAME);
  await s.waitUntil(() => isMoveDeleted(s), "the deletion");
});

Deno.test("a MoveGarbageCollector deletes a finished LVMMove whose volume was deleted while no controller ran", async () => {
  await using s = await start((s) => {
    s.remove(lvmVolumes, NAME);
    s.addMove({}, begun({ state: "Failed" }));
  });
  await s.waitUntil(() => isMoveDeleted(s), "the deletion");
});

Deno.test("a MoveGarbageCollector deletes no LVMMove that is unfinished, or of another driver, nor one that has just failed", async () => {
  for (const [spec, status] of [[{}, {}], [{ driverName: "other" }, { state: "Complete" }]] as const) {
    await using s = await start((s) => s.addMove(spec, begun(status)));
    s.remove(lvmVolumes, NAME);
    await looked(s);
    assertEquals(isMoveDeleted(s), false);
    if ("driverName" in spec) continue;
    s.change(lvmMoves, NAME, (object) => ({ ...object, ...begun({ state: "Failed" }) }));
    await looked(s, s.reconciled.length + 3); // all that may be left of it
    assertEquals(isMoveDeleted(s), false, "who follows it reads why");
  }
});
