import { assertEquals } from "@std/assert";
import type { PersistentVolumeClaim } from "../api/objects.ts";
import {
  canceledPatch,
  failedPatch,
  modifiedPatch,
  nextModification,
  pendingPatch,
  startedPatch,
  volumeAttributesPatch,
} from "./modify_plan.ts";

type Status = NonNullable<PersistentVolumeClaim["status"]>;

/** A claim that is bound to a volume, and asks for a class. */
function claim(wanted: string | undefined, status: Status = {}): PersistentVolumeClaim {
  const spec = { volumeName: "v", ...(wanted === undefined ? {} : { volumeAttributesClassName: wanted }) };
  return { metadata: { name: "data", namespace: "default" }, spec, status: { phase: "Bound", ...status } };
}

const changing = (status: string, target?: string): Status => ({
  modifyVolumeStatus: { status, ...(target === undefined ? {} : { targetVolumeAttributesClassName: target }) },
});

const MODIFYING = { type: "ModifyingVolume", status: "True" };
const FAILED = { type: "ModifyVolumeError", status: "True", reason: "Internal", message: "it broke" };
const OTHER = { type: "Resizing", status: "True" };

Deno.test("nextModification() completes what was begun, and otherwise follows the claim", () => {
  const nothing = { action: "nothing" } as const;
  const begin = (className: string) => ({ action: "begin", className }) as const;
  const resume = (className: string) => ({ action: "continue", className }) as const;
  const cases: [string, PersistentVolumeClaim, boolean, ReturnType<typeof nextModification>][] = [
    ["no class", claim(undefined), false, nothing],
    ["the first class", claim("gold"), false, begin("gold")],
    ["another class", claim("gold", { currentVolumeAttributesClassName: "silver" }), false, begin("gold")],
    ["the class that it has", claim("gold", { currentVolumeAttributesClassName: "gold" }), false, nothing],
    ["not bound", { ...claim("gold"), status: { phase: "Pending" } }, false, nothing],
    ["without a volume", { ...claim("gold"), spec: { volumeAttributesClassName: "gold" } }, false, nothing],
    ["begun", claim("gold", changing("InProgress", "gold")), false, resume("gold")],
    ["begun, and another one wanted", claim("gold", changing("InProgress", "silver")), false, resume("silver")],
    ["failed, and another one wanted", claim("gold", changing("InProgress", "silver")), true, begin("gold")],
    ["failed, and none wanted", claim(undefined, changing("InProgress", "silver")), true, resume("silver")],
    ["begun without a target", claim("gold", changing("InProgress")), false, begin("gold")],
    ["begun without a target, and none wanted", claim(undefined, changing("InProgress")), false, nothing],
    ["pending", claim("gold", changing("Pending")), false, begin("gold")],
    ["infeasible", claim("gold", changing("Infeasible", "gold")), false, begin("gold")],
    ["infeasible, and none wanted", claim(undefined, changing("Infeasible", "gold")), false, nothing],
    [
      "infeasible, none wanted, and still said to be in progress",
      claim(undefined, { ...changing("Infeasible", "gold"), conditions: [MODIFYING] }),
      false,
      { action: "cancel" },
    ],
  ];
  for (const [what, given, hasFinalError, expected] of cases) {
    assertEquals(nextModification(given, { hasFinalError }), expected, what);
  }
});

Deno.test("pendingPatch() and startedPatch() are empty when nothing changes", () => {
  assertEquals(pendingPatch(claim("gold")), { status: changing("Pending") });
  assertEquals(pendingPatch(claim("gold", changing("InProgress", "gold"))), { status: changing("Pending") });
  assertEquals(pendingPatch(claim("gold", changing("Pending"))), undefined);
  assertEquals(startedPatch(claim("gold", changing("InProgress", "gold")), "gold", "now"), undefined);
  for (const before of [{}, changing("InProgress", "silver"), changing("Infeasible", "gold")]) {
    const { status } = startedPatch(claim("gold", before), "gold", "now")! as { status: Status };
    assertEquals(status.modifyVolumeStatus, changing("InProgress", "gold").modifyVolumeStatus);
    assertEquals(status.conditions!.map(({ type, message }) => [type, message]), [
      ["ModifyingVolume", 'The volume is being changed to "gold".'],
    ]);
  }
});

Deno.test("failedPatch() keeps the time of a condition whose reason is the same, and is empty when nothing changes", () => {
  const failure = { className: "gold", reason: "Internal", message: "it broke", infeasible: false, uncertain: false };
  const timeOf = (reason: string, before: readonly object[]) => {
    const given = claim("gold", { ...changing("InProgress", "gold"), conditions: before as never });
    const { status } = failedPatch(given, { ...failure, reason, message: "again", now: "later" })! as {
      status: Status;
    };
    return status.conditions!.find(({ type }) => type === "ModifyVolumeError")!.lastTransitionTime;
  };
  const before = [{ ...FAILED, lastTransitionTime: "earlier" }];
  assertEquals([timeOf("Internal", before), timeOf("Unavailable", before)], ["earlier", "later"]);
  assertEquals(timeOf("Internal", [{ ...before[0], status: "False" }]), "later");
  const reported = claim("gold", { ...changing("InProgress", "gold"), conditions: [FAILED] });
  assertEquals(failedPatch(reported, { ...failure, now: "later" }), undefined);
  const infeasible = failedPatch(reported, { ...failure, infeasible: true, now: "later" })! as { status: Status };
  assertEquals(infeasible.status.modifyVolumeStatus?.status, "Infeasible");
});

Deno.test("modifiedPatch() and canceledPatch() take out their own conditions alone", () => {
  const given = claim("gold", { ...changing("InProgress", "gold"), conditions: [OTHER, MODIFYING, FAILED] });
  assertEquals(modifiedPatch(given, "gold"), {
    status: { currentVolumeAttributesClassName: "gold", modifyVolumeStatus: null, conditions: [OTHER] },
  } as never);
  assertEquals(canceledPatch(given), { status: { conditions: [OTHER, FAILED] } } as never);
  assertEquals(canceledPatch(claim(undefined, { conditions: [OTHER, FAILED] })), undefined);
});

Deno.test("volumeAttributesPatch() is empty for a volume that says so already", () => {
  const metadata = { name: "v" };
  const patch = { spec: { volumeAttributesClassName: "gold" } };
  assertEquals(volumeAttributesPatch({ metadata }, "gold"), patch);
  assertEquals(volumeAttributesPatch({ metadata, spec: { volumeAttributesClassName: "silver" } }, "gold"), patch);
  assertEquals(volumeAttributesPatch({ metadata, spec: { volumeAttributesClassName: "gold" } }, "gold"), undefined);
});
