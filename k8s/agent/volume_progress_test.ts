import { assertEquals, assertMatch } from "@std/assert";
import type { Condition } from "../api/conditions.ts";
import type { LvmVolume } from "../api/lvm_objects.ts";
import { copyProgressOf, reportedVolumes } from "./volume_progress.ts";

function object(name: string, ioLimits: Record<string, string>, status: LvmVolume["status"] = {}): LvmVolume {
  return { metadata: { name }, spec: { driverName: "d", ioLimits }, status } as unknown as LvmVolume;
}

function limited(status: Condition["status"]): Condition {
  return {
    type: "IOLimitsApplied",
    status,
    lastTransitionTime: "2026-01-01T00:00:00Z",
    reason: "Refused",
    message: "so it is",
  };
}

Deno.test("reportedVolumes() returns the limits of LVMVolumes, whether they apply, and the progress of copies", () => {
  const reported = reportedVolumes([
    object("plain", {}),
    object("limited", { readIops: "5" }, { conditions: [limited("True")] }),
    object("unlimited", { readIops: "5" }, { conditions: [limited("False")] }),
    object("copy", {}, { copy: { copied: "512Mi", total: "1Gi", percent: 50, lastError: "a disk hangs" } }),
    object("begun", {}, { copy: { copied: "0" } }),
  ]);
  const limits = { readIops: { rate: 5n, perGiB: false } };
  assertEquals([...reported], [
    ["plain", { limits: {} }],
    ["limited", { limits }],
    ["unlimited", { limits, limitsProblem: "so it is" }],
    ["copy", { limits: {}, copy: { copied: 512n << 20n, total: 1n << 30n, lastError: "a disk hangs" } }],
    ["begun", { limits: {}, copy: { copied: 0n } }],
  ]);
});

Deno.test("copyProgressOf() returns the progress of a volume that is being copied", () => {
  const copies = [
    object("made", {}),
    object("half", {}, { copy: { copied: "512Mi", total: "1Gi" } }),
    object("begun", {}, { copy: { copied: "0" } }),
  ];
  assertEquals(copies.map(copyProgressOf), [undefined, 0.5, 0]);
});

Deno.test("reportedVolumes() returns the problem of limits that cannot be read", () => {
  const { limits, limitsProblem } = reportedVolumes([object("odd", { readIops: "many" })]).get("odd")!;
  assertEquals(limits, {});
  assertMatch(limitsProblem!, /readIops "many"/);
});
