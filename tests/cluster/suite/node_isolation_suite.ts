/**
 * The objects that the holder of an agent's token may write: those of its node, and no others.
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
import { agentLeaseName } from "../../../k8s/api/agent_leases.ts";
import { leases, type Pod } from "../../../k8s/api/objects.ts";
import { sidecarLeaseName } from "../../../k8s/runtime/leader.ts";
import { volumeIdOf } from "../../../base/ids.ts";
import { pollUntil } from "../../rig/poll_until.ts";
import { SYSTEM_NAMESPACE } from "./helpers/driver_pods.ts";
import { deniedPermissions, TEST_USER_AGENT } from "./helpers/rbac_usage.ts";
import { TestNamespace } from "./helpers/test_namespace.ts";
import { DRIVER, QUICK } from "./helpers/objects.ts";

const AGENT = "denolith-node";
const AGENT_USER = `system:serviceaccount:${SYSTEM_NAMESPACE}:${AGENT}`;

/** Another driver, whose objects the agents under test ignore. */
const ANOTHER_DRIVER = "isolation.example";

/** Creates a token of the agents' account. */
async function createToken(ns: TestNamespace, ...boundFlags: string[]): Promise<string> {
  const args = ["--namespace", SYSTEM_NAMESPACE, "create", "token", AGENT, "--duration=10m", ...boundFlags];
  return (await ns.cluster.controlPlane.kubectl(args)).trim();
}

/** Creates a client with such a token. */
function clientWithToken({ cluster: { controlPlane: { server, ca } } }: TestNamespace, token: string): HttpClient {
  return new HttpClient({ url: server, token: { text: token }, ca: { text: ca } }, { userAgent: TEST_USER_AGENT });
}

/** Returns the agent's pod on the node of the test namespace. */
async function agentPod({ cluster: { controlPlane }, node }: TestNamespace): Promise<string> {
  const args = [
    "--namespace",
    SYSTEM_NAMESPACE,
    "get",
    "pods",
    "--selector=app.kubernetes.io/component=node",
    "--output=json",
  ];
  const { items } = JSON.parse(await controlPlane.kubectl(args)) as { items: Pod[] };
  const pod = items.find(({ spec, metadata }) =>
    spec?.nodeName === node.name && metadata.deletionTimestamp === undefined
  );
  assert(pod !== undefined, `there is an agent on ${node.name}`);
  return pod.metadata.name;
}

/** Grants the agents' account all rights on the API group while the namespace exists, so that not its role refuses requests. */
async function grantAll(ns: TestNamespace): Promise<void> {
  const metadata = { name: `${ns.namespace}-all` };
  const rbac = "rbac.authorization.k8s.io";
  const rules = [{ apiGroups: [LVM_GROUP], resources: ["*"], verbs: ["*"] }];
  await ns.apply({ apiVersion: `${rbac}/v1`, kind: "ClusterRole", metadata, rules });
  await ns.apply({
    apiVersion: `${rbac}/v1`,
    kind: "ClusterRoleBinding",
    metadata,
    roleRef: { apiGroup: rbac, kind: "ClusterRole", name: metadata.name },
    subjects: [{ kind: "ServiceAccount", name: AGENT, namespace: SYSTEM_NAMESPACE }],
  });
  const can = ["auth", "can-i", "delete", `lvmvolumes.${LVM_GROUP}`, `--as=${AGENT_USER}`];
  await pollUntil(() => ns.kubectl(...can).then(() => true, () => false), { action: "grant", timeoutMs: 60_000 });
}

/** Returns an LVMVolume that no agent creates. */
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
async function assertDenied(what: string, call: Promise<unknown>, why: RegExp): Promise<void> {
  const error = await assertRejects(() => call, ApiError);
  assertEquals([error.status, why.test(error.message)], [403, true], `${what}: ${error.message}`);
}

const FOREIGN_NODE_MESSAGE = /denied request: the agent of node \S+ may only write the objects of that node/;

const API_VERSION = `${LVM_GROUP}/v1alpha1`;
const LABEL = { merge: { metadata: { labels: { tried: "yes" } } } };
/** A patch that changes nothing. The policy checks it all the same. */
const NO_LABEL = { merge: { metadata: { labels: { tried: null } } } };
const LOST_STATUS: PatchOptions<LvmVolume> = { merge: { status: { state: "Lost" } }, subresource: "status" };
const OLD_STATUS: PatchOptions<LvmNode> = {
  merge: { status: { lastUpdateTime: "2026-01-01T00:00:00Z" } },
  subresource: "status",
};
const moveTo = (nodeName: string): PatchOptions<LvmVolume> => ({ merge: { spec: { nodeName } } });

/** Creates a node that does not exist, with an LVMNode and a volume, as another agent would have them. */
async function createForeignObjects(ns: TestNamespace) {
  const foreignNode = `${ns.namespace}-there`;
  const volume = volumeOn(foreignNode, `${ns.namespace}-foreign`);
  const lvmNode = { apiVersion: API_VERSION, kind: "LVMNode", spec: { driverName: ANOTHER_DRIVER } };
  await ns.apply(volume);
  await ns.apply({ ...lvmNode, metadata: { name: foreignNode } });
  return {
    foreignNode,
    volume: { name: volume.metadata.name! },
    /** The LVMNode of another node, which does not exist. */
    another: { ...lvmNode, metadata: { name: `${foreignNode}-2` } },
    snapshot: (nodeName: string, requestName: string) => ({
      apiVersion: API_VERSION,
      kind: "LVMSnapshot",
      metadata: { name: volumeIdOf(requestName) },
      spec: { driverName: ANOTHER_DRIVER, requestName, nodeName, sourceVolume: volume.metadata.name! },
    }),
  };
}

Deno.test("the token of a node's agent cannot write objects of another node, even if its roles permit everything", async () => {
  await using ns = await TestNamespace.open("isolation");
  const ownNode = ns.node.name;
  const { foreignNode, volume, another, snapshot } = await createForeignObjects(ns);
  await grantAll(ns);
  const pod = await agentPod(ns);
  using agent = clientWithToken(ns, await createToken(ns, "--bound-object-kind=Pod", `--bound-object-name=${pod}`));

  const ownVolume = volumeOn(ownNode, `${ns.namespace}-own`);
  const ownName = { name: ownVolume.metadata.name! };
  await agent.create(lvmVolumes, ownVolume);
  await agent.patch(lvmVolumes, ownName, LABEL);
  await agent.patch(lvmVolumes, ownName, LOST_STATUS);
  await agent.patch(lvmNodes, { name: ownNode }, NO_LABEL);
  const snapshotObject = snapshot(ownNode, `${ns.namespace}-own-cut`);
  await agent.create(lvmSnapshots, snapshotObject);
  await agent.delete(lvmSnapshots, snapshotObject.metadata);

  await assertDenied(
    "create",
    agent.create(lvmVolumes, volumeOn(foreignNode, `${ns.namespace}-new`)),
    FOREIGN_NODE_MESSAGE,
  );
  await assertDenied("update", agent.patch(lvmVolumes, volume, LABEL), FOREIGN_NODE_MESSAGE);
  await assertDenied("status", agent.patch(lvmVolumes, volume, LOST_STATUS), FOREIGN_NODE_MESSAGE);
  await assertDenied("delete", agent.delete(lvmVolumes, volume), FOREIGN_NODE_MESSAGE);
  await assertDenied("give away", agent.patch(lvmVolumes, ownName, moveTo(foreignNode)), FOREIGN_NODE_MESSAGE);
  await assertDenied("take", agent.patch(lvmVolumes, volume, moveTo(ownNode)), FOREIGN_NODE_MESSAGE);
  await assertDenied("LVMNode", agent.patch(lvmNodes, { name: foreignNode }, LABEL), FOREIGN_NODE_MESSAGE);
  await assertDenied(
    "LVMNode's status",
    agent.patch(lvmNodes, { name: foreignNode }, OLD_STATUS),
    FOREIGN_NODE_MESSAGE,
  );
  await assertDenied("LVMNode's end", agent.delete(lvmNodes, { name: foreignNode }), FOREIGN_NODE_MESSAGE);
  await assertDenied("another LVMNode", agent.create(lvmNodes, another), FOREIGN_NODE_MESSAGE);
  await assertDenied(
    "snapshot",
    agent.create(lvmSnapshots, snapshot(foreignNode, `${ns.namespace}-cut`)),
    FOREIGN_NODE_MESSAGE,
  );
  await agent.delete(lvmVolumes, ownName);
  const lease = (name: string) => agent.patch(leases, { name, namespace: SYSTEM_NAMESPACE }, NO_LABEL);
  await lease(agentLeaseName(ownNode));
  await assertDenied("a controller's Lease", lease(sidecarLeaseName("csi-provisioner", DRIVER)), FOREIGN_NODE_MESSAGE);

  // The policy applies to agents only.
  await ns.patch("LVMVolume", volume.name, LABEL.merge);
});

Deno.test("a token of the agents' account must name its node, or it may not write", async () => {
  await using ns = await TestNamespace.open("tokens");
  const ownNode = { name: ns.node.name };
  const { volume } = await createForeignObjects(ns);
  await grantAll(ns);
  using node = clientWithToken(
    ns,
    await createToken(ns, "--bound-object-kind=Node", `--bound-object-name=${ownNode.name}`),
  );
  await node.patch(lvmNodes, ownNode, NO_LABEL);
  await assertDenied("another's", node.patch(lvmVolumes, volume, LABEL), FOREIGN_NODE_MESSAGE);
  using unbound = clientWithToken(ns, await createToken(ns));
  await assertDenied(
    "without a node",
    unbound.patch(lvmNodes, ownNode, NO_LABEL),
    /denied request: the token names no node/,
  );
});

Deno.test("the token of a node's agent cannot accept disks, even if its roles permit everything", async () => {
  await using ns = await TestNamespace.open("acceptance");
  const name = ns.node.name;
  await grantAll(ns);
  const flags = ["--bound-object-kind=Pod", `--bound-object-name=${await agentPod(ns)}`];
  using agent = clientWithToken(ns, await createToken(ns, ...flags));
  const acceptedDisks = [{ name: "ata-X", volumeGroup: "data", identity: "0" }];
  const accept: PatchOptions<LvmNode> = { merge: { spec: { acceptedDisks } } };
  const why = /denied request: an agent cannot accept disks/;
  await assertDenied("accept", agent.patch(lvmNodes, { name }, accept), why);
  await agent.patch(lvmNodes, { name }, OLD_STATUS);
  // the status does not carry the spec with it
  const both = { merge: { spec: { acceptedDisks }, ...OLD_STATUS.merge }, subresource: "status" } as PatchOptions<
    LvmNode
  >;
  await agent.patch(lvmNodes, { name }, both).catch(() => {});
  assertEquals((await agent.get(lvmNodes, { name })).spec.acceptedDisks, undefined);
  await agent.delete(lvmNodes, { name });
  const object = { apiVersion: API_VERSION, kind: "LVMNode", metadata: { name } };
  const spec = { driverName: ANOTHER_DRIVER, acceptedDisks };
  const created = agent.create(lvmNodes, { ...object, spec } as NewObject<LvmNode>);
  await assertRejects(() => created, ApiError); // its agent was quicker, or the policy denies it
  await pollUntil(() => agent.get(lvmNodes, { name }).then(() => true, () => false), {
    action: "see the LVMNode again",
    timeoutMs: 90_000,
  });
  assertEquals((await agent.get(lvmNodes, { name })).spec.acceptedDisks, undefined);
});

Deno.test("agents do all of their work under the policy, without any refused request", async () => {
  await using ns = await TestNamespace.open("isolated");
  const cls = await ns.createStorageClass("now", { parameters: QUICK, volumeBindingMode: "Immediate" });
  await ns.createClaim({ name: "data", class: cls });
  await ns.waitForBound("data");
  await ns.deleteAndWait("PersistentVolumeClaim", "data");
  await ns.waitForCleanup();
  const since = Date.now();
  // What the agent writes about a change is a sign of life, too. Only a node without changes renews its Lease.
  const signsOfLife = [
    ["lvmnode", ns.node.name, "--output=jsonpath={.status.lastUpdateTime}"],
    ["lease", agentLeaseName(ns.node.name), "--namespace", SYSTEM_NAMESPACE, "--output=jsonpath={.spec.renewTime}"],
  ];
  await pollUntil(
    async () => {
      const times = await Promise.all(signsOfLife.map((args) => ns.kubectl("get", ...args)));
      return times.some((time) => Date.parse(time) > since);
    },
    { action: "wait for a sign of life of the agent", timeoutMs: 300_000 },
  );
  const events = await ns.cluster.controlPlane.auditEvents();
  assertEquals([...deniedPermissions(AGENT_USER, events)], []);
});
