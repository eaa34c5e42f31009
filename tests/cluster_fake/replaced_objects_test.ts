/**
 * Objects that are replaced by others of the same name while an agent writes to them, as by a restored backup.
 *
 * @module
 */

import { assertEquals } from "@std/assert";
import { type LvmVolume, lvmVolumes } from "../../k8s/api/lvm_objects.ts";
import { lvmVolumeFor } from "../../k8s/api/volume_mapping.ts";
import type { ApiClient, PatchOptions } from "../../k8s/client/client.ts";
import { volumeIdOf } from "../../base/ids.ts";
import { interceptClient } from "../fake/cluster/intercepted_client.ts";
import { FakeCluster } from "../fake/cluster/node_cluster.ts";
import { ANYWHERE, assertFailsWith, machineWith, onlyObject, request } from "../fake/cluster/volume_cluster.ts";

const FINALIZER = "other.example/lv";

/**
 * Starts a cluster in which, just before one patch of an LVMVolume, the object is replaced by that of another driver.
 *
 * @param isReplaced selects the patch
 * @returns the cluster, and a promise that resolves when that patch has ended
 */
async function setUp(isReplaced: (options: Pick<PatchOptions<LvmVolume>, "merge" | "subresource">) => boolean) {
  const patched = Promise.withResolvers<void>();
  let pending = true;
  const replace = async (name: string) => {
    const { api, client } = cluster;
    const { spec } = await client.get(lvmVolumes, { name });
    await client.patch(lvmVolumes, { name }, { merge: { metadata: { finalizers: [] } } });
    await client.delete(lvmVolumes, { name }).catch(() => {}); // one that was being deleted is gone
    const other: LvmVolume = { metadata: { name, finalizers: [FINALIZER] }, spec: { ...spec, driverName: "other" } };
    api.put(lvmVolumes, other);
  };
  const wrap = (client: ApiClient): ApiClient => ({
    ...interceptClient(client, () => Promise.resolve()),
    patch: async (resource, at, options) => {
      if (!pending || resource.plural !== "lvmvolumes" || !isReplaced(options)) {
        return await client.patch(resource, at, options);
      }
      pending = false;
      await replace(at.name);
      return await client.patch(resource, at, options).finally(patched.resolve);
    },
  });
  const cluster = await FakeCluster.start({ "node-1": machineWith({ data: 1n << 30n }) }, { wrap, waitMs: 1_000 });
  return { cluster, patched: patched.promise };
}

Deno.test("an agent does not write the status of a volume into another object of its name", async () => {
  const { cluster, patched } = await setUp(({ subresource }) => subresource === "status");
  await using _cluster = cluster;
  const created = cluster.volumes.create(request("pvc-1"), ANYWHERE).catch(() => {});
  await Promise.all([patched, created]);
  const { spec, status } = onlyObject(cluster);
  assertEquals([spec.driverName, status], ["other", undefined]);
});

Deno.test("an agent does not take the finalizers off another object of a deleted volume's name", async () => {
  const { cluster, patched } = await setUp(({ merge }) =>
    (merge as { metadata?: { finalizers?: unknown } }).metadata?.finalizers !== undefined
  );
  await using _cluster = cluster;
  await cluster.volumes.create(request("pvc-1"), ANYWHERE);
  const deleted = cluster.volumes.delete(volumeIdOf("pvc-1")).catch(() => {});
  await Promise.all([patched, deleted]);
  assertEquals(onlyObject(cluster).metadata.finalizers, [FINALIZER]);
});

Deno.test("an agent does not record the failure of a volume in another object of its name, which it creates", async () => {
  const machine = machineWith({ data: 1n << 30n });
  await using cluster = await FakeCluster.start({ "node-1": machine }, { waitMs: 500 });
  const { api, client } = cluster;
  const { objects } = cluster.agent("node-1");
  const failed = Promise.withResolvers<void>();
  machine.fault = async ({ args }) => {
    if (args[0] !== "lvcreate") return undefined;
    machine.fault = undefined;
    const { metadata: { name, uid, finalizers = [], annotations = {} }, spec } = onlyObject(cluster);
    await client.patch(lvmVolumes, { name }, { merge: { metadata: { finalizers: [] } } });
    await client.delete(lvmVolumes, { name });
    api.put(lvmVolumes, { metadata: { name, finalizers, annotations }, spec });
    await objects.waitFor(name, (now) => now !== undefined && now.metadata.uid !== uid, { timeoutMs: 5_000 });
    failed.resolve();
    return { code: 5, stdout: "", stderr: "  Invalid argument for --name: vol-1" };
  };
  const created = cluster.volumes.create(request("pvc-1"), ANYWHERE).catch(() => {});
  await Promise.all([failed.promise, created]);
  await cluster.objects.waitFor(volumeIdOf("pvc-1"), (now) => now?.status?.state === "Ready", { timeoutMs: 10_000 });
});

Deno.test("an agent does not report how full an earlier volume of the name was", async () => {
  await using cluster = await FakeCluster.start({ "node-1": machineWith({ data: 1n << 30n }) });
  const { volumes, node } = cluster.agent("node-1");
  const { id } = await cluster.volumes.create(request("pvc-1"), ANYWHERE);
  const reported = async () => {
    await node.refresh();
    await cluster.waitUntilIdle("node-1", id);
    return onlyObject(cluster).status?.usedPercent;
  };
  // kubelet's last question may be answered after the volume was unmounted
  volumes.recordUsage(id, { filesystem: { bytes: { total: 100n, used: 42n, available: 58n } } });
  assertEquals(await reported(), 42);
  await cluster.volumes.delete(id);
  await cluster.volumes.create(request("pvc-1"), ANYWHERE);
  assertEquals(await reported(), undefined);
});

Deno.test("a request deletes no volume of another driver that has its name, not even one that failed", async () => {
  await using cluster = await FakeCluster.start({ "node-1": machineWith({ data: 1n << 30n }) }, { waitMs: 200 });
  const name = volumeIdOf("pvc-1");
  const { spec } = lvmVolumeFor(request("pvc-1"), { driver: "other", nodeName: "node-1" });
  const error = { code: "NoSpace", message: "no room" } as const;
  cluster.api.put(lvmVolumes, {
    metadata: { name, finalizers: [FINALIZER] },
    spec,
    status: { state: "Failed", error },
  });
  await cluster.objects.waitFor(name, (object) => object?.status !== undefined);
  await assertFailsWith("NotFound", cluster.volumes.create(request("pvc-1"), ANYWHERE));
  assertEquals(onlyObject(cluster).metadata.deletionTimestamp, undefined);
});
