/**
 * Objects with fields that only a newer version knows, as after a downgrade.
 *
 * @module
 */

import { assertEquals } from "@std/assert";
import { type LvmVolume, lvmVolumes } from "../../k8s/api/lvm_objects.ts";
import { volumeIdOf } from "../../base/ids.ts";
import { FakeCluster } from "../fake/cluster/node_cluster.ts";
import { ANYWHERE, assertFailsWith, machineWith, MiB, onlyObject, request } from "../fake/cluster/volume_cluster.ts";

const NEWER = { spec: { tier: "gold" }, status: { encryption: { keySlot: 1 } } };

Deno.test("fields that only a newer version knows stay in an object, whatever controller and agent write", async () => {
  await using cluster = await FakeCluster.start({ "node-1": machineWith({ data: 1n << 30n }) });
  await cluster.volumes.create(request("pvc-1"), ANYWHERE);
  const name = volumeIdOf("pvc-1");
  const merge = (part: "spec" | "status") => ({ merge: { [part]: NEWER[part] } as Partial<LvmVolume> });
  await cluster.client.patch(lvmVolumes, { name }, merge("spec"));
  await cluster.client.patch(lvmVolumes, { name }, { ...merge("status"), subresource: "status" });

  const { size } = await cluster.volumes.expand(name, { required: 64n * MiB });
  assertEquals(size, 64n * MiB);
  const { node } = cluster.agent("node-1");
  await node.refresh();
  const { spec, status, metadata: { resourceVersion } } = onlyObject(cluster) as LvmVolume & typeof NEWER;
  assertEquals([spec.tier, status.encryption], [NEWER.spec.tier, NEWER.status.encryption]);
  assertEquals((status as LvmVolume["status"])?.size, "64Mi");

  await node.refresh();
  await node.refresh();
  assertEquals(onlyObject(cluster).metadata.resourceVersion, resourceVersion, "the status is written again and again");
});

Deno.test("an error of a kind that only a newer agent knows is passed on as one of a kind that a client knows", async () => {
  await using cluster = await FakeCluster.start({ "node-1": machineWith({ data: 1n << 30n }) });
  const { id: name } = await cluster.volumes.create(request("pvc-1"), ANYWHERE);
  await cluster.stopAgent("node-1");
  const error = { code: "Quarantined", message: "deleting volume pvc-1: it is in quarantine" };
  const merge = { status: { observedGeneration: 9, error } } as Partial<LvmVolume>;
  await cluster.client.patch(lvmVolumes, { name }, { merge, subresource: "status" });
  const { message } = await assertFailsWith("CommandFailed", cluster.volumes.delete(name));
  assertEquals(message, error.message);
});

Deno.test("a volume from a source that only a newer version knows does not keep others from the lists", async () => {
  await using cluster = await FakeCluster.start({ "node-1": machineWith({ data: 1n << 30n }) });
  const { id } = await cluster.volumes.create(request("pvc-1"), ANYWHERE);
  const { spec, status } = onlyObject(cluster);
  const newer = volumeIdOf("newer");
  const source = { image: "golden" } as object;
  cluster.api.put(lvmVolumes, {
    metadata: { name: newer },
    spec: { ...spec, requestName: "newer", nodeName: "node-2", source },
    status: status!,
  });
  await cluster.objects.waitFor(newer, (object) => object?.status !== undefined);
  assertEquals((await cluster.volumes.list()).map((volume) => volume.id).sort(), [id, newer].sort());
  assertEquals((await cluster.volumes.listUnhealthy()).map((volume) => volume.id), [newer]);
});
