/**
 * Writes that the API server refuses, and writes whose outcome is unknown.
 *
 * @module
 */

import { assertEquals } from "@std/assert";
import { type LvmVolume, lvmVolumes } from "../../k8s/api/lvm_objects.ts";
import { type ApiClient, ApiError } from "../../k8s/client/client.ts";
import { volumeIdOf } from "../../base/ids.ts";
import { interceptClient } from "../fake/cluster/intercepted_client.ts";
import { DRIVER, FakeCluster } from "../fake/cluster/node_cluster.ts";
import { ANYWHERE, assertFailsWith, machineWith, MiB, remaining, request } from "../fake/cluster/volume_cluster.ts";

function apiError(status: number): ApiError {
  return new ApiError(`patch lvmvolumes v: HTTP ${status}`, { status, reason: `HTTP ${status}` });
}

Deno.test("a volume whose object the API server refuses is not pending: the next request may differ", async () => {
  const machine = machineWith({ data: 1n << 30n });
  await using cluster = await FakeCluster.start({ "node-1": machine });
  const { controllerClient: client } = cluster;
  const create = client.create.bind(client);
  for (
    const [status, kind] of [[422, "InvalidArgument"], [403, "FailedPrecondition"], [504, "Unavailable"]] as const
  ) {
    client.create = () => Promise.reject(apiError(status));
    await assertFailsWith(kind, cluster.volumes.create(request("pvc-1"), ANYWHERE));
  }
  client.create = create;
  await cluster.volumes.create(request("pvc-1"), ANYWHERE);
  assertEquals(remaining(cluster, machine), [1, 1]);
});

Deno.test("after an answer that was lost, an expansion and limits may be in effect; after a refusal they are not", async () => {
  await using cluster = await FakeCluster.start({ "node-1": machineWith({ data: 1n << 30n }) });
  const { id } = await cluster.volumes.create(request("pvc-1"), ANYWHERE);
  const { controllerClient: client } = cluster;
  for (
    const [status, kind] of [
      ...[0, 409, 429, 500, 504].map((status) => [status, "Unavailable"] as const),
      ...[[422, "InvalidArgument"], [403, "FailedPrecondition"], [404, "NotFound"]] as const,
    ]
  ) {
    client.patch = () => Promise.reject(apiError(status));
    await assertFailsWith(kind, cluster.volumes.expand(id, { required: 64n * MiB }));
    await assertFailsWith(kind, cluster.volumes.setLimits(id, { readIops: "max" }));
  }
});

Deno.test("a status that the API server refuses does not keep the states of other volumes from it", async () => {
  const machine = machineWith({ data: 1n << 30n });
  const refused = new Set<string>();
  const wrap = (client: ApiClient): ApiClient => ({
    ...interceptClient(client, () => Promise.resolve()),
    patch: async (resource, at, options) => {
      if (refused.has(at.name)) throw apiError(422);
      return await client.patch(resource, at, options);
    },
  });
  await using cluster = await FakeCluster.start({ "node-1": machine }, { wrap });
  const [first, second] = [
    await cluster.volumes.create(request("pvc-1"), ANYWHERE),
    await cluster.volumes.create(request("pvc-2"), ANYWHERE),
  ];
  for (const { id } of [first, second]) await cluster.waitUntilIdle("node-1", id);
  refused.add(first.id);
  machine.groups[0]!.lvs.length = 0;
  await cluster.agent("node-1").node.refresh();
  const isLost = (object?: LvmVolume) => object?.status?.state === "Lost";
  await cluster.objects.waitFor(second.id, isLost, { timeoutMs: 5_000 });
});

Deno.test("the controller leaves the finalizers of others on an object whose node is gone", async () => {
  await using cluster = await FakeCluster.start({}, { waitMs: 100 });
  const name = volumeIdOf("pvc-1");
  cluster.api.put(lvmVolumes, {
    metadata: { name, finalizers: ["lvm.denolith.dev/volume", "backup.example/hold"] },
    spec: {
      ...{ driverName: DRIVER, requestName: "pvc-1", nodeName: "gone", size: "1Gi", volumeMode: "Block" },
      ...{ volumeGroupPreference: "leastFree", shared: true, erase: "none" },
    },
  });
  await cluster.objects.waitFor(name, (object) => object !== undefined);
  await assertFailsWith("Unavailable", cluster.volumes.delete(name));
  assertEquals(cluster.api.objects(lvmVolumes)[0]?.metadata.finalizers, ["backup.example/hold"]);
});
