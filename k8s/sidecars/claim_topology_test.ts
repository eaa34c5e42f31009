import { assertEquals, assertThrows } from "@std/assert";
import { type ObjectsByName, topologyOfAllNodes, topologyOfNode, WrongNodeError } from "./claim_topology.ts";
import { ClaimError } from "./class_parameters.ts";
import type { CsiNode, Node } from "../api/objects.ts";

const node = (name: string, labels: Record<string, string> = {}): Node => ({ metadata: { name, labels } });
const csiNode = (name: string, driver: string): CsiNode => ({
  metadata: { name },
  spec: { drivers: [{ name: driver, nodeID: name, topologyKeys: ["key"] }] },
});
/** Returns objects as an informer has them. */
function byName<T extends Node | CsiNode>(...objects: T[]): ObjectsByName<T> {
  return { get: (name) => objects.find(({ metadata }) => metadata.name === name), list: () => objects };
}
const cluster = {
  driverName: "d",
  topologyKey: "key",
  nodes: byName(
    node("a", { key: "id-a", zone: "1" }),
    node("b", { key: "id-b", zone: "2" }),
    node("c", { key: "id-c", zone: "2" }),
    node("bare", { zone: "1" }),
    node("other", { key: "id-other" }),
  ),
  csiNodes: byName(...["a", "b", "c", "bare"].map((name) => csiNode(name, "d")), csiNode("other", "e")),
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

Deno.test("topologyOfAllNodes() returns the same, in whichever order the nodes are known", () => {
  const shuffled = { ...cluster, nodes: byName(...cluster.nodes.list().toReversed()) };
  assertEquals(
    topologyOfAllNodes(undefined, shuffled, "data-web-1"),
    topologyOfAllNodes(undefined, cluster, "data-web-1"),
  );
});

Deno.test("topologyOfAllNodes() prefers another node for each replica of a StatefulSet", () => {
  const preferredOf = (claimName: string) => ids(topologyOfAllNodes(undefined, cluster, claimName).preferred);
  const orders = [0, 1, 2, 3].map((ordinal) => preferredOf(`data-web-${ordinal}`));
  assertEquals(new Set(orders.slice(0, 3).map(([first]) => first)), new Set(["id-a", "id-b", "id-c"]));
  assertEquals(orders[3], orders[0], "the fourth replica begins again");
  for (const order of orders) assertEquals(order.toSorted(), ["id-a", "id-b", "id-c"]);
  assertEquals(preferredOf("web-2"), orders[2], "a name without a template");
  assertEquals(preferredOf("logs-web-1"), orders[1], "the claims of one replica prefer the same node");
});

Deno.test("topologyOfAllNodes() rotates the nodes as csi-provisioner does", () => {
  // FNV-1 of "web" is 0x46661985 and that of "db" 0x6d7728c3 (getPVCNameHashAndIndexOffset of csi-provisioner)
  const firstOf = (claimName: string) => ids(topologyOfAllNodes(undefined, cluster, claimName).preferred)[0];
  assertEquals(firstOf("data-web-0"), ["id-a", "id-b", "id-c"][fnv1("web") % 3]);
  assertEquals(firstOf("data-db-7"), ["id-a", "id-b", "id-c"][(fnv1("db") + 7) % 3]);
});

Deno.test("topologyOfAllNodes() prefers no node for a claim that belongs to no StatefulSet", () => {
  for (const name of ["data", "data-web", "7", "data-web-x1", "data-7-", undefined]) {
    assertEquals(topologyOfAllNodes(undefined, cluster, name).preferred, [], name);
  }
});

/** The FNV-1 hash of an ASCII text, in BigInt arithmetic. */
function fnv1(text: string): number {
  let hash = 2166136261n;
  for (const byte of new TextEncoder().encode(text)) hash = ((hash * 16777619n) & 0xffffffffn) ^ BigInt(byte);
  return Number(hash);
}
