import { assertEquals } from "@std/assert";
import { heldConditions } from "../api/held.ts";
import { FORGOTTEN_ANNOTATION, type LvmSnapshot, type LvmVolume, MOVE_ANNOTATION } from "../api/lvm_objects.ts";
import { snapshotIdOf, transferSnapshotName } from "../../lvm/ids.ts";
import type { PersistentVolume, PersistentVolumeClaim } from "../api/objects.ts";
import {
  copyIdOf,
  type LvmMove,
  type LvmMoveStatus,
  MOVE_FINALIZER,
  type MoveObjects,
  type MoveStep,
} from "./objects.ts";
import { affinityTo, recordOf } from "./persistent_volume.ts";
import { nextStep, stateOf } from "./plan.ts";

const KEY = "node";
const NAME = `v1-${"a".repeat(32)}`;

/** Returns a move from node `a` to node `b` that has begun. */
function move(status: LvmMoveStatus = {}, metadata: Partial<LvmMove["metadata"]> = {}): LvmMove {
  return {
    metadata: { name: NAME, uid: "m", finalizers: [MOVE_FINALIZER], ...metadata },
    spec: {
      driverName: "d",
      persistentVolume: "pv",
      claim: { namespace: "n", name: "c", uid: "u" },
      sourceNode: "a",
      targetNode: "b",
    },
    status,
  };
}

/** Returns the volume on a node, which is held for a move, and used by somebody if that is given. */
function volume(
  nodeName: string,
  { held = true, by = "m", user }: { held?: boolean; by?: string; user?: string } = {},
): LvmVolume {
  const object = {
    metadata: { name: NAME, generation: 7, ...(held && { annotations: { [MOVE_ANNOTATION]: by } }) },
    spec: { nodeName, ...(held && { held }) },
    status: { state: "Ready", lvUUID: nodeName },
  } as unknown as LvmVolume;
  object.status!.conditions = held ? heldConditions(object, user === undefined ? {} : { user }) : [];
  return object;
}

function copy(): LvmVolume {
  const snapshot = snapshotIdOf(transferSnapshotName(copyIdOf(move()), 0, 7));
  return {
    metadata: { name: copyIdOf(move()) },
    spec: { nodeName: "b", copy: { round: 0, snapshot, last: true } },
    status: { state: "Ready", lvUUID: "b" },
  } as unknown as LvmVolume;
}

/** Returns the PersistentVolume with a policy; one that is retained is so for a move. */
function persistentVolume(node: string, policy: string, metadata: object = {}, by = "m"): PersistentVolume {
  const annotations = policy === "Retain" ? { [MOVE_ANNOTATION]: by } : {};
  return {
    metadata: { name: "pv", uid: "p", annotations, ...metadata },
    spec: { nodeAffinity: affinityTo(node, KEY), persistentVolumeReclaimPolicy: policy },
    status: { phase: "Bound" },
  } as PersistentVolume;
}

const claim = (phase: string, uid = "u") =>
  ({ metadata: { name: "c", uid }, status: { phase } }) as PersistentVolumeClaim;
const RECORD = { persistentVolume: recordOf(persistentVolume("a", "Delete")), affinityMethod: "Recreate" } as const;

/** The objects of a move that has not begun. */
const START: MoveObjects = {
  move: move(),
  volume: volume("a", { held: false }),
  copy: undefined,
  persistentVolume: persistentVolume("a", "Delete"),
  claim: claim("Bound"),
  snapshots: [],
  temporary: [],
  way: { way: "Offline" },
  hasSpaceForSnapshot: true,
  topologyKey: KEY,
};
const COPIED = { volume: volume("a"), copy: copy() };
const SWITCHING = { ...COPIED, move: move(RECORD) };
const REMOVING = {
  ...COPIED,
  move: move({ ...RECORD, removing: true }),
  persistentVolume: persistentVolume("b", "Retain"),
};
const lost = { ...volume("a", { held: false }), status: { state: "Lost", lvUUID: "a" } } as LvmVolume;
const forgotten = {
  ...volume("b", { held: false }),
  metadata: { name: NAME, annotations: { [FORGOTTEN_ANNOTATION]: "dead" } },
} as LvmVolume;
const adoption = (status?: LvmMoveStatus) => ({ ...move(status), spec: { ...move().spec, adopt: true } });
/** The volume on the source's node, which is released, and has lost its LV. */
const goneWith = (state: string, annotations: object = {}) =>
  ({
    ...volume("a", { held: false }),
    metadata: { ...volume("a").metadata, annotations },
    status: { state, lvUUID: "a" },
  }) as LvmVolume;
const kept = [
  `wait: keeps LVMVolume ${
    copyIdOf(move())
  } on node b, which may be all that is left, because the volume on node a is Lost.`,
  "Bring the disks of node a back, or save the data and delete that LVMVolume",
].join(" ");
const failure: LvmMoveStatus = { error: { code: "FailedPrecondition", message: "" } };
const SNAPSHOT = { metadata: { name: "s" } } as LvmSnapshot;
const deleted = { deletionTimestamp: "now" };

const STEPS: readonly [what: string, objects: Partial<MoveObjects>, step: string][] = [
  ["a new move", { move: move({}, { finalizers: [] }) }, "add finalizer"],
  ["a new move that is deleted", { move: move({}, { finalizers: [], ...deleted }) }, "nothing"],
  ["a volume that is not held", {}, "hold"],
  [
    "a volume whose agent has not answered",
    { volume: { ...volume("a"), status: { state: "Ready" } } },
    "wait: waits for the agent of node a",
  ],
  [
    "a volume in use",
    { volume: volume("a", { user: "a pod" }) },
    "wait: nobody else may begin to use it, but a pod still does",
  ],
  ["an unused volume", { volume: volume("a") }, "copy"],
  ["a complete copy", COPIED, "record"],
  ["a complete copy whose temporary snapshots are left", { ...COPIED, temporary: [SNAPSHOT] }, "discard snapshots"],
  ["a copy of a volume that was released since", { ...COPIED, volume: volume("a", { held: false }) }, "delete copy"],
  [
    "a volume that is held for an earlier move",
    { volume: volume("a", { by: "earlier" }) },
    "hold",
  ],
  [
    "a copy of a volume that was held for an earlier move since",
    { ...COPIED, volume: volume("a", { by: "earlier" }) },
    "delete copy",
  ],
  ["a PersistentVolume that is recorded", SWITCHING, "retain"],
  [
    "one that is retained for an earlier move",
    { ...SWITCHING, persistentVolume: persistentVolume("a", "Retain", {}, "earlier") },
    "retain",
  ],
  [
    "one that somebody retained no longer",
    { ...SWITCHING, persistentVolume: persistentVolume("b", "Delete") },
    "retain",
  ],
  [
    "one that is retained",
    { ...SWITCHING, persistentVolume: persistentVolume("a", "Retain") },
    "delete persistent volume",
  ],
  [
    "one that is retained and can be changed",
    {
      ...SWITCHING,
      move: move({ ...RECORD, affinityMethod: "Patch" }),
      persistentVolume: persistentVolume("a", "Retain"),
    },
    "patch affinity: b",
  ],
  [
    "one that is being deleted",
    {
      ...SWITCHING,
      persistentVolume: persistentVolume("a", "Retain", { ...deleted, finalizers: ["kubernetes.io/pv-protection"] }),
    },
    "delete persistent volume",
  ],
  [
    "one that somebody else keeps",
    { ...SWITCHING, persistentVolume: persistentVolume("a", "Retain", { ...deleted, finalizers: ["other/one"] }) },
    "wait: waits for others to remove the finalizers other/one of the PersistentVolume",
  ],
  ["none any more", { ...SWITCHING, persistentVolume: undefined, claim: claim("Lost") }, "create persistent volume: b"],
  [
    "a claim that is Lost",
    { ...SWITCHING, persistentVolume: persistentVolume("b", "Retain"), claim: claim("Lost") },
    "wait: waits until claim n/c is Bound again",
  ],
  ["a claim that is Bound", { ...SWITCHING, persistentVolume: persistentVolume("b", "Retain") }, "begin removing"],
  ["another claim of the name", {
    ...SWITCHING,
    persistentVolume: persistentVolume("b", "Retain"),
    claim: claim("Lost", "v"),
  }, "begin removing"],
  ["a source that is left", REMOVING, "remove source"],
  ["a source whose copy is gone", { ...REMOVING, copy: undefined }, "release"],
  [
    "a source whose copy is gone, and that is released",
    { ...REMOVING, copy: undefined, volume: volume("a", { held: false }) },
    "stop removing: the copy on node b is gone, or older than the volume on node a",
  ],
  [
    "a source that is being deleted, and whose copy is gone",
    { ...REMOVING, copy: undefined, volume: { ...volume("a"), metadata: { ...volume("a").metadata, ...deleted } } },
    "remove source",
  ],
  [
    "a source that somebody seems to use",
    { ...REMOVING, volume: volume("a", { user: "a program" }) },
    "wait: nobody else may begin to use it, but a program still does",
  ],
  [
    "a source whose agent says nothing of its being held",
    { ...REMOVING, volume: { ...volume("a"), status: { state: "Ready" } } },
    "wait: waits for the agent of node a",
  ],
  [
    "a source that somebody seems to use, and whose copy is gone",
    { ...REMOVING, volume: volume("a", { user: "a program" }), copy: undefined },
    "release",
  ],
  [
    "a source that somebody seems to use, and that is held for another move",
    { ...REMOVING, volume: volume("a", { user: "a program", by: "another" }) },
    "release",
  ],
  [
    "a source that was released and held again since",
    { ...REMOVING, volume: { ...volume("a"), metadata: { ...volume("a").metadata, generation: 9 } } },
    "release",
  ],
  ["a source that was adopted", {
    move: adoption({ ...RECORD, removing: true }),
    volume: lost,
    persistentVolume: persistentVolume("b", "Retain"),
  }, "remove source"],
  [
    "a volume that was forgotten with the target",
    { ...REMOVING, volume: forgotten, copy: undefined },
    "restore policy",
  ],
  [
    "a volume that was forgotten with the target, and a policy that is restored",
    { ...REMOVING, volume: forgotten, persistentVolume: persistentVolume("b", "Delete") },
    "finish: node b was forgotten, and the volume with it",
  ],
  [
    "a volume that is gone, and no PersistentVolume",
    { ...REMOVING, volume: undefined, persistentVolume: undefined },
    "create volume",
  ],
  ["no volume", { ...REMOVING, volume: undefined }, "create volume"],
  [
    "a volume that has not taken the copy",
    { ...REMOVING, volume: { ...volume("b", { held: false }), status: { state: "Pending" } } },
    "wait: waits for the agent of node b",
  ],
  ["a volume that has taken the copy", { ...REMOVING, volume: volume("b", { held: false }) }, "forget copy"],
  ["no copy any more", { ...REMOVING, volume: volume("b", { held: false }), copy: undefined }, "restore policy"],
  [
    "a policy that is restored, and marked for the move",
    {
      ...REMOVING,
      volume: volume("b", { held: false }),
      copy: undefined,
      move: move({ persistentVolume: recordOf(persistentVolume("a", "Retain")), removing: true }),
    },
    "restore policy",
  ],
  [
    "all restored",
    {
      ...REMOVING,
      volume: volume("b", { held: false }),
      copy: undefined,
      persistentVolume: persistentVolume("b", "Delete"),
    },
    "finish: Complete",
  ],
  [
    "a deletion when the source is being removed",
    { ...REMOVING, move: move({ ...RECORD, removing: true }, deleted) },
    "remove source",
  ],
  ["a deletion before it began", { move: move({}, deleted) }, "remove finalizer"],
  ["a deletion of what is held", { move: move({}, deleted), volume: volume("a") }, "release"],
  ["a deletion of what is copied", { ...COPIED, move: move({}, deleted) }, "release"],
  [
    "a deletion of what is copied, and released",
    { ...COPIED, move: move({}, deleted), volume: volume("a", { held: false }) },
    "delete copy",
  ],
  [
    "a deletion of what is copied, of a volume that is Lost",
    { ...COPIED, move: move({}, deleted), volume: goneWith("Lost") },
    kept,
  ],
  [
    "a deletion of what is copied, of a volume whose node is forgotten",
    { ...COPIED, move: move({}, deleted), volume: goneWith("Ready", { [FORGOTTEN_ANNOTATION]: "dead" }) },
    kept,
  ],
  ["a failure of what is copied, of a volume that is Lost", {
    ...COPIED,
    move: move(failure),
    volume: goneWith("Lost"),
  }, kept],
  [
    "a deletion of a copy that is not complete, of a volume that is Lost",
    { move: move({}, deleted), volume: goneWith("Lost"), copy: { ...copy(), status: { state: "Pending" } } },
    "delete copy",
  ],
  [
    "a deletion of a copy without the last snapshot, of a volume that is Lost",
    {
      ...{ move: move({}, deleted), volume: goneWith("Lost") },
      copy: { ...copy(), spec: { ...copy().spec, copy: { round: 0, snapshot: "s" } } },
    },
    "delete copy",
  ],
  [
    "a deletion of a copy that somebody deletes, of a volume that is Lost",
    {
      ...{ move: move({}, deleted), volume: goneWith("Lost") },
      copy: { ...copy(), metadata: { ...copy().metadata, ...deleted } },
    },
    "delete copy",
  ],
  [
    "a deletion of what is copied, of a volume that was deleted",
    { ...COPIED, move: move({}, deleted), volume: undefined },
    "delete copy",
  ],
  [
    "a copy of a volume that is Lost, and was released since it was recorded",
    { ...SWITCHING, volume: goneWith("Lost") },
    kept,
  ],
  [
    "a deletion whose temporary snapshots are left",
    { move: move({}, deleted), temporary: [SNAPSHOT] },
    "discard snapshots",
  ],
  ["a deletion of what is retained", {
    ...COPIED,
    move: move(RECORD, deleted),
    persistentVolume: persistentVolume("a", "Retain"),
  }, "restore policy"],
  ["a deletion of what is switched", {
    ...COPIED,
    move: move(RECORD, deleted),
    persistentVolume: persistentVolume("b", "Retain"),
  }, "delete persistent volume"],
  [
    "a deletion without a PersistentVolume",
    { ...COPIED, move: move(RECORD, deleted), persistentVolume: undefined },
    "create persistent volume: a",
  ],
  [
    "a failure of what is held",
    { move: move({ error: { code: "NoSpace", message: "" } }), volume: volume("a") },
    "release",
  ],
  ["a failure that is undone", { move: move({ error: { code: "NoSpace", message: "" } }) }, "finish: Failed"],
  ["disks that were carried", { move: adoption(), volume: lost }, "record"],
  [
    "disks whose volume is on its node",
    {
      move: adoption({ ...RECORD, removing: true }),
      volume: volume("b", { held: false }),
      persistentVolume: persistentVolume("b", "Retain"),
    },
    "restore policy",
  ],
  ["a complete move", { move: move({ state: "Complete" }) }, "nothing"],
  ["a complete move that is deleted", { move: move({ state: "Complete" }, deleted) }, "remove finalizer"],
];

for (const [what, objects, expected] of STEPS) {
  Deno.test(`nextStep() of ${what}: ${expected}`, () => {
    const step = nextStep({ ...START, ...objects });
    const detail = "node" in step
      ? step.node
      : "message" in step
      ? step.message
      : "error" in step
      ? step.error.message
      : "state" in step
      ? step.state
      : undefined;
    assertEquals(detail === undefined ? step.do : `${step.do}: ${detail}`, expected);
  });
}

const STATES: readonly [step: MoveStep["do"], move: LvmMove, state: string][] = [
  ["add finalizer", move(), "Pending"],
  ["hold", move(), "Holding"],
  ["wait", move(), "Holding"],
  ["copy", move(), "Copying"],
  ["difference", move(), "Copying"],
  ["take snapshot", move(), "Copying"],
  ["delete copy", move(), "Copying"],
  ["discard snapshots", move(), "Copying"],
  ["go offline", move(), "Copying"],
  ["discard snapshots", move({}, deleted), "Undoing"],
  ["discard snapshots", move(RECORD), "Switching"],
  ["stop removing", move({ ...RECORD, removing: true }), "Undoing"],
  ["record", move(), "Switching"],
  ["wait", move(RECORD), "Switching"],
  ["begin removing", move(RECORD), "Removing"],
  ["wait", move({ ...RECORD, removing: true }, deleted), "Removing"],
  ["release", move({}, deleted), "Undoing"],
  ["finish", move({ state: "Undoing" }), "Undoing"],
  ["finish", move(), "Pending"],
  ["remove finalizer", move({ state: "Complete", removing: true }), "Complete"],
];

for (const [step, object, state] of STATES) {
  Deno.test(`stateOf() of the step ${step} is ${state}`, () => {
    assertEquals(stateOf({ do: step } as MoveStep, object), state);
  });
}

Deno.test("stateOf() of a wait with a state is that", () => {
  assertEquals(stateOf({ do: "wait", message: "", state: "Copying" }, move()), "Copying");
});

Deno.test("nextStep() says of a wait for finalizers of others that they have to end it", () => {
  const object = persistentVolume("a", "Retain", { ...deleted, finalizers: ["other/one"] });
  const step = nextStep({ ...START, ...SWITCHING, persistentVolume: object });
  assertEquals(step.do === "wait" && step.isBlocked, true);
});

Deno.test("nextStep() of a move whose LVMVolume is gone waits", () => {
  assertEquals(nextStep({ ...START, volume: undefined }), { do: "wait", message: "its LVMVolume is gone" });
});
