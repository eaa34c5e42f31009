import { assertEquals, assertThrows } from "@std/assert";
import { topologyOfAllNodes, topologyOfNode, WrongNodeError } from "./claim_topology.ts";
import { ClaimError } from "./class_parameters.ts";
import type { CsiNode, Node } from "../api/objects.ts";

const node = (name: string, labels: Record<string, string> = {}): Node => ({ metadata: { name, labels } });
const csiNode = (name: string, driver: string): CsiNode => ({
  metadata: { name },
  spec: { drivers: [{ name: driver, nodeID: name, topologyKeys: ["key"] }] },
});
const cluster = {
  driverName: "d",
  topologyKey: "key",
  nodes: [
    node("a", { key: "id-a", zone: "1" }),
    node("b", { key: "id-b", zone: "2" }),
    node("c", { key: "id-c", zone: "2" }),
    node("bare", { zone: "1" }),
    node("other", { key: "id-other" }),
  ],
  csiNodes: [csiNode("a", "d"), csiNode("b", "d"), csiNode("c", "d"), csiNode("bare", "d"), csiNode("other", "e")],
};
const zone = (...values: string[]) => [{ matchLabelExpressions: [{ key: "zone", values }] }];
const ids = (segments: readonly Readonly<Record<string, string>>[]) => segments.map(({ key }) => key);

Deno.test("topologyOfNode() returns only the label of the chosen node", () => {
  const only = [{ key: "id-b" }];
  assertEquals(topologyOfNode("b", undefined, cluster), { requisite: only, preferred: only });
  assertEquals(topologyOfNode("b", zone("1", "2"), cluster), { requisite: only, preferred: only });
});

Deno.test("topologyOfNode() refuses a node that does not exist, lacks the driver, or is not allowed", () => {
  for (const [name, allowed] of [["gone", undefined], ["other", undefined], ["b", zone("1")]] as const) {
    assertThrows(() => topologyOfNode(name, allowed, cluster), WrongNodeError);
  }
  assertThrows(() => topologyOfNode("bare", undefined, cluster), ClaimError, "no label key yet");
});

Deno.test("topologyOfAllNodes() returns every allowed node with the driver, and prefers none", () => {
  const all = topologyOfAllNodes(undefined, cluster);
  assertEquals([ids(all.requisite), all.preferred], [["id-a", "id-b", "id-c"], []]);
  assertEquals(ids(topologyOfAllNodes(zone("2"), cluster).requisite), ["id-b", "id-c"]);
  assertEquals(ids(topologyOfAllNodes([...zone("1"), ...zone("2")], cluster).requisite), ["id-a", "id-b", "id-c"]);
  assertEquals(ids(topologyOfAllNodes([], cluster).requisite), ["id-a", "id-b", "id-c"]);
  assertThrows(() => topologyOfAllNodes(zone("9"), cluster), ClaimError);
});
