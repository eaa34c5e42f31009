/**
 * What the suite of the official provisioner (kubernetes-csi/external-provisioner, its capacity controller) asks of published
 * capacity, simulated by a publisher over node `a` with 8 GiB and the class `fast`.
 *
 * Not asked: topologies of several labels, owners that a flag names.
 *
 * @module
 */

import { csiNodes, csiStorageCapacities, type CsiStorageCapacity, storageClasses } from "../../k8s/api/objects.ts";
import { lvmNodes } from "../../k8s/api/lvm_objects.ts";
import { csiStorageCapacityFor } from "../../k8s/scheduling/capacity_object.ts";
import { GiB, NAMESPACE, startCapacityCluster } from "../fake/cluster/capacity_publishers.ts";
import { DRIVER, TOPOLOGY_KEY, waitUntil } from "../fake/cluster/control_plane.ts";
import { outcomeWhenSettled, type Row, testRows } from "./rows.ts";

type Harness = ReturnType<typeof startCapacityCluster>;

/** What happens before a publisher starts, and when it has published what there is. */
interface Situation {
  readonly before?: (s: Harness) => unknown;
  readonly then?: (s: Harness) => unknown;
}

/** What is published in the end, a line for each object, and the kinds of the publisher's writes. */
type Outcome = readonly [published: readonly string[], writes: string];

function row(asks: string, situation: Situation, wanted: Outcome, differs?: string): Row {
  return [asks, () => play(situation, wanted), wanted, differs];
}

async function play({ before, then }: Situation, wanted: Outcome): Promise<Outcome> {
  await using s = startCapacityCluster();
  for (const resource of [lvmNodes, csiNodes]) await s.client.delete(resource, { name: "b" });
  await before?.(s);
  const lines = () => s.published().filter((line) => !line.includes(" next "));
  const written = () => s.writes().length - s.published().length + lines().length;
  const outcome = (): Outcome => [lines(), [...new Set(s.writes().slice(0, written()))].sort().join(", ")];
  await s.start();
  if (then !== undefined) {
    await s.waitUntilPublished("a fast 8Gi 8Gi");
    await then(s);
  }
  await outcomeWhenSettled(outcome, wanted);
  s.addClass("next"); // for each node, after what was begun
  const known = s.api.objects(lvmNodes).map(({ metadata }) => metadata.name);
  const count =
    s.api.objects(csiNodes).filter(({ metadata, spec }) => spec.drivers.length > 0 && known.includes(metadata.name))
      .length;
  await waitUntil(() => s.published().length - lines().length === count, "an object of class `next` for each node");
  return outcome();
}

/** Returns what adds an object for node `a` and the class `fast`, or for another one. @param change changes it */
const addObject = (
  change: (object: CsiStorageCapacity) => void = () => {},
  { nodeName = "a", className = "fast" } = {},
) =>
(s: Harness) => {
  const node = s.api.objects(lvmNodes).find(({ metadata }) => metadata.name === nodeName) ??
    { metadata: { name: nodeName, uid: "gone" }, spec: { driverName: DRIVER } };
  const object = csiStorageCapacityFor({
    ...{ driverName: DRIVER, topologyKey: TOPOLOGY_KEY, namespace: NAMESPACE, node, className },
    capacity: { available: 8n * GiB, largest: 8n * GiB, smallest: 1n },
  });
  change(object);
  s.api.put(csiStorageCapacities, object);
};
const labeled = (name: string, value: string) => (object: CsiStorageCapacity) => {
  object.metadata.name = "other";
  object.metadata.labels![`csi.storage.k8s.io/${name}`] = value;
};
const changeObject = (merge: object) => (s: Harness) => {
  const { name } = s.object("a", "fast")!.metadata;
  return s.client.patch(csiStorageCapacities, { name, namespace: NAMESPACE }, { merge });
};
const deleteObject = (s: Harness) =>
  s.client.delete(csiStorageCapacities, { name: s.object("a", "fast")!.metadata.name, namespace: NAMESPACE });
const removeNode = (s: Harness) => s.client.delete(lvmNodes, { name: "a" });
const removeClass = (s: Harness) => s.client.delete(storageClasses, { name: "fast" });
const ownerOf = (uid: string) => ({
  ownerReferences: [{ apiVersion: "v1", kind: "Pod", name: "owner", uid }],
});

const FAST = "a fast 8Gi 8Gi";
const CAPACITY = "docs/explanation/how-it-works.md";

testRows("csi-provisioner: published capacity", [
  row("a class and a node", {}, [[FAST], "POST"]),
  row("no class", { before: removeClass }, [[], ""]),
  row("no node", { before: removeNode }, [[], ""]),
  row("a class of another driver", { before: (s) => s.addClass("other", {}, "x") }, [[FAST], "POST"]),
  row("a node without the driver", { before: (s) => s.addNode("c", GiB, []) }, [[FAST], "POST"]),
  row(
    "a largest volume that is smaller than the capacity",
    { before: (s) => s.addClass("halves", { groups: "two" }) },
    [
      [FAST, "a halves 8Gi 4Gi"],
      "POST",
    ],
  ),
  row(
    "a class that binds at once",
    {
      before: (s) =>
        s.api.put(storageClasses, { metadata: { name: "now" }, provisioner: DRIVER, volumeBindingMode: "Immediate" }),
    },
    [[FAST, "a now 8Gi 8Gi"], "POST"],
    `${CAPACITY}, Volume binding mode Immediate`,
  ),
  row("two nodes and two classes", {
    before: (s) => {
      s.addNode("b", 4n * GiB);
      s.addClass("slow");
    },
  }, [[FAST, "a slow 8Gi 8Gi", "b fast 4Gi 4Gi", "b slow 4Gi 4Gi"], "POST"]),

  row("an object that is right", { before: addObject() }, [[FAST], ""]),
  row("an object of another capacity", { before: addObject((object) => object.capacity = "1Gi") }, [[FAST], "PATCH"]),
  row("an object without an owner", { before: addObject(({ metadata }) => metadata.ownerReferences = []) }, [
    [FAST],
    "PATCH",
  ]),
  row(
    "an object of another owner",
    { before: addObject(({ metadata }) => Object.assign(metadata, ownerOf("x"))) },
    [[FAST], "PATCH"],
    `${CAPACITY}: the LVMNode owns it`,
  ),
  row("two nodes and two classes, one of each new", {
    before: (s) => {
      addObject()(s);
      s.addNode("b");
      s.addClass("slow");
    },
  }, [[FAST, "a slow 8Gi 8Gi", "b fast 8Gi 8Gi", "b slow 8Gi 8Gi"], "POST"]),
  row("an object of another manager", { before: addObject(labeled("managed-by", "x")) }, [
    [FAST, FAST],
    "POST",
  ]),
  row("an object without a manager", {
    before: addObject(({ metadata }) => {
      metadata.name = "other";
      metadata.labels = {};
    }),
  }, [[FAST, FAST], "POST"]),
  row("an object of another driver", { before: addObject(labeled("drivername", "x")) }, [[FAST, FAST], "POST"]),
  row("an object of a class that is gone", { before: addObject(undefined, { className: "gone" }) }, [
    [FAST],
    "DELETE, POST",
  ]),
  row("an object of a node that is gone", { before: addObject(undefined, { nodeName: "gone" }) }, [
    [FAST],
    "DELETE, POST",
  ]),

  row("the capacity changes", { then: (s) => s.report("a", 6n * GiB) }, [["a fast 6Gi 6Gi"], "PATCH, POST"]),
  row("the capacity stays", { then: (s) => s.report("a", 8n * GiB) }, [[FAST], "POST"]),
  row("a node is added", { then: (s) => s.addNode("b") }, [[FAST, "b fast 8Gi 8Gi"], "POST"]),
  row("a node is removed", { then: removeNode }, [[], "DELETE, POST"]),
  row("a node is added, and one removed", {
    then: async (s) => {
      s.addNode("b");
      await removeNode(s);
    },
  }, [["b fast 8Gi 8Gi"], "DELETE, POST"]),
  row("the driver leaves the node", {
    then: (s) => s.client.patch(csiNodes, { name: "a" }, { merge: { spec: { drivers: [] } } }),
  }, [[], "DELETE, POST"]),
  row("a class is added", { then: (s) => s.addClass("slow") }, [[FAST, "a slow 8Gi 8Gi"], "POST"]),
  row("a class is removed", { then: removeClass }, [[], "DELETE, POST"]),
  row("somebody deletes the object", { then: deleteObject }, [[FAST], "POST"]),
  row("somebody deletes it, and creates another one of its name", {
    then: async (s) => {
      await deleteObject(s);
      addObject((object) => object.capacity = "1Mi")(s);
    },
  }, [[FAST], "PATCH, POST"]),
  row("somebody creates one too many", { then: addObject(({ metadata }) => metadata.name = "copy") }, [
    [FAST],
    "DELETE, POST",
  ]),
  row(
    "somebody removes its labels",
    { then: changeObject({ metadata: { labels: null } }) },
    [[FAST], "PATCH, POST"],
    `${CAPACITY}: an object has a fixed name, and is restored`,
  ),
  row("somebody changes its capacity", { then: changeObject({ capacity: "1Mi" }) }, [[FAST], "PATCH, POST"]),
]);
