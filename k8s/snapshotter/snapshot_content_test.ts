import { assertEquals, assertNotEquals } from "@std/assert";
import {
  BEING_CREATED_ANNOTATION,
  BEING_DELETED_ANNOTATION,
  CONTENT_FINALIZER,
  observedPatch,
  snapshotRules,
} from "./snapshot_content.ts";
import { type ContentStep, failedPatch } from "./content.ts";
import type { VolumeSnapshotContent } from "../api/snapshot_objects.ts";

/** Anything about a content, in short. */
interface ContentFixture {
  policy?: "Delete" | "Retain";
  /** Of a snapshot that was there before. */
  given?: boolean;
  /** Without a VolumeSnapshot. */
  free?: boolean;
  guarded?: boolean;
  begun?: boolean;
  left?: boolean;
  deleting?: boolean;
  handle?: boolean;
  ready?: boolean;
  /** Of a group snapshot: its annotation, or the status. */
  member?: "annotation" | "status";
}

function content(fixture: ContentFixture): VolumeSnapshotContent {
  const { policy = "Delete", given, free, guarded = true, begun, left, deleting, handle, ready, member } = fixture;
  return {
    metadata: {
      name: "content",
      finalizers: ["other", ...(guarded ? [CONTENT_FINALIZER] : [])],
      annotations: {
        ...(begun && { [BEING_CREATED_ANNOTATION]: "yes" }),
        ...(left && { [BEING_DELETED_ANNOTATION]: "yes" }),
        ...(member === "annotation" && { "groupsnapshot.storage.k8s.io/volumeGroupSnapshotHandle": "v1-group" }),
      },
      ...(deleting && { deletionTimestamp: "2026-01-01T00:00:00Z" }),
    },
    spec: {
      driver: "lvm.denolith.dev",
      deletionPolicy: policy,
      source: given ? { snapshotHandle: "v1-given" } : { volumeHandle: "v1-volume" },
      volumeSnapshotRef: { namespace: "default", name: "snap", ...(free ? {} : { uid: "u" }) },
    },
    status: {
      ...(handle && { snapshotHandle: "v1-taken" }),
      ...(ready !== undefined && { readyToUse: ready }),
      ...(member === "status" && { volumeGroupSnapshotHandle: "v1-group" }),
    },
  };
}

const deletionDue = { left: true, deleting: true };
const usable = { handle: true, ready: true };

Deno.test.each<[string, ContentFixture, ContentStep]>([
  ["a snapshot that is wanted is taken", {}, "create"],
  ["an error before does not keep it from that", { ready: false }, "create"],
  ["none is begun before the finalizer is there", { guarded: false }, "nothing"],
  ["none is begun when the VolumeSnapshot is gone", { left: true }, "nothing"],
  ["none is begun when the VolumeSnapshot is gone and the snapshot should be kept", {
    left: true,
    policy: "Retain",
  }, "nothing"],
  ["one is begun when the content is being deleted and the VolumeSnapshot is not", { deleting: true }, "create"],
  ["what was begun is asked for again", { begun: true }, "create"],
  ["what was begun is asked for again without the finalizer", { begun: true, guarded: false }, "create"],
  ["what was begun is asked for again when it is to go", { begun: true, ...deletionDue }, "create"],
  ["what was begun and is known is settled", { begun: true, handle: true, ready: false }, "clear being-created"],
  ["what was begun and can be used is settled", { begun: true, ...usable }, "clear being-created"],
  ["a snapshot that cannot be used yet is looked at", { handle: true, ready: false }, "check"],
  ["a snapshot that can be used is left alone", usable, "nothing"],
  ["… also when it was kept", { ...usable, left: true, policy: "Retain" }, "nothing"],
  ["… also when the content waits for its VolumeSnapshot", { ...usable, deleting: true }, "nothing"],
  ["a snapshot that nobody wants is removed", { ...usable, ...deletionDue }, "delete snapshot"],
  ["… also if it was not settled", { ...usable, ...deletionDue, begun: true }, "delete snapshot"],
  ["… also if it could not be used", { handle: true, ready: false, ...deletionDue }, "delete snapshot"],
  ["… but kept by its policy", { ...usable, ...deletionDue, policy: "Retain" }, "remove finalizer"],
  ["a snapshot of a group is not taken alone", { member: "annotation" }, "nothing"],
  ["… but looked at while it cannot be used", { member: "annotation", handle: true, ready: false }, "check"],
  ["… and left alone when it can be used", { member: "status", ...usable }, "nothing"],
  [
    "… and left to its group by its annotation",
    { member: "annotation", ...usable, ...deletionDue },
    "remove finalizer",
  ],
  ["… and left to its group by its status", { member: "status", ...usable, ...deletionDue }, "remove finalizer"],
  ["… and left to its group before its handle is known", { member: "annotation", ...deletionDue }, "remove finalizer"],
  [
    "nothing that was begun is followed if it is to be kept",
    { ...deletionDue, begun: true, policy: "Retain" },
    "remove finalizer",
  ],
  ["what was never begun goes", deletionDue, "remove finalizer"],
  ["without the finalizer a deletion is over", { ...usable, ...deletionDue, guarded: false }, "nothing"],
  ["… also of what was begun", { ...deletionDue, begun: true, guarded: false }, "nothing"],
  ["… also of what is kept", { ...usable, ...deletionDue, guarded: false, policy: "Retain" }, "nothing"],
  ["a snapshot that was there before is looked at", { given: true }, "check"],
  ["… also without a VolumeSnapshot and finalizer", { given: true, free: true, guarded: false }, "check"],
  ["… until it was found", { given: true, ...usable }, "nothing"],
  ["… and removed with its VolumeSnapshot", { given: true, ...usable, ...deletionDue }, "delete snapshot"],
  ["… also if it was never found", { given: true, ...deletionDue }, "delete snapshot"],
  ["… or kept", { given: true, ...usable, ...deletionDue, policy: "Retain" }, "remove finalizer"],
  ["… and waits for its VolumeSnapshot", { given: true, ...usable, deleting: true }, "nothing"],
  ["… and for none where there is none", { given: true, free: true, ...usable, deleting: true }, "delete snapshot"],
])("nextStep(): %s", (_, fixture, step) => {
  assertEquals(snapshotRules.nextStep(content(fixture)), step);
});

Deno.test("reconcileInputs() distinguishes changes by others from those of the controller itself", () => {
  const inputs = (fixture: ContentFixture) => snapshotRules.reconcileInputs(content(fixture));
  for (const own of [{ begun: true }, usable, { ready: false }]) assertEquals(inputs(own), inputs({}));
  const others: ContentFixture[] = [{ left: true }, deletionDue, { guarded: false }, { policy: "Retain" }, {
    free: true,
  }];
  for (const other of others) assertNotEquals(inputs(other), inputs({}), JSON.stringify(other));
});

const now = new Date("2026-01-01T00:00:00.123Z");
const snapshot = {
  snapshotId: "v1-taken",
  creationTimeNs: 1_700_000_000_123_000_000n,
  sizeBytes: 5n << 30n,
  readyToUse: true,
};

Deno.test("observedPatch() records what the status does not have yet, and removes an error", () => {
  const status = (given: VolumeSnapshotContent["status"], readyToUse = true) =>
    observedPatch({ ...content({}), status: given! }, { ...snapshot, readyToUse }, now)?.status;
  const whole = {
    snapshotHandle: "v1-taken",
    creationTime: 1_700_000_000_123_000_000,
    restoreSize: 5_368_709_120,
    readyToUse: true,
  };
  assertEquals(status(undefined), whole);
  assertEquals(status({ error: { message: "no" }, readyToUse: false }), { ...whole, error: null });
  assertEquals(status(whole), undefined);
  assertEquals(status({ ...whole, readyToUse: false }, false), undefined);
  assertEquals(status({ ...whole, readyToUse: false }), { readyToUse: true });
  // What was written first stays.
  const other = { snapshotHandle: "v1-other", creationTime: 1, restoreSize: 1, readyToUse: true };
  assertEquals(status(other), undefined);
});

Deno.test("observedPatch() writes nanoseconds that the API accepts as an integer, and the present time if there are none", () => {
  const written = (creationTimeNs: bigint) =>
    JSON.stringify(observedPatch(content({}), { ...snapshot, creationTimeNs }, now)!.status);
  assertEquals(/"creationTime":(\d+)[,}]/.exec(written(1_767_225_600_000_000_000n))?.[1], "1767225600000000000");
  assertEquals(/"creationTime":(\d+)[,}]/.exec(written(0n))?.[1], "1767225600123000000");
  assertEquals(observedPatch(content({}), { ...snapshot, sizeBytes: 0n }, now)!.status!.restoreSize, undefined);
});

Deno.test("failedPatch() records an error and its time once, and nothing for a snapshot that is ready", () => {
  const failed = failedPatch(content({}), "no", now)!.status as VolumeSnapshotContent["status"];
  assertEquals(failed, { readyToUse: false, error: { message: "no", time: "2026-01-01T00:00:00Z" } });
  assertEquals(failedPatch({ ...content({}), status: failed! }, "no", new Date()), undefined);
  assertEquals(failedPatch({ ...content({}), status: failed! }, "other", now)?.status?.error?.message, "other");
  assertEquals(failedPatch(content(usable), "no", now), undefined);
});

Deno.test("secretOf() returns the secret that the snapshot-controller named, if any", () => {
  const named = (annotations: Record<string, string>) =>
    snapshotRules.secretOf({ ...content({}), metadata: { name: "c", annotations } });
  const prefix = "snapshot.storage.kubernetes.io/deletion-secret";
  assertEquals(named({ [`${prefix}-name`]: "a", [`${prefix}-namespace`]: "b" }), { name: "a", namespace: "b" });
  assertEquals([named({ [`${prefix}-name`]: "a" }), named({})], [undefined, undefined]);
});

Deno.test("shouldDelete() waits for the VolumeSnapshot, unless there is none of a snapshot that was there before", () => {
  const cases: [ContentFixture, boolean][] = [
    [{}, false],
    [{ left: true }, false],
    [{ deleting: true }, false],
    [{ deleting: true, left: true }, true],
    [{ deleting: true, free: true }, false],
    [{ deleting: true, given: true }, false],
    [{ deleting: true, given: true, free: true }, true],
  ];
  for (const [fixture, expected] of cases) {
    assertEquals(snapshotRules.shouldDelete(content(fixture)), expected, JSON.stringify(fixture));
  }
});
