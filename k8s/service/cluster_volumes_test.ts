import { assertEquals, assertRejects, assertThrows } from "@std/assert";
import { StorageError } from "../../base/error.ts";
import { snapshotIdOf, volumeIdOf } from "../../base/ids.ts";
import { FULL_COW } from "../../lvm/settings/cow_size.ts";
import { waitUntil } from "../../tests/fake/cluster/control_plane.ts";
import { DRIVER, FakeCluster, type ProcessOptions } from "../../tests/fake/cluster/node_cluster.ts";
import { interceptClient } from "../../tests/fake/cluster/intercepted_client.ts";
import { namedRequest } from "../../tests/fake/request.ts";
import { type ApiClient, ApiError } from "../client/client.ts";
import { lvmNodes, lvmSnapshots, type LvmVolume, lvmVolumes } from "../api/lvm_objects.ts";
import { lvmSnapshotFor } from "../api/snapshot_mapping.ts";
import { lvmVolumeFor, type NamedVolumeRequest } from "../api/volume_mapping.ts";

const NODE = { driver: DRIVER, nodeName: "a" };
const CREATED: LvmVolume["status"] = { state: "Ready", lvUUID: "u", size: "32Mi", volumeGroup: "data" };

/** Starts a cluster without agents, whose objects the test writes. */
async function setUp(options: ProcessOptions = {}) {
  const cluster = await FakeCluster.start({}, options);
  cluster.api.put(lvmNodes, { metadata: { name: "a" }, spec: { driverName: DRIVER } });
  const putVolume = (
    name: string,
    { status, driver = DRIVER, ...more }: Partial<NamedVolumeRequest> & {
      status?: LvmVolume["status"];
      driver?: string;
    } = {},
  ) => {
    const object = lvmVolumeFor(namedRequest(name, 32n << 20n, more), { ...NODE, driver });
    return cluster.api.put(lvmVolumes, { ...object, ...(status && { status }) }).metadata.name;
  };
  return {
    cluster,
    putVolume,
    /** Waits until the controller has seen all volumes. */
    seen: () =>
      waitUntil(() => cluster.objects.list().length === cluster.api.objects(lvmVolumes).length, "all volumes"),
    [Symbol.asyncDispose]: () => cluster[Symbol.asyncDispose](),
  };
}

Deno.test("ClusterVolumes.refuseWhileCopied() names the volumes that are being created from a source, in order", async () => {
  await using s = await setUp();
  const source = { kind: "volume", id: volumeIdOf("source") } as const;
  const copies = ["c", "a", "b"].map((name) => s.putVolume(name, { source }));
  s.putVolume("complete", { source, status: CREATED });
  s.putVolume("failed", { source, status: { state: "Failed" } });
  s.putVolume("foreign", { source, driver: "other.example.com" });
  s.putVolume("another", { source: { kind: "volume", id: volumeIdOf("other") } });
  await s.seen();
  const { kind, message } = assertThrows(
    () => s.cluster.volumes.refuseWhileCopied(source, "deleting it"),
    StorageError,
  );
  assertEquals([kind, /volume (.*) is being created/.exec(message)?.[1]], ["Busy", copies.toSorted().join(", ")]);
  s.cluster.volumes.refuseWhileCopied({ kind: "volume", id: volumeIdOf("unused") }, "deleting it");
});

Deno.test("ClusterVolumes.list() returns the volumes of the driver that were created, in the order of their ids", async () => {
  await using s = await setUp();
  const created = ["c", "a", "b"].map((name) => s.putVolume(name, { status: CREATED }));
  s.putVolume("pending");
  s.putVolume("foreign", { status: CREATED, driver: "other.example.com" });
  await s.seen();
  const ids: string[] = (await s.cluster.volumes.list()).map(({ id }) => id);
  assertEquals(ids, created.toSorted());
});

Deno.test("ClusterVolumes.create() refuses a snapshot that was not taken, with NotFound", async () => {
  await using s = await setUp();
  const id = snapshotIdOf("cut");
  const request = { id, name: "cut", source: volumeIdOf("source"), cowSize: FULL_COW };
  s.cluster.api.put(lvmSnapshots, lvmSnapshotFor(request, NODE));
  await waitUntil(() => s.cluster.snapshotObjects.list().length > 0, "the snapshot");
  const volume = namedRequest("copy", 32n << 20n, { source: { kind: "snapshot", id } });
  const error = await assertRejects(() => s.cluster.volumes.create(volume, { preferred: [] }), StorageError);
  assertEquals([error.kind, s.cluster.api.objects(lvmVolumes)], ["NotFound", []]);
});

Deno.test("ClusterVolumes.create() does not begin a recorded request again whose volume is gone: another node may be chosen", async () => {
  await using s = await setUp();
  const volume = namedRequest("gone", 32n << 20n);
  const recorded = { isRecorded: true };
  const error = await assertRejects(() => s.cluster.volumes.create(volume, { preferred: [] }, recorded), StorageError);
  assertEquals([error.kind, s.cluster.api.objects(lvmVolumes)], ["NoSpace", []]);
});

Deno.test("ClusterVolumes.create() gives the reason for which the volume of a recorded request has failed", async () => {
  await using s = await setUp();
  const volume = namedRequest("failed", 32n << 20n);
  const error = { code: "NoSpace", reason: "PhysicalVolumesMissing", message: "a disk is missing" } as const;
  const status = { state: "Failed", observedGeneration: 1, error } as const;
  // of a node without an agent, so that nobody is waited for
  s.cluster.api.put(lvmVolumes, { ...lvmVolumeFor(volume, { ...NODE, nodeName: "b" }), status });
  await s.seen();
  const creation = s.cluster.volumes.create(volume, { preferred: [] }, { isRecorded: true });
  const { kind, reason } = await assertRejects(() => creation, StorageError, "requested before: a disk is missing");
  assertEquals([kind, reason], ["NoSpace", "PhysicalVolumesMissing"]);
});

Deno.test("ClusterVolumes.delete() fails with Unavailable while the API server does not answer for what is not cached", async () => {
  let isAway = true;
  const wrap = (client: ApiClient) =>
    interceptClient(client, (request) => {
      if (!isAway || request !== "get lvmvolumes") return Promise.resolve();
      return Promise.reject(new ApiError("get lvmvolumes: forbidden", { status: 403, reason: "Forbidden" }));
    });
  await using s = await setUp({ wrap });
  const error = await assertRejects(() => s.cluster.volumes.delete(volumeIdOf("unknown")), StorageError);
  assertEquals([error.kind, error.message.startsWith("looking for")], ["Unavailable", true]);
  isAway = false;
  await s.cluster.volumes.delete(volumeIdOf("unknown"));
});

for (const moment of ["before patch lvmvolumes", "before delete lvmvolumes"]) {
  Deno.test(`ClusterVolumes.create() deletes no volume that was created since it was seen to have failed, ${moment}`, async () => {
    let createMeanwhile = () => {};
    const wrap = (client: ApiClient) =>
      interceptClient(client, (request, when) => {
        if (`${when} ${request}` === moment) createMeanwhile();
        return Promise.resolve();
      });
    await using s = await setUp({ wrap });
    const error = { code: "NoSpace", message: "full" } as const;
    const name = s.putVolume("data", { status: { state: "Failed", observedGeneration: 1, error } });
    await s.seen();
    // by another process, which created the PersistentVolume, too
    createMeanwhile = () => {
      createMeanwhile = () => {};
      const status = { ...CREATED, error: null };
      s.cluster.api.collection(lvmVolumes).patch({ status }, { name, namespace: undefined }, "status");
    };
    const creation = s.cluster.volumes.create(namedRequest("data", 32n << 20n), { preferred: [] });
    const { kind } = await assertRejects(() => creation, StorageError);
    const [object] = s.cluster.api.objects(lvmVolumes);
    assertEquals([kind, object!.metadata.deletionTimestamp], ["Unavailable", undefined]);
  });
}
