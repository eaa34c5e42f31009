import { assertEquals } from "@std/assert";
import { CLAIM_ANNOTATION, type LvmVolume } from "../../k8s/api/lvm_objects.ts";
import type { PersistentVolume } from "../../k8s/api/objects.ts";
import { livenessEvidence, type NodeObjects, planForget } from "./plan.ts";

const NOW = new Date("2026-02-03T04:05:06Z");

const NODE: NodeObjects = {
  agentLeases: [],
  ...{ driver: "lvm.denolith.dev", nodeName: "dead", node: undefined, lvmNode: undefined },
  ...{ volumes: [], snapshots: [], persistentVolumes: new Map(), needs: new Map(), contents: new Map() },
};

Deno.test("livenessEvidence() finds the condition Ready among the others of a Node", () => {
  const evidence = (...conditions: { type: string; status: string }[]) =>
    livenessEvidence({ ...NODE, node: { metadata: { name: "dead" }, status: { conditions } } }, NOW);
  const pressure = { type: "MemoryPressure", status: "False" };
  assertEquals(evidence(pressure, { type: "Ready", status: "True" }), ["Node dead is Ready"]);
  assertEquals(evidence({ type: "MemoryPressure", status: "True" }, { type: "Ready", status: "False" }), []);
  assertEquals(evidence(), []);
});

Deno.test("livenessEvidence() ignores what the agent of a node reported that is out of service, unless the Node is Ready", () => {
  const lvmNode = {
    metadata: { name: "dead" },
    spec: { driverName: "lvm.denolith.dev" },
    status: { lastUpdateTime: NOW.toISOString() },
  };
  const evidence = (status: string, ...keys: string[]) => {
    const taints = keys.map((key) => ({ key, effect: "NoExecute" }));
    const node = { metadata: { name: "dead" }, spec: { taints }, status: { conditions: [{ type: "Ready", status }] } };
    return livenessEvidence({ ...NODE, node, lvmNode }, NOW);
  };
  const [unreachable, outOfService] = ["node.kubernetes.io/unreachable", "node.kubernetes.io/out-of-service"];
  assertEquals(evidence("Unknown", unreachable, outOfService), []);
  assertEquals(evidence("Unknown", unreachable), ["its agent reported 0 s ago"]);
  assertEquals(evidence("True", outOfService), ["Node dead is Ready", "its agent reported 0 s ago"]);
});

Deno.test("planForget() names the claim that a volume is bound to, or else the one that it was made for", () => {
  const volume = {
    metadata: { name: "v1-a", annotations: { [CLAIM_ANNOTATION]: "default/asked" } },
    spec: { size: "1Gi" },
  } as unknown as LvmVolume;
  const planned = (spec: PersistentVolume["spec"]) => {
    const persistentVolumes = new Map([["v1-a", { metadata: { name: "pv" }, ...(spec && { spec }) }]]);
    return planForget({ ...NODE, volumes: [volume], persistentVolumes }, NOW).volumes[0]!;
  };
  assertEquals(planned({ claimRef: { namespace: "default", name: "bound" } }).claim, "default/bound");
  for (const claimRef of [{ namespace: "default" }, { name: "bound" }, {}]) {
    assertEquals(planned({ claimRef }).claim, "default/asked", JSON.stringify(claimRef));
  }
  assertEquals(planned({}).persistentVolume, { name: "pv", phase: "Pending", reclaimPolicy: "Retain" });
  assertEquals(planned(undefined).persistentVolume?.reclaimPolicy, "Retain");
});

Deno.test("planForget() keeps a volume without a PersistentVolume that a move or an import needs", () => {
  const volumes = ["v1-a", "v1-b"].map((name) => ({ metadata: { name }, spec: { size: "1Gi" } })) as LvmVolume[];
  const needs = new Map([["v1-a", "LVMMove v1-a"]]);
  const outcomes = planForget({ ...NODE, volumes, needs }, NOW).volumes.map((
    { outcome, neededBy },
  ) => [outcome, neededBy]);
  assertEquals(outcomes, [["lost", "LVMMove v1-a"], ["removed", undefined]]);
});
