import { assertEquals, assertMatch } from "@std/assert";
import { exactMatcher, type GroupMatcher } from "../../lvm/model/groups.ts";
import type { VolumeGroup } from "../../lvm/model/report.ts";
import type { LvmNode } from "../api/lvm_objects.ts";
import type { EventRecorder } from "../runtime/events.ts";
import { PhysicalVolumeConditions } from "./node_conditions.ts";

const NODE: LvmNode = { metadata: { name: "n" }, spec: { driverName: "d" } };

function groupWith(name: string, ...missing: string[]): VolumeGroup {
  const pvs = ["present", ...missing].map((uuid) => ({ uuid, missing: uuid !== "present" }));
  return { name, uuid: name, missingPvs: missing.length, pvs, responsive: true } as unknown as VolumeGroup;
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

Deno.test("a node reports the groups one by one whose physical volumes are back, and none that LVM does not find", () => {
  const events: string[] = [];
  const record = (_: unknown, type: string, _reason: string, message: string) =>
    void events.push(`${type} ${/volume group (\w+)/.exec(message)?.[1]}`);
  const conditions = new PhysicalVolumeConditions({
    events: { record } as unknown as EventRecorder,
    groups: { matches: () => true } as unknown as GroupMatcher,
  });
  const observe = (...groups: VolumeGroup[]) => {
    conditions.observe(groups);
    conditions.recordEvents(NODE);
    return events.splice(0);
  };
  assertEquals(observe(groupWith("one", "a"), groupWith("two", "b")), ["Warning one", "Warning two"]);
  assertEquals(observe(groupWith("one"), groupWith("two", "b")), ["Normal one"]);
  assertEquals(observe(groupWith("one")), [], "all physical volumes of the other group are gone");
  assertEquals(observe(groupWith("one"), { ...groupWith("two"), responsive: false }), [], "it does not respond");
  assertEquals(observe(groupWith("one"), groupWith("two")), ["Normal two"]);
  assertEquals(observe(groupWith("one"), groupWith("two")), []);
});
