import { assertEquals, assertNotEquals } from "@std/assert";
import {
  BEING_CREATED,
  BEING_DELETED,
  CONTENT_FINALIZER,
  type ContentStep,
  factsOf,
  failing,
  nextStep,
  secretOf,
  seenAs,
} from "./snapshot_content.ts";
import type { VolumeSnapshotContent } from "../api/snapshot_objects.ts";

/** Anything about a content, in short. */
interface Short {
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
}

function content(short: Short): VolumeSnapshotContent {
  const { policy = "Delete", given, free, guarded = true, begun, left, deleting, handle, ready } = short;
  return {
    metadata: {
      name: "content",
      finalizers: ["other", ...(guarded ? [CONTENT_FINALIZER] : [])],
      annotations: { ...(begun && { [BEING_CREATED]: "yes" }), ...(left && { [BEING_DELETED]: "yes" }) },
      ...(deleting && { deletionTimestamp: "2026-01-01T00:00:00Z" }),
    },
    spec: {
      driver: "lvm.denolith.dev",
      deletionPolicy: policy,
      source: given ? { snapshotHandle: "v1-given" } : { volumeHandle: "v1-volume" },
      volumeSnapshotRef: { namespace: "default", name: "snap", ...(free ? {} : { uid: "u" }) },
    },
    status: { ...(handle && { snapshotHandle: "v1-taken" }), ...(ready !== undefined && { readyToUse: ready }) },
  };
}

const going = { left: true, deleting: true };
const taken = { handle: true, ready: true };

Deno.test.each<[string, Short, ContentStep]>([
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
  ["what was begun is asked for again when it is to go", { begun: true, ...going }, "create"],
  ["what was begun and is known is settled", { begun: true, handle: true, ready: false }, "settle"],
  ["what was begun and can be used is settled", { begun: true, ...taken }, "settle"],
  ["a snapshot that cannot be used yet is looked at", { handle: true, ready: false }, "check"],
  ["a snapshot that can be used is left alone", taken, "nothing"],
  ["… also when it was kept", { ...taken, left: true, policy: "Retain" }, "nothing"],
  ["… also when the content waits for its VolumeSnapshot", { ...taken, deleting: true }, "nothing"],
  ["a snapshot that nobody wants is removed", { ...taken, ...going }, "remove"],
  ["… also if it was not settled", { ...taken, ...going, begun: true }, "remove"],
  ["… also if it could not be used", { handle: true, ready: false, ...going }, "remove"],
  ["… but kept by its policy", { ...taken, ...going, policy: "Retain" }, "release"],
  ["nothing that was begun is followed if it is to be kept", { ...going, begun: true, policy: "Retain" }, "release"],
  ["what was never begun goes", going, "release"],
  ["without the finalizer a deletion is over", { ...taken, ...going, guarded: false }, "nothing"],
  ["… also of what was begun", { ...going, begun: true, guarded: false }, "nothing"],
  ["… also of what is kept", { ...taken, ...going, guarded: false, policy: "Retain" }, "nothing"],
  ["a snapshot that was there before is looked at", { given: true }, "check"],
  ["… also without a VolumeSnapshot and finalizer", { given: true, free: true, guarded: false }, "check"],
  ["… until it was found", { given: true, ...taken }, "nothing"],
  ["… and removed with its VolumeSnapshot", { given: true, ...taken, ...going }, "remove"],
  ["… also if it was never found", { given: true, ...going }, "remove"],
  ["… or kept", { given: true, ...taken, ...going, policy: "Retain" }, "release"],
  ["… and waits for its VolumeSnapshot", { given: true, ...taken, deleting: true }, "nothing"],
  ["… and for none where there is none", { given: true, free: true, ...taken, deleting: true }, "remove"],
])("nextStep(): %s", (_, short, step) => {
  assertEquals(nextStep(content(short)), step);
});

Deno.test("factsOf() tells what others decide from what the loop writes itself", () => {
  const facts = (short: Short) => factsOf(content(short));
  for (const own of [{ begun: true }, taken, { ready: false }]) assertEquals(facts(own), facts({}));
  const others: Short[] = [{ left: true }, going, { guarded: false }, { policy: "Retain" }, { free: true }];
  for (const other of others) assertNotEquals(facts(other), facts({}), JSON.stringify(other));
});

const now = new Date("2026-01-01T00:00:00.123Z");
const snapshot = { snapshotId: "v1-taken", takenAt: 1_700_000_000_123_000_000n, bytes: 5n << 30n, ready: true };

Deno.test("seenAs() writes down what is not there yet, and takes an error away", () => {
  const status = (given: VolumeSnapshotContent["status"], ready = true) =>
    seenAs({ ...content({}), status: given! }, { ...snapshot, ready }, now)?.status;
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

Deno.test("seenAs() writes nanoseconds that are a whole number for the API, and the present where there are none", () => {
  const written = (takenAt: bigint) => JSON.stringify(seenAs(content({}), { ...snapshot, takenAt }, now)!.status);
  assertEquals(/"creationTime":(\d+)[,}]/.exec(written(1_767_225_600_000_000_000n))?.[1], "1767225600000000000");
  assertEquals(/"creationTime":(\d+)[,}]/.exec(written(0n))?.[1], "1767225600123000000");
  assertEquals(seenAs(content({}), { ...snapshot, bytes: 0n }, now)!.status!.restoreSize, undefined);
});

Deno.test("failing() says what went wrong and when, once, and nothing of what can be used", () => {
  const failed = failing(content({}), "no", now)!.status as VolumeSnapshotContent["status"];
  assertEquals(failed, { readyToUse: false, error: { message: "no", time: "2026-01-01T00:00:00Z" } });
  assertEquals(failing({ ...content({}), status: failed! }, "no", new Date()), undefined);
  assertEquals(failing({ ...content({}), status: failed! }, "other", now)?.status?.error?.message, "other");
  assertEquals(failing(content(taken), "no", now), undefined);
});

Deno.test("secretOf() finds the secret that the snapshot-controller named, if it named one", () => {
  const named = (annotations: Record<string, string>) =>
    secretOf({ ...content({}), metadata: { name: "c", annotations } });
  const prefix = "snapshot.storage.kubernetes.io/deletion-secret";
  assertEquals(named({ [`${prefix}-name`]: "a", [`${prefix}-namespace`]: "b" }), { name: "a", namespace: "b" });
  assertEquals([named({ [`${prefix}-name`]: "a" }), named({})], [undefined, undefined]);
});
