/**
 * `kubectl denolith move` over a fake cluster whose volumes can be moved.
 *
 * @module
 */

import { assert, assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import { type Pod, pods } from "../../k8s/api/objects.ts";
import { waitUntil } from "../fake/control_plane.ts";
import { FakePod } from "../fake/fake_pod.ts";
import { MoveCluster, MOVED } from "../fake/move_cluster.ts";
import { pluginOver } from "../fake/plugin_run.ts";

const MOVE = ["move", "data", "--namespace", "shop"] as const;
const TO_NODE_2 = [...MOVE, "--to", "node-2"] as const;

/** Adds a pod that uses the claim, on the first node, and ends its use of the volume when it is deleted. */
async function addPod(s: MoveCluster): Promise<FakePod> {
  const used = await FakePod.start(s);
  const { api } = s.cluster;
  api.put<Pod>(pods, {
    metadata: { name: "db-0", namespace: "shop" },
    spec: {
      containers: [],
      nodeName: "node-1",
      volumes: [{ name: "d", persistentVolumeClaim: { claimName: "data" } }],
    },
  });
  api.collection(pods).listeners.add(({ deleted }) => void (deleted && used.end()));
  return used;
}

Deno.test("kubectl denolith move --dry-run: shows the plan to a viewer, and changes nothing", async () => {
  await using s = await MoveCluster.start();
  await using _pod = await addPod(s);
  const plugin = pluginOver(s.cluster.api);
  const { status, output, errors } = await plugin([...TO_NODE_2, "--dry-run"], { role: "viewer" });
  assertEquals([status, errors, s.move], [0, "", undefined]);
  assertMatch(output, /Claim shop\/data \(thick volume v1-\w+, 32 MiB\) moves from node node-1 to node node-2:/);
  assertStringIncludes(output, "Pods that use it: shop/db-0");
  const json = JSON.parse((await plugin([...TO_NODE_2, "--dry-run", "-o", "json"])).output);
  assertEquals([json.sourceNode, json.targetNode, json.pods, json.size], ["node-1", "node-2", ["shop/db-0"], 32 << 20]);
});

Deno.test("kubectl denolith move: follows the move, and says how long nobody could use the volume", async () => {
  await using s = await MoveCluster.start();
  s.startMover();
  const plugin = pluginOver(s.cluster.api);
  const { status, output, errors } = await plugin(TO_NODE_2);
  assertEquals([status, errors], [0, ""]);
  assertMatch(output, /Claim shop\/data is on node node-2; nobody could use it for \d+ s\.$/);
  assertEquals(s.lvmVolumes, ["volume node-2 Ready"]);
  const back = await plugin([...MOVE, "--to", "node-1", "-o", "json"]); // in place of the finished one
  assertEquals([back.status, JSON.parse(back.output).state], [0, "Complete"]);
  assertEquals([...s.lv(0)!.content.data!], ["letters"]);
});

Deno.test("kubectl denolith move: refuses in words what cannot be moved, and asks for nothing", async () => {
  await using s = await MoveCluster.start();
  const plugin = pluginOver(s.cluster.api);
  const { status, output } = await plugin([...MOVE, "--to", "node-1"]);
  assertEquals([status, s.move], [1, undefined]);
  assertStringIncludes(output, "cannot be moved from node node-1 to node node-1: the volume is on node node-1 already");
  const missing = await plugin(["move", "other", "--namespace", "shop", "--to", "node-2"]);
  assertEquals(missing.status, 1);
  assertStringIncludes(missing.errors, "moving claim shop/other: there is no such claim");
});

Deno.test("kubectl denolith move --evict: evicts pods when their budgets allow it", async () => {
  await using s = await MoveCluster.start();
  s.startMover();
  await using _pod = await addPod(s);
  const { undisrupted } = s.cluster.api.faults;
  undisrupted.add("db-0");
  const plugin = pluginOver(s.cluster.api);
  const moving = plugin([...TO_NODE_2, "--evict"]);
  await waitUntil(() => s.cluster.api.requests.some(({ path }) => path.endsWith("/eviction")), "an eviction");
  assertEquals(s.cluster.api.objects(pods).length, 1);
  undisrupted.clear();
  const { status, errors } = await moving;
  assertEquals(status, 0, errors);
  assertStringIncludes(errors, "pod shop/db-0 cannot be evicted yet");
  assertStringIncludes(errors, "pod shop/db-0 is evicted");
  assertEquals([s.cluster.api.objects(pods).length, s.lvmVolumes], [0, ["volume node-2 Ready"]]);
});

Deno.test("kubectl denolith move --wait=false and --cancel: ask, and undo it", async () => {
  await using s = await MoveCluster.start();
  s.startMover();
  await using _pod = await addPod(s);
  const plugin = pluginOver(s.cluster.api);
  const asked = await plugin([...TO_NODE_2, "--wait=false"]);
  assertEquals(asked.status, 0);
  assertStringIncludes(asked.output, `kubectl get lvmmove ${MOVED} --watch`);
  const again = await plugin([...TO_NODE_2, "--dry-run"]);
  assertStringIncludes(again.output, "it is being moved to node node-2 already");
  await waitUntil(() => s.lvmVolumes[0] === "volume node-1 Ready held", "a held volume");
  const { status, output } = await plugin([...MOVE, "--cancel"]);
  assertEquals(status, 0);
  assertStringIncludes(output, "The move of claim shop/data is undone.");
  assertEquals(s.lvmVolumes, ["volume node-1 Ready"]);
  assert((await plugin([...MOVE, "--cancel"])).errors.includes("is not being moved"));
});
