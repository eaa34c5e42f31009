/**
 * What who has an agent's token may write: what is of its node, and nothing of another.
 *
 * @module
 */

import { assert, assertEquals, assertRejects } from "@std/assert";
import { ApiError, type NewObject, type PatchOptions } from "../../../k8s/client/client.ts";
import { HttpClient } from "../../../k8s/client/http_client.ts";
import {
  LVM_GROUP,
  type LvmNode,
  lvmNodes,
  lvmSnapshots,
  type LvmVolume,
  lvmVolumes,
} from "../../../k8s/api/lvm_objects.ts";
import type { Pod } from "../../../k8s/api/objects.ts";
import { volumeIdOf } from "../../../lvm/ids.ts";
import { until } from "../../rig/until.ts";
import { SYSTEM } from "./driver_pods.ts";
import { refusedTo, TRESPASSER } from "./rights.ts";
import { Scene } from "./scene.ts";
import { QUICK } from "./scene_objects.ts";

const AGENT = "denolith-node";
const AGENT_USER = `system:serviceaccount:${SYSTEM}:${AGENT}`;

/** No agent of the driver under test looks at what is of another driver. */
const ANOTHER_DRIVER = "isolation.example";

/** A token of the agents' account. */
async function tokenOf(scene: Scene, ...bound: string[]): Promise<string> {
  const args = ["--namespace", SYSTEM, "create", "token", AGENT, "--duration=10m", ...bound];
  return (await scene.cluster.controlPlane.kubectl(args)).trim();
}

/** A client that asks with such a token. */
function asking({ cluster: { controlPlane: { server, ca } } }: Scene, token: string): HttpClient {
  return new HttpClient({ url: server, token: { text: token }, ca: { text: ca } }, { userAgent: TRESPASSER });
}

/** The agent's pod on the scene's node. */
async function agentPod({ cluster: { controlPlane }, node }: Scene): Promise<string> {
  const args = ["--namespace", SYSTEM, "get", "pods", "--selector=app.kubernetes.io/component=node", "--output=json"];
  const { items } = JSON.parse(await controlPlane.kubectl(args)) as { items: Pod[] };
  const pod = items.find(({ spec, metadata }) =>
    spec?.nodeName === node.name && metadata.deletionTimestamp === undefined
  );
  assert(pod !== undefined, `there is an agent on ${node.name}`);
  return pod.metadata.name;
}

/** Gives the agents' account every right on the group for the time of the scene: what refuses then is not their role. */
async function allowAll(scene: Scene): Promise<void> {
  const metadata = { name: `${scene.namespace}-all` };
  const rbac = "rbac.authorization.k8s.io";
  const rules = [{ apiGroups: [LVM_GROUP], resources: ["*"], verbs: ["*"] }];
  await scene.apply({ apiVersion: `${rbac}/v1`, kind: "ClusterRole", metadata, rules });
  await scene.apply({
    apiVersion: `${rbac}/v1`,
    kind: "ClusterRoleBinding",
    metadata,
    roleRef: { apiGroup: rbac, kind: "ClusterRole", name: metadata.name },
    subjects: [{ kind: "ServiceAccount", name: AGENT, namespace: SYSTEM }],
  });
  const can = ["auth", "can-i", "delete", `lvmvolumes.${LVM_GROUP}`, `--as=${AGENT_USER}`];
  await until(() => scene.kubectl(...can).then(() => true, () => false), { action: "grant", timeoutMs: 60_000 });
}

/** A volume that no agent makes. */
function volumeOn(nodeName: string, requestName: string): NewObject<LvmVolume> {
  return {
    apiVersion: API_VERSION,
    kind: "LVMVolume",
    metadata: { name: volumeIdOf(requestName) },
    spec: {
      ...{ driverName: ANOTHER_DRIVER, requestName, nodeName, size: "16Mi", volumeGroupPreference: "leastFree" },
      ...{ volumeMode: "Block", shared: true, erase: "none" },
    },
  };
}

/** Makes sure that the policy refuses. */
async function refused(what: string, call: Promise<unknown>, why: RegExp): Promise<void> {
  const error = await assertRejects(() => call, ApiError);
  assertEquals([error.status, why.test(error.message)], [403, true], `${what}: ${error.message}`);
}

const FOREIGN = /denied request: the agent of node \S+ may write the objects of that node alone/;

const API_VERSION = `${LVM_GROUP}/v1alpha1`;
const LABEL = { merge: { metadata: { labels: { tried: "yes" } } } };
/** It changes nothing, and is asked about all the same. */
const NO_LABEL = { merge: { metadata: { labels: { tried: null } } } };
const LOST: PatchOptions<LvmVolume> = { merge: { status: { state: "Lost" } }, subresource: "status" };
const OLD: PatchOptions<LvmNode> = { merge: { status: { lastUpdate: "2026-01-01T00:00:00Z" } }, subresource: "status" };
const moved = (nodeName: string): PatchOptions<LvmVolume> => ({ merge: { spec: { nodeName } } });

/** A node that is not there, with an LVMNode and a volume, as somebody else's agent has them. */
async function elsewhere(scene: Scene) {
  const there = `${scene.namespace}-there`;
  const volume = volumeOn(there, `${scene.namespace}-foreign`);
  const lvmNode = { apiVersion: API_VERSION, kind: "LVMNode", spec: { driverName: ANOTHER_DRIVER } };
  await scene.apply(volume);
  await scene.apply({ ...lvmNode, metadata: { name: there } });
  return {
    there,
    volume: { name: volume.metadata.name! },
    /** The LVMNode of another node that is not there. */
    another: { ...lvmNode, metadata: { name: `${there}-2` } },
    snapshot: (nodeName: string, requestName: string) => ({
      apiVersion: API_VERSION,
      kind: "LVMSnapshot",
      metadata: { name: volumeIdOf(requestName) },
      spec: { driverName: ANOTHER_DRIVER, requestName, nodeName, sourceVolume: volume.metadata.name! },
    }),
  };
}

Deno.test("with the token of a node's agent nothing of another node can be written, even where every role allows it", async () => {
  await using scene = await Scene.open("isolation");
  const here = scene.node.name;
  const { there, volume, another, snapshot } = await elsewhere(scene);
  await allowAll(scene);
  const pod = await agentPod(scene);
  using agent = asking(scene, await tokenOf(scene, "--bound-object-kind=Pod", `--bound-object-name=${pod}`));

  const mine = volumeOn(here, `${scene.namespace}-own`);
  const own = { name: mine.metadata.name! };
  await agent.create(lvmVolumes, mine);
  await agent.patch(lvmVolumes, own, LABEL);
  await agent.patch(lvmVolumes, own, LOST);
  await agent.patch(lvmNodes, { name: here }, NO_LABEL);
  const cut = snapshot(here, `${scene.namespace}-own-cut`);
  await agent.create(lvmSnapshots, cut);
  await agent.delete(lvmSnapshots, cut.metadata);

  await refused("create", agent.create(lvmVolumes, volumeOn(there, `${scene.namespace}-new`)), FOREIGN);
  await refused("update", agent.patch(lvmVolumes, volume, LABEL), FOREIGN);
  await refused("status", agent.patch(lvmVolumes, volume, LOST), FOREIGN);
  await refused("delete", agent.delete(lvmVolumes, volume), FOREIGN);
  await refused("give away", agent.patch(lvmVolumes, own, moved(there)), FOREIGN);
  await refused("take", agent.patch(lvmVolumes, volume, moved(here)), FOREIGN);
  await refused("LVMNode", agent.patch(lvmNodes, { name: there }, LABEL), FOREIGN);
  await refused("LVMNode's status", agent.patch(lvmNodes, { name: there }, OLD), FOREIGN);
  await refused("LVMNode's end", agent.delete(lvmNodes, { name: there }), FOREIGN);
  await refused("another LVMNode", agent.create(lvmNodes, another), FOREIGN);
  await refused("snapshot", agent.create(lvmSnapshots, snapshot(there, `${scene.namespace}-cut`)), FOREIGN);
  await agent.delete(lvmVolumes, own);

  // the policy is about the agents alone
  await scene.patch("LVMVolume", volume.name, LABEL.merge);
});

Deno.test("a token of the agents' account says its node, or may write nothing", async () => {
  await using scene = await Scene.open("tokens");
  const here = { name: scene.node.name };
  const { volume } = await elsewhere(scene);
  await allowAll(scene);
  using node = asking(scene, await tokenOf(scene, "--bound-object-kind=Node", `--bound-object-name=${here.name}`));
  await node.patch(lvmNodes, here, NO_LABEL);
  await refused("another's", node.patch(lvmVolumes, volume, LABEL), FOREIGN);
  using unbound = asking(scene, await tokenOf(scene));
  await refused("without a node", unbound.patch(lvmNodes, here, NO_LABEL), /denied request: the token says no node/);
});

Deno.test("agents do all of their work under the policy, and are refused nothing", async () => {
  await using scene = await Scene.open("isolated");
  const cls = await scene.storageClass("now", { parameters: QUICK, volumeBindingMode: "Immediate" });
  await scene.claim({ name: "data", class: cls });
  await scene.bound("data");
  await scene.delete("PersistentVolumeClaim", "data");
  await scene.settled();
  const since = Date.now();
  const isNew = (lastUpdate = "") => Date.parse(lastUpdate) > since;
  await scene.wait("LVMNode", scene.node.name, (node) => isNew(node?.status?.lastUpdate), "is written again");
  const events = await scene.cluster.controlPlane.auditEvents();
  assertEquals([...refusedTo(AGENT_USER, events)], []);
});
