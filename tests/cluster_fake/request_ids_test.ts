/**
 * The id of a request, from the call to the log lines of the agent that carries it out.
 *
 * @module
 */

import { configure, type LogRecord, reset } from "@logtape/logtape";
import { assertEquals } from "@std/assert";
import { lvmSnapshots, lvmVolumes, REQUEST_ANNOTATION } from "../../k8s/api/lvm_objects.ts";
import { snapshotIdOf } from "../../base/ids.ts";
import { FULL_COW } from "../../lvm/settings/cow_size.ts";
import { withRequestId } from "../../base/request_id.ts";
import { FakeCluster } from "../fake/cluster/node_cluster.ts";
import { ANYWHERE, machineWith, MiB, request } from "../fake/cluster/volume_cluster.ts";

Deno.test("the agent logs each operation in one line, with the id of the request that the object carries", async () => {
  const records: LogRecord[] = [];
  await configure({
    reset: true,
    sinks: { memory: (record) => void records.push(record) },
    loggers: [
      { category: ["denolith", "agent"], sinks: ["memory"], lowestLevel: "info" },
      { category: ["logtape", "meta"], sinks: [], lowestLevel: "error" },
    ],
  });
  {
    await using cluster = await FakeCluster.start({ "node-1": machineWith({ data: 1n << 30n }) });
    const { volumes, snapshots } = cluster;
    const { id } = await withRequestId("id-1", () => volumes.create(request("pvc-1"), ANYWHERE));
    assertEquals(cluster.api.objects(lvmVolumes)[0]!.metadata.annotations?.[REQUEST_ANNOTATION], "id-1");
    await withRequestId("id-2", () => volumes.expand(id, { required: 64n * MiB }));
    const snapshot = { id: snapshotIdOf("snap-1"), name: "snap-1", source: id, cowSize: FULL_COW };
    await withRequestId("id-3", () => snapshots.create(snapshot));
    assertEquals(cluster.api.objects(lvmSnapshots)[0]!.metadata.annotations?.[REQUEST_ANNOTATION], "id-3");
    await withRequestId("id-4", () => snapshots.delete(snapshot.id));
    await withRequestId("id-5", () => volumes.delete(id));
    const lines = records.map(({ rawMessage, properties: { requestId, operation, volume, snapshot } }) =>
      [rawMessage, requestId, operation, volume ?? snapshot].join(" ")
    );
    assertEquals(lines, [
      `operation id-1 create ${id}`,
      `operation id-2 expand ${id}`,
      `operation id-3 create ${snapshot.id}`,
      `operation id-4 delete ${snapshot.id}`,
      `operation id-5 delete ${id}`,
    ]);
  }
  await reset();
});
