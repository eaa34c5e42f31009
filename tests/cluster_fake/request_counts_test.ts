/**
 * How many requests the processes send to the API server. A change that adds one has to change the number here.
 *
 * @module
 */

import { assert, assertEquals } from "@std/assert";
import { runController } from "../../cli/controller.ts";
import { runNode } from "../../cli/node.ts";
import { leases, nodes } from "../../k8s/api/objects.ts";
import { lvmNodes, lvmSnapshots, lvmVolumes } from "../../k8s/api/lvm_objects.ts";
import { lvmImports } from "../../k8s/handover/imports.ts";
import { lvmMoves } from "../../k8s/handover/moves.ts";
import { lvmVolumeFor } from "../../k8s/api/volume_mapping.ts";
import {
  volumeGroupSnapshotClasses,
  volumeGroupSnapshotContents,
  volumeSnapshotClasses,
  volumeSnapshotContents,
  volumeSnapshots,
} from "../../k8s/api/snapshot_objects.ts";
import { FakeApiServer } from "../fake/cluster/api_server.ts";
import { waitUntil } from "../fake/cluster/control_plane.ts";
import { IdleProcess } from "./idle_process.ts";
import { DRIVER, NAMESPACE } from "../fake/cluster/node_cluster.ts";
import { machineWith, request } from "../fake/cluster/volume_cluster.ts";

const [MINUTE, HOUR] = [60_000, 3_600_000];

/** Starts an API server with all kinds, and a node. */
function startApi(): FakeApiServer {
  const groupKinds = [volumeGroupSnapshotClasses, volumeGroupSnapshotContents];
  const snapshotKinds = [volumeSnapshotClasses, volumeSnapshotContents, volumeSnapshots, ...groupKinds];
  const api = FakeApiServer.start({
    resources: [lvmVolumes, lvmSnapshots, lvmNodes, lvmMoves, lvmImports, ...snapshotKinds],
  });
  api.put(nodes, { metadata: { name: "n1" } });
  return api;
}

function startController(api: FakeApiServer): Promise<IdleProcess> {
  return IdleProcess.start({
    api,
    run: runController,
    flags: (folder) => ({
      "driver-name": DRIVER,
      endpoint: `unix://${folder}/csi.sock`,
      namespace: NAMESPACE,
      identity: "test",
    }),
    hasStarted: () => api.objects(leases).filter(({ spec }) => spec?.holderIdentity?.startsWith("test-")).length === 5,
  });
}

/** Returns the most watches that a process starts in an hour, by what it asks for when it starts them. */
function watchesPerHour(api: FakeApiServer): number {
  const times = api.requests.filter(({ query }) => query.has("watch")).map(({ query }) => query.get("timeoutSeconds"));
  return times.map((seconds) => HOUR / 1_000 / Number(seconds)).reduce((sum, count) => sum + count, 0);
}

Deno.test("an idle controller renews its Leases, and pings the server twice: 62 requests a minute", async () => {
  await using api = startApi();
  await using controller = await startController(api);
  const watches = watchesPerHour(api);
  assert(watches <= 24, `${watches} watches an hour`);
  await controller.activityOf(MINUTE);
  const pings = api.pings;
  const { requests, wakeUps } = await controller.activityOf(MINUTE);
  assertEquals(requests, { "PUT leases": 5 * 12 });
  assert(api.pings - pings <= 2, `${api.pings - pings} pings of the connection without the Leases`);
  assert(wakeUps <= 63, `${wakeUps} timers: those of the renewals, and some for the connection`);
});

/** The rest of the flags of an agent, with their defaults. */
const AGENT_DEFAULTS = {
  "disable-registration": "",
  "thin-pool-overcommit": "100",
  "thin-pool-autoextend-threshold": "80",
  "thin-pool-autoextend-percent": "20",
  "snapshot-autoextend": "off",
};

/** Starts an agent on the node. */
function startAgent(api: FakeApiServer): Promise<IdleProcess> {
  const exec = machineWith({ data: 1n << 30n });
  return IdleProcess.start({
    api,
    run: (flags, end, clock) => runNode(flags, end, { clock, createExec: () => exec }),
    flags: (folder) => ({
      ...AGENT_DEFAULTS,
      ...{ "driver-name": DRIVER, "node-name": "n1", namespace: NAMESPACE, "kubelet-dir": folder },
    }),
    hasStarted: () => api.objects(lvmNodes)[0]?.status?.volumeGroups !== undefined,
  });
}

Deno.test("an idle node renews its Lease every two minutes, and sends nothing else", async () => {
  await using api = startApi();
  await using agent = await startAgent(api);
  const watches = watchesPerHour(api);
  assert(watches <= 6, `${watches} watches an hour`);
  {
    await using _controller = await startController(api); // which creates the Lease
    await waitUntil(() => api.objects(leases).some(({ metadata }) => metadata.name === "agent.n1"), "the Lease");
  }
  await agent.activityOf(2 * MINUTE);
  const pings = api.pings;
  const { requests, wakeUps } = await agent.activityOf(10 * MINUTE);
  assertEquals(requests, { "PATCH leases": 5 });
  assert(api.pings - pings <= 15, `${api.pings - pings} pings`);
  assert(wakeUps <= 50, `${wakeUps} timers: two for each report, three for each ping, and those of requests`);
});

Deno.test("an idle node under a controller that knows no Leases writes its LVMNode every two minutes", async () => {
  await using api = startApi();
  await using agent = await startAgent(api);
  await agent.activityOf(2 * MINUTE);
  const { requests } = await agent.activityOf(10 * MINUTE);
  assertEquals(requests, { "PATCH leases": 5, "PATCH lvmnodes/status": 5 });
});

Deno.test("an agent sends three requests for each volume that it creates, and one for all of them", async () => {
  await using api = startApi();
  await using agent = await startAgent(api);
  await agent.activityOf(2 * MINUTE);
  const volumes = Array.from(
    { length: 3 },
    (_, n) => lvmVolumeFor(request(`pvc-${n}`), { driver: DRIVER, nodeName: "n1" }),
  );
  for (const volume of volumes) api.put(lvmVolumes, volume);
  const { requests } = await agent.activityOf(10_000);
  assertEquals(requests, { "PATCH lvmnodes/status": 1, "PATCH lvmvolumes": 3, "PATCH lvmvolumes/status": 6 });
  assert(api.objects(lvmVolumes).every(({ status }) => status?.lvUUID !== undefined));
});
