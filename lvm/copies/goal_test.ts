import { assertEquals } from "@std/assert";
import { snapshotIdOf, volumeIdOf } from "../../base/ids.ts";
import type { CopyBase, CopyGoal } from "../model/tags.ts";
import type { LogicalVolume, VolumeGroup } from "../model/report.ts";
import { type CopyState, nextStep } from "./plan.ts";
import { newWork, recordFailure, recordGoal } from "./work.ts";
import { StorageError } from "../../base/error.ts";

const GiB = 1n << 30n;
const [FIRST, SECOND, THIRD] = ["first", "second", "third"].map(snapshotIdOf) as [
  ReturnType<typeof snapshotIdOf>,
  ReturnType<typeof snapshotIdOf>,
  ReturnType<typeof snapshotIdOf>,
];
const goal = (snapshot: typeof FIRST, more: Partial<CopyGoal> = {}): CopyGoal => ({
  ...{ round: 0, snapshot, last: false },
  ...more,
});

/** Returns a copy that is filled from the first snapshot. */
function copy(
  copied: bigint,
  more: Partial<CopyState> = {},
  lv: Partial<LogicalVolume> = {},
  base: CopyBase = { id: FIRST, uuid: "f" },
): CopyState {
  const group = { name: "g" } as VolumeGroup;
  const fixed = { name: "to", size: GiB, active: true, suspended: false, open: false, layout: [] };
  return {
    id: volumeIdOf("copy"),
    tags: { format: { state: "raw" }, source: { kind: "volume", id: volumeIdOf("v") }, copied },
    destination: { lv: { ...fixed, ...lv } as unknown as LogicalVolume, group },
    sourceNode: "a",
    base,
    offset: copied,
    ...more,
  };
}

const thin = { pool: "p", layout: ["thin", "sparse"] };
const second = { goal: goal(SECOND, { base: FIRST }) };

const STEPS: readonly [what: string, copy: CopyState, step: string][] = [
  ["of which this process knows no goal", copy(0n), "rest"],
  ["that is filled", copy(0n, { goal: goal(FIRST) }), "fetch 0"],
  ["that is filled, and should have another one then", copy(0n, second), "fetch 0"],
  ["that has all bytes", copy(0n, { goal: goal(FIRST), offset: GiB, total: GiB }), "record filled"],
  ["that has all bytes of a smaller snapshot", copy(0n, { goal: goal(FIRST), offset: 4n, total: 4n }), "record filled"],
  ["that has its snapshot", copy(GiB, { goal: goal(FIRST) }), "rest"],
  ["that has its last snapshot", copy(GiB, { goal: goal(FIRST, { last: true }) }), "complete"],
  ["that has its last snapshot, and is open", copy(GiB, { goal: goal(FIRST, { last: true }) }, { open: true }), "wait"],
  ["that should have the next snapshot", copy(GiB, second), "fetch difference 0"],
  ["that has a part of the difference", copy(GiB, { ...second, differenceOffset: 7n }), "fetch difference 7"],
  [
    "that should have the difference from another one",
    copy(GiB, { goal: goal(THIRD, { base: SECOND }) }),
    "fill again",
  ],
  ["that should have all of another one", copy(GiB, { goal: goal(SECOND) }), "fill again"],
  ["that should have another one before it is filled", copy(0n, { goal: goal(SECOND) }), "fill again"],
  ["whose difference cannot be had", copy(GiB, { ...second, isWithoutDifference: true }), "fill again"],
  ["whose snapshot has no known UUID", copy(GiB, second, {}, { id: FIRST }), "fill again"],
  ["that is thin, and should have all of another one", copy(GiB, { goal: goal(SECOND) }, thin), "drop"],
  ["that is not active", copy(GiB, second, { active: false }), "activate"],
  [
    "whose UUID was being changed",
    { ...copy(GiB, second), tags: { ...copy(GiB).tags, format: { state: "formatting", type: "ext4", uuid: "u" } } },
    "restart",
  ],
];

for (const [what, state, expected] of STEPS) {
  Deno.test(`nextStep() of a copy of several snapshots ${what}: ${expected}`, () => {
    const step = nextStep(state);
    assertEquals("offset" in step ? `${step.do} ${step.offset}` : step.do, expected);
  });
}

Deno.test("another goal makes a copy that failed try again, and the same one does not", () => {
  const work = newWork();
  recordGoal(work, goal(FIRST));
  Object.assign(work, { differenceOffset: 5n, differenceRefusals: 3, received: 3, offset: GiB });
  recordFailure(work, new StorageError("NotFound", "gone"), 0, 1);
  recordGoal(work, goal(FIRST));
  assertEquals([work.failure?.message, work.differenceOffset, work.received], ["gone", 5n, 3]);
  recordGoal(work, goal(SECOND, { base: FIRST }));
  assertEquals(
    [work.failure, work.differenceOffset, work.differenceRefusals, work.received, work.notBefore, work.offset],
    [undefined, undefined, undefined, 0, 0, GiB],
  );
});
