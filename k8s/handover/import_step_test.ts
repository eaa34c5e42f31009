import { assertEquals } from "@std/assert";
import { combinationsOf } from "../../tests/fake/combinations.ts";
import { stepText } from "../../tests/fake/cluster/move_objects.ts";
import { IMPORTED_CONDITION } from "../api/volume_conditions.ts";
import { type LvmVolume, MOVE_ANNOTATION } from "../api/lvm_objects.ts";
import type { PersistentVolume, PersistentVolumeClaim, StorageClass } from "../api/objects.ts";
import { recordOf } from "./persistent_volume.ts";
import {
  IMPORT_FINALIZER,
  type ImportObjects,
  type LvmImport,
  type LvmImportStatus,
  REPLACED_CLASS_ANNOTATION,
  RETAINED_ANNOTATION,
} from "./imports.ts";
import { nextStep, stateOf } from "./import_step.ts";

const NAME = `v1-${"a".repeat(32)}`;

/** Returns an import that has begun. */
function self(status: LvmImportStatus = {}, metadata: object = {}, spec: object = {}): LvmImport {
  return {
    metadata: { name: NAME, uid: "i", finalizers: [IMPORT_FINALIZER], ...metadata },
    spec: {
      driverName: "ours",
      from: "OpenEBS",
      persistentVolume: "pv",
      claim: { namespace: "n", name: "c", uid: "u" },
      logicalVolume: { volumeGroupUUID: "g", name: "lv" },
      volume: { nodeName: "a" },
      storageClass: { name: "fast", parameters: {} },
      object: { name: "o", uid: "o" },
      ...spec,
    } as unknown as LvmImport["spec"],
    status,
  };
}

/** Returns the LVMVolume, with what its agent is to do, and what it reported. */
function volume(action: string, reason?: string, { nodeName = "a" } = {}): LvmVolume {
  const conditions = reason === undefined ? [] : [{
    type: IMPORTED_CONDITION,
    status: ["Imported", "Returnable", "NotReturnable"].includes(reason) ? "True" : "False",
    reason,
    message: `is ${reason}`,
  }];
  return {
    metadata: { name: NAME },
    spec: { nodeName, imports: { action } },
    status: { conditions, ...(reason === "Imported" && { lvUUID: "l" }) },
  } as unknown as LvmVolume;
}

/** Returns an object that is being deleted, and that others keep. */
function keptByOthers<T extends LvmVolume | StorageClass>(object: T): T {
  return { ...object, metadata: { ...object.metadata, deletionTimestamp: "now", finalizers: ["other/one"] } };
}

/** Returns a volume whose agent has found a layout, which the spec may have by now. */
function withLayout(object: LvmVolume, ...known: "spec"[]): LvmVolume {
  const layout = { type: "raid1", mirrors: 1 } as const;
  const { spec, status } = object;
  return { ...object, spec: { ...spec, ...(known.length > 0 && { layout }) }, status: { ...status, layout } };
}

function persistentVolume(driver: string, policy = "Delete", metadata: object = {}): PersistentVolume {
  return {
    metadata: { name: "pv", uid: "p", ...metadata },
    spec: { csi: { driver, volumeHandle: driver === "ours" ? NAME : "lv" }, persistentVolumeReclaimPolicy: policy },
    status: { phase: "Bound" },
  } as PersistentVolume;
}

const claim = (phase: string, uid = "u") =>
  ({ metadata: { name: "c", uid }, status: { phase } }) as PersistentVolumeClaim;
const storageClass = (provisioner: string, annotations = {}) =>
  ({ metadata: { name: "fast", annotations }, provisioner }) as StorageClass;
const RECORD: LvmImportStatus = {
  persistentVolume: recordOf(persistentVolume("theirs")),
  storageClass: { metadata: {}, provisioner: "theirs" },
};

/** The objects of an import that has not begun. */
const START: ImportObjects = {
  self: self(),
  volume: undefined,
  persistentVolume: persistentVolume("theirs"),
  claim: claim("Bound"),
  storageClass: storageClass("theirs"),
  object: { metadata: { name: "o", uid: "o" } },
  snapshots: [],
  isClassShared: false,
  others: [],
};
const RETAINED = persistentVolume("ours", "Retain", { annotations: { [RETAINED_ANNOTATION]: "true" } });
const MOVING = persistentVolume("ours", "Retain", {
  annotations: { [MOVE_ANNOTATION]: "m", [RETAINED_ANNOTATION]: "" },
});
const CONTENT = "wait: it can be returned, or finished";
const OURS = storageClass("ours", { [REPLACED_CLASS_ANNOTATION]: "{}" });
const INSPECTED = { volume: volume("Inspect", "Inspected") };
const RECORDED = { ...INSPECTED, self: self(RECORD), storageClass: OURS };
const LOST = { ...RECORDED, persistentVolume: undefined, claim: claim("Lost") };
const IMPORTED = { ...LOST, volume: volume("Import", "Imported") };
const BOUND = { ...IMPORTED, persistentVolume: persistentVolume("ours", "Retain"), claim: claim("Bound") };
const USED = { ...BOUND, self: self({ ...RECORD, imported: true }), persistentVolume: persistentVolume("ours") };
const FINISHING = { ...USED, self: self({ ...RECORD, imported: true, finishing: true }) };
const deleted = { deletionTimestamp: "now" };
const undone = (status: LvmImportStatus) => self(status, deleted);
const UNDONE = { ...USED, self: undone({ ...RECORD, imported: true }) };
const IS_MOVING = "wait: waits until the volume is not moved any more";
const HELD = { ...IMPORTED.volume, spec: { ...IMPORTED.volume.spec, held: true } };
const RETURNABLE = { ...UNDONE, volume: volume("InspectReturn", "Returnable") };
const KEPT = { ...UNDONE, volume: volume("InspectReturn", "NotReturnable") };

const STEPS: readonly [what: string, objects: Partial<ImportObjects>, step: string, state: string][] = [
  ["a volume that is not known yet", {}, "create volume", "Inspecting"],
  ["an LV that is not inspected", { volume: volume("Inspect") }, "wait: waits for the agent of node a", "Inspecting"],
  ["an LV that is refused", { volume: volume("Inspect", "Refused") }, "fail: is Refused", "Undoing"],
  ["an LV that can be imported", INSPECTED, "record", "Switching"],
  ["an LV with a layout", { volume: withLayout(INSPECTED.volume) }, "set layout", "Inspecting"],
  ["an LV whose layout is known", { volume: withLayout(INSPECTED.volume, "spec") }, "record", "Switching"],
  [
    "an LV whose class is being re-created",
    { ...INSPECTED, storageClass: undefined, isClassShared: true },
    "wait: waits until StorageClass fast is re-created for another claim",
    "Inspecting",
  ],
  ["an LV whose class was deleted", { ...INSPECTED, storageClass: undefined }, "record", "Switching"],
  ["an LV that is in use", { volume: volume("Inspect", "InUse") }, "record", "Switching"],
  ["a class of the other driver", { ...RECORDED, storageClass: storageClass("theirs") }, "delete class", "Switching"],
  ["no class", { ...RECORDED, storageClass: undefined }, "create class", "Switching"],
  [
    "a class that stays",
    { ...RECORDED, self: self({ persistentVolume: RECORD.persistentVolume! }), storageClass: storageClass("theirs") },
    "retain",
    "Switching",
  ],
  ["a class that is re-created", RECORDED, "retain", "Switching"],
  [
    "a PersistentVolume that is retained",
    { ...RECORDED, persistentVolume: persistentVolume("theirs", "Retain") },
    "delete persistent volume",
    "Switching",
  ],
  [
    "one that others keep",
    { ...RECORDED, persistentVolume: persistentVolume("theirs", "Retain", { ...deleted, finalizers: ["other/one"] }) },
    "wait: waits for others to remove the finalizers other/one of the PersistentVolume",
    "Switching",
  ],
  [
    "a class that others keep",
    { ...INSPECTED, self: self(RECORD), storageClass: keptByOthers(storageClass("theirs")) },
    "wait: waits for others to remove the finalizers other/one of StorageClass fast",
    "Switching",
  ],
  [
    "one that the official provisioner keeps",
    {
      ...RECORDED,
      persistentVolume: persistentVolume("theirs", "Retain", {
        ...deleted,
        finalizers: ["external-provisioner.volume.kubernetes.io/finalizer"],
      }),
    },
    "delete persistent volume",
    "Switching",
  ],
  ["no PersistentVolume", LOST, "import", "Switching"],
  ["an LV that is to be taken", { ...LOST, volume: volume("Import", "InUse") }, "wait: is InUse", "Switching"],
  ["an LV that changed meanwhile", { ...LOST, volume: volume("Import", "Refused") }, "fail: is Refused", "Undoing"],
  ["an LV that is taken", IMPORTED, "create persistent volume", "Switching"],
  [
    "a claim that is Lost",
    { ...BOUND, claim: claim("Lost") },
    "wait: waits until claim n/c is Bound again",
    "Switching",
  ],
  ["a claim that is Bound", BOUND, "begin use", "Switching"],
  ["another claim of the name", { ...BOUND, claim: claim("Lost", "v") }, "begin use", "Switching"],
  ["a volume in use", { ...USED, persistentVolume: RETAINED }, "restore policy", "Switching"],
  ["a volume in use that is moved", { ...USED, persistentVolume: MOVING }, CONTENT, "Imported"],
  ["one that a user retains", { ...USED, persistentVolume: persistentVolume("ours", "Retain") }, CONTENT, "Imported"],
  ["a volume of the driver", USED, CONTENT, "Imported"],
  [
    "one that was deleted with its claim",
    { ...USED, volume: undefined, persistentVolume: undefined, claim: undefined },
    "wait: it can be returned, or finished",
    "Imported",
  ],
  [
    "one that is to be finished",
    { ...USED, self: self({ ...RECORD, imported: true }, {}, { finish: true }) },
    "begin finishing",
    "Finishing",
  ],
  ["an object of the other driver", FINISHING, "remove object", "Finishing"],
  ["no such object", { ...FINISHING, object: undefined }, "finish: Complete", "Finishing"],
  [
    "another object of the name",
    { ...FINISHING, object: { metadata: { name: "o", uid: "other" } } },
    "finish: Complete",
    "Finishing",
  ],
  [
    "a deletion while it is finished",
    { ...FINISHING, self: undone({ ...RECORD, imported: true, finishing: true }) },
    "remove object",
    "Finishing",
  ],
  ["a deletion before it began", { self: undone({}) }, "remove finalizer", "Undoing"],
  ["a deletion of what is inspected", { ...INSPECTED, self: undone({}) }, "forget volume", "Undoing"],
  ["a deletion of what is recorded", { ...RECORDED, self: undone(RECORD) }, "forget volume", "Undoing"],
  [
    "a deletion of what is retained",
    { ...RECORDED, self: undone(RECORD), persistentVolume: persistentVolume("theirs", "Retain") },
    "restore policy",
    "Undoing",
  ],
  [
    "a deletion while the PersistentVolume is deleted",
    { ...RECORDED, self: undone(RECORD), persistentVolume: persistentVolume("theirs", "Retain", deleted) },
    "delete persistent volume",
    "Undoing",
  ],
  ["a deletion of what is not taken", { ...LOST, self: undone(RECORD) }, "recreate persistent volume", "Undoing"],
  ["a deletion of what may be taken", { ...LOST, volume: volume("Import"), self: undone(RECORD) }, "return", "Undoing"],
  ["a deletion of what is taken", { ...IMPORTED, self: undone(RECORD) }, "inspect return", "Undoing"],
  [
    "a deletion of what is taken, and can be returned",
    { ...RETURNABLE, self: undone(RECORD), persistentVolume: undefined },
    "return",
    "Undoing",
  ],
  ["a deletion of what is used", UNDONE, "inspect return", "Undoing"],
  [
    "a deletion while the volume is between two nodes",
    { ...UNDONE, volume: undefined },
    "wait: its LVMVolume is gone, or being moved to another node",
    "Undoing",
  ],
  [
    "a return that is to be inspected",
    { ...UNDONE, volume: volume("InspectReturn", "Imported") },
    "wait: waits for the agent of node a",
    "Undoing",
  ],
  ["a volume that can be returned", RETURNABLE, "retain", "Undoing"],
  [
    "a return that succeeded after all, while it was to be inspected again",
    { ...UNDONE, persistentVolume: undefined, volume: volume("InspectReturn", "Returned") },
    "recreate persistent volume",
    "Undoing",
  ],
  [
    "a return that succeeded after all, with the PersistentVolume made again",
    { ...UNDONE, persistentVolume: persistentVolume("theirs"), volume: volume("InspectReturn", "Returned") },
    "forget volume",
    "Undoing",
  ],
  [
    "a volume that has snapshots",
    { ...RETURNABLE, snapshots: ["s"] },
    "wait: it cannot be returned: waits until snapshots s are deleted",
    "Undoing",
  ],
  [
    "a volume that has snapshots, before its return is inspected",
    { ...UNDONE, snapshots: ["s"] },
    "wait: it cannot be returned: waits until snapshots s are deleted",
    "Undoing",
  ],
  [
    "a refused return of a volume that has snapshots",
    { ...UNDONE, persistentVolume: undefined, volume: volume("Return", "Refused"), snapshots: ["s"] },
    "inspect return",
    "Undoing",
  ],
  [
    "a volume whose object is gone",
    { ...RETURNABLE, object: undefined },
    "wait: it cannot be returned: OpenEBS LVM LocalPV does not know the volume any more: " +
    "LVMVolume.local.openebs.io o is gone",
    "Undoing",
  ],
  [
    "a volume whose object was re-created",
    { ...RETURNABLE, object: { metadata: { name: "o", uid: "other" } } },
    "wait: it cannot be returned: OpenEBS LVM LocalPV does not know the volume any more: " +
    "LVMVolume.local.openebs.io o is gone",
    "Undoing",
  ],
  [
    "a volume whose object is being deleted",
    { ...RETURNABLE, object: { metadata: { name: "o", uid: "o", ...deleted } } },
    "wait: it cannot be returned: OpenEBS LVM LocalPV would remove the logical volume: LVMVolume.local.openebs.io o is " +
    "being deleted",
    "Undoing",
  ],
  ["a volume that cannot be returned", KEPT, "wait: it cannot be returned: is NotReturnable", "Undoing"],
  [
    "one that cannot be returned, without a PersistentVolume",
    { ...KEPT, persistentVolume: undefined, claim: claim("Lost") },
    "create persistent volume",
    "Undoing",
  ],
  [
    "one that cannot be returned, whose claim is Lost",
    { ...KEPT, claim: claim("Lost") },
    "wait: waits until claim n/c is Bound again",
    "Undoing",
  ],
  ["one that cannot be returned, and was not in use", { ...KEPT, self: undone(RECORD) }, "begin use", "Undoing"],
  [
    "one that cannot be returned, and is retained",
    { ...KEPT, persistentVolume: RETAINED },
    "restore policy",
    "Undoing",
  ],
  [
    "one that cannot be returned, and is to be finished",
    { ...KEPT, self: self({ ...RECORD, imported: true }, deleted, { finish: true }) },
    "begin finishing",
    "Finishing",
  ],
  [
    "a deletion of what is used, and retained",
    { ...RETURNABLE, persistentVolume: persistentVolume("ours", "Retain") },
    "delete persistent volume",
    "Undoing",
  ],
  [
    "a return that is refused",
    { ...UNDONE, persistentVolume: undefined, volume: volume("Return", "Refused") },
    "inspect return",
    "Undoing",
  ],
  [
    "a volume that is to be returned",
    { ...UNDONE, persistentVolume: undefined, volume: volume("Return", "InUse") },
    "wait: is InUse",
    "Undoing",
  ],
  [
    "a volume that is returned",
    { ...UNDONE, persistentVolume: undefined, volume: volume("Return", "Returned") },
    "recreate persistent volume",
    "Undoing",
  ],
  [
    "a claim that is bound again",
    { ...UNDONE, persistentVolume: persistentVolume("theirs"), volume: volume("Return", "Returned") },
    "forget volume",
    "Undoing",
  ],
  [
    "a class that is left",
    { ...UNDONE, persistentVolume: persistentVolume("theirs"), volume: undefined },
    "delete class",
    "Undoing",
  ],
  [
    "a class that others need",
    { ...UNDONE, persistentVolume: persistentVolume("theirs"), volume: undefined, isClassShared: true },
    "remove finalizer",
    "Undoing",
  ],
  [
    "a class that is deleted",
    { ...UNDONE, persistentVolume: persistentVolume("theirs"), volume: undefined, storageClass: undefined },
    "restore class",
    "Undoing",
  ],
  [
    "a deletion of what was deleted with its claim",
    { ...UNDONE, persistentVolume: undefined, volume: undefined, claim: undefined },
    "delete class",
    "Undoing",
  ],
  [
    "a deletion of what was deleted with its claim, while it was to be returned",
    { ...UNDONE, persistentVolume: RETAINED, volume: undefined, claim: undefined },
    "restore policy",
    "Undoing",
  ],
  [
    "a deletion of what was moved",
    { ...UNDONE, volume: volume("Import", "Imported", { nodeName: "b" }) },
    "wait: the volume was moved to node b; move it back, or finish",
    "Undoing",
  ],
  ["a deletion of one restored without its record", { ...BOUND, self: undone({}) }, "remove finalizer", "Undoing"],
  [
    "a failure at a volume that was not imported",
    {
      self: self({ error: { code: "FailedPrecondition", message: "" } }),
      volume: { metadata: {}, spec: {} } as LvmVolume,
    },
    "finish: Failed",
    "Undoing",
  ],
  [
    "an LVMVolume that others keep",
    { ...INSPECTED, self: undone({}), volume: keptByOthers(volume("Inspect", "Inspected")) },
    `wait: waits for others to remove the finalizers other/one of LVMVolume ${NAME}`,
    "Undoing",
  ],
  ["a deletion of what a move holds", { ...UNDONE, volume: HELD }, IS_MOVING, "Undoing"],
  ["a deletion of what a move retains", { ...UNDONE, persistentVolume: MOVING }, IS_MOVING, "Undoing"],
  [
    "a failure that is undone",
    { self: self({ error: { code: "FailedPrecondition", message: "" } }) },
    "finish: Failed",
    "Undoing",
  ],
];

for (const [what, objects, expected, state] of STEPS) {
  Deno.test(`nextStep() of ${what}: ${expected}`, () => {
    const all = { ...START, ...objects };
    const step = nextStep(all);
    assertEquals(stepText(step), expected);
    assertEquals(stateOf(step, all.self), state);
  });
}

/** What an import can wait for: an agent, or others, and then the message names them. */
const WAITS: readonly string[] = [
  "a: it cannot be returned: OpenEBS LVM LocalPV does not know the volume any more: LVMVolume.local.openebs.io o is gone",
  "a: it cannot be returned: OpenEBS LVM LocalPV would remove the logical volume: LVMVolume.local.openebs.io o is being deleted",
  "a: it cannot be returned: waits until snapshots s are deleted",
  "a: it cannot be returned: what the agent says",
  "a: waits for the agent of node a",
  "a: waits for the state of the volume",
  "a: what the agent says",
  "others: it can be returned, or finished",
  "others: its LVMVolume is gone, or being moved to another node",
  "others: the volume was moved to node b; move it back, or finish",
  "others: waits for others to remove the finalizers other/one of the PersistentVolume",
  "others: waits until StorageClass fast is re-created for another claim",
  "others: waits until claim n/c is Bound again",
  "others: waits until the volume is not moved any more",
];

Deno.test("nextStep() of an import waits for nothing that it does not name", () => {
  const statuses: LvmImportStatus[] = [{}, RECORD, { ...RECORD, imported: true }, {
    ...{ ...RECORD, imported: true, finishing: true },
  }, { ...RECORD, error: { code: "FailedPrecondition", message: "" } }];
  const actions = ["Inspect", "Import", "InspectReturn", "Return"];
  const reasons = [undefined, "Inspected", "InUse", "Refused", "Imported", "Returnable", "NotReturnable", "Returned"];
  const theirs = persistentVolume("theirs", "Retain");
  const waiting = { ...deleted, finalizers: ["other/one"] };
  const all = combinationsOf<Partial<ImportObjects>>({
    self: statuses.flatMap((status) => [{}, deleted].map((metadata) => self(status, metadata))),
    volume: [
      ...[undefined, HELD as LvmVolume, volume("Import", "Imported", { nodeName: "b" })],
      ...actions.flatMap((action) => reasons.map((reason) => volume(action, reason))),
      ...actions.map((action) => ({ ...volume(action, "Imported"), status: volume(action, "Returnable").status! })),
    ],
    persistentVolume: [
      ...[undefined, persistentVolume("theirs"), theirs, persistentVolume("theirs", "Retain", waiting)],
      ...[persistentVolume("ours"), RETAINED, MOVING, persistentVolume("ours", "Retain", waiting)],
    ],
    claim: [undefined, claim("Lost"), claim("Bound")],
    storageClass: [undefined, OURS],
    object: [undefined, START.object, { metadata: { name: "o", uid: "o", ...deleted } }],
    snapshots: [[], ["s"]],
    isClassShared: [false, true],
  });
  const seen = new Set<string>();
  for (const objects of all) {
    const step = nextStep({ ...START, ...objects });
    if (step.do !== "wait") continue;
    const message = step.message.replace(
      /\bis (?:Inspected|InUse|Imported|(?:Not)?Returnable|Returned)$/,
      "what the agent says",
    );
    seen.add(`${step.agents.join() || "others"}: ${message}`);
  }
  assertEquals([...seen].sort(), WAITS);
});
