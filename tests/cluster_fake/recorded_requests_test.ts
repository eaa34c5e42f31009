/**
 * Requests that a controller goes on with after another one began them: it knows them by their LVMVolumes.
 *
 * @module
 */

import { assertEquals } from "@std/assert";
import { inProcessCsi } from "../../cli/in_process_csi.ts";
import { controllerHandlers } from "../../csi/controller.ts";
import { TOPOLOGY_KEY } from "../../csi/topology.ts";
import { lvmVolumes } from "../../k8s/api/lvm_objects.ts";
import {
  csiNodes,
  type KubeObject,
  nodes,
  persistentVolumeClaims,
  persistentVolumes,
  type Resource,
  storageClasses,
} from "../../k8s/api/objects.ts";
import { volumeIntents } from "../../k8s/provisioner/volume_intents.ts";
import { Provisioner } from "../../k8s/provisioner/provisioner.ts";
import { EventRecorder } from "../../k8s/runtime/events.ts";
import { Informer } from "../../k8s/runtime/informer.ts";
import { wakeSettledRequests } from "../../k8s/service/waiting_work.ts";
import { WakeUps } from "../../k8s/runtime/wake_ups.ts";
import { Locks } from "../../base/locks.ts";
import { PROVISIONER_ANNOTATION, waitUntil } from "../fake/cluster/control_plane.ts";
import { DRIVER, FakeCluster } from "../fake/cluster/node_cluster.ts";
import { machineWith, MiB } from "../fake/cluster/volume_cluster.ts";

const NODE = "node-1";

Deno.test("a request that fails after a restart of the controller is not made anew without its parameters", async () => {
  const machine = machineWith({ fast: 128n * MiB, other: 1n << 30n });
  await using cluster = await FakeCluster.start({ [NODE]: machine }, { waitMs: 50 });
  const { api, client, objects } = cluster;
  await client.patch(nodes, { name: NODE }, { merge: { metadata: { labels: { [TOPOLOGY_KEY]: NODE } } } });
  const drivers = [{ name: DRIVER, nodeID: NODE, topologyKeys: [TOPOLOGY_KEY] }];
  api.put(csiNodes, { metadata: { name: NODE }, spec: { drivers } });
  const parameters = { volumeGroup: "fast", erase: "zero" };
  api.put(storageClasses, {
    ...{ metadata: { name: "fast" }, provisioner: DRIVER, parameters, volumeBindingMode: "Immediate" },
  });
  await cluster.stopAgent(NODE);
  const codes: number[] = [];
  const start = () => {
    const stop = new AbortController();
    const running: Promise<void>[] = [];
    const informer = <T extends KubeObject>(resource: Resource<T>) => {
      const created = new Informer(client, resource);
      running.push(created.start(stop.signal));
      return created;
    };
    const events = new EventRecorder(client, { component: DRIVER, instance: "test" });
    const handlers = controllerHandlers({ volumes: cluster.volumes, locks: new Locks() });
    const wakeUps = new WakeUps();
    const provisioner = new Provisioner({
      nodeOfSource: () => undefined,
      ...{ driverName: DRIVER, topologyKey: TOPOLOGY_KEY, client, events, wakeUps },
      csi: inProcessCsi({ handlers, onCallCompleted: ({ code }) => codes.push(code) }),
      intents: volumeIntents({ client, driver: DRIVER, topologyKey: TOPOLOGY_KEY, volumes: objects }),
      ...{ claims: informer(persistentVolumeClaims), volumes: informer(persistentVolumes) },
      ...{ classes: informer(storageClasses), nodes: informer(nodes), csiNodes: informer(csiNodes) },
      backoff: { startMs: 600_000, capMs: 600_000 }, // between calls, until the node reports
    });
    wakeSettledRequests({ volumes: objects, snapshots: cluster.snapshotObjects }, wakeUps);
    running.push(provisioner.run(stop.signal));
    return async () => {
      stop.abort();
      await Promise.all(running);
      await events.stop(100);
    };
  };
  const stopFirst = start();
  api.put(persistentVolumeClaims, {
    metadata: { name: "data", namespace: "default", annotations: { [PROVISIONER_ANNOTATION]: DRIVER } },
    spec: {
      ...{ storageClassName: "fast", accessModes: ["ReadWriteOnce"], volumeMode: "Block" },
      resources: { requests: { storage: "64Mi" } },
    },
    status: { phase: "Pending" },
  });
  await waitUntil(() => codes.length > 0, "the first call");
  await stopFirst();
  const stopSecond = start();
  const before = codes.length;
  await waitUntil(() => codes.length > before, "the second controller's call");
  const size = ["--size", `${100n * MiB}b`, "--name", "by-hand", "fast"];
  await machine.run({ program: "lvm", args: ["lvcreate", "--yes", "--wipesignatures", "n", ...size], mutates: true });
  cluster.startAgent(NODE, machine);
  await waitUntil(() => codes.length > before + 1, "the call after the report");
  await stopSecond();
  const groups = api.objects(lvmVolumes).map(({ spec: { volumeGroups, erase } }) => [volumeGroups, erase]);
  assertEquals(groups.filter(([group, erase]) => group !== "fast" || erase !== "zero"), []);
  assertEquals(machine.allLvs().filter(({ group }) => group.name === "other").length, 0);
});
