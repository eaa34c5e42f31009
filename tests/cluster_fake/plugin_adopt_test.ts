/**
 * `kubectl denolith adopt` over a fake cluster: disks that are carried from one node to another.
 *
 * @module
 */

import { assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import { type LvmVolume, lvmVolumes } from "../../k8s/api/lvm_objects.ts";
import { nodeOfVolume } from "../../k8s/handover/persistent_volume.ts";
import { volumeIdOf } from "../../base/ids.ts";
import { TOPOLOGY_KEY, waitUntil } from "../fake/cluster/control_plane.ts";
import { MoveCluster, MOVED } from "../fake/cluster/move_cluster.ts";
import { pluginOver } from "../fake/cluster/plugin_run.ts";

const ADOPT = ["adopt", "data"] as const;

/** Starts a cluster whose second node has another volume group, and carries the disks of the first one to it. */
async function startCarried(): Promise<MoveCluster> {
  const s = await MoveCluster.start({ targetGroups: { other: 1n << 30n }, transfers: false });
  await s.cluster.stopAgent("node-1");
  s.machines[1].groups.push(...s.machines[0].groups.splice(0));
  await s.cluster.agent("node-2").node.refresh();
  return s;
}

Deno.test("kubectl denolith adopt: volumes follow their disks, once their node is forgotten", async () => {
  await using s = await startCarried();
  s.startMover();
  const plugin = pluginOver(s.cluster.api);
  const unclear = await plugin([...ADOPT, "--yes"]);
  assertStringIncludes(unclear.errors, "the nodes node-1, node-2 have a volume group data; name one with --node");
  const early = await plugin([...ADOPT, "--node", "node-2", "--yes"]);
  assertEquals([early.status, s.move], [1, undefined]);
  assertStringIncludes(early.output.replaceAll(/\s+/g, " "), "node node-1 is not forgotten");
  await s.forgetNode("node-1");
  const shown = await plugin([...ADOPT, "--dry-run"], { role: "viewer" });
  assertEquals([shown.status, s.move], [0, undefined]);
  assertMatch(shown.output, /Volume group data is on node node-2 now:\n\n.*\n +shop\/data +node-1 +follows$/);
  const { status, output, errors } = await plugin([...ADOPT, "--yes"]);
  assertEquals([status, errors], [0, ""], output);
  assertMatch(output, /shop\/data +node-1 +Complete$/);
  assertEquals(s.lvmVolumes, ["volume node-2 Ready"]);
  assertEquals([...s.lv(1)!.content.data!], ["letters"]);
  assertEquals(nodeOfVolume(s.persistentVolume!, TOPOLOGY_KEY), "node-2");
  assertEquals(s.persistentVolume!.spec?.persistentVolumeReclaimPolicy, "Delete");
  await waitUntil(() => s.claim?.status?.phase === "Bound" && s.persistentVolume?.status?.phase === "Bound", "Bound");
  const again = await plugin(ADOPT);
  assertStringIncludes(again.output, "No volume of the cluster was in volume group data of node node-2");
});

Deno.test("a volume that is adopted gets no new logical volume when its own is not there", async () => {
  await using s = await MoveCluster.start({ transfers: false });
  const [known] = s.cluster.api.objects(lvmVolumes);
  const name = volumeIdOf("carried");
  const spec = { ...known!.spec, requestName: "carried", nodeName: "node-2", adoptsVolume: name };
  s.cluster.api.put<LvmVolume>(lvmVolumes, { metadata: { name, finalizers: [] }, spec });
  const { reconciliations } = s.cluster.agent("node-2");
  const failed = () => reconciliations.some(({ key, error }) => key === name && /does not exist/.test(`${error}`));
  await waitUntil(failed, "a failed attempt");
  assertEquals(s.machines[1].allLvs(), []);
  assertEquals(s.cluster.api.objects(lvmVolumes).find(({ metadata }) => metadata.name === name)?.status, undefined);
  assertEquals(s.lv(0)!.tags.has(`denolith.volume=${MOVED}`), true);
});
