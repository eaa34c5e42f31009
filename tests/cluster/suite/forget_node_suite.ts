/**
 * A node that does not come back, and is forgotten. It was never there: its objects are.
 *
 * @module
 */

import { assertEquals, assertMatch, assertRejects } from "@std/assert";
import { isForgotten, LVM_GROUP, lvmVolumes } from "../../../k8s/api/lvm_objects.ts";
import { PROVISIONED_BY_ANNOTATION, VOLUME_FINALIZER } from "../../../k8s/provisioner/persistent_volume.ts";
import { lvmVolumeFor } from "../../../k8s/api/volume_mapping.ts";
import { volumeIdOf } from "../../../base/ids.ts";
import { namedRequest } from "../../fake/request.ts";
import { runPlugin } from "./helpers/plugin_command.ts";
import { TestNamespace } from "./helpers/test_namespace.ts";
import { DRIVER } from "./helpers/objects.ts";

/** Writes a status in the stead of an agent. */
async function setStatus(ns: TestNamespace, object: string, status: object): Promise<void> {
  await ns.kubectl("patch", object, "--subresource=status", "--type=merge", "--patch", JSON.stringify({ status }));
}

/**
 * Creates a volume of the node as an agent leaves it, and, with a policy, its PersistentVolume, whose claim is gone.
 */
async function createVolume(
  ns: TestNamespace,
  nodeName: string,
  name: string,
  policy?: "Delete" | "Retain",
): Promise<string> {
  const requestName = `${nodeName}-${name}`;
  const id = volumeIdOf(requestName);
  await ns.applyAs(lvmVolumes, lvmVolumeFor(namedRequest(requestName, 16n << 20n), { driver: DRIVER, nodeName }));
  const made = { state: "Ready", observedGeneration: 1, volumeGroup: "data", lvUUID: `uuid-${name}`, size: "16Mi" };
  await setStatus(ns, `lvmvolume/${id}`, made);
  if (policy === undefined) return id;
  await ns.apply({
    apiVersion: "v1",
    kind: "PersistentVolume",
    metadata: {
      name: requestName,
      annotations: { [PROVISIONED_BY_ANNOTATION]: DRIVER },
      ...(policy === "Delete" ? { finalizers: [VOLUME_FINALIZER] } : {}),
    },
    spec: {
      capacity: { storage: "16Mi" },
      accessModes: ["ReadWriteOnce"],
      persistentVolumeReclaimPolicy: policy,
      storageClassName: "gone",
      claimRef: { namespace: ns.namespace, name, uid: crypto.randomUUID() },
      csi: { driver: DRIVER, volumeHandle: id },
    },
  });
  await ns.waitFor("PersistentVolume", requestName, (pv) => pv?.status?.phase === "Released", "is released");
  return id;
}

Deno.test("a forgotten node blocks nothing: released volumes are deleted, kept ones are Lost, and other nodes are unchanged", async () => {
  await using ns = await TestNamespace.open("forget");
  const node = `${ns.namespace}-gone`;
  const lvmNode = { apiVersion: `${LVM_GROUP}/v1alpha1`, kind: "LVMNode", metadata: { name: node } };
  await ns.apply({ ...lvmNode, spec: { driverName: DRIVER } });
  const spare = await createVolume(ns, node, "spare");
  const released = await createVolume(ns, node, "released", "Delete");
  const kept = await createVolume(ns, node, "kept", "Retain");

  const { livenessEvidence } = await runPlugin(ns, "forget-node", ns.node.name);
  assertEquals((livenessEvidence as string[]).includes(`Node ${ns.node.name} is Ready`), true, `${livenessEvidence}`);
  await setStatus(ns, `lvmnode/${node}`, { lastUpdateTime: new Date().toISOString() });
  const { message } = await assertRejects(() => runPlugin(ns, "forget-node", node, "--yes"), Error);
  assertMatch(message, /its agent reported \d+ s ago/);
  await setStatus(ns, `lvmnode/${node}`, { lastUpdateTime: "2026-01-01T00:00:00Z" });
  assertEquals((await runPlugin(ns, "forget-node", node)).done, false);
  const remainingObjects = async () =>
    (await ns.kubectl("get", "lvmnodes,lvmvolumes", "--output=name")).trim().split("\n");
  assertEquals(
    (await remainingObjects()).filter((name) => [node, spare, released, kept].some((id) => name.includes(id))).length,
    4,
  );

  assertEquals((await runPlugin(ns, "forget-node", node, "--yes")).done, true);
  await ns.waitForDeletion("LVMNode", node);
  await ns.waitForDeletion("LVMVolume", spare);
  await ns.waitForDeletion("PersistentVolume", `${node}-released`);
  await ns.waitForDeletion("LVMVolume", released);
  const lost = await ns.waitFor("LVMVolume", kept, (object) => object?.status?.state === "Lost", "is Lost");
  assertEquals([isForgotten(lost), lost.status?.lvUUID], [true, "uuid-kept"]);
  await ns.waitForEvent("LVMVolume", kept, "Lost", /was forgotten/);
  const other = await ns.waitFor("LVMNode", ns.node.name, (object) => object !== undefined, "is there");
  assertEquals(other.metadata.deletionTimestamp, undefined);

  await ns.deleteAndWait("PersistentVolume", `${node}-kept`);
  const { volumes } = await runPlugin(ns, "forget-node", node, "--yes");
  assertEquals((volumes as { outcome: string }[]).map(({ outcome }) => outcome), ["removed"]);
  await ns.waitForDeletion("LVMVolume", kept);
  await ns.waitForCleanup();
});
