/**
 * `denolith controller`: the controller plugin of a cluster.
 *
 * @module
 */

import manifest from "../deno.json" with { type: "json" };
import { inProcessCsi, inProcessGroupCsi } from "./in_process_csi.ts";
import { apiClient } from "./api_client.ts";
import { type ClusterProcess, startClusterProcess } from "./cluster_process.ts";
import { EXIT, type Flags } from "./command_line.ts";
import { type ControllerHandlers, controllerHandlers } from "../csi/controller.ts";
import { groupControllerHandlers } from "../csi/group_controller.ts";
import { Controller, GroupController, Identity, SnapshotMetadata } from "../csi/proto/csi_pb.ts";
import { requireDriverName, socketPath } from "../csi/driver_options.ts";
import { identityHandlers } from "../csi/identity.ts";
import { parseGroupList } from "../csi/group_list.ts";
import { serve } from "../csi/server.ts";
import { bindService, type Handlers } from "../csi/service.ts";
import { refusedSnapshotMetadata, snapshotMetadataHandlers } from "../csi/snapshot_metadata.ts";
import { TOPOLOGY_KEY } from "../csi/topology.ts";
import { type Clock, eitherSignal, systemClock, waitForAbort } from "../base/clock.ts";
import type { ApiClient } from "../k8s/client/client.ts";
import type { Definitions } from "../k8s/client/definitions.ts";
import { AgentLeases } from "../k8s/scheduling/agent_leases.ts";
import { AgentLiveness } from "../k8s/scheduling/agent_liveness.ts";
import { CapacityPublisher, waitForCapacityBelow } from "../k8s/scheduling/capacity.ts";
import { wakeSettledRequests, wakeSpaceWaiters, wakeWaitingDeletions } from "../k8s/service/waiting_work.ts";
import { CachedObjects } from "../k8s/service/cached_objects.ts";
import { ClusterGroupSnapshots } from "../k8s/service/cluster_group_snapshots.ts";
import { ClusterSnapshots } from "../k8s/service/cluster_snapshots.ts";
import type { ClusterListsOptions } from "../k8s/transfers/cluster_lists.ts";
import { ClusterVolumes } from "../k8s/service/cluster_volumes.ts";
import { ClusterTransfers } from "../k8s/service/transfers.ts";
import { TransferGrants } from "../k8s/service/transfer_grants.ts";
import type { CapacityClient, CsiClient, GroupSnapshotClient } from "../k8s/sidecars/csi_client.ts";
import { WakeUps } from "../k8s/runtime/wake_ups.ts";
import { EventRecorder } from "../k8s/runtime/events.ts";
import { Informer, type InformerOptions } from "../k8s/runtime/informer.ts";
import { controllerLeaseName, LeaderElection, type Sidecar, sidecarLeaseName } from "../k8s/runtime/leader.ts";
import { agentLeaseSelector } from "../k8s/api/agent_leases.ts";
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
  type Lease,
  leases,
  nodes,
  persistentVolumeClaims,
  persistentVolumes,
  type Resource,
  storageClasses,
} from "../k8s/api/objects.ts";
import { Importer } from "../k8s/handover/importer.ts";
import { type LvmImport, lvmImports } from "../k8s/handover/imports.ts";
import { HandoverProgress } from "./metrics/handover_progress.ts";
import { MoveGarbageCollector } from "../k8s/handover/garbage_collector.ts";
import { Mover } from "../k8s/handover/mover.ts";
import { type LvmMove, lvmMoves } from "../k8s/handover/moves.ts";
import { Modifier } from "../k8s/resizer/modifier.ts";
import { Provisioner, type ProvisionerOptions } from "../k8s/provisioner/provisioner.ts";
import { Resizer } from "../k8s/resizer/resizer.ts";
import { GroupSnapshotter } from "../k8s/snapshotter/group_snapshotter.ts";
import { Snapshotter } from "../k8s/snapshotter/snapshotter.ts";
import { volumeIntents } from "../k8s/provisioner/volume_intents.ts";
import { Locks } from "../base/locks.ts";
import { CONTROLLER_NAMES, type ControllerName, controllerNames } from "./shared_flags.ts";
import { startLogging } from "./logging.ts";
import { domainOf } from "./transfers.ts";

/**
 * The groups of controllers, each with the official sidecar whose work it does and whose Lease it takes. The Lease of a
 * group without a sidecar has a name of the driver's own.
 */
const CONTROLLERS = {
  provisioner: "csi-provisioner",
  resizer: "csi-resizer",
  snapshotter: "csi-snapshotter",
  capacity: undefined,
  moves: undefined,
} as const satisfies Record<GroupName, Sidecar | undefined>;

/** A group that flags can name, or that of moves, imports and what they need, which no sidecar does. */
type GroupName = ControllerName | "moves";

/** The time that a call waits for the agent of a node, in milliseconds; shorter than the sidecars' usual timeouts. */
const NODE_WAIT_MS = 60_000;

/** The time that calls in progress may take after SIGTERM, in milliseconds. Nothing is lost when they take longer. */
const GRACE_MS = 2_000;

/** What has to be done for lists of changed blocks. */
const SNAPSHOT_METADATA_OFF =
  "this controller has no way to the agents; set transfer.enabled in the values of the chart " +
  "(--transfer-port of the controller, --transfer-address of the agents)";

/** The informers of the process, which are started together. */
class Informers {
  readonly #all: Informer<KubeObject>[] = [];
  readonly #clock: Clock;

  /** Creates an empty set. @param clock the time of the informers */
  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Creates an informer that is started later. */
  create<T extends KubeObject>(
    client: ApiClient,
    resource: Resource<T>,
    options?: Pick<InformerOptions<T>, "transform" | "namespace" | "metadataOnly">,
  ): Informer<T> {
    const informer = new Informer(client, resource, { ...options, clock: this.#clock });
    this.#all.push(informer as unknown as Informer<KubeObject>);
    return informer;
  }

  /** Returns why the process is not ready: the resources that are not listed yet. */
  notReadyReasons(): string[] {
    return this.#all.filter(({ hasSynced }) => !hasSynced).map(({ resource }) => `${resource.plural} not listed yet`);
  }

  /** Starts all informers. They run until `end` is aborted. */
  start(end: AbortSignal): Promise<void>[] {
    return this.#all.map((informer) => informer.start(end));
  }

  /** Waits until all informers have listed their objects, or `end` is aborted. */
  async waitForSync(end: AbortSignal): Promise<void> {
    await Promise.race([Promise.all(this.#all.map(({ synced }) => synced)), waitForAbort(end)]);
  }
}

/** The informers of the driver's own objects. */
interface LvmInformers {
  readonly volumes: Informer<LvmVolume>;
  readonly nodes: Informer<LvmNode>;
  readonly snapshots: Informer<LvmSnapshot>;
  /** The Leases of the agents. The controller works without them, as under roles of an older version. */
  readonly agentLeases: Informer<Lease>;
  /** The LVMMoves. The controller works without them, as with the definitions of an older version. */
  readonly moves: Informer<LvmMove>;
  /** The LVMImports, as the LVMMoves. */
  readonly imports: Informer<LvmImport>;
}

/**
 * Serves a cluster until the process is asked to end.
 *
 * @param end aborted when the process is asked to end
 * @returns the exit status: 1 when calls in progress did not complete in time
 */
export async function controller(flags: Flags, end: AbortSignal): Promise<number> {
  await startLogging(flags["log-level"]!, flags["log-format"]!);
  return await runController(flags, end);
}

/**
 * Does what {@linkcode controller} does, without logging.
 *
 * @param clock time, of a test
 * @param serveServices serves the CSI services, of a test
 */
export async function runController(
  flags: Flags,
  end: AbortSignal,
  clock: Clock = systemClock,
  serveServices: typeof serve = serve,
): Promise<number> {
  const driver = requireDriverName(flags["driver-name"]!);
  const namespace = flags.namespace!;
  const disabled = flags["disable-controllers"];
  const disabledControllers = disabled === undefined ? [] : controllerNames(disabled, "--disable-controllers");
  const informers = new Informers(clock);
  await using cluster = await startClusterProcess(flags, "controller", () => informers.notReadyReasons(), clock);
  const { client, metrics, definitions } = cluster;
  const cached = new CachedObjects();
  const lvmInformers: LvmInformers = {
    volumes: informers.create(client, lvmVolumes, { transform: cached.lvmVolume }),
    nodes: informers.create(client, lvmNodes, { transform: cached.lvmNode }),
    snapshots: informers.create(client, lvmSnapshots),
    agentLeases: new Informer(client, leases, {
      namespace,
      labelSelector: agentLeaseSelector(driver),
      transform: cached.agentLease,
      clock,
    }),
    moves: new Informer(client, lvmMoves, { clock }),
    imports: new Informer(client, lvmImports, { clock }),
  };
  const agents = new AgentLiveness({ ...lvmInformers, clock });
  registerMetrics(metrics, { driver, lvmInformers, agents, clock });
  const services = createHandlers({ client, driver, lvmInformers, agents, clock });
  const { handlers } = services;
  const { onCallCompleted } = metrics;
  const csi = inProcessCsi({ handlers, onCallCompleted });
  const groupCsi = inProcessGroupCsi({ handlers: services.groupHandlers, onCallCompleted });
  const events = new EventRecorder(client, {
    component: driver,
    instance: flags.identity!,
    onDropped: metrics.onEventDropped,
    clock,
  });
  const clients = { client, metrics, csi, groupCsi, events };
  const read = { informers, lvmInformers, cached, agents, definitions, clock };
  const controllers = createControllers({ ...clients, ...read, driver, namespace, services });
  const { agentLeases, moves, imports } = lvmInformers;
  const running = [...informers.start(end), ...[agentLeases, moves, imports].map((each) => each.start(end))];
  await informers.waitForSync(end);

  const ready = () => Promise.resolve(lvmInformers.volumes.hasSynced);
  const hasSnapshotMetadata = flags["transfer-port"] !== undefined;
  const { version } = manifest;
  const identity = identityHandlers({ driver, version, hasGroupSnapshots: true, hasSnapshotMetadata, ready });
  const snapshotMetadata = hasSnapshotMetadata
    ? await createSnapshotMetadata({
      ...lvmInformers,
      client,
      driver,
      domain: domainOf(flags),
      found: services.snapshots,
      clock,
    })
    : refusedSnapshotMetadata(SNAPSHOT_METADATA_OFF);
  const server = await serveServices(socketPath(flags.endpoint!), [
    bindService(Identity, identity, metrics.onCallCompleted),
    bindService(Controller, handlers, metrics.onCallCompleted),
    bindService(GroupController, services.groupHandlers, metrics.onCallCompleted),
    bindService(SnapshotMetadata, snapshotMetadata, metrics.onCallCompleted),
  ]);
  // a connection of its own: on the other one, a renewal waits for its turn behind all requests of a burst, because a
  // server allows a connection only so many at a time (100 by default, kube-apiserver --http2-max-streams-per-connection)
  using leaseClient = await apiClient(flags, "leader-election", { onRequest: metrics.onRequest, clock });
  const enabled = CONTROLLER_NAMES.filter((name) => !disabledControllers.includes(name));
  const elected = [...enabled, "moves"] as const;
  const onLeading = metrics.registerLeaders(elected);
  for (const name of elected) {
    const lease = { name: leaseNameOf(name, driver), namespace };
    const identity = `${flags.identity}-${crypto.randomUUID()}`;
    const onChange = (isLeading: boolean) => onLeading(name, isLeading);
    const election = new LeaderElection(leaseClient, { lease, identity, onChange, clock });
    running.push(election.run(end, (term) => runAndAgain(controllers[name], term, definitions)));
  }

  await waitForAbort(end);
  agents.stop();
  const drained = await server.close(GRACE_MS);
  await Promise.all(running);
  await events.stop(GRACE_MS);
  return drained ? EXIT.success : EXIT.failure;
}

/** Registers the metrics of a controller about the cluster. */
function registerMetrics(
  metrics: ClusterProcess["metrics"],
  { driver, lvmInformers: { nodes, moves, imports }, agents, clock }: Pick<
    ControllerParts,
    "driver" | "lvmInformers" | "agents" | "clock"
  >,
): void {
  metrics.registerAgents(() =>
    nodes.list().filter(({ spec }) => spec.driverName === driver)
      .map(({ metadata: { name } }) => ({ node: name, isSilent: agents.isSilent(name) }))
  );
  const [moving, importing] = [
    new HandoverProgress(moves, { driver, clock }),
    new HandoverProgress(imports, { driver, clock }),
  ];
  metrics.registerHandovers({ move: () => moving.unfinished(), import: () => importing.unfinished() });
}

/** Creates the SnapshotMetadata service. What it needs is loaded only where it is on. */
async function createSnapshotMetadata(options: ClusterListsOptions): Promise<Handlers<typeof SnapshotMetadata>> {
  const { ClusterLists } = await import("../k8s/transfers/cluster_lists.ts");
  return snapshotMetadataHandlers(new ClusterLists(options));
}

function leaseNameOf(name: GroupName, driver: string): string {
  const sidecar = CONTROLLERS[name];
  return sidecar === undefined ? controllerLeaseName(name, driver) : sidecarLeaseName(sidecar, driver);
}

/** The Controller and GroupController services, and what they are made of. */
interface Services {
  readonly handlers: ControllerHandlers;
  readonly groupHandlers: Handlers<typeof GroupController>;
  readonly volumes: ClusterVolumes;
  readonly snapshots: ClusterSnapshots;
  readonly transfers: ClusterTransfers;
}

/** Creates the services over the volumes and snapshots of the cluster. */
function createHandlers({ client, driver, lvmInformers, agents, clock }: {
  readonly client: ApiClient;
  readonly driver: string;
  readonly lvmInformers: LvmInformers;
  readonly agents: AgentLiveness;
  readonly clock: Clock;
}): Services {
  const shared = { client, driver, ...lvmInformers, agents, clock, waitMs: NODE_WAIT_MS };
  const transfers = new ClusterTransfers({ ...shared, taken: () => snapshots });
  const volumes = new ClusterVolumes({ ...shared, transfers, parseGroups: parseGroupList });
  const snapshots: ClusterSnapshots = new ClusterSnapshots({ ...shared, volumes });
  const groupSnapshots = new ClusterGroupSnapshots({ ...shared, volumes });
  const locks = new Locks();
  return {
    handlers: controllerHandlers({ volumes, snapshots, locks }),
    groupHandlers: groupControllerHandlers(groupSnapshots, locks),
    volumes,
    snapshots,
    transfers,
  };
}

/** Options of {@linkcode createControllers}. */
interface ControllerParts extends Pick<ClusterProcess, "client" | "metrics" | "definitions"> {
  readonly driver: string;
  readonly namespace: string;
  readonly events: EventRecorder;
  readonly csi: CsiClient & CapacityClient;
  readonly groupCsi: GroupSnapshotClient;
  readonly informers: Informers;
  readonly lvmInformers: LvmInformers;
  readonly agents: AgentLiveness;
  readonly clock: Clock;
  readonly cached: CachedObjects;
  readonly services: Services;
}

/** Runs the controllers of a group, which are created for each term of leadership: nothing is known of earlier terms. */
type RunTerm = (term: AbortSignal) => Promise<void>;

/** Returns what runs the controllers of each group, and connects what wakes them. */
function createControllers(parts: ControllerParts): Readonly<Record<GroupName, RunTerm>> {
  const { client, driver, namespace, events, csi, informers, lvmInformers, agents, clock, cached, services } = parts;
  const { onReconciled, onDepth } = parts.metrics;
  const wakeUps = new WakeUps();
  const shared = { driverName: driver, client, csi, events, wakeUps, onReconciled, onDepth, clock };
  const claimOptions = {
    ...shared,
    claims: informers.create(client, persistentVolumeClaims, { transform: cached.claim }),
    volumes: informers.create(client, persistentVolumes, { transform: cached.volume }),
  };
  const clusterInformers = {
    classes: informers.create(client, storageClasses),
    csiNodes: informers.create(client, csiNodes, { transform: cached.csiNode }),
  };
  const capacityOptions = {
    ...shared,
    ...clusterInformers,
    ...lvmInformers,
    agents,
    topologyKey: TOPOLOGY_KEY,
    namespace,
    published: informers.create(client, csiStorageCapacities, { namespace }),
  };
  // the status of a Node is its largest part, and changes all the time
  const nodeObjects = informers.create(client, nodes, { metadataOnly: true, transform: cached.node });
  const provisionerOptions: ProvisionerOptions = {
    ...claimOptions,
    topologyKey: TOPOLOGY_KEY,
    intents: volumeIntents({ client, driver, topologyKey: TOPOLOGY_KEY, volumes: lvmInformers.volumes }),
    ...clusterInformers,
    nodes: nodeObjects,
    nodeOfSource: ({ kind, handle }) => {
      const node = lvmInformers[kind === "volume" ? "volumes" : "snapshots"].get(handle)?.spec.nodeName;
      return node !== undefined && services.transfers.targetsOf(node).length > 0 ? undefined : node;
    },
    waitForCapacityBelow: (key, bytes, options) => waitForCapacityBelow(capacityOptions, key, bytes, options),
  };
  const nodeOfVolume = (handle: string) => lvmInformers.volumes.get(handle)?.spec.nodeName;
  const snapshotOptions = {
    ...shared,
    nodeOfVolume,
    needsRecheck: (handle: string) => lvmInformers.snapshots.get(handle)?.status?.readyToUse === false,
  };
  const moveOptions = {
    ...shared,
    ...clusterInformers,
    agents,
    nodes: nodeObjects,
    claims: claimOptions.claims,
    persistentVolumes: claimOptions.volumes,
    moves: lvmInformers.moves,
    imports: lvmInformers.imports,
    lvmVolumes: lvmInformers.volumes,
    lvmNodes: lvmInformers.nodes,
    snapshots: lvmInformers.snapshots,
    volumes: services.volumes,
    transfers: services.transfers,
    parseGroups: parseGroupList,
    topologyKey: TOPOLOGY_KEY,
    outdatedDefinitions: () => parts.definitions.outdated,
  };
  wakeSettledRequests(lvmInformers, wakeUps);
  wakeWaitingDeletions(lvmInformers, wakeUps);
  wakeSpaceWaiters({ ...lvmInformers, agents }, wakeUps);
  lvmInformers.snapshots.subscribe((handle, now) => {
    if (now?.status?.readyToUse === false) wakeUps.wake("unready", handle); // it overflowed or is Lost
  });
  return {
    provisioner: (term) => new Provisioner(provisionerOptions).run(term),
    // csi-resizer and csi-snapshotter do the work of two, under one Lease
    resizer: (term) => runAll([new Resizer({ ...claimOptions, nodeOfVolume }), new Modifier(claimOptions)], term),
    snapshotter: async (term) => {
      const snapshotter = new Snapshotter(snapshotOptions);
      const running = snapshotter.run(term);
      // a cluster without the kinds of snapshots has none of their groups
      await Promise.race([snapshotter.synced, waitForAbort(term)]);
      await Promise.all([running, new GroupSnapshotter({ ...snapshotOptions, csi: parts.groupCsi }).run(term)]);
    },
    capacity: (term) => new CapacityPublisher(capacityOptions).run(term),
    moves: (term) =>
      runAll([
        new AgentLeases({ ...shared, ...lvmInformers, agents, namespace }),
        new TransferGrants({ ...shared, ...lvmInformers, deleted: () => services.snapshots }),
        new Mover(moveOptions),
        new MoveGarbageCollector(moveOptions),
        new Importer(moveOptions),
      ], term),
  };
}

/** Runs controllers until a term ends, and again when definitions are no longer too old: what was refused is tried at once. */
async function runAndAgain(run: RunTerm, term: AbortSignal, definitions: Definitions): Promise<void> {
  while (!term.aborted) {
    const upgraded = new AbortController();
    const unsubscribe = definitions.subscribe((outdated) => outdated === undefined && upgraded.abort());
    using either = eitherSignal(term, upgraded.signal);
    await run(either.signal).finally(unsubscribe);
    if (!upgraded.signal.aborted) return;
  }
}

async function runAll(controllers: readonly { run: RunTerm }[], term: AbortSignal): Promise<void> {
  await Promise.all(controllers.map((controller) => controller.run(term)));
}
