/**
 * Disks of a dead node that are carried to another one, and `kubectl denolith adopt`: the volumes follow them, while the
 * controller and the agent die. The suite runs in a cluster of its own.
 *
 * @module
 */

import { assertEquals, assertRejects } from "@std/assert";
import { type LvmMove, lvmMoves } from "../../../k8s/handover/moves.ts";
import { nodeOfVolume } from "../../../k8s/handover/persistent_volume.ts";
import { TOPOLOGY_KEY } from "../../../csi/topology.ts";
import { CARRIED_GROUP } from "../deploy.ts";
import { listDriverLvs } from "./helpers/driver_lvs.ts";
import { DriverPods } from "./helpers/driver_pods.ts";
import { type ClaimMount, DRIVER, isRunning, SLEEP, statefulSetObject } from "./helpers/objects.ts";
import { runPlugin } from "./helpers/plugin_command.ts";
import { TestNamespace } from "./helpers/test_namespace.ts";

/** The node that dies, and that which gets its disks. */
const [DEAD, ALIVE] = ["node1", "node2"] as const;

/** The claims, in the order in which they follow, with the pods that use them and the path of their data. */
const CLAIMS = [
  { name: "raw", pod: "user", path: "/raw", volumeMode: "Block", layout: "thick" },
  { name: "thick", pod: "store-0", path: "/data/file", layout: "thick" },
  { name: "thin", pod: "user", path: "/thin/file", layout: "thin" },
] as const;

/** What pod `user` has. */
const USED: readonly ClaimMount[] = [{ name: "raw", devicePath: "/raw" }, { name: "thin", path: "/thin" }];

const MIB = 8;

const digestOf = (ns: TestNamespace, { pod, path }: typeof CLAIMS[number]) =>
  ns.exec(pod, `dd if=${path} bs=1M count=${MIB} 2>/dev/null | sha256sum`);

/** Makes claims, with a StatefulSet and a pod that use them on the node that will die. @returns the digests of their data */
async function createWorkload(ns: TestNamespace): Promise<readonly string[]> {
  const classes = {
    thick: await ns.createStorageClass("thick", { parameters: { volumeGroup: CARRIED_GROUP } }),
    thin: await ns.createStorageClass("thin", {
      parameters: { volumeGroup: CARRIED_GROUP, thinProvision: "yes", thinPoolSize: "400Mi" },
    }),
  };
  for (const { name, layout, ...more } of CLAIMS) {
    await ns.createClaim({ name, class: classes[layout], size: "64Mi", ...more });
  }
  const volumeMounts = [{ name: "data", mountPath: "/data" }];
  await ns.apply(statefulSetObject({ container: { command: ["sh", "-c", SLEEP], volumeMounts }, data: "thick" }));
  await ns.createPod({ name: "user", claims: USED, node: DEAD }); // the class allows both nodes; only this one has the group
  const digests: string[] = [];
  for (const claim of CLAIMS) {
    await ns.waitForRunning(claim.pod);
    await ns.exec(claim.pod, `dd if=/dev/urandom of=${claim.path} bs=1M count=${MIB} conv=notrunc,fsync && sync`);
    digests.push(await digestOf(ns, claim));
  }
  return digests;
}

/** Returns the LVs with data on a node: their UUIDs, by the volumes. */
async function uuidsOn(ns: TestNamespace, node: string): Promise<Record<string, string>> {
  const lvs = await listDriverLvs(ns.cluster.node(node));
  return Object.fromEntries(lvs.flatMap(({ volume, uuid }) => volume === undefined ? [] : [[volume, uuid]]).sort());
}

/** Asks the controller directly to adopt the volume of a claim. @returns the move when it has ended */
async function adoptDirectly(ns: TestNamespace, claim: string): Promise<LvmMove> {
  const { metadata: { name: persistentVolume }, spec } = await ns.volumeOf(claim);
  const name = spec!.csi!.volumeHandle;
  const { metadata: { uid } } = await ns.waitForBound(claim);
  await ns.apply({
    apiVersion: `${lvmMoves.group}/${lvmMoves.version}`,
    kind: lvmMoves.kind,
    metadata: { name },
    spec: {
      ...{ driverName: DRIVER, persistentVolume, claim: { namespace: ns.namespace, name: claim, uid } },
      ...{ sourceNode: DEAD, targetNode: ALIVE, adopt: true },
    },
  });
  const move = await ns.waitFor("LVMMove", name, (now) => now?.status?.state === "Failed", "is refused");
  await ns.deleteAndWait("LVMMove", name);
  return move;
}

/** Kills processes while the volumes follow, each as soon as a move records a state. @returns what died, in words */
async function killMeanwhile(ns: TestNamespace, driver: DriverPods, ids: readonly string[]): Promise<string[]> {
  const agent = () => driver.killProcess("node", undefined, [ns.cluster.node(ALIVE)]);
  const controller = () => driver.killProcess("controller", undefined, [ns.cluster.node(ALIVE)]);
  const kills = [
    ["Switching", "the controller", controller],
    ["Removing", "the agent", agent],
    ["Switching", "both", () => Promise.all([agent(), controller()])],
  ] as const;
  const died: string[] = [];
  for (const [index, [state, what, kill]] of kills.entries()) {
    const isThere = (move: LvmMove | undefined) => ["Complete", "Failed", state].includes(move?.status?.state ?? "");
    const { status } = await ns.waitFor("LVMMove", ids[index]!, isThere, `is ${state}`);
    assertEquals(status?.state, state, `of ${CLAIMS[index]!.name}`);
    await kill();
    died.push(`${what} when claim ${CLAIMS[index]!.name} was ${state}`);
  }
  return died;
}

Deno.test("volumes follow disks that are carried to another node, once theirs is forgotten, and pods find their data", async () => {
  await using ns = await TestNamespace.open("adopt");
  const [dead, alive] = [ns.cluster.node(DEAD), ns.cluster.node(ALIVE)];
  const digests = await createWorkload(ns);
  const ids = await Promise.all(CLAIMS.map(async ({ name }) => (await ns.volumeOf(name)).spec!.csi!.volumeHandle));
  const uuids = await uuidsOn(ns, DEAD);
  assertEquals(Object.keys(uuids).sort(), [...ids].sort());

  await Promise.all([dead.powerOff(), alive.powerOff()]);
  await dead.carryDisks(CARRIED_GROUP, alive);
  await Promise.all([dead, alive].map(async (node) => {
    await node.powerOn();
    await node.ready();
  }));
  await ns.waitFor(
    "LVMNode",
    ALIVE,
    (node) => node?.status?.volumeGroups?.some(({ name }) => name === CARRIED_GROUP) === true,
    "reports the carried group",
  );
  await using driver = await DriverPods.open(ns.cluster);
  // the node is alive, without its disks
  const adopt = ["adopt", CARRIED_GROUP, "--node", ALIVE, "--yes"];
  await assertRejects(() => runPlugin(ns, ...adopt), Error, `node ${DEAD} is not forgotten`);
  await assertRejects(() => runPlugin(ns, "forget-node", DEAD, "--yes"), Error, `Node ${DEAD} is Ready`);
  const refused = await adoptDirectly(ns, CLAIMS[0].name);
  assertEquals(refused.status?.error?.message.includes(`node ${DEAD} is not forgotten`), true, JSON.stringify(refused));
  assertEquals(await uuidsOn(ns, ALIVE), uuids);

  await dead.powerOff();
  const isReady = ["--for=condition=Ready=Unknown", `node/${DEAD}`, "--timeout=300s"];
  await ns.kubectl("wait", ...isReady);
  await assertRejects(() => runPlugin(ns, "forget-node", DEAD, "--yes"), Error, "its agent reported");
  await ns.kubectl("taint", "node", DEAD, "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute");
  await ns.waitForDeletion("Pod", "user");
  await runPlugin(ns, "forget-node", DEAD, "--yes");
  await driver.waitForReady("controller"); // it may have been on the dead node

  const [outcome, died] = await Promise.all([runPlugin(ns, ...adopt), killMeanwhile(ns, driver, ids)]);
  const volumes = outcome.volumes as { claim: string; state: string; refusal?: string }[];
  assertEquals(
    volumes.map(({ claim, state, refusal }) => [claim, state, refusal]),
    CLAIMS.map(({ name }) => [`${ns.namespace}/${name}`, "Complete", undefined]),
  );
  console.error(`killed: ${died.join("; ")}`);
  for (const { name } of CLAIMS) {
    const volume = await ns.volumeOf(name);
    assertEquals([nodeOfVolume(volume, TOPOLOGY_KEY), volume.spec?.persistentVolumeReclaimPolicy], [ALIVE, "Delete"]);
  }
  await ns.createPod({ name: "user", claims: USED });
  await ns.waitFor("Pod", "store-0", (pod) => isRunning(pod) && pod?.spec?.nodeName === ALIVE, `runs on ${ALIVE}`);
  for (const [index, claim] of CLAIMS.entries()) {
    assertEquals((await ns.waitForRunning(claim.pod)).spec?.nodeName, ALIVE);
    assertEquals(await digestOf(ns, claim), digests[index], claim.name);
  }
  assertEquals(await uuidsOn(ns, ALIVE), uuids);
  assertEquals((await runPlugin(ns, ...adopt)).volumes, []);

  // the old node comes back without its disks, and nothing changes
  await dead.powerOn();
  await dead.ready();
  await ns.kubectl("taint", "node", DEAD, "node.kubernetes.io/out-of-service-");
  await driver.waitForReady("node", { count: 2 });
  await ns.waitFor("LVMNode", DEAD, (node) => node !== undefined, "is there again");
  for (const id of ids) {
    await ns.waitFor("LVMVolume", id, (volume) => volume?.status?.state === "Ready", "is Ready");
  }
  assertEquals(await uuidsOn(ns, ALIVE), uuids);
  for (const id of ids) await ns.kubectl("delete", "lvmmove", id);
  await ns.kubectl("delete", "statefulset", "store");
  await ns.deleteAndWait("Pod", "user");
  for (const { name } of CLAIMS) await ns.deleteAndWait("PersistentVolumeClaim", name);
  await ns.waitForCleanup();
});
