/**
 * What takes two nodes: claims find the one with room, and what a dead one had goes on at the other. It runs in a cluster of its
 * own, whose first node has room for three of what its second has room for one of.
 *
 * @module
 */

import { assertEquals } from "@std/assert";
import type { Pod } from "../../../k8s/api/objects.ts";
import { BUSYBOX_IMAGE } from "../../rig/pod_image.ts";
import { forgetNode } from "./forget_command.ts";
import { Offers } from "./offers.ts";
import { boundOf, claimAtOnce, nodesOf, refusals } from "./rush.ts";
import { Scene } from "./scene.ts";
import { isRunning, QUICK, SLEEP } from "./scene_objects.ts";

/** The size of what the first node has room for thrice, and the second once, in MiB. */
const SMALL = 600;

/** The size of what the first node has room for twice, and the second once, in MiB. */
const LARGE = 900;

/** A scene in the cluster of two nodes, with a class whose room is as it was at the start. */
async function open(title: string, volumeBindingMode: "Immediate" | "WaitForFirstConsumer") {
  const scene = await Scene.open(title);
  const { nodes } = scene.cluster;
  if (nodes.length !== 2) {
    await scene[Symbol.asyncDispose]();
    throw new Error(`open ${title}: the cluster has ${nodes.length} nodes; run: deno task test:cluster two_nodes`);
  }
  const offers = await Offers.open(scene);
  const cls = await scene.storageClass("data", { parameters: QUICK, volumeBindingMode });
  const rooms = await Promise.all(nodes.map(async (node) => {
    const size = await scene.onNode("vgs --noheadings --units m --nosuffix -o vg_size data", node);
    await offers.are(Number(size), node.name, cls);
    return [node.name, Number(size)] as const;
  }));
  return {
    scene,
    cls,
    /** Waits until all that was made here is gone, and its space free. */
    async settled() {
      await scene.settled();
      for (const [name, mib] of rooms) await offers.are(mib, name, cls);
    },
    async [Symbol.asyncDispose]() {
      await offers[Symbol.asyncDispose]();
      await scene[Symbol.asyncDispose]();
    },
  };
}

/** A StatefulSet with a volume for each replica. */
function statefulSet(cls: string, options: { replicas: number; mib: number; policy: "OrderedReady" | "Parallel" }) {
  const labels = { app: "store" };
  return {
    apiVersion: "apps/v1",
    kind: "StatefulSet",
    metadata: { name: "store" },
    spec: {
      replicas: options.replicas,
      podManagementPolicy: options.policy,
      selector: { matchLabels: labels },
      template: {
        metadata: { labels },
        spec: {
          terminationGracePeriodSeconds: 1,
          automountServiceAccountToken: false,
          containers: [{
            name: "main",
            image: BUSYBOX_IMAGE,
            imagePullPolicy: "Never",
            command: ["sh", "-c", SLEEP],
            volumeDevices: [{ name: "data", devicePath: "/raw" }],
          }],
        },
      },
      volumeClaimTemplates: [{
        metadata: { name: "data" },
        spec: {
          storageClassName: cls,
          accessModes: ["ReadWriteOnce"],
          volumeMode: "Block",
          resources: { requests: { storage: `${options.mib}Mi` } },
        },
      }],
    },
  };
}

/** How many volumes of the claims are on each node. */
async function spread(scene: Scene, claims: readonly string[]): Promise<Record<string, number>> {
  const nodes = Object.values(await nodesOf(scene, claims));
  return Object.fromEntries(scene.cluster.nodes.map(({ name }) => [name, nodes.filter((one) => one === name).length]));
}

/** Removes a StatefulSet with its claims. */
async function remove(scene: Scene): Promise<void> {
  await scene.kubectl("delete", "statefulset", "store");
  await scene.kubectl("delete", "pods,persistentvolumeclaims", "--all");
}

Deno.test("the third replica lands on the node where room is, and a fourth finds none", async () => {
  await using s = await open("third", "WaitForFirstConsumer");
  const { scene } = s;
  await scene.apply(statefulSet(s.cls, { replicas: 3, mib: LARGE, policy: "OrderedReady" }));
  const [pods, claims] = ["store", "data-store"].map((name) => [0, 1, 2].map((ordinal) => `${name}-${ordinal}`));
  for (const pod of pods!) await scene.running(pod);
  assertEquals(await spread(scene, claims!), { node1: 2, node2: 1 });
  const warnings = (await Promise.all(claims!.map((name) => scene.events("PersistentVolumeClaim", name)))).flat()
    .filter(({ reason }) => reason === "ProvisioningFailed");
  assertEquals([warnings, await refusals(scene, claims!)], [[], []], "nobody found out by trying");

  await scene.kubectl("scale", "statefulset/store", "--replicas=4");
  await scene.event("Pod", "store-3", "FailedScheduling", /2 node\(s\) did not have enough free storage/);
  await remove(scene);
  await s.settled();
});

Deno.test("four replicas at once share two nodes that have room for three and for one", async () => {
  await using s = await open("parallel", "WaitForFirstConsumer");
  const { scene } = s;
  await scene.apply(statefulSet(s.cls, { replicas: 4, mib: SMALL, policy: "Parallel" }));
  const [pods, claims] = ["store", "data-store"].map((name) => [0, 1, 2, 3].map((ordinal) => `${name}-${ordinal}`));
  await Promise.all(pods!.map((pod) => scene.running(pod)));
  assertEquals(await spread(scene, claims!), { node1: 3, node2: 1 });
  assertEquals(await refusals(scene, claims!), [], "what was chosen too often was given back before it was tried");
  await remove(scene);
  await s.settled();
});

Deno.test("four Immediate claims at once are placed by what the nodes have, and a fifth waits", async () => {
  await using s = await open("now", "Immediate");
  const { scene } = s;
  const names = ["one", "two", "three", "four"];
  await claimAtOnce(scene, names, { class: s.cls, size: `${SMALL}Mi`, volumeMode: "Block" });
  await boundOf(scene, names, 4);
  assertEquals([await spread(scene, names), await refusals(scene, names)], [{ node1: 3, node2: 1 }, []]);
  await scene.claim({ name: "five", class: s.cls, size: `${SMALL}Mi`, volumeMode: "Block" });
  await scene.event(
    "PersistentVolumeClaim",
    "five",
    "ProvisioningFailed",
    /node node\d: .*no room.*node node\d: .*no room/,
  );
  await scene.delete("PersistentVolumeClaim", "one");
  await scene.bound("five");
  for (const name of [...names.slice(1), "five"]) await scene.delete("PersistentVolumeClaim", name);
  await s.settled();
});

// The last one: the second node is dead then.
Deno.test("a node that is dead for good holds nothing up when its steps are done, and its replica goes on at the other", async () => {
  await using s = await open("dead", "WaitForFirstConsumer");
  const { scene } = s;
  const [alive, dead] = scene.cluster.nodes;
  await scene.kubectl("cordon", alive!.name);
  await scene.apply(statefulSet(s.cls, { replicas: 1, mib: SMALL, policy: "OrderedReady" }));
  assertEquals((await scene.running("store-0")).spec?.nodeName, dead!.name);
  await scene.kubectl("uncordon", alive!.name);
  const { metadata: { name }, spec } = await scene.volumeOf("data-store-0");
  const id = spec!.csi!.volumeHandle;

  await dead!.switchOff();
  await scene.kubectl("delete", "node", dead!.name);
  await scene.gone("LVMNode", dead!.name);
  const shown = await forgetNode(scene, dead!.name);
  assertEquals([shown.code, shown.err, shown.out.includes(id)], [0, "", true], shown.out);
  const done = await forgetNode(scene, dead!.name, "--yes");
  assertEquals([done.code, done.err], [0, ""], done.out);
  await scene.wait("LVMVolume", id, (volume) => volume?.status?.state === "Lost", "is Lost");
  await scene.event("PersistentVolumeClaim", "data-store-0", "VolumeForgotten", /was given up/);

  await scene.remove("PersistentVolumeClaim", "data-store-0");
  await scene.remove("Pod", "store-0");
  await scene.gone("PersistentVolume", name);
  await scene.gone("LVMVolume", id);
  const isElsewhere = (pod: Pod | undefined) => isRunning(pod) && pod?.spec?.nodeName === alive!.name;
  await scene.wait("Pod", "store-0", isElsewhere, `runs on ${alive!.name}`);
  await remove(scene);
});
