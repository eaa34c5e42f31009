import { create } from "@bufbuild/protobuf";
import { assertEquals, assertThrows } from "@std/assert";
import { StorageError } from "../base/error.ts";
import { TopologyRequirementSchema } from "./proto/csi_pb.ts";
import { nodeChoice, requireNodeId, TOPOLOGY_KEY, topologyOf } from "./topology.ts";

const on = (node: string) => ({ segments: { [TOPOLOGY_KEY]: node, zone: "a" } });

Deno.test("nodeChoice() returns the nodes that are allowed and preferred, in their order", () => {
  const requirement = { requisite: [on("n1"), on("n2")], preferred: [on("n2"), on("n1")] };
  const choice = nodeChoice(create(TopologyRequirementSchema, requirement));
  assertEquals(choice, { allowed: ["n1", "n2"], preferred: ["n2", "n1"] });
});

Deno.test("nodeChoice() allows all nodes without a requirement, and none to a topology without the node's key", () => {
  assertEquals(nodeChoice(undefined), { preferred: [] });
  const requisite = [{ segments: { zone: "a" } }];
  assertEquals(nodeChoice(create(TopologyRequirementSchema, { requisite })), { allowed: ["(none)"], preferred: [] });
});

Deno.test("topologyOf() adds the labels of the node, and no label replaces the node's name", () => {
  assertEquals(topologyOf("n1"), { segments: { [TOPOLOGY_KEY]: "n1" } });
  const { segments }: { segments: Record<string, string> } = topologyOf("n1", { zone: "a", [TOPOLOGY_KEY]: "other" });
  assertEquals(segments, { zone: "a", [TOPOLOGY_KEY]: "n1" });
});

Deno.test("requireNodeId() accepts what can be the value of a label", () => {
  for (const id of ["n", "node-1.example_a", "a".repeat(63)]) assertEquals(requireNodeId(id), id);
  for (const id of ["", "-n", "n.", "a b", "a".repeat(64)]) {
    assertThrows(() => requireNodeId(id), StorageError, "must be");
  }
});
