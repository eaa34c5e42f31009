/**
 * Requests that take a node longer than a call waits: the controllers go on as soon as the node has reported the outcome.
 *
 * @module
 */

import { assertRejects } from "@std/assert";
import { inProcessCsi } from "../../cli/in_process_csi.ts";
import { controllerHandlers } from "../../csi/controller.ts";
import { TOPOLOGY_KEY } from "../../csi/topology.ts";
import {
  csiNodes,
  nodes,
  persistentVolumeClaims,
  persistentVolumes,
  type Resource,
  storageClasses,
} from "../../k8s/api/objects.ts";
import type { KubeObject } from "../../k8s/api/objects.ts";
import {
  volumeSnapshotClasses,
  type VolumeSnapshotContent,
  volumeSnapshotContents,
} from "../../k8s/api/snapshot_objects.ts";
import { volumeIntents } from "../../k8s/provisioner/volume_intents.ts";
import { Provisioner } from "../../k8s/provisioner/provisioner.ts";
import { Resizer } from "../../k8s/resizer/resizer.ts";
import { EventRecorder } from "../../k8s/runtime/events.ts";
import { Informer } from "../../k8s/runtime/informer.ts";
import { wakeSettledRequests } from "../../k8s/service/waiting_work.ts";
import { WakeUps } from "../../k8s/runtime/wake_ups.ts";
import { BEING_DELETED_ANNOTATION, CONTENT_FINALIZER } from "../../k8s/snapshotter/snapshot_content.ts";
import { Snapshotter } from "../../k8s/snapshotter/snapshotter.ts";
import type { NamedVolumeRequest } from "../../k8s/api/volume_mapping.ts";
import { StorageError } from "../../base/error.ts";
import { snapshotIdOf, volumeIdOf } from "../../base/ids.ts";
import { Locks } from "../../base/locks.ts";
import { FULL_COW } from "../../lvm/settings/cow_size.ts";
import { PROVISIONER_ANNOTATION, waitUntil } from "../fake/cluster/control_plane.ts";
import { DRIVER, FakeCluster } from "../fake/cluster/node_cluster.ts";
import { ANYWHERE, machineWith, request } from "../fake/cluster/volume_cluster.ts";

const NODE = "node-1";
const CLAIM = { name: "data", namespace: "default" };

/** Starts a cluster of one node with its controllers, which are connected as in `denolith controller`. */
async function setUp() {
  const machine = machineWith({ data: 1n << 30n });
  const cluster = await FakeCluster.start({ [NODE]: machine }, { waitMs: 100 });
  const { api, client, objects, snapshotObjects } = cluster;
  for (const resource of [volumeSnapshotClasses, volumeSnapshotContents] as Resource[]) api.addResource(resource);
  await client.patch(nodes, { name: NODE }, { merge: { metadata: { labels: { [TOPOLOGY_KEY]: NODE } } } });
  const drivers = [{ name: DRIVER, nodeID: NODE, topologyKeys: [TOPOLOGY_KEY] }];
  api.put(csiNodes, { metadata: { name: NODE }, spec: { drivers } });
  api.put(storageClasses, { metadata: { name: "block" }, provisioner: DRIVER, volumeBindingMode: "Immediate" });
  api.put(volumeSnapshotClasses, { metadata: { name: "snapshots" }, driver: DRIVER });
  const stop = new AbortController();
  const running: Promise<void>[] = [];
  const informer = <T extends KubeObject>(resource: Resource<T>) => {
    const created = new Informer(client, resource);
    running.push(created.start(stop.signal));
    return created;
  };
  const codes: number[] = []; // of calls that failed
  const events = new EventRecorder(client, { component: DRIVER, instance: "test" });
  const handlers = controllerHandlers({ volumes: cluster.volumes, snapshots: cluster.snapshots, locks: new Locks() });
  const options = {
    ...{ driverName: DRIVER, topologyKey: TOPOLOGY_KEY, client, events, wakeUps: new WakeUps() },
    csi: inProcessCsi({ handlers, onCallCompleted: ({ code }) => void (code !== 0 && codes.push(code)) }),
    intents: volumeIntents({ client, driver: DRIVER, topologyKey: TOPOLOGY_KEY, volumes: objects }),
    ...{ claims: informer(persistentVolumeClaims), volumes: informer(persistentVolumes) },
    ...{ classes: informer(storageClasses), nodes: informer(nodes), csiNodes: informer(csiNodes) },
    ...{ nodeOfSource: () => undefined, nodeOfVolume: () => undefined },
    backoff: { startMs: 600_000, capMs: 600_000 }, // the test fails if anything waits for it
  };
  const controllers = [new Provisioner(options), new Resizer(options), new Snapshotter(options)];
  wakeSettledRequests({ volumes: objects, snapshots: snapshotObjects }, options.wakeUps);
  running.push(...controllers.map((controller) => controller.run(stop.signal)));
  return {
    cluster,
    /** Lets the commands whose lines contain a text take until a call has failed, because its outcome is unknown. */
    delay: (text: string) => {
      const before = codes.length;
      const gate = Promise.withResolvers<void>();
      machine.fault = async ({ program, args }) => {
        if ([program, ...args].join(" ").includes(text)) await gate.promise;
        return undefined;
      };
      return waitUntil(() => codes.length > before, "the end of the call").then(gate.resolve);
    },
    claim: () => api.objects(persistentVolumeClaims)[0]!,
    addClaim: () =>
      api.put(persistentVolumeClaims, {
        metadata: { ...CLAIM, annotations: { [PROVISIONER_ANNOTATION]: DRIVER } },
        spec: {
          ...{ storageClassName: "block", accessModes: ["ReadWriteOnce"], volumeMode: "Block" },
          resources: { requests: { storage: "32Mi" } },
        },
        status: { phase: "Pending" },
      }),
    waitForVolume: () => waitUntil(() => api.objects(persistentVolumes).length > 0, "the PersistentVolume"),
    [Symbol.asyncDispose]: async () => {
      stop.abort();
      await Promise.all(running);
      await events.stop(100);
      await cluster[Symbol.asyncDispose]();
    },
  };
}

/** Repeats a call whose outcome is unknown. */
async function untilSettled<T>(call: () => Promise<T>): Promise<T> {
  while (true) {
    try {
      return await call();
    } catch (error) {
      if (!(error instanceof StorageError && error.kind === "Unavailable")) throw error;
    }
  }
}

Deno.test("a creation, an expansion and a snapshot that take long end with the report of the node", async () => {
  await using s = await setUp();
  const { client, api } = s.cluster;
  const created = s.delay("lvm lvcreate");
  const { metadata: { uid } } = s.addClaim();
  await created;
  await s.waitForVolume();
  const volumeName = `pvc-${uid}`;
  await client.patch(persistentVolumes, { name: volumeName }, {
    merge: { status: { phase: "Bound" } },
    subresource: "status",
  });
  await client.patch(persistentVolumeClaims, CLAIM, {
    merge: { spec: { volumeName, resources: { requests: { storage: "64Mi" } } } } as never,
  });
  const expanded = s.delay("lvm lvextend");
  await client.patch(persistentVolumeClaims, CLAIM, {
    merge: { status: { phase: "Bound", capacity: { storage: "32Mi" } } } as never,
    subresource: "status",
  });
  await expanded;
  await waitUntil(() => s.claim().status?.capacity?.["storage"] === "64Mi", "the expansion");
  const taken = s.delay("lvm lvcreate");
  const content: VolumeSnapshotContent = {
    metadata: { name: "content", finalizers: [CONTENT_FINALIZER] },
    spec: {
      ...{ driver: DRIVER, deletionPolicy: "Delete", volumeSnapshotClassName: "snapshots" },
      source: { volumeHandle: volumeIdOf(volumeName) },
      volumeSnapshotRef: { name: "s", namespace: "default", uid: crypto.randomUUID() },
    },
  };
  api.put(volumeSnapshotContents, content);
  await taken;
  await waitUntil(() => api.objects(volumeSnapshotContents)[0]?.status?.readyToUse === true, "the snapshot");
});

Deno.test("the deletion of a snapshot goes on when a restore from it has ended, and when its node has removed it", async () => {
  await using s = await setUp();
  const { client, api, volumes, snapshots } = s.cluster;
  const block: Partial<NamedVolumeRequest> = { format: { state: "raw" } };
  const { id: source } = await untilSettled(() => volumes.create(request("source", block), ANYWHERE));
  const snapshot = { id: snapshotIdOf("s"), name: "s", source, cowSize: FULL_COW };
  await untilSettled(() => snapshots.create(snapshot));
  const copied = s.delay("dd ");
  const restore = request("restored", {
    ...block,
    range: { required: 0n },
    source: { kind: "snapshot", id: snapshot.id },
  });
  await assertRejects(() => volumes.create(restore, ANYWHERE));
  api.put(volumeSnapshotContents, {
    metadata: {
      ...{ name: "content", finalizers: [CONTENT_FINALIZER] },
      annotations: { [BEING_DELETED_ANNOTATION]: "yes" },
    },
    spec: {
      ...{ driver: DRIVER, deletionPolicy: "Delete", source: { snapshotHandle: snapshot.id } },
      volumeSnapshotRef: { name: "s", namespace: "default", uid: crypto.randomUUID() },
    },
    status: { readyToUse: true, snapshotHandle: snapshot.id },
  });
  await client.delete(volumeSnapshotContents, { name: "content" });
  await copied;
  await s.delay("denolith.deleted=");
  await waitUntil(() => api.objects(volumeSnapshotContents).length === 0, "the end of the content");
});
