/**
 * Agents that hang: their nodes exist, but get no new volumes.
 *
 * @module
 */

import { assert, assertEquals } from "@std/assert";
import { lvmNodes, type LvmVolume, lvmVolumes } from "../../k8s/api/lvm_objects.ts";
import { LINEAR } from "../../lvm/model/layout.ts";
import { ANY_GROUP } from "../../lvm/model/groups.ts";
import { volumeIdOf } from "../../base/ids.ts";
import { FakeClock } from "../fake/clock.ts";
import { waitUntil } from "../fake/cluster/control_plane.ts";
import { FakeCluster } from "../fake/cluster/node_cluster.ts";
import { ANYWHERE, assertFailsWith, machineWith, remaining, request } from "../fake/cluster/volume_cluster.ts";

const NODE_1 = { allowed: ["node-1"], preferred: [] };

/** Starts a cluster whose `node-1` has the least free space, and which `node-1` makes silent. */
async function setUp() {
  const clock = new FakeClock();
  const machines = { "node-1": machineWith({ data: 512n << 20n }), "node-2": machineWith({ data: 1n << 30n }) };
  const cluster = await FakeCluster.start(machines, { clock, waitMs: 300 });
  const report = async (name: string) => {
    const lastUpdateTime = new Date(clock.now() + Math.random()).toISOString();
    await cluster.client.patch(lvmNodes, { name }, { merge: { status: { lastUpdateTime } }, subresource: "status" });
    await cluster.nodes.waitFor(name, (node) => node?.status?.lastUpdateTime === lastUpdateTime);
  };
  return {
    ...{ cluster, machines, report },
    hang: () => cluster.stopAgent("node-1"),
    waitUntilSilent: async () => {
      for (let minute = 1; minute <= 6; minute++) {
        await clock.advance(60_000);
        cluster.api.sendBookmarks();
        await new Promise((resolve) => setTimeout(resolve, 5)); // they are seen
        await report("node-2");
      }
    },
    capacity: async (node: string) =>
      (await cluster.volumes.capacity({ groups: ANY_GROUP, layout: LINEAR }, node)).available,
    [Symbol.asyncDispose]: () => cluster[Symbol.asyncDispose](),
  };
}

Deno.test("a node whose agent is silent has no capacity and gets no volumes, until it reports again", async () => {
  await using s = await setUp();
  await s.hang();
  assert(await s.capacity("node-1") > 0n);
  await s.waitUntilSilent();
  assertEquals([await s.capacity("node-1"), await s.capacity("node-2") > 0n], [0n, true]);
  const error = await assertFailsWith("NoSpace", s.cluster.volumes.create(request("a"), NODE_1));
  assert(error.message.includes("the agent of node node-1 has not reported for minutes"), error.message);
  assertEquals((await s.cluster.volumes.create(request("a"), ANYWHERE)).nodeId, "node-2");
  await s.report("node-1");
  assert(await s.capacity("node-1") > 0n);
});

Deno.test("a volume that a silent agent has not begun is created on another node; the agent creates nothing later", async () => {
  await using s = await setUp();
  await s.hang();
  await assertFailsWith("Unavailable", s.cluster.volumes.create(request("a"), NODE_1));
  assertEquals(s.cluster.objects.list().map(({ spec }) => spec.nodeName), ["node-1"]);
  await s.waitUntilSilent();
  const error = await assertFailsWith("NoSpace", s.cluster.volumes.create(request("a"), NODE_1));
  assert(error.message.includes("has not reported"), error.message);
  assertEquals(remaining(s.cluster), [0, 0]);
  assertEquals((await s.cluster.volumes.create(request("a"), ANYWHERE)).nodeId, "node-2");
  s.cluster.startAgent("node-1", s.machines["node-1"]);
  await waitUntil(() => s.cluster.agent("node-1").objects.hasSynced, "the agent");
  assertEquals(s.machines["node-1"].allLvs().length, 0);
});

Deno.test("a volume that a silent agent may have begun stays on its node, and no call waits for the agent", async () => {
  await using s = await setUp();
  await s.hang();
  await assertFailsWith("Unavailable", s.cluster.volumes.create(request("a"), NODE_1));
  const merge = { status: { state: "Pending", volumeGroup: "data" } } as const;
  await s.cluster.client.patch(lvmVolumes, { name: volumeIdOf("a") }, { merge, subresource: "status" });
  await s.cluster.objects.waitFor(volumeIdOf("a"), (now?: LvmVolume) => now?.status?.volumeGroup !== undefined);
  await s.waitUntilSilent();
  const start = performance.now();
  const error = await assertFailsWith("Unavailable", s.cluster.volumes.create(request("a"), ANYWHERE));
  assert(error.message.includes("the agent of node node-1 has not reported for minutes"), error.message);
  await assertFailsWith("Unavailable", s.cluster.volumes.delete(volumeIdOf("a")));
  assert(performance.now() - start < 300, "no wait for the agent");
  s.cluster.startAgent("node-1", s.machines["node-1"]);
  await waitUntil(() => s.cluster.objects.list().length === 0, "the deletion, by the agent");
});
