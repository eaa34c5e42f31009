import { assertEquals } from "@std/assert";
import type { PersistentVolume, PersistentVolumeClaim } from "../api/objects.ts";
import {
  capacityOf,
  expandedPatch,
  needsExpansion,
  nextSize,
  PRE_RESIZE_CAPACITY_ANNOTATION,
  type ResizeState,
  sizesOf,
} from "./resize_plan.ts";

const GiB = 1n << 30n;

interface ClaimFixture {
  requested: number;
  actual?: number;
  allocated?: number;
  state?: ResizeState;
  conditions?: string[];
}

function claim({ requested, actual = 1, allocated, state, conditions = [] }: ClaimFixture): PersistentVolumeClaim {
  return {
    metadata: { name: "data", namespace: "default", uid: "1" },
    spec: { volumeName: "v", resources: { requests: { storage: `${requested}Gi` } } },
    status: {
      phase: "Bound",
      capacity: { storage: `${actual}Gi` },
      ...(allocated === undefined ? {} : { allocatedResources: { storage: `${allocated}Gi` } }),
      ...(state === undefined ? {} : { allocatedResourceStatuses: { storage: state } }),
      conditions: conditions.map((type) => ({ type, status: "True" })),
    },
  };
}

const volume = (gibibytes: number): PersistentVolume => ({
  metadata: { name: "v" },
  spec: { capacity: { storage: `${gibibytes}Gi` } },
});

Deno.test("needsExpansion() returns true for a bound claim that names a volume and requests more than it has", () => {
  const given = claim({ requested: 2 });
  assertEquals(needsExpansion(given), true);
  assertEquals(needsExpansion(claim({ requested: 1 })), false);
  assertEquals(needsExpansion({ ...given, status: { ...given.status, phase: "Pending" } }), false);
  assertEquals(needsExpansion({ ...given, spec: { ...given.spec, volumeName: "" } }), false);
});

Deno.test("nextSize() completes a resize that began, and accepts a smaller request after a failed one", () => {
  const cases: [string, ClaimFixture, number, boolean, number | undefined][] = [
    ["a first resize", { requested: 3 }, 1, false, 3],
    [
      "more while the controller is in doubt",
      { requested: 9, allocated: 5, state: "ControllerResizeInProgress" },
      1,
      false,
      5,
    ],
    [
      "less while the controller is in doubt",
      { requested: 3, allocated: 9, state: "ControllerResizeInProgress" },
      1,
      false,
      9,
    ],
    [
      "less after the controller failed",
      { requested: 3, allocated: 9, state: "ControllerResizeInProgress" },
      1,
      true,
      3,
    ],
    ["less after it was infeasible", { requested: 3, allocated: 9, state: "ControllerResizeInfeasible" }, 1, false, 3],
    [
      "less than the volume has, after that",
      { requested: 3, allocated: 9, state: "ControllerResizeInfeasible" },
      5,
      false,
      5,
    ],
    [
      "the volume has grown, but nothing says so",
      { requested: 3, allocated: 3, state: "ControllerResizeInProgress" },
      3,
      false,
      3,
    ],
    ["the node is due", { requested: 3, allocated: 3, state: "NodeResizePending" }, 3, false, undefined],
    ["the node is at work", { requested: 3, allocated: 3, state: "NodeResizeInProgress" }, 3, false, undefined],
    ["more while the node is due", { requested: 9, allocated: 3, state: "NodeResizePending" }, 3, false, undefined],
    [
      "the node is due, but the volume has not grown",
      { requested: 9, allocated: 3, state: "NodeResizePending" },
      1,
      false,
      3,
    ],
    ["the node could not", { requested: 3, allocated: 3, state: "NodeResizeInfeasible" }, 3, false, 3],
    ["more after the node could not", { requested: 9, allocated: 3, state: "NodeResizeInfeasible" }, 3, false, 3],
    ["big enough, and nobody said whether the node is due", { requested: 3 }, 3, false, 3],
    [
      "the same of old, with the node due",
      { requested: 3, conditions: ["FileSystemResizePending"] },
      3,
      false,
      undefined,
    ],
    ["another one after one that is finished", { requested: 9, actual: 3, allocated: 3 }, 3, false, 9],
  ];
  for (const [what, given, capacity, hasFinalError, gibibytes] of cases) {
    const expected = gibibytes === undefined ? undefined : BigInt(gibibytes) * GiB;
    assertEquals(nextSize(claim(given), volume(capacity), { hasFinalError }), expected, what);
  }
});

Deno.test("sizesOf() and capacityOf() return nothing for objects that are not filled in yet", () => {
  const metadata = { name: "data" };
  const none = { requested: 0n, actual: 0n, allocated: undefined, state: undefined };
  assertEquals(sizesOf({ metadata }), none);
  assertEquals(sizesOf({ metadata, spec: {}, status: {} }), none);
  assertEquals([capacityOf({ metadata }), capacityOf({ metadata, spec: {} })], [0n, 0n]);
});

Deno.test("expandedPatch() records the capacity before the first of several expansions, and is empty when nothing changes", () => {
  const grown = { spec: { capacity: { storage: "3Gi" } } };
  const recorded = (storage: string) => ({ metadata: { annotations: { [PRE_RESIZE_CAPACITY_ANNOTATION]: storage } } });
  assertEquals(expandedPatch(volume(1), 3n * GiB, { preResizeCapacity: undefined }), grown);
  assertEquals(expandedPatch(volume(1), 3n * GiB, { preResizeCapacity: "1Gi" }), { ...grown, ...recorded("1Gi") });
  assertEquals(expandedPatch(volume(3), 3n * GiB, { preResizeCapacity: "1Gi" }), { ...grown, ...recorded("1Gi") });
  assertEquals(expandedPatch(volume(3), 3n * GiB, { preResizeCapacity: undefined }), undefined);
  const { metadata: { annotations } } = recorded("1Gi");
  const again = { ...volume(2), metadata: { name: "v", annotations } };
  assertEquals(expandedPatch(again, 3n * GiB, { preResizeCapacity: "2Gi" }), grown);
  assertEquals(
    expandedPatch({ ...again, ...volume(3), metadata: again.metadata }, 3n * GiB, { preResizeCapacity: "2Gi" }),
    undefined,
  );
});
