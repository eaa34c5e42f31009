/**
 * `kubectl denolith move` over a fake cluster whose volumes can be moved.
 *
 * @module
 */

import { assert, assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import { parseGroupList } from "../../csi/group_list.ts";
import { volumeIdOf } from "../../base/ids.ts";
import { planDrain, readDrainState } from "../../plugin/move/drain.ts";
import { lvmNodes } from "../../k8s/api/lvm_objects.ts";
import { nodes, type Pod, pods } from "../../k8s/api/objects.ts";
import { TOPOLOGY_KEY, waitUntil } from "../fake/cluster/control_plane.ts";
import { DRIVER } from "../fake/cluster/node_cluster.ts";
import { MiB, request } from "../fake/cluster/volume_cluster.ts";
import { FakePod } from "../fake/cluster/fake_pod.ts";
import { MoveCluster, MOVED } from "../fake/cluster/move_cluster.ts";
import { pluginOver } from "../fake/cluster/plugin_run.ts";

const MOVE = ["move", "data", "--namespace", "shop"] as const;
const TO_NODE_2 = [...MOVE, "--to", "node-2"] as const;

/** The owner of a pod, which creates it again. */
const OWNED = {
  ownerReferences: [{ apiVersion: "apps/v1", kind: "StatefulSet", name: "db", uid: "s", controller: true }],
};

/** Adds a pod that uses the claim, on the first node, and ends its use of the volume when it is deleted. */
async function addPod(s: MoveCluster, owned: object = OWNED): Promise<FakePod> {
  const used = await FakePod.start(s);
  const { api } = s.cluster;
  api.put<Pod>(pods, {
    metadata: { name: "db-0", namespace: "shop", ...owned },
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
  assertStringIncludes(output, "1. It is copied to node node-2 while it is used, from a temporary snapshot");
  assertStringIncludes(output, "Pods that use it: shop/db-0");
  const json = JSON.parse((await plugin([...TO_NODE_2, "--dry-run", "-o", "json"])).output);
  assertEquals([json.sourceNode, json.targetNode, json.pods, json.size], ["node-1", "node-2", ["shop/db-0"], 32 << 20]);
  assertEquals([json.copyMode, json.offlineReason], ["Online", undefined]);
  const offline = await plugin([...TO_NODE_2, "--dry-run", "--offline"]);
  assertStringIncludes(offline.output, "2. It is copied to node node-2 while nobody can use it, and compared.");
  assertStringIncludes(offline.output, "It cannot be copied before:\n     it was asked for.");
});

Deno.test("kubectl denolith move: follows the move, and says how long nobody could use the volume", async () => {
  await using s = await MoveCluster.start();
  s.startMover();
  const plugin = pluginOver(s.cluster.api);
  const { status, output, errors } = await plugin(TO_NODE_2);
  assertEquals([status, errors], [0, ""]);
  assertMatch(
    output,
    /Claim shop\/data is on node node-2: moved online; sent 512 KiB while it was used, 0 B while nobody could use it; nobody could use it for \d+ s\.$/,
  );
  assertMatch(output, /\n *Holding: online, sent 512 KiB while it was used/);
  assertEquals(s.lvmVolumes, ["volume node-2 Ready"]);
  const back = await plugin([...MOVE, "--to", "node-1", "-o", "json"]); // in place of the finished one
  const { state, stages } = JSON.parse(back.output);
  assertEquals([back.status, state], [0, "Complete"]);
  assertEquals(stages, [
    { difference: 0, received: "512Ki", held: false },
    { difference: 1, received: "0", held: true },
  ]);
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

for (const status of [500, 403, 503, 404]) {
  Deno.test(`kubectl denolith move --evict: tries an eviction again that fails with ${status}, and follows the move`, async () => {
    await using s = await MoveCluster.start();
    s.startMover();
    await using _pod = await addPod(s);
    const { evictions } = s.cluster.api.faults;
    evictions.set("db-0", status);
    const moving = pluginOver(s.cluster.api)([...TO_NODE_2, "--evict"]);
    await waitUntil(() => s.cluster.api.requests.some(({ path }) => path.endsWith("/eviction")), "an eviction");
    evictions.clear();
    const { status: code, errors } = await moving;
    assertEquals(code, 0, errors);
    assertMatch(errors, /pod shop\/db-0 cannot be evicted.*: .*the eviction of db-0 failed/);
    assertEquals(errors.includes("--cancel releases it"), status === 403, errors);
  });
}

Deno.test("kubectl denolith move --evict: leaves a pod alone that nobody creates again", async () => {
  await using s = await MoveCluster.start();
  s.startMover();
  await using pod = await addPod(s, {});
  const plugin = pluginOver(s.cluster.api);
  const moving = plugin([...TO_NODE_2, "--evict"]);
  await waitUntil(() => s.move?.status?.message?.includes("still does") ?? false, "a pod that is waited for");
  assertEquals(s.cluster.api.objects(pods).length, 1);
  await pod.end();
  const { status, errors } = await moving;
  assertEquals(status, 0, errors);
  const said = "pod shop/db-0 is not evicted, because nobody would create it again: delete it, or use --force";
  assertEquals(errors.split(said).length, 2, errors);
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
  await waitUntil(() => s.lvmVolumes.includes("volume node-1 Ready held"), "a held volume");
  const { status, output } = await plugin([...MOVE, "--cancel"]);
  assertEquals(status, 0);
  assertStringIncludes(output, "The move of claim shop/data is undone.");
  assertEquals(s.lvmVolumes, ["volume node-1 Ready"]);
  assert((await plugin([...MOVE, "--cancel"])).errors.includes("is not being moved"));
});

Deno.test("kubectl denolith drain: shows where volumes can go and which stay, asks, and moves them", async () => {
  await using s = await MoveCluster.start();
  s.startMover();
  await s.cluster.volumes.create(request("unclaimed"), { allowed: ["node-1"], preferred: [] });
  const plugin = pluginOver(s.cluster.api);
  const shown = await plugin(["drain", "node-1", "--dry-run"], { role: "viewer" });
  assertEquals([shown.status, s.move], [1, undefined]); // one stays
  assertMatch(shown.output, /shop\/data +32 MiB +node-2\n/);
  assertMatch(shown.output, /v1-\w{32} +32 MiB +stays\n +no claim is bound to it$/);
  const refused = await plugin(["drain", "node-1"], { answer: false });
  assertEquals([refused.questions, s.move], [["Move 1 volume from node node-1 of context fake?"], undefined]);
  const { status, output, errors } = await plugin(["drain", "node-1", "--yes"]);
  assertEquals([status, errors], [1, ""]);
  assertMatch(output, /shop\/data +32 MiB +node-2 +Complete\n/);
  assert(s.lvmVolumes.includes("volume node-2 Ready"), s.lvmVolumes.join());
  const back = await plugin(["drain", "node-2", "--yes", "-o", "json"]);
  assertEquals([back.status, JSON.parse(back.output).volumes[0].targetNode], [0, "node-1"]);
});

Deno.test("kubectl denolith drain: goes to the next node when the first one cannot have a volume any more", async () => {
  await using s = await MoveCluster.start();
  s.startMover();
  const { api } = s.cluster;
  const [node] = api.objects(nodes);
  const other = api.objects(lvmNodes).find(({ metadata }) => metadata.name === "node-2")!;
  const total = { volumeGroups: 1, size: "1Ti", free: "1Ti" };
  api.put(nodes, { ...node!, metadata: { name: "node-3", labels: { [TOPOLOGY_KEY]: "node-3" } } });
  api.put(lvmNodes, { ...other, metadata: { name: "node-3" }, status: { ...other.status, total } });
  const shown: string[] = [];
  const onPrint = (text: string) => {
    if (shown.push(text) === 1) api.collection(lvmNodes).delete({ name: "node-3", namespace: undefined });
  };
  const { status, output, errors } = await pluginOver(api)(["drain", "node-1"], { answer: true, onPrint });
  assertMatch(shown[0]!, /shop\/data +32 MiB +node-3/);
  assertEquals([status, errors], [0, ""], output);
  assertMatch(output, /shop\/data to node node-2:/);
  assertMatch(output, /shop\/data +32 MiB +node-2 +Complete$/);
});

Deno.test("kubectl denolith drain: leaves cordoned nodes alone, and counts what earlier volumes take", async () => {
  await using s = await MoveCluster.start({ request: { range: { required: 400n * MiB } } });
  const state = await readDrainState(s.cluster.client, DRIVER, "node-1");
  const options = { topologyKey: TOPOLOGY_KEY, parseGroups: parseGroupList, now: Date.now() };
  const [volume] = state.volumes;
  const [claim] = state.claims;
  const [persistentVolume] = state.persistentVolumes;
  const again = Array.from({ length: 2 }, (_, index) => {
    const [name, uid, id] = [`more-${index}`, `uid-${index}`, volumeIdOf(`more-${index}`)] as const;
    const claimRef = { ...persistentVolume!.spec!.claimRef, name, uid };
    const spec = { ...persistentVolume!.spec, claimRef, csi: { driver: DRIVER, volumeHandle: id } };
    return {
      volume: { ...volume!, metadata: { ...volume!.metadata, name: id } },
      claim: { ...claim!, metadata: { ...claim!.metadata, name, uid }, spec: { ...claim!.spec, volumeName: name } },
      persistentVolume: { ...persistentVolume!, metadata: { ...persistentVolume!.metadata, name }, spec },
    };
  });
  const more = {
    ...state,
    volumes: [...state.volumes, ...again.map(({ volume }) => volume)],
    claims: [...state.claims, ...again.map(({ claim }) => claim)],
    persistentVolumes: [...state.persistentVolumes, ...again.map(({ persistentVolume }) => persistentVolume)],
  };
  const plan = planDrain(more, options);
  assertEquals(plan.map(({ claim, targetNode }) => [claim, targetNode]), [
    ["shop/data", "node-2"],
    ["shop/more-0", "node-2"],
    ["shop/more-1", undefined],
  ]);
  assertStringIncludes(plan[2]!.refusal!, "node node-2: ");
  const cordoned = state.nodes.map((node) => ({ ...node, spec: { unschedulable: true } }));
  const [stays] = planDrain({ ...state, nodes: cordoned }, options);
  assertEquals(stays!.refusal, "no other node has an agent of the driver and takes its pods");
});
