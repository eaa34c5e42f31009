import { assertEquals } from "@std/assert";
import type { ForgetPlan } from "./plan.ts";
import { forgetPlanText } from "./text.ts";

Deno.test("forgetPlanText() has no sections of volumes and snapshots for a node without any", () => {
  const plan = { nodeName: "dead", lvmNode: {}, livenessEvidence: [], volumes: [], snapshots: [] };
  const text = forgetPlanText(plan as unknown as Parameters<typeof forgetPlanText>[0], true);
  assertEquals(text, "Node dead\n  its LVMNode is removed");
});

const PLAN: ForgetPlan = {
  nodeName: "dead",
  livenessEvidence: [],
  lvmNode: false,
  volumes: [
    { id: "v1-a", size: 1n << 30n, outcome: "removed" },
    { id: "v1-b", size: 1n << 30n, outcome: "removed", claim: "default/b", volumeGroup: "data", state: "Pending" },
    {
      ...{ id: "v1-c", size: 1n << 30n, outcome: "lost", claim: "default/c", state: "Ready" },
      persistentVolume: { name: "pv-c", phase: "Bound", reclaimPolicy: "Delete" },
    },
    { id: "v1-d", size: 1n << 30n, outcome: "lost", claim: "default/d", state: "Ready", neededBy: "LVMMove v1-d" },
  ],
  snapshots: [],
};

Deno.test("forgetPlanText() shows each volume in the section of its outcome, with what it was made for", () => {
  assertEquals(forgetPlanText(PLAN, false).split("\n"), [
    "Node dead",
    "",
    "Volumes that no PersistentVolume needs: would be removed",
    "  ID    GROUP   SIZE  STATE",
    "  v1-a         1 GiB",
    "  v1-b  data   1 GiB  Pending",
    "      made for claim default/b",
    "",
    "Volumes of PersistentVolumes, moves and imports: would be marked as Lost",
    "  ID    GROUP   SIZE  STATE",
    "  v1-c         1 GiB  Ready",
    "      PersistentVolume pv-c (Bound, Delete): delete claim default/c and its pods to have a new",
    "      volume",
    "  v1-d         1 GiB  Ready",
    "      LVMMove v1-d is under way, and needs it",
    "",
    "Nothing was changed. To do it: kubectl denolith forget-node dead --yes",
  ]);
});

Deno.test("forgetPlanText() tells a node without anything from one with volumes or snapshots alone", () => {
  const nothing = { ...PLAN, volumes: [] };
  assertEquals(forgetPlanText(nothing, true), "There is nothing of node dead to forget.");
  const snapshot = { id: "v1-s", size: 0n, outcome: "removed", sourceVolume: "v1-a" } as const;
  assertEquals(forgetPlanText({ ...nothing, snapshots: [snapshot] }, true).split("\n").slice(0, 3), [
    "Node dead",
    "",
    "Snapshots that no VolumeSnapshotContent needs: removed",
  ]);
  assertEquals(forgetPlanText({ ...PLAN, volumes: PLAN.volumes.slice(0, 1) }, true).split("\n")[0], "Node dead");
});
