import { assertEquals } from "@std/assert";
import type { LvmVolume, LvmVolumeStatus } from "../api/lvm_objects.ts";
import { contentOf, isCreated, volumeHealthOf } from "./stored_volume.ts";
import { volumeIdOf } from "../../base/ids.ts";
import { namedRequest } from "../../tests/fake/request.ts";
import type { ConditionReason } from "../api/condition_reasons.ts";
import type { Condition } from "../api/conditions.ts";
import { lvmVolumeFor } from "../api/volume_mapping.ts";

const volume = (spec: object, status?: LvmVolume["status"]) =>
  ({ metadata: { name: "v" }, spec, ...(status && { status }) }) as unknown as LvmVolume;

Deno.test("contentOf() returns the filesystem, and raw for a block device or one that nobody formats", () => {
  assertEquals(contentOf(volume({ fsType: "xfs" })), "xfs");
  assertEquals(contentOf(volume({ volumeMode: "Filesystem", fsType: "ext4" })), "ext4");
  assertEquals(contentOf(volume({ volumeMode: "Block", fsType: "ext4" })), "raw");
  assertEquals(contentOf(volume({})), "raw");
});

Deno.test("isCreated() returns true once the LV and its size are known", () => {
  assertEquals(isCreated(volume({}, { lvUUID: "u", size: "1Gi" })), true);
  for (const status of [undefined, {}, { lvUUID: "u" }, { size: "1Gi" }]) {
    assertEquals(isCreated(volume({}, status)), false);
  }
});

const id = volumeIdOf("pvc-1");

function object(status: LvmVolumeStatus): LvmVolume {
  const request = namedRequest("pvc-1", 1n << 30n, { id, format: { state: "raw" } });
  return { ...lvmVolumeFor(request, { driver: "d", nodeName: "n" }), status };
}

function condition(type: string, status: "True" | "False", reason: ConditionReason): Condition {
  return { type, status, reason, message: `${reason}.`, lastTransitionTime: "2026-01-01T00:00:00Z" };
}

function reasons(status: LvmVolumeStatus, hasAgent = true): string[] {
  const health = volumeHealthOf(object(status), hasAgent);
  assertEquals(health.id, id);
  return health.problems.map(({ reason }) => reason);
}

Deno.test("volumeHealthOf() finds nothing in conditions of a volume that is well", () => {
  const conditions = [
    condition("Ready", "True", "Created"),
    condition("Healthy", "True", "PhysicalVolumesPresent"),
    condition("Redundant", "True", "InSync"),
    condition("IOLimitsApplied", "False", "NoCgroup2"),
  ];
  assertEquals(reasons({ state: "Ready", conditions }), []);
});

Deno.test("volumeHealthOf() reports problems in the words of the conditions", () => {
  const conditions = [
    condition("Healthy", "False", "PhysicalVolumesMissing"),
    condition("Redundant", "False", "Degraded"),
  ];
  assertEquals(volumeHealthOf(object({ state: "Ready", conditions }), true).problems, [
    { reason: "PhysicalVolumesMissing", message: "PhysicalVolumesMissing." },
    { reason: "Degraded", message: "Degraded." },
  ]);
  assertEquals(reasons({ conditions: [condition("Redundant", "True", "Mismatches")] }), ["Mismatches"]);
});

Deno.test("volumeHealthOf() reports nothing else of a volume that is Lost", () => {
  const conditions = [condition("Ready", "False", "Lost"), condition("Healthy", "False", "ThinPoolFull")];
  const status = { state: "Lost", error: { code: "Lost", message: "it was in use" }, conditions } as const;
  assertEquals(volumeHealthOf(object({ ...status, conditions }), false).problems, [
    { reason: "Lost", message: "it was in use" },
  ]);
});

Deno.test("volumeHealthOf() reports a missing node and duplicates, and not why an expansion failed", () => {
  assertEquals(reasons({ state: "Ready" }, false), ["NodeNotFound"]);
  assertEquals(reasons({ state: "Ready", error: { code: "ForeignData", message: "both" } }), ["ForeignData"]);
  assertEquals(reasons({ state: "Ready", error: { code: "OutOfRange", message: "full" } }), []);
});
