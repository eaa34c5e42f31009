import { assertEquals, assertMatch } from "@std/assert";
import { exactMatcher } from "../../lvm/model/groups.ts";
import type { VolumeGroup } from "../../lvm/model/report.ts";
import type { LvmNode } from "../api/lvm_objects.ts";
import type { EventRecorder } from "../runtime/events.ts";
import { PhysicalVolumeConditions } from "./physical_volume_conditions.ts";

const NODE: LvmNode = { metadata: { name: "n" }, spec: { driverName: "d" } };

function groupWith(name: string, ...missing: string[]): VolumeGroup {
  const pvs = ["present", ...missing].map((uuid) => ({ uuid, missing: uuid !== "present" }));
  return { name, uuid: name, missingPvs: missing.length, pvs } as unknown as VolumeGroup;
}

Deno.test("a node reports missing physical volumes of its groups once, by their UUIDs, and that they are back", () => {
  const events: string[] = [];
  const record = (_: unknown, type: string, reason: string, message: string) =>
    void events.push(`${type} ${reason} ${/\((.*)\)/.exec(message)?.[1] ?? ""}`);
  const conditions = new PhysicalVolumeConditions({
    events: { record } as unknown as EventRecorder,
    groups: exactMatcher("data"),
  });
  const states = [
    [groupWith("data"), groupWith("foreign", "x")],
    [groupWith("data", "a")],
    [groupWith("data", "a")],
    [groupWith("data", "a", "b")],
    [groupWith("data")],
    [groupWith("data")],
  ].map((groups) => {
    const [condition] = conditions.observe(groups);
    conditions.recordEvents(NODE);
    return condition!;
  });
  const [present, missing] = ["False PhysicalVolumesPresent", "True PhysicalVolumesMissing"];
  assertEquals(
    states.map(({ status, reason }) => `${status} ${reason}`),
    [present, missing, missing, missing, present, present],
  );
  assertMatch(states[3]!.message, /volume group data has 2 missing physical volumes \(a, b\)/);
  assertEquals(events, [
    "Warning PhysicalVolumesMissing a",
    "Warning PhysicalVolumesMissing a, b",
    "Normal PhysicalVolumesPresent ",
  ]);
});
