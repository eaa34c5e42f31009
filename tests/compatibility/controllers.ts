/**
 * The controllers of the driver, and those of Kubernetes that they work with, over a fake cluster.
 *
 * @module
 */

import { controllerHandlers } from "../../csi/controller.ts";
import { TOPOLOGY_KEY } from "../../csi/topology.ts";
import { inProcessCsi } from "../../cli/in_process_csi.ts";
import {
  csiNodes,
  csiStorageCapacities,
  type KubeObject,
  nodes,
  persistentVolumeClaims,
  persistentVolumes,
  type Resource,
  storageClasses,
} from "../../k8s/api/objects.ts";
import { Provisioner } from "../../k8s/provisioner/provisioner.ts";
import { volumeIntents } from "../../k8s/provisioner/volume_intents.ts";
import { Modifier } from "../../k8s/resizer/modifier.ts";
import { Resizer } from "../../k8s/resizer/resizer.ts";
import { EventRecorder } from "../../k8s/runtime/events.ts";
import { Informer } from "../../k8s/runtime/informer.ts";
import { CapacityPublisher } from "../../k8s/scheduling/capacity.ts";
import { Snapshotter } from "../../k8s/snapshotter/snapshotter.ts";
import { Locks } from "../../lvm/locks.ts";
import { DRIVER, type FakeCluster } from "../fake/node_cluster.ts";
import { bindVolumes } from "../fake/volume_binder.ts";

/** The namespace of the driver. */
const NAMESPACE = "denolith-system";

/** Starts all controllers, as `denolith controller` does. They end when they are disposed of. */
export async function startControllers(cluster: FakeCluster): Promise<AsyncDisposable> {
  const stop = new AbortController();
  const { signal } = stop;
  const client = cluster.controllerClient;
  const running: Promise<unknown>[] = [];
  const informers: Informer<KubeObject>[] = [];
  const inform = <T extends KubeObject>(resource: Resource<T>, namespace?: string): Informer<T> => {
    const informer = new Informer(client, resource, { namespace });
    informers.push(informer as unknown as Informer<KubeObject>);
    running.push(informer.start(signal));
    return informer;
  };
  const { volumes: service, snapshots, objects } = cluster;
  const handlers = controllerHandlers({ volumes: service, snapshots, locks: new Locks() });
  const csi = inProcessCsi({ handlers, onCallCompleted: () => {} });
  const events = new EventRecorder(client, { component: DRIVER, instance: "controller" });
  const shared = { driverName: DRIVER, client, csi, events, backoff: { startMs: 10, capMs: 100 } };
  const [claims, volumes] = [inform(persistentVolumeClaims), inform(persistentVolumes)];
  const classes = { classes: inform(storageClasses), csiNodes: inform(csiNodes) };
  const claimOptions = { ...shared, claims, volumes };
  const capacity = new CapacityPublisher({
    ...{ ...shared, ...classes, nodes: cluster.nodes, volumes: objects, topologyKey: TOPOLOGY_KEY },
    namespace: NAMESPACE,
    published: inform(csiStorageCapacities, NAMESPACE),
    minWriteIntervalMs: 0,
  });
  const provisioner = new Provisioner({
    ...{ ...claimOptions, ...classes, topologyKey: TOPOLOGY_KEY, nodes: inform(nodes) },
    intents: volumeIntents({ client, driver: DRIVER, topologyKey: TOPOLOGY_KEY, volumes: objects }),
    nodeOfSource: ({ handle }) => (objects.get(handle) ?? cluster.snapshotObjects.get(handle))?.spec.nodeName,
  });
  const nodeOfVolume = (handle: string) => objects.get(handle)?.spec.nodeName;
  const controllers = [
    ...[capacity, provisioner, new Resizer({ ...claimOptions, nodeOfVolume }), new Modifier(claimOptions)],
    new Snapshotter({ ...shared, nodeOfVolume }),
  ];
  await Promise.all(informers.map(({ synced }) => synced));
  for (const controller of controllers) running.push(controller.run(signal));
  running.push(bindVolumes({ client: cluster.client, claims, volumes }, signal));
  return {
    [Symbol.asyncDispose]: async () => {
      stop.abort();
      await Promise.all(running);
      await events.stop(1_000);
    },
  };
}
