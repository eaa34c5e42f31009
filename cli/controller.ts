/**
 * `denolith controller`: the driver of a cluster, from its flags to its end.
 *
 * @module
 */

import manifest from "../deno.json" with { type: "json" };
import { loopCalls } from "./in_process_csi.ts";
import { type ClusterProcess, openCluster } from "./cluster_process.ts";
import { type Flags, UsageError } from "./command_line.ts";
import { controllerHandlers } from "../csi/controller.ts";
import { Controller, Identity } from "../csi/proto/csi_pb.ts";
import { socketPath } from "../csi/endpoint.ts";
import { identityHandlers, requireDriverName } from "../csi/identity.ts";
import { parseGroupList } from "../csi/parameters.ts";
import { serve } from "../csi/server.ts";
import { bindService } from "../csi/service.ts";
import { TOPOLOGY_KEY } from "../csi/topology.ts";
import { aborted } from "./shutdown.ts";
import { CapacityPublisher } from "../k8s/scheduling/capacity.ts";
import { ClusterSnapshots } from "../k8s/service/cluster_snapshots.ts";
import { ClusterVolumes } from "../k8s/service/cluster_volumes.ts";
import type { CapacityCalls, ClaimName, CsiCalls } from "../k8s/sidecars/csi_client.ts";
import { EventRecorder } from "../k8s/runtime/events.ts";
import { Informer, type InformerOptions } from "../k8s/runtime/informer.ts";
import { LeaderElection, officialLeaseName, ownLeaseName, type Sidecar } from "../k8s/runtime/leader.ts";
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
import { intentAnnotations, volumeIntents } from "../k8s/provisioner/volume_intents.ts";
import { Locks } from "../lvm/locks.ts";
import { startLogging } from "./logging.ts";

/** The loops, and whose place each takes; a loop that takes nobody's has a Lease of its own. */
const LOOPS = {
  provisioner: "csi-provisioner",
  resizer: "csi-resizer",
  snapshotter: "csi-snapshotter",
  capacity: undefined,
} as const satisfies Record<string, Sidecar | undefined>;

/** How long a call waits for a node, in milliseconds: less than the official sidecars may be told to wait. */
const WAIT_MS = 60_000;

/** How long calls under way have to end after SIGTERM, in milliseconds: nothing is lost when they do not. */
const GRACE_MS = 2_000;

/** Serves until it is asked to end, and answers the exit status: 1 when calls under way had not ended in time. */
export async function controller(flags: Flags, end: AbortSignal): Promise<number> {
  await startLogging(flags["log-level"]!, flags["log-format"]!);
  const driver = requireDriverName(flags["driver-name"]!);
  const disabled = disabledLoops(flags["disable-loops"]);
  const informers: Informer<KubeObject>[] = [];
  await using cluster = await openCluster(
    flags,
    "controller",
    () => informers.filter(({ hasSynced }) => !hasSynced).map(({ resource }) => `${resource.plural} are not known yet`),
  );
  const { client, metrics } = cluster;
  const inform: Inform = (resource, options) => {
    const informer = new Informer(client, resource, options);
    informers.push(informer as unknown as Informer<KubeObject>);
    return informer;
  };
  const own = { volumes: inform(lvmVolumes), nodes: inform(lvmNodes), snapshots: inform(lvmSnapshots) };
  const claims = new Map<string, ClaimName>();
  const shared = { client, driver, ...own, waitMs: WAIT_MS };
  const volumes = new ClusterVolumes({
    ...shared,
    parseGroups: parseGroupList,
    annotations: (requestName) => intentAnnotations(claims.get(requestName)),
  });
  const snapshots = new ClusterSnapshots({ ...shared, volumes });
  const handlers = controllerHandlers({ volumes, snapshots, locks: new Locks() });
  const calls = loopCalls({ handlers, claims, onAnswer: metrics.onAnswer });
  const events = new EventRecorder(client, { component: driver, instance: flags.identity! });
  const loops = makeLoops({ cluster, driver, namespace: flags.namespace!, events, calls, inform, own });
  const running = informers.map((informer) => informer.start(end));
  await Promise.race([Promise.all(informers.map(({ synced }) => synced)), aborted(end)]);

  const server = await serve(socketPath(flags.endpoint!), [
    bindService(
      Identity,
      identityHandlers({ driver, version: manifest.version, ready: () => Promise.resolve(own.volumes.hasSynced) }),
      metrics.onAnswer,
    ),
    bindService(Controller, handlers, metrics.onAnswer),
  ]);
  for (const [name, loop] of Object.entries(loops)) {
    if (disabled.includes(name)) continue;
    const sidecar = LOOPS[name as keyof typeof LOOPS];
    const leaseName = sidecar === undefined ? ownLeaseName(name, driver) : officialLeaseName(sidecar, driver);
    const lease = { name: leaseName, namespace: flags.namespace! };
    const election = new LeaderElection(client, { lease, identity: `${flags.identity}-${crypto.randomUUID()}` });
    running.push(election.run(end, (signal) => loop.run(signal)));
  }

  await aborted(end);
  const drained = await server.close(GRACE_MS);
  await Promise.all(running);
  await events.stop(GRACE_MS);
  return drained ? 0 : 1;
}

/** Makes an informer that is started later. */
type Inform = <T extends KubeObject>(
  resource: Resource<T>,
  options?: Pick<InformerOptions<T>, "keep" | "namespace">,
) => Informer<T>;

/** What the loops have in common. */
interface Parts {
  readonly cluster: ClusterProcess;
  readonly driver: string;
  readonly namespace: string;
  readonly events: EventRecorder;
  readonly calls: CsiCalls & CapacityCalls;
  readonly inform: Inform;
  readonly own: {
    readonly volumes: Informer<LvmVolume>;
    readonly nodes: Informer<LvmNode>;
    readonly snapshots: Informer<LvmSnapshot>;
  };
}

function makeLoops({ cluster: { client, metrics }, driver, namespace, events, calls, inform, own }: Parts) {
  const { onTurn, onDepth } = metrics;
  const shared = { driverName: driver, client, csi: calls, events, onTurn, onDepth };
  const overClaims = { ...shared, claims: inform(persistentVolumeClaims), volumes: inform(persistentVolumes) };
  const known = { classes: inform(storageClasses), csiNodes: inform(csiNodes) };
  const capacity = new CapacityPublisher({
    ...shared,
    ...known,
    ...own,
    topologyKey: TOPOLOGY_KEY,
    namespace,
    published: inform(csiStorageCapacities, { namespace }),
  });
  const provisioner = new Provisioner({
    ...overClaims,
    topologyKey: TOPOLOGY_KEY,
    intents: volumeIntents({ client, driver, topologyKey: TOPOLOGY_KEY, volumes: own.volumes }),
    ...known,
    // of a Node its status is the most, and changes all the time
    nodes: inform(nodes, { keep: ({ metadata }) => ({ metadata }) }),
    withdrawn: (place, bytes, options) => capacity.withdrawn(place, bytes, options),
  });
  const resizer = new Resizer(overClaims);
  const modifier = new Modifier(overClaims);
  const snapshotter = new Snapshotter({
    ...shared,
    isDoubtful: (handle) => own.snapshots.get(handle)?.status?.readyToUse === false,
  });
  own.snapshots.subscribe((handle, now) => {
    if (now?.status?.readyToUse === false) snapshotter.doubt(handle); // it overflowed, or is Lost
  });
  own.nodes.subscribe((_, now, before) => {
    if (now === undefined || freeIn(now) === freeIn(before)) return;
    provisioner.poke(); // what found no room before may find it now
    resizer.poke();
    snapshotter.poke();
  });
  // one sidecar does both, under one Lease
  const resizing = {
    run: (signal: AbortSignal) => Promise.all([resizer.run(signal), modifier.run(signal)]).then(() => {}),
  };
  return { provisioner, resizer: resizing, snapshotter, capacity };
}

/** What a node has free in its groups, and what its thin pools may promise, to be compared. */
function freeIn(node: LvmNode | undefined): string {
  const { total, volumeGroups = [] } = node?.status ?? {};
  return [total?.free, ...volumeGroups.flatMap(({ thinPools = [] }) => thinPools.map(({ free }) => free))].join();
}

function disabledLoops(list = ""): string[] {
  const names = list.split(",").map((name) => name.trim()).filter((name) => name !== "");
  const unknown = names.find((name) => !Object.hasOwn(LOOPS, name));
  if (unknown === undefined) return names;
  throw new UsageError(`--disable-loops ${unknown}: there are ${Object.keys(LOOPS).join(", ")}`);
}
