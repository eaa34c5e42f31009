/**
 * A node that does not come back, and is forgotten. It was never there: its objects are.
 *
 * @module
 */

import { assertEquals, assertMatch } from "@std/assert";
import { isForgotten, LVM_GROUP } from "../../../k8s/api/lvm_objects.ts";
import { PROVISIONED_BY, VOLUME_FINALIZER } from "../../../k8s/provisioner/persistent_volume.ts";
import { lvmVolumeFor } from "../../../k8s/api/volume_mapping.ts";
import { volumeIdOf } from "../../../lvm/ids.ts";
import { namedRequest } from "../../fake/request.ts";
import { forgetNode } from "./forget_command.ts";
import { Scene } from "./scene.ts";
import { DRIVER } from "./scene_objects.ts";

/** Writes a status in the stead of an agent. */
async function setStatus(scene: Scene, object: string, status: object): Promise<void> {
  await scene.kubectl("patch", object, "--subresource=status", "--type=merge", "--patch", JSON.stringify({ status }));
}

/** A volume of the node as an agent leaves it, and its PersistentVolume, whose claim is gone, if it has a policy. */
async function volume(scene: Scene, nodeName: string, name: string, policy?: "Delete" | "Retain"): Promise<string> {
  const requestName = `${nodeName}-${name}`;
  const id = volumeIdOf(requestName);
  await scene.apply(lvmVolumeFor(namedRequest(requestName, 16n << 20n), { driver: DRIVER, nodeName }));
  const made = { state: "Ready", observedGeneration: 1, volumeGroup: "data", lvUUID: `uuid-${name}`, size: "16Mi" };
  await setStatus(scene, `lvmvolume/${id}`, made);
  if (policy === undefined) return id;
  await scene.apply({
    apiVersion: "v1",
    kind: "PersistentVolume",
    metadata: {
      name: requestName,
      annotations: { [PROVISIONED_BY]: DRIVER },
      ...(policy === "Delete" ? { finalizers: [VOLUME_FINALIZER] } : {}),
    },
    spec: {
      capacity: { storage: "16Mi" },
      accessModes: ["ReadWriteOnce"],
      persistentVolumeReclaimPolicy: policy,
      storageClassName: "gone",
      claimRef: { namespace: scene.namespace, name, uid: crypto.randomUUID() },
      csi: { driver: DRIVER, volumeHandle: id },
    },
  });
  await scene.wait("PersistentVolume", requestName, (pv) => pv?.status?.phase === "Released", "is released");
  return id;
}

Deno.test("a forgotten node holds nothing up: what was released goes, what somebody keeps is Lost, other nodes are as they were", async () => {
  await using scene = await Scene.open("forget");
  const node = `${scene.namespace}-gone`;
  const lvmNode = { apiVersion: `${LVM_GROUP}/v1alpha1`, kind: "LVMNode", metadata: { name: node } };
  await scene.apply({ ...lvmNode, spec: { driverName: DRIVER } });
  const spare = await volume(scene, node, "spare");
  const released = await volume(scene, node, "released", "Delete");
  const kept = await volume(scene, node, "kept", "Retain");

  const alive = await forgetNode(scene, scene.node.name, "--json");
  assertEquals(JSON.parse(alive.out).signsOfLife.includes(`Node ${scene.node.name} is Ready`), true, alive.out);
  await setStatus(scene, `lvmnode/${node}`, { lastUpdate: new Date().toISOString() });
  const refused = await forgetNode(scene, node, "--yes");
  assertEquals([refused.code, refused.out], [1, ""]);
  assertMatch(refused.err, /its agent reported \d+ s ago/);
  await setStatus(scene, `lvmnode/${node}`, { lastUpdate: "2026-01-01T00:00:00Z" });
  const shown = await forgetNode(scene, node);
  assertEquals([shown.code, shown.err], [0, ""]);
  assertMatch(shown.out, /Nothing was changed/);
  const there = async () => (await scene.kubectl("get", "lvmnodes,lvmvolumes", "--output=name")).trim().split("\n");
  assertEquals(
    (await there()).filter((name) => [node, spare, released, kept].some((id) => name.includes(id))).length,
    4,
  );

  const done = await forgetNode(scene, node, "--yes");
  assertEquals([done.code, done.err], [0, ""], done.out);
  await scene.gone("LVMNode", node);
  await scene.gone("LVMVolume", spare);
  await scene.gone("PersistentVolume", `${node}-released`);
  await scene.gone("LVMVolume", released);
  const lost = await scene.wait("LVMVolume", kept, (object) => object?.status?.state === "Lost", "is Lost");
  assertEquals([isForgotten(lost), lost.status?.lvUUID], [true, "uuid-kept"]);
  await scene.event("LVMVolume", kept, "Lost", /was given up/);
  const other = await scene.wait("LVMNode", scene.node.name, (object) => object !== undefined, "is there");
  assertEquals(other.metadata.deletionTimestamp, undefined);

  await scene.delete("PersistentVolume", `${node}-kept`);
  const again = await forgetNode(scene, node, "--yes", "--json");
  assertEquals([again.code, JSON.parse(again.out).volumes.map(({ fate }: { fate: string }) => fate)], [0, ["removed"]]);
  await scene.gone("LVMVolume", kept);
  await scene.settled();
});
