/**
 * Tests that need two nodes: claims find the node with free space, and pods of a dead node continue on the other. The
 * suite runs in a cluster of its own; its first node has space for three volumes, its second for one.
 *
 * @module
 */

import { assertEquals, assertMatch } from "@std/assert";
import type { Pod } from "../../../k8s/api/objects.ts";
import { runPlugin } from "./helpers/plugin_command.ts";
import { PublishedCapacity } from "./helpers/published_capacity.ts";
import { createClaimsAtOnce, creationFailures, nodesOf, waitForBound } from "./helpers/concurrent_claims.ts";
import type { VolumeGroupSnapshot } from "./helpers/object_watcher.ts";
import { SnapshotTestNamespace } from "./helpers/snapshot_test_namespace.ts";
import { TestNamespace } from "./helpers/test_namespace.ts";
import { isRunning, QUICK, SLEEP, statefulSetObject } from "./helpers/objects.ts";

/** A size that fits three times on the first node and once on the second, in MiB. */
const SMALL = 600;

/** A size that fits twice on the first node and once on the second, in MiB. */
const LARGE = 900;

/** Opens a namespace in the cluster of two nodes, with a class, when their free space is as at the start. */
async function openTwoNodes(title: string, volumeBindingMode: "Immediate" | "WaitForFirstConsumer") {
  const ns = await TestNamespace.open(title);
  const { nodes } = ns.cluster;
  if (nodes.length !== 2) {
    await ns[Symbol.asyncDispose]();
    throw new Error(`open ${title}: the cluster has ${nodes.length} nodes; run: deno task test:cluster two_nodes`);
  }
  const published = await PublishedCapacity.open(ns);
  const cls = await ns.createStorageClass("data", { parameters: QUICK, volumeBindingMode });
  const capacities = await Promise.all(nodes.map(async (node) => {
    const size = await ns.runOnNode("vgs --noheadings --units m --nosuffix -o vg_size data", node);
    await published.waitFor(Number(size), node.name, cls);
    return [node.name, Number(size)] as const;
  }));
  return {
    ns,
    cls,
    /** Waits until all that was made here is gone, and its space free. */
    async waitForCleanup() {
      await ns.waitForCleanup();
      for (const [name, mib] of capacities) await published.waitFor(mib, name, cls);
    },
    async [Symbol.asyncDispose]() {
      await published[Symbol.asyncDispose]();
      await ns[Symbol.asyncDispose]();
    },
  };
}

/** Returns a StatefulSet with a volume for each replica. */
function statefulSet(cls: string, options: { replicas: number; mib: number; policy: "OrderedReady" | "Parallel" }) {
  const { replicas, mib, policy } = options;
  return statefulSetObject({
    ...{ replicas, policy },
    container: { command: ["sh", "-c", SLEEP], volumeDevices: [{ name: "data", devicePath: "/raw" }] },
    data: { name: "data", class: cls, size: `${mib}Mi`, volumeMode: "Block" },
  });
}

/** Returns the number of the claims' volumes on each node. */
async function volumesPerNode(ns: TestNamespace, claims: readonly string[]): Promise<Record<string, number>> {
  const nodes = Object.values(await nodesOf(ns, claims));
  return Object.fromEntries(ns.cluster.nodes.map(({ name }) => [name, nodes.filter((one) => one === name).length]));
}

/** Removes a StatefulSet with its claims. */
async function deleteStatefulSet(ns: TestNamespace): Promise<void> {
  await ns.kubectl("delete", "statefulset", "store");
  await ns.kubectl("delete", "pods,persistentvolumeclaims", "--all");
}

Deno.test("the third replica runs on the node with free space, and a fourth finds none", async () => {
  await using s = await openTwoNodes("third", "WaitForFirstConsumer");
  const { ns } = s;
  await ns.apply(statefulSet(s.cls, { replicas: 3, mib: LARGE, policy: "OrderedReady" }));
  const [pods, claims] = ["store", "data-store"].map((name) => [0, 1, 2].map((ordinal) => `${name}-${ordinal}`));
  for (const pod of pods!) await ns.waitForRunning(pod);
  assertEquals(await volumesPerNode(ns, claims!), { node1: 2, node2: 1 });
  const warnings = (await Promise.all(claims!.map((name) => ns.events("PersistentVolumeClaim", name)))).flat()
    .filter(({ reason }) => reason === "ProvisioningFailed");
  assertEquals([warnings, await creationFailures(ns, claims!)], [[], []], "nobody found out by trying");

  await ns.kubectl("scale", "statefulset/store", "--replicas=4");
  await ns.waitForEvent("Pod", "store-3", "FailedScheduling", /2 node\(s\) did not have enough free storage/);
  await deleteStatefulSet(ns);
  await s.waitForCleanup();
});

Deno.test("four replicas at once share two nodes with space for three and for one", async () => {
  await using s = await openTwoNodes("parallel", "WaitForFirstConsumer");
  const { ns } = s;
  await ns.apply(statefulSet(s.cls, { replicas: 4, mib: SMALL, policy: "Parallel" }));
  const [pods, claims] = ["store", "data-store"].map((name) => [0, 1, 2, 3].map((ordinal) => `${name}-${ordinal}`));
  await Promise.all(pods!.map((pod) => ns.waitForRunning(pod)));
  assertEquals(await volumesPerNode(ns, claims!), { node1: 3, node2: 1 });
  assertEquals(await creationFailures(ns, claims!), [], "what was chosen too often was given back before it was tried");
  await deleteStatefulSet(ns);
  await s.waitForCleanup();
});

Deno.test("four Immediate claims at once are placed by the nodes' free space, and a fifth waits", async () => {
  await using s = await openTwoNodes("now", "Immediate");
  const { ns } = s;
  const names = ["one", "two", "three", "four"];
  await createClaimsAtOnce(ns, names, { class: s.cls, size: `${SMALL}Mi`, volumeMode: "Block" });
  await waitForBound(ns, names, 4);
  assertEquals([await volumesPerNode(ns, names), await creationFailures(ns, names)], [{ node1: 3, node2: 1 }, []]);
  await ns.createClaim({ name: "five", class: s.cls, size: `${SMALL}Mi`, volumeMode: "Block" });
  await ns.waitForEvent(
    "PersistentVolumeClaim",
    "five",
    "ProvisioningFailed",
    /node node\d: .*not enough free space.*node node\d: .*not enough free space/,
  );
  await ns.deleteAndWait("PersistentVolumeClaim", "one");
  await ns.waitForBound("five");
  for (const name of [...names.slice(1), "five"]) await ns.deleteAndWait("PersistentVolumeClaim", name);
  await s.waitForCleanup();
});

Deno.test("with transfers off, a claim is refused on another node than its source, and its pod follows the source", async () => {
  await using s = await openTwoNodes("far", "WaitForFirstConsumer");
  const { ns } = s;
  const mount = { path: "/data" };
  await ns.createClaim({ name: "data", class: s.cls });
  await ns.createPod({ name: "user", claims: [{ name: "data", ...mount }], node: "node1" });
  await ns.waitForRunning("user");
  await ns.createClaim({ name: "copy", class: s.cls, from: { kind: "PersistentVolumeClaim", name: "data" } });
  await ns.createPod({ name: "far", claims: [{ name: "copy", ...mount }], node: "node2" });
  const refusal = /^node node2: the source of the volume is on node node1, and the volume is created there/;
  await ns.waitForEvent("PersistentVolumeClaim", "copy", "ProvisioningFailed", refusal);
  await ns.createPod({ name: "near", claims: [{ name: "copy", ...mount }] });
  assertEquals((await ns.waitForRunning("near")).spec?.nodeName, "node1");
  for (const name of ["user", "far", "near"]) await ns.deleteAndWait("Pod", name);
  for (const name of ["copy", "data"]) await ns.deleteAndWait("PersistentVolumeClaim", name);
  await s.waitForCleanup();
});

Deno.test("a group snapshot of claims on both nodes is refused with their names, and leaves nothing on either", async () => {
  await using snapshots = await SnapshotTestNamespace.open("wide");
  const { ns } = snapshots;
  const cls = await ns.createStorageClass("data", { parameters: QUICK, volumeBindingMode: "WaitForFirstConsumer" });
  const nodes = ns.cluster.nodes.map(({ name }) => name);
  for (const node of nodes) {
    await ns.createClaim({ name: `on-${node}`, class: cls });
    await ns.createPod({ name: `of-${node}`, claims: [{ name: `on-${node}`, path: "/data" }], node });
    await ns.waitForRunning(`of-${node}`);
  }
  const claims = nodes.map((node) => `on-${node}`);
  await ns.kubectl("label", "persistentvolumeclaims", ...claims, "app=wide");
  const className = await snapshots.createGroupSnapshotClass("groups");
  await snapshots.createGroupSnapshot("wide", { app: "wide", className });
  const hasError = (now?: VolumeGroupSnapshot) => now?.status?.error?.message?.includes("on one node alone") === true;
  const { status } = await ns.waitFor("VolumeGroupSnapshot", "wide", hasError, "has the driver's error");
  for (const node of nodes) {
    assertMatch(status!.error!.message!, new RegExp(`volume v1-\\w+ is on node ${node}|on node ${node};`));
  }
  assertEquals(await ns.kubectl("get", "lvmsnapshots", "--output=name"), "");
  await ns.deleteAndWait("VolumeGroupSnapshot", "wide");
  await ns.waitForDeletion("VolumeGroupSnapshotContent", status!.boundVolumeGroupSnapshotContentName!);
  for (const node of ns.cluster.nodes) {
    assertEquals((await ns.runOnNode("lvs --noheadings -o lv_tags", node)).includes("denolith.group="), false);
  }
  for (const node of nodes) await ns.deleteAndWait("Pod", `of-${node}`);
  for (const claim of claims) await ns.deleteAndWait("PersistentVolumeClaim", claim);
  await ns.waitForCleanup();
});

// The last one: the second node is dead then.
Deno.test("a node that failed for good blocks nothing after the steps for it, and its replica runs on the other node", async () => {
  await using s = await openTwoNodes("dead", "WaitForFirstConsumer");
  const { ns } = s;
  const [liveNode, deadNode] = ns.cluster.nodes;
  await ns.kubectl("cordon", liveNode!.name);
  await ns.apply(statefulSet(s.cls, { replicas: 1, mib: SMALL, policy: "OrderedReady" }));
  assertEquals((await ns.waitForRunning("store-0")).spec?.nodeName, deadNode!.name);
  await ns.kubectl("uncordon", liveNode!.name);
  const { metadata: { name }, spec } = await ns.volumeOf("data-store-0");
  const id = spec!.csi!.volumeHandle;

  await deadNode!.powerOff();
  await ns.kubectl("delete", "node", deadNode!.name);
  await ns.waitForDeletion("LVMNode", deadNode!.name);
  const preview = await runPlugin(ns, "forget-node", deadNode!.name);
  assertEquals((preview.volumes as { id: string }[]).some((volume) => volume.id === id), true, JSON.stringify(preview));
  await runPlugin(ns, "forget-node", deadNode!.name, "--yes");
  await ns.waitFor("LVMVolume", id, (volume) => volume?.status?.state === "Lost", "is Lost");
  await ns.waitForEvent("PersistentVolumeClaim", "data-store-0", "VolumeLost", /was forgotten/);

  await ns.requestDeletion("PersistentVolumeClaim", "data-store-0");
  await ns.requestDeletion("Pod", "store-0");
  await ns.waitForDeletion("PersistentVolume", name);
  await ns.waitForDeletion("LVMVolume", id);
  const isElsewhere = (pod: Pod | undefined) => isRunning(pod) && pod?.spec?.nodeName === liveNode!.name;
  await ns.waitFor("Pod", "store-0", isElsewhere, `runs on ${liveNode!.name}`);
  await deleteStatefulSet(ns);
});
