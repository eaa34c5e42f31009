import { assertEquals } from "@std/assert";
import {
  adoption,
  claim,
  COPIED,
  copy,
  deleted,
  forgotten,
  goneWith,
  lost,
  move,
  NAME,
  persistentVolume,
  RECORD,
  REMOVING,
  SNAPSHOT,
  START,
  stepText,
  SWITCHING,
  volume,
} from "../../tests/fake/cluster/move_objects.ts";
import { FORGOTTEN_ANNOTATION, LVM_VOLUME_FINALIZER, type LvmVolume } from "../api/lvm_objects.ts";
import { copyIdOf, type LvmMoveStatus, type MoveObjects } from "./moves.ts";
import { recordOf } from "./persistent_volume.ts";
import { nextStep } from "./move_step.ts";

const kept = [
  `wait: keeps LVMVolume ${
    copyIdOf(move())
  } on node b, which may be all that is left, because the volume on node a is Lost.`,
  "Bring the disks of node a back, or save the data and delete that LVMVolume",
].join(" ");
const failure: LvmMoveStatus = { error: { code: "FailedPrecondition", message: "" } };

const OTHERS_KEEP = `waits for others to remove the finalizers other/one of LVMVolume ${NAME}`;

/** Returns an object that is being deleted, and that others keep. */
const keptByOthers = (object: LvmVolume, ...more: string[]): LvmVolume => ({
  ...object,
  metadata: { ...object.metadata, ...deleted, finalizers: [...more, "other/one"] },
});

const STEPS: readonly [what: string, objects: Partial<MoveObjects>, step: string][] = [
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
    "a source that is Lost, and that somebody seemed to use before",
    {
      ...REMOVING,
      volume: { ...volume("a"), status: { ...volume("a", { user: "a program" }).status, state: "Lost" } },
    },
    "remove source",
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
    self: adoption({ ...RECORD, removing: true }),
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
  [
    "a copy that others keep",
    { ...REMOVING, volume: volume("b", { held: false }), copy: keptByOthers(copy()) },
    `wait: waits for others to remove the finalizers other/one of LVMVolume ${copyIdOf(move())}`,
  ],
  [
    "a copy that its agent and others keep",
    { ...REMOVING, volume: volume("b", { held: false }), copy: keptByOthers(copy(), LVM_VOLUME_FINALIZER) },
    "forget copy",
  ],
  ["a source that others keep", { ...REMOVING, volume: keptByOthers(volume("a")) }, `wait: ${OTHERS_KEEP}`],
  [
    "a source whose agent removes it, and that others keep",
    { ...REMOVING, volume: keptByOthers(volume("a"), LVM_VOLUME_FINALIZER) },
    "remove source",
  ],
  [
    "a copy that is deleted, and that others keep",
    { ...COPIED, self: move(failure), volume: volume("a", { held: false }), copy: keptByOthers(copy()) },
    `wait: waits for others to remove the finalizers other/one of LVMVolume ${copyIdOf(move())}`,
  ],
  ["no copy any more", { ...REMOVING, volume: volume("b", { held: false }), copy: undefined }, "restore policy"],
  [
    "a policy that is restored, and marked for the move",
    {
      ...REMOVING,
      volume: volume("b", { held: false }),
      copy: undefined,
      self: move({ persistentVolume: recordOf(persistentVolume("a", "Retain")), removing: true }),
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
    { ...REMOVING, self: move({ ...RECORD, removing: true }, deleted) },
    "remove source",
  ],
  ["a deletion before it began", { self: move({}, deleted) }, "remove finalizer"],
  ["a deletion of what is held", { self: move({}, deleted), volume: volume("a") }, "release"],
  ["a deletion of what is copied", { ...COPIED, self: move({}, deleted) }, "release"],
  [
    "a deletion of what is copied, and released",
    { ...COPIED, self: move({}, deleted), volume: volume("a", { held: false }) },
    "delete copy",
  ],
  [
    "a deletion of what is copied, of a volume that is Lost",
    { ...COPIED, self: move({}, deleted), volume: goneWith("Lost") },
    kept,
  ],
  [
    "a deletion of what is copied, of a volume whose node is forgotten",
    { ...COPIED, self: move({}, deleted), volume: goneWith("Ready", { [FORGOTTEN_ANNOTATION]: "dead" }) },
    kept,
  ],
  ["a failure of what is copied, of a volume that is Lost", {
    ...COPIED,
    self: move(failure),
    volume: goneWith("Lost"),
  }, kept],
  [
    "a deletion of a copy that is not complete, of a volume that is Lost",
    { self: move({}, deleted), volume: goneWith("Lost"), copy: { ...copy(), status: { state: "Pending" } } },
    "delete copy",
  ],
  [
    "a deletion of a copy without the last snapshot, of a volume that is Lost",
    {
      ...{ self: move({}, deleted), volume: goneWith("Lost") },
      copy: { ...copy(), spec: { ...copy().spec, copy: { round: 0, snapshot: "s" } } },
    },
    "delete copy",
  ],
  [
    "a failure of a copy that has an earlier snapshot, of a volume that is Lost",
    {
      ...{ self: move(failure), volume: goneWith("Lost") },
      copy: {
        ...copy(),
        spec: { ...copy().spec, copy: { round: 0, snapshot: "s" } },
        status: { state: "Pending", copy: { copied: "1Gi", snapshot: "s" } },
      },
    },
    kept,
  ],
  [
    "a deletion of a copy that somebody deletes, of a volume that is Lost",
    {
      ...{ self: move({}, deleted), volume: goneWith("Lost") },
      copy: { ...copy(), metadata: { ...copy().metadata, ...deleted } },
    },
    "delete copy",
  ],
  [
    "a deletion of what is copied, of a volume that was deleted with its claim",
    { ...COPIED, self: move({}, deleted), volume: undefined, claim: undefined },
    "delete copy",
  ],
  [
    "a deletion of what is copied, of a volume that was deleted, and whose claim is another one",
    { ...COPIED, self: move({}, deleted), volume: undefined, claim: claim("Bound", "another") },
    "delete copy",
  ],
  [
    "a failure of what is copied, of a volume that was deleted without its claim",
    { ...COPIED, self: move(failure), volume: undefined, persistentVolume: undefined, claim: claim("Lost") },
    `wait: keeps LVMVolume ${
      copyIdOf(move())
    } on node b, which may be all that is left, because LVMVolume ${NAME} was ` +
    "deleted, and its claim was not. Save the data and delete that LVMVolume",
  ],
  [
    "a deletion of a copy whose node is forgotten, too, of a volume whose node is forgotten",
    {
      ...{ self: move({}, deleted), volume: goneWith("Lost") },
      copy: { ...copy(), status: { ...copy().status, state: "Lost" } },
    },
    kept,
  ],
  [
    "a copy of a volume that is Lost, and was released since it was recorded",
    { ...SWITCHING, volume: goneWith("Lost") },
    kept,
  ],
  [
    "a deletion whose temporary snapshots are left",
    { self: move({}, deleted), temporary: [SNAPSHOT] },
    "discard snapshots",
  ],
  ["a deletion of what is retained", {
    ...COPIED,
    self: move(RECORD, deleted),
    persistentVolume: persistentVolume("a", "Retain"),
  }, "restore policy"],
  ["a deletion of what is switched", {
    ...COPIED,
    self: move(RECORD, deleted),
    persistentVolume: persistentVolume("b", "Retain"),
  }, "delete persistent volume"],
  [
    "a deletion without a PersistentVolume",
    { ...COPIED, self: move(RECORD, deleted), persistentVolume: undefined },
    "create persistent volume: a",
  ],
  [
    "a failure of what is held",
    { self: move({ error: { code: "NoSpace", message: "" } }), volume: volume("a") },
    "release",
  ],
  ["a failure that is undone", { self: move({ error: { code: "NoSpace", message: "" } }) }, "finish: Failed"],
];

for (const [what, objects, expected] of STEPS) {
  Deno.test(`nextStep() of ${what}: ${expected}`, () => {
    assertEquals(stepText(nextStep({ ...START, ...objects })), expected);
  });
}
