/**
 * `denolith controller`: the driver of a cluster, from its flags to its end.
 *
 * @module
 */

import manifest from "../deno.json" with { type: "json" };
import { inProcessCsi } from "./in_process_csi.ts";
import { type ClusterProcess, startClusterProcess } from "./cluster_process.ts";
import { type Flags, UsageError } from "./command_line.ts";
import { controllerHandlers } from "../csi/controller.ts";
import { Controller, Identity } from "../csi/proto/csi_pb.ts";
import { socketPath } from "../csi/endpoint.ts";
import { identityHandlers, requireDriverName } from "../csi/identity.ts";
import { parseGroupList } from "../csi/parameters.ts";
import { serve } from "../csi/server.ts";
import { bindService } from "../csi/service.ts";
import { TOPOLOGY_KEY } from "../csi/topology.ts";
import { waitForAbort } from "../lvm/clock.ts";
import { CapacityPublisher } from "../k8s/scheduling/capacity.ts";
import { ClusterSnapshots } from "../k8s/service/cluster_snapshots.ts";
import { ClusterVolumes } from "../k8s/service/cluster_volumes.ts";
import type { CapacityClient, CsiClient } from "../k8s/sidecars/csi_client.ts";
import { EventRecorder } from "../k8s/runtime/events.ts";
import { Informer, type InformerOptions } from "../k8s/runtime/informer.ts";
import { controllerLeaseName, LeaderElection, type Sidecar, sidecarLeaseName } from "../k8s/runtime/leader.ts";
import {
  type LvmNode,
  lvmNodes,
  type LvmSnapshot,
  lvmSnapshots,
  type LvmVolume,
  lvmVolumes,
} from "../k8s/api/lvm_objects.ts";
import {
  csiNodes,
  csiStorageCapacities,
  type KubeObject,
  nodes,
  persistentVolumeClaims,
  persistentVolumes,
  type Resource,
  storageClasses,
} from "../k8s/api/objects.ts";
import { Modifier } from "../k8s/resizer/modifier.ts";
import { Provisioner } from "../k8s/provisioner/provisioner.ts";
import { Resizer } from "../k8s/resizer/resizer.ts";
import { Snapshotter } from "../k8s/snapshotter/snapshotter.ts";
import { volumeIntents } from "../k8s/provisioner/volume_intents.ts";
import { Locks } from "../lvm/locks.ts";
import { startLogging } from "./logging.ts";

/** The loops, and whose place each takes; a loop that takes nobody's has a Lease of its own. */
const CONTROLLERS = {
  provisioner: "csi-provisioner",
  resizer: "csi-resizer",
  snapshotter: "csi-snapshotter",
  capacity: undefined,
} as const satisfies Record<string, Sidecar | undefined>;

/** How long a call waits for a node, in milliseconds: less than the official sidecars may be told to wait. */
const NODE_WAIT_MS = 60_000;

/** How long calls under way have to end after SIGTERM, in milliseconds: nothing is lost when they do not. */
const GRACE_MS = 2_000;

/** Serves until it is asked to end, and answers the exit status: 1 when calls under way had not ended in time. */
export async function controller(flags: Flags, end: AbortSignal): Promise<number> {
  await startLogging(flags["log-level"]!, flags["log-format"]!);
  const driver = requireDriverName(flags["driver-name"]!);
  const disabledControllers = parseDisabledControllers(flags["disable-controllers"]);
  const informers: Informer<KubeObject>[] = [];
  await using cluster = await startClusterProcess(
    flags,
    "controller",
    () => informers.filter(({ hasSynced }) => !hasSynced).map(({ resource }) => `${resource.plural} are not known yet`),
  );
  const { client, metrics } = cluster;
  const createInformer: CreateInformer = (resource, options) => {
    const informer = new Informer(client, resource, options);
    informers.push(informer as unknown as Informer<KubeObject>);
    return informer;
  };
  const lvmInformers = {
    volumes: createInformer(lvmVolumes),
    nodes: createInformer(lvmNodes),
    snapshots: createInformer(lvmSnapshots),
  };
  const shared = { client, driver, ...lvmInformers, waitMs: NODE_WAIT_MS };
  const volumes = new ClusterVolumes({ ...shared, parseGroups: parseGroupList });
  const snapshots = new ClusterSnapshots({ ...shared, volumes });
  const handlers = controllerHandlers({ volumes, snapshots, locks: new Locks() });
  const calls = inProcessCsi({ handlers, onCallCompleted: metrics.onCallCompleted });
  const events = new EventRecorder(client, { component: driver, instance: flags.identity! });
  const controllers = createControllers({
    cluster,
    driver,
    namespace: flags.namespace!,
    events,
    calls,
    createInformer,
    lvmInformers,
  });
  const running = informers.map((informer) => informer.start(end));
  await Promise.race([Promise.all(informers.map(({ synced }) => synced)), waitForAbort(end)]);

  const server = await serve(socketPath(flags.endpoint!), [
    bindService(
      Identity,
      identityHandlers({
        driver,
        version: manifest.version,
        ready: () => Promise.resolve(lvmInformers.volumes.hasSynced),
      }),
      metrics.onCallCompleted,
    ),
    bindService(Controller, handlers, metrics.onCallCompleted),
  ]);
  for (const [name, runnable] of Object.entries(controllers)) {
    if (disabledControllers.includes(name)) continue;
    const sidecar = CONTROLLERS[name as keyof typeof CONTROLLERS];
    const leaseName = sidecar === undefined ? controllerLeaseName(name, driver) : sidecarLeaseName(sidecar, driver);
    const lease = { name: leaseName, namespace: flags.namespace! };
    const election = new LeaderElection(client, { lease, identity: `${flags.identity}-${crypto.randomUUID()}` });
    running.push(election.run(end, (signal) => runnable.run(signal)));
  }

  await waitForAbort(end);
  const drained = await server.close(GRACE_MS);
  await Promise.all(running);
  await events.stop(GRACE_MS);
  return drained ? 0 : 1;
}

/** Makes an informer that is started later. */
type CreateInformer = <T extends KubeObject>(
  resource: Resource<T>,
  options?: Pick<InformerOptions<T>, "transform" | "namespace">,
) => Informer<T>;

/** What the loops have in common. */
interface ControllerParts {
  readonly cluster: ClusterProcess;
  readonly driver: string;
  readonly namespace: string;
  readonly events: EventRecorder;
  readonly calls: CsiClient & CapacityClient;
  readonly createInformer: CreateInformer;
  readonly lvmInformers: {
    readonly volumes: Informer<LvmVolume>;
    readonly nodes: Informer<LvmNode>;
    readonly snapshots: Informer<LvmSnapshot>;
  };
}

function createControllers(
  { cluster: { client, metrics }, driver, namespace, events, calls, createInformer, lvmInformers }: ControllerParts,
) {
  const { onReconciled, onDepth } = metrics;
  const shared = { driverName: driver, client, csi: calls, events, onReconciled, onDepth };
  const claimOptions = {
    ...shared,
    claims: createInformer(persistentVolumeClaims),
    volumes: createInformer(persistentVolumes),
  };
  const clusterInformers = { classes: createInformer(storageClasses), csiNodes: createInformer(csiNodes) };
  const capacity = new CapacityPublisher({
    ...shared,
    ...clusterInformers,
    ...lvmInformers,
    topologyKey: TOPOLOGY_KEY,
    namespace,
    published: createInformer(csiStorageCapacities, { namespace }),
  });
  const provisioner = new Provisioner({
    ...claimOptions,
    topologyKey: TOPOLOGY_KEY,
    intents: volumeIntents({ client, driver, topologyKey: TOPOLOGY_KEY, volumes: lvmInformers.volumes }),
    ...clusterInformers,
    // of a Node its status is the most, and changes all the time
    nodes: createInformer(nodes, { transform: ({ metadata }) => ({ metadata }) }),
    waitUntilWithdrawn: (key, bytes, options) => capacity.waitUntilWithdrawn(key, bytes, options),
  });
  const resizer = new Resizer(claimOptions);
  const modifier = new Modifier(claimOptions);
  const snapshotter = new Snapshotter({
    ...shared,
    needsRecheck: (handle) => lvmInformers.snapshots.get(handle)?.status?.readyToUse === false,
  });
  lvmInformers.snapshots.subscribe((handle, now) => {
    if (now?.status?.readyToUse === false) snapshotter.recheck(handle); // it overflowed, or is Lost
  });
  lvmInformers.nodes.subscribe((_, now, before) => {
    if (now === undefined || freeCapacityKey(now) === freeCapacityKey(before)) return;
    provisioner.requeueExhausted(); // what found no room before may find it now
    resizer.requeueExhausted();
    snapshotter.requeueExhausted();
  });
  // one sidecar does both, under one Lease
  const resizerAndModifier = {
    run: (signal: AbortSignal) => Promise.all([resizer.run(signal), modifier.run(signal)]).then(() => {}),
  };
  return { provisioner, resizer: resizerAndModifier, snapshotter, capacity };
}

/** What a node has free in its groups, and what its thin pools may promise, to be compared. */
function freeCapacityKey(node: LvmNode | undefined): string {
  const { total, volumeGroups = [] } = node?.status ?? {};
  return [
    total?.free,
    ...volumeGroups.flatMap(({ thinPools = [] }) => thinPools.map(({ availableVirtual }) => availableVirtual)),
  ].join();
}

function parseDisabledControllers(list = ""): string[] {
  const names = list.split(",").map((name) => name.trim()).filter((name) => name !== "");
  const unknown = names.find((name) => !Object.hasOwn(CONTROLLERS, name));
  if (unknown === undefined) return names;
  throw new UsageError(`--disable-controllers ${unknown}: there are ${Object.keys(CONTROLLERS).join(", ")}`);
}
