import { assertEquals } from "@std/assert";
import { forgetPlanText } from "./text.ts";

Deno.test("forgetPlanText() has no sections of volumes and snapshots for a node without any", () => {
  const plan = { nodeName: "dead", lvmNode: {}, livenessEvidence: [], volumes: [], snapshots: [] };
  const text = forgetPlanText(plan as unknown as Parameters<typeof forgetPlanText>[0], true);
  assertEquals(text, "Node dead\n  its LVMNode is removed");
});
