import { assertEquals } from "@std/assert";
import { snapshotIdOf, transferSnapshotName } from "../../base/ids.ts";
import { heldConditions } from "../api/volume_conditions.ts";
import { type LvmSnapshot, type LvmVolume, MOVE_ANNOTATION } from "../api/lvm_objects.ts";
import { formatGrant, grantAnnotation } from "../api/transfers.ts";
import { isCopied, nextCopyStep } from "./copy_step.ts";
import { copyIdOf, type LvmMove, type LvmMoveStatus, type MoveObjects } from "./moves.ts";

const move = (status: LvmMoveStatus = {}): LvmMove => ({
  metadata: { name: `v1-${"a".repeat(32)}`, uid: "m" },
  spec: {
    ...{ driverName: "d", persistentVolume: "pv", claim: { namespace: "n", name: "c", uid: "u" } },
    ...{ sourceNode: "a", targetNode: "b" },
  },
  status,
});
const COPY = copyIdOf(move());

/** Returns the id of a temporary snapshot. @param generation that of the volume, for the last one */
const idOf = (round: number, ...generation: number[]) => snapshotIdOf(transferSnapshotName(COPY, round, ...generation));

function volume({ held = false, generation = 7, user }: { held?: boolean; generation?: number; user?: string } = {}) {
  const object = {
    metadata: { name: move().metadata.name, generation, annotations: { [MOVE_ANNOTATION]: "m" } },
    spec: { nodeName: "a", ...(held && { held }) },
    status: { state: "Ready", lvUUID: "a" },
  } as unknown as LvmVolume;
  object.status!.conditions = held ? heldConditions(object, user === undefined ? {} : { user }) : [];
  return object;
}
const HELD = volume({ held: true });

/** Returns a copy that should have a snapshot. @param has the one that it has */
function copy(
  spec: LvmVolume["spec"]["copy"],
  { has, state = "Pending", ...others }:
    & { has?: string; received?: string; state?: string }
    & Partial<NonNullable<LvmVolume["status"]>> = {},
): LvmVolume {
  const isReady = state === "Ready" && { lvUUID: "b" };
  const { received = "received" in others ? undefined : "1Gi", ...status } = others;
  return {
    metadata: { name: COPY, generation: 2 },
    spec: { nodeName: "b", copy: spec },
    status: {
      state,
      observedGeneration: 2,
      copy: { copied: "1", ...(has && { snapshot: has }), received },
      ...isReady,
      ...status,
    },
  } as unknown as LvmVolume;
}

const snapshot = (name: string) =>
  ({
    metadata: { name, annotations: { [grantAnnotation(COPY)]: formatGrant({ node: "b", until: 1e12 }) } },
  }) as unknown as LvmSnapshot;
const FIRST = { round: 0, snapshot: idOf(0) };
const SECOND = { round: 1, snapshot: idOf(1), base: idOf(0) };
const LAST = { round: 1, snapshot: idOf(1, 7), base: idOf(0), last: true };
const ONLY = { round: 0, snapshot: idOf(0, 7), last: true };
const TAKEN = { temporary: [FIRST, SECOND, LAST, ONLY].map((each) => snapshot(each.snapshot)) };
const offline = { self: move({ copyMode: "Offline" }) };
const unsuitable = { state: "Failed", error: { code: "InvalidArgument", message: "its sectors" } } as const;
const failed = { state: "Failed", error: { code: "FailedPrecondition", message: "gone" } } as const;

const { status: _status, ...withoutStatus } = copy(FIRST);

const STEPS: readonly [what: string, volume: LvmVolume, objects: Partial<MoveObjects>, step: string][] = [
  ["a volume in use", volume(), {}, `copy: ${idOf(0)}`],
  ["a volume in use that is moved offline", volume(), offline, "hold"],
  ["a volume whose copy mode is not known", volume(), { self: move() }, "hold"],
  [
    "a volume whose copy mode is chosen now",
    volume(),
    { self: move(), copyMode: { mode: "Online" } },
    `copy: ${idOf(0)}`,
  ],
  ["a snapshot that is not taken", volume(), { copy: copy(FIRST) }, `take snapshot: ${idOf(0)}`],
  [
    "a snapshot that nobody may read",
    volume(),
    { copy: copy(FIRST), temporary: [{ ...snapshot(idOf(0)), metadata: { name: idOf(0) } }] },
    `take snapshot: ${idOf(0)}`,
  ],
  [
    "a copy without a status",
    volume(),
    { ...TAKEN, copy: { ...copy(FIRST), status: {} } },
    "wait: copies it while it may be used",
  ],
  ["a copy that has not begun", volume(), { ...TAKEN, copy: withoutStatus }, "wait: copies it while it may be used"],
  ["an unfinished copy", volume(), { ...TAKEN, copy: copy(FIRST) }, "wait: copies it while it may be used"],
  [
    "a copy of the first snapshot",
    volume(),
    { copy: copy(FIRST, { has: idOf(0) }) },
    `difference: ${idOf(1)} from ${idOf(0)}`,
  ],
  ["a small copy", volume(), { copy: copy(FIRST, { has: idOf(0), received: "32Mi" }) }, "hold"],
  [
    "a copy of an unknown size",
    volume(),
    { copy: copy(FIRST, { has: idOf(0), received: undefined as never }) },
    `difference: ${idOf(1)} from ${idOf(0)}`,
  ],
  [
    "a small copy of a thick volume with snapshots",
    volume(),
    { copy: copy(FIRST, { has: idOf(0), received: "32Mi" }), snapshots: ["s", "t"] },
    "wait: waits until snapshots s, t are deleted",
  ],
  [
    "a thick volume with snapshots that is moved offline",
    volume(),
    { ...offline, snapshots: ["s"] },
    "wait: waits until snapshots s are deleted",
  ],
  ["a copy without space for another snapshot", volume(), {
    copy: copy(FIRST, { has: idOf(0) }),
    hasSpaceForSnapshot: false,
  }, "hold"],
  [
    "a copy whose difference is being sent",
    volume(),
    { ...TAKEN, copy: copy(SECOND, { has: idOf(0) }) },
    "wait: copies what changed meanwhile",
  ],
  [
    "a difference that is as large again",
    volume(),
    { copy: copy(SECOND, { has: idOf(1) }) },
    `difference: ${idOf(2)} from ${idOf(1)}`,
  ],
  [
    "a difference after four",
    volume(),
    { copy: copy({ ...SECOND, round: 4, snapshot: idOf(4) }, { has: idOf(4) }) },
    "hold",
  ],
  [
    "a held volume that is used",
    volume({ held: true, user: "a pod" }),
    { copy: copy(FIRST, { has: idOf(0) }) },
    "wait: nobody else may begin to use it, but a pod still does",
  ],
  [
    "a held volume, and what it had before",
    HELD,
    { copy: copy(FIRST, { has: idOf(0) }) },
    `last difference: ${LAST.snapshot} from ${idOf(0)}`,
  ],
  [
    "a held volume, and a difference that is being sent",
    HELD,
    { ...TAKEN, copy: copy(SECOND, { has: idOf(0) }) },
    "wait: copies what changed meanwhile",
  ],
  ["the last difference", HELD, { ...TAKEN, copy: copy(LAST, { has: idOf(0) }) }, "wait: copies what changed since"],
  [
    "a last difference that could not be had",
    HELD,
    { ...TAKEN, copy: copy(LAST) },
    "wait: copies all of it again: what changed could not be had",
  ],
  [
    "the last difference that has come",
    HELD,
    { ...TAKEN, copy: copy(LAST, { has: LAST.snapshot }) },
    "wait: completes the copy",
  ],
  [
    "a complete copy whose snapshots are left",
    HELD,
    { ...TAKEN, copy: copy(LAST, { state: "Ready" }) },
    "discard snapshots",
  ],
  [
    "a complete copy of a thick volume with snapshots",
    HELD,
    { copy: copy(LAST, { state: "Ready" }), snapshots: ["s"] },
    "wait: waits until snapshots s are deleted",
  ],
  [
    "a held volume of which somebody has a snapshot",
    volume({ held: true, user: "a pod" }),
    { copy: copy(FIRST, { has: idOf(0) }), snapshots: ["s"], isSnapshotted: true },
    "release",
  ],
  [
    "a complete copy of a volume of which somebody has a snapshot",
    HELD,
    { copy: copy(LAST, { state: "Ready" }), snapshots: ["s"], isSnapshotted: true },
    "release",
  ],
  [
    "a complete copy of a Lost volume of which somebody has a snapshot",
    { ...HELD, status: { ...HELD.status!, state: "Lost" } },
    { copy: copy(LAST, { state: "Ready" }), snapshots: ["s"], isSnapshotted: true },
    "wait: waits until snapshots s are deleted",
  ],
  [
    "a complete copy whose PersistentVolume is being replaced",
    HELD,
    {
      self: move({ copyMode: "Online", persistentVolume: {} as never }),
      ...{ copy: copy(LAST, { state: "Ready" }), snapshots: ["s"], isSnapshotted: true },
    },
    "wait: waits until snapshots s are deleted",
  ],
  ["a complete copy", HELD, { copy: copy(LAST, { state: "Ready" }) }, "done"],
  [
    "a complete copy of a volume that was released since",
    volume(),
    { copy: copy(LAST, { state: "Ready" }) },
    "delete copy",
  ],
  [
    "a last difference of a volume that was released since",
    volume(),
    { ...TAKEN, copy: copy(LAST, { has: idOf(0) }) },
    "delete copy",
  ],
  [
    "a complete copy of a volume that was released, and is held again",
    volume({ held: true, generation: 9 }),
    { copy: copy(LAST, { state: "Ready" }) },
    "delete copy",
  ],
  [
    "a last difference of a volume that was released, and is held again",
    volume({ held: true, generation: 9 }),
    { ...TAKEN, copy: copy(LAST, { has: LAST.snapshot }) },
    "delete copy",
  ],
  ["a held volume that is moved offline", HELD, offline, `last copy: ${ONLY.snapshot}`],
  ["its copy", HELD, { ...offline, ...TAKEN, copy: copy(ONLY) }, "wait: copies it"],
  ["its complete copy", HELD, { ...offline, copy: copy(ONLY, { state: "Ready" }) }, "done"],
  ["a copy that was begun online", HELD, { ...offline, copy: copy(FIRST, { has: idOf(0) }) }, "delete copy"],
  ["a copy that cannot be made", volume(), { copy: copy(FIRST, failed) }, "go offline: gone"],
  ["a copy that could not be mounted", volume(), { copy: copy(FIRST, unsuitable) }, "fail: its sectors"],
  ["a last difference that cannot be had", HELD, { copy: copy(LAST, failed) }, "go offline: gone"],
  ["a failure for what the copy should have had before", HELD, {
    ...TAKEN,
    copy: copy(LAST, { ...failed, has: idOf(0), observedGeneration: 1 }),
  }, "wait: copies what changed since"],
  ["a copy that could not be made online", volume(), { ...offline, copy: copy(FIRST, failed) }, "delete copy"],
  ["a last difference that could not be had online", HELD, { ...offline, copy: copy(LAST, failed) }, "delete copy"],
  [
    "a complete copy that is Lost",
    HELD,
    { copy: copy(LAST, { state: "Lost", error: failed.error }) },
    "go offline: gone",
  ],
  ["a complete copy that is Lost offline", HELD, { ...offline, copy: copy(LAST, { state: "Lost" }) }, "delete copy"],
  [
    "the only snapshot of a copy that is Lost",
    HELD,
    { ...offline, copy: copy(ONLY, { state: "Lost", error: failed.error }) },
    "fail: gone",
  ],
  [
    "a copy that is Lost, of a volume that is Lost",
    { ...HELD, status: { ...HELD.status, state: "Lost" } },
    { ...TAKEN, copy: copy(LAST, { state: "Lost", has: idOf(0) }) },
    "wait: copies what changed since",
  ],
  ["a copy that cannot be made offline", HELD, { ...offline, copy: copy(ONLY, failed) }, "fail: gone"],
];

for (const [what, held, objects, expected] of STEPS) {
  Deno.test(`nextCopyStep() of ${what}: ${expected.replaceAll(/v1-\w{30}/g, "")}`, () => {
    const start = {
      self: move({ copyMode: "Online" }),
      copy: undefined,
      temporary: [],
      snapshots: [],
      isSnapshotted: false,
      hasSpaceForSnapshot: true,
    };
    const step = nextCopyStep({
      ...start,
      volume: held,
      topologyKey: "k",
      persistentVolume: undefined,
      claim: undefined,
      ...objects,
    }, held);
    assertEquals(textOf(step), expected);
  });
}

function textOf(step: ReturnType<typeof nextCopyStep>): string {
  if (step === undefined) return "done";
  if ("goal" in step) {
    const { last, snapshot, base } = step.goal;
    assertEquals(step.goal.snapshot, snapshotIdOf(step.goal.name));
    return `${last ? "last " : ""}${step.do}: ${snapshot}${base === undefined ? "" : ` from ${base}`}`;
  }
  if ("reason" in step) return `${step.do}: ${step.reason}`;
  if ("error" in step) return `${step.do}: ${step.error.message}`;
  return "message" in step ? `${step.do}: ${step.message}` : step.do;
}

const READY = copy(LAST, { state: "Ready" });
const COPIES: readonly [what: string, copy: LvmVolume | undefined, volume: LvmVolume, is: boolean][] = [
  ["a complete copy of a held volume", READY, HELD, true],
  ["no copy", undefined, HELD, false],
  ["a copy without an LV", copy(LAST, { state: "Ready", lvUUID: undefined as never }), HELD, false],
  ["a copy that is being filled", copy(LAST, { has: LAST.snapshot }), HELD, false],
  [
    "a copy that is being deleted",
    { ...READY, metadata: { ...READY.metadata, deletionTimestamp: "now" } },
    HELD,
    false,
  ],
  ["a copy of an earlier hold", READY, volume({ held: true, generation: 9 }), false],
  ["a copy that has not its last snapshot", copy(FIRST, { state: "Ready" }), HELD, false],
  ["a copy of an unknown snapshot", copy(undefined, { state: "Ready" }), HELD, false],
  ["a volume that may be used", READY, volume(), false],
  ["a volume that is used", READY, volume({ held: true, user: "a pod" }), false],
  [
    "a volume that is held for another move",
    READY,
    { ...HELD, metadata: { ...HELD.metadata, annotations: {} } },
    false,
  ],
];

for (const [what, object, held, expected] of COPIES) {
  Deno.test(`isCopied() of ${what}: ${expected}`, () => {
    assertEquals(isCopied({ self: move(), copy: object }, held), expected);
  });
}

Deno.test("nextCopyStep() says of a wait whether others have to end it", () => {
  const start = {
    self: move({ copyMode: "Online" }),
    temporary: [],
    snapshots: [],
    isSnapshotted: false,
    hasSpaceForSnapshot: true,
  };
  const rest = { volume: HELD, topologyKey: "k", persistentVolume: undefined, claim: undefined };
  const isBlocked = (held: LvmVolume, objects: Partial<MoveObjects>) => {
    const step = nextCopyStep({ ...start, ...rest, copy: undefined, ...objects }, held);
    return step?.do === "wait" && step.isBlocked;
  };
  assertEquals(isBlocked(volume({ held: true, user: "a pod" }), {}), true);
  assertEquals(isBlocked({ ...HELD, status: { state: "Ready" } }, {}), undefined);
  assertEquals(isBlocked(volume(), { snapshots: ["s"], copy: copy(FIRST, { has: idOf(0), received: "1" }) }), true);
  assertEquals(isBlocked(HELD, { copy: copy(LAST, { state: "Ready" }), snapshots: ["s"] }), true);
  assertEquals(isBlocked(volume(), { ...TAKEN, copy: copy(FIRST) }), undefined);
});
