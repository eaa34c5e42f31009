/**
 * A cluster in this process: a fake API server, nodes that are fake machines with the driver's agents on them, and the
 * driver's controller, as far as it asks nodes for something.
 *
 * @module
 */

import { parseGroupList } from "../../../csi/group_list.ts";
import { nodeHandlers } from "../../../csi/node.ts";
import { examine } from "../../../lvm/doctor/doctor.ts";
import { defined } from "../../../base/defined.ts";
import { openMachine } from "../../../lvm/machine.ts";
import type { ApiClient } from "../../../k8s/client/client.ts";
import { lvmImports, openEbsVolumes, topoLvmVolumes } from "../../../k8s/handover/imports.ts";
import { lvmMoves } from "../../../k8s/handover/moves.ts";
import { forget } from "../../../plugin/node_removal/forget_node.ts";
import { readNodeObjects } from "../../../plugin/node_removal/plan.ts";
import { AgentLiveness } from "../../../k8s/scheduling/agent_liveness.ts";
import { ClusterGroupSnapshots } from "../../../k8s/service/cluster_group_snapshots.ts";
import { ClusterSnapshots } from "../../../k8s/service/cluster_snapshots.ts";
import { ClusterTransfers } from "../../../k8s/service/transfers.ts";
import { TransferGrants } from "../../../k8s/service/transfer_grants.ts";
import { ClusterVolumes } from "../../../k8s/service/cluster_volumes.ts";
import { EventRecorder } from "../../../k8s/runtime/events.ts";
import { HttpClient } from "../../../k8s/client/http_client.ts";
import { Informer } from "../../../k8s/runtime/informer.ts";
import { Controller, type ReconcileResult } from "../../../k8s/runtime/controller.ts";
import {
  type LvmNode,
  lvmNodes,
  type LvmSnapshot,
  lvmSnapshots,
  type LvmVolume,
  lvmVolumes,
} from "../../../k8s/api/lvm_objects.ts";
import { DoctorReconciler } from "../../../k8s/agent/doctor_reconciler.ts";
import { NodeReconciler } from "../../../k8s/agent/node_reconciler.ts";
import { nodeIoLimiterSettings, watchLimits } from "../../../k8s/agent/node_limits.ts";
import { recordedLvOf } from "../../../k8s/agent/object_reconciler.ts";
import { csiNodes, type KubeObject, type Lease, leases, nodes, type Resource } from "../../../k8s/api/objects.ts";
import { waitUntil } from "./control_plane.ts";
import { TOPOLOGY_KEY } from "../../../csi/topology.ts";
import { agentLeaseSelector } from "../../../k8s/api/agent_leases.ts";
import { OrphanReconciler } from "../../../k8s/agent/orphan_reconciler.ts";
import { PhysicalVolumeConditions, PoolConditions } from "../../../k8s/agent/node_conditions.ts";
import { SnapshotReconciler } from "../../../k8s/agent/snapshot_reconciler.ts";
import { ClusterLists } from "../../../k8s/transfers/cluster_lists.ts";
import { TransferAgent } from "../../../k8s/transfers/transfer_agent.ts";
import { VolumeReconciler } from "../../../k8s/agent/volume_reconciler.ts";
import type { Exec } from "../../../lvm/exec.ts";
import { ANY_GROUP } from "../../../lvm/model/groups.ts";
import { FakeApiServer } from "./api_server.ts";
import { FakeClock } from "../clock.ts";
import { requireWakeUps } from "./wake_ups.ts";

/** The driver's name in tests. */
export const DRIVER = "lvm.denolith.dev";

/** The namespace of the driver. */
export const NAMESPACE = "denolith-system";

/** Options of a process of the cluster. */
export interface ProcessOptions {
  /** May put something before its client; its events do not pass there. */
  wrap?: (client: ApiClient) => ApiClient;
  /** Paths below which an agent may mount. */
  mountRoots?: readonly string[];
  /** The path at which an agent finds cgroups. */
  cgroupRoot?: string;
  /** The time within which an agent must find the cgroup of a pod, in milliseconds. */
  limitGraceMs?: number;
  /** The time that a controller waits for a node's answer, in milliseconds. */
  waitMs?: number;
  /** The time by which a controller finds out that agents are silent. */
  clock?: FakeClock;
  /** Whether agents send and fetch snapshots; not by default. */
  transfers?: boolean;
}

/** A process of the driver on a node. */
export class FakeAgent implements AsyncDisposable {
  readonly node: NodeReconciler;
  readonly volumes: VolumeReconciler;
  readonly snapshots: SnapshotReconciler;
  readonly orphans: OrphanReconciler;
  readonly doctor: DoctorReconciler;
  /** The time of its orphans. */
  readonly clock = new FakeClock();
  readonly machine;
  /** The results of its reconcile attempts. */
  readonly reconciliations: ReconcileResult[] = [];
  readonly #stop = new AbortController();
  readonly #running: Promise<void>[];
  /** Its client of the API server. */
  readonly client: HttpClient;
  /** The LVMVolumes of its node, as it sees them. */
  readonly objects: Informer<LvmVolume>;
  /** The LVMSnapshots of its node, as it sees them. */
  readonly snapshotObjects: Informer<LvmSnapshot>;
  readonly events: EventRecorder;
  /** The conditions of its thin pools. */
  readonly pools: PoolConditions;
  /** The calls of its Node service. */
  readonly nodeService;
  /** What sends and fetches snapshots. */
  readonly transfers: TransferAgent | undefined;
  /** Its controllers. */
  readonly controllers: readonly Controller[];

  /** Starts it. */
  constructor(api: FakeApiServer, readonly name: string, exec: Exec, options: ProcessOptions = {}) {
    const { wrap = (client) => client, mountRoots = ["/mnt"], cgroupRoot, limitGraceMs: graceMs } = options;
    this.client = new HttpClient({ url: api.url }, { userAgent: "denolith/test (node)" });
    this.events = new EventRecorder(this.client, { component: DRIVER, instance: name, burst: 100 });
    const client = wrap(this.client);
    const ownNode = { fieldSelector: `spec.nodeName=${name}` };
    const volumeObjects = this.objects = new Informer(client, lvmVolumes, ownNode);
    const snapshotObjects = this.snapshotObjects = new Informer(client, lvmSnapshots, ownNode);
    const nodeObjects = new Informer(client, lvmNodes, { fieldSelector: `metadata.name=${name}` });
    const onChange = () => this.node.requeue();
    this.transfers = !options.transfers ? undefined : new TransferAgent({
      ...{ client, exec, driver: DRIVER, nodeName: name, snapshots: snapshotObjects, onChange },
      ...{ address: { host: "127.0.0.1", port: 0 }, advertised: "127.0.0.1" },
    });
    this.machine = openMachine({
      ...defined({ remote: this.transfers }),
      exec,
      driver: DRIVER,
      groups: ANY_GROUP,
      mountRoots,
      recorded: {
        volume: (id) => recordedLvOf(volumeObjects.get(id)),
        snapshot: (id) => recordedLvOf(snapshotObjects.get(id)),
      },
      limiting: {
        ...nodeIoLimiterSettings({ cgroupRoot, objects: volumeObjects, reconciler: () => this.volumes }),
        ...defined({ graceMs }),
      },
      scratch: mountRoots[0]!,
      listener: {
        ...{
          onRemoved: onChange,
          onKeyChange: onChange,
          onSectorsRead: onChange,
          onProgress: (id) => volumeController.add(id),
        },
        onSnapshotExtended: (cowLv, size) => this.snapshots.recordCowExtended(cowLv, size),
        onSnapshotCannotExtend: (cowLv, why) => this.snapshots.recordCowCannotExtend(cowLv, why),
        onStagingWarning: (id, warning) => this.volumes.recordWarning(id, warning),
        onTrimFailed: (volume, why, failures) => this.volumes.recordTrimFailed(volume, why, failures),
        onTrimUnsupported: (volume) => this.volumes.recordTrimUnsupported(volume),
      },
    });
    watchLimits(volumeObjects, this.machine);
    this.pools = new PoolConditions({ events: this.events, driver: DRIVER });
    const pvs = new PhysicalVolumeConditions({ events: this.events, groups: ANY_GROUP });
    this.node = new NodeReconciler({
      client,
      exec,
      driver: DRIVER,
      nodeName: name,
      groups: ANY_GROUP,
      ...{ objects: nodeObjects, namespace: NAMESPACE },
      onReport: async (report) => {
        this.machine.cowMonitor.observe(report);
        this.machine.trimmer.observe(report);
        await this.machine.filesystems.observe(report);
      },
      verify: async (report) => {
        await this.volumes.verify(report);
        await this.snapshots.verify(report);
      },
      conditions: (report) => [...this.orphans.observe(report), ...this.pools.observe(report), ...pvs.observe(report)],
      onReported: async (object) => {
        this.pools.recordEvents(object);
        pvs.recordEvents(object);
        await this.orphans.reconcile(object);
      },
      batchMs: 1,
      transfer: () => this.transfers === undefined ? null : this.transfers.endpoint(),
    });
    const { signal } = this.#stop;
    const sharedOptions = { client, events: this.events, driver: DRIVER, ...this.machine, onChange, end: signal };
    this.orphans = new OrphanReconciler({
      ...sharedOptions,
      volumeObjects,
      snapshotObjects,
      nodeName: name,
      clock: this.clock,
    });
    this.doctor = new DoctorReconciler({
      ...{ client, driver: DRIVER, nodeName: name, objects: nodeObjects, end: signal, clock: this.clock },
      examine: () => examine({ exec, driver: DRIVER }),
    });
    this.volumes = new VolumeReconciler({
      ...{ ...sharedOptions, objects: volumeObjects, parseGroups: parseGroupList },
      requeue: (name) => volumeController.wake(name),
    });
    this.snapshots = new SnapshotReconciler({
      ...{ ...sharedOptions, objects: snapshotObjects },
      requeue: (name) => snapshotController.wake(name),
    });
    const controllerOf = (
      name: string,
      agent: VolumeReconciler | SnapshotReconciler,
      ownerOf?: (key: string) => string,
    ) =>
      new Controller({
        name,
        ownerOf,
        reconcile: (key) => agent.reconcile(key),
        onReconciled: (result) => this.reconciliations.push(result),
        backoff: { startMs: 10, capMs: 100 },
        drainMs: 50,
      });
    const namespaceOf = (name: string) => this.volumes.namespaceOf(name);
    const volumeController = controllerOf("lvmvolume", this.volumes, namespaceOf).watch(volumeObjects);
    const snapshotController = controllerOf("lvmsnapshot", this.snapshots).watch(snapshotObjects);
    this.nodeService = nodeHandlers({
      ...this.machine,
      nodeId: name,
      mountRoots,
      onUnmounted: (id) => this.volumes.requeueUnmounted(id),
    });
    this.controllers = [volumeController, snapshotController];
    this.machine.background.start();
    this.#running = [
      volumeObjects.start(signal),
      snapshotObjects.start(signal),
      nodeObjects.start(signal),
      volumeController.run(signal),
      snapshotController.run(signal),
      this.node.run(signal),
      ...(this.transfers === undefined ? [] : [this.transfers.run(this.machine, signal)]),
    ];
  }

  /** Ends it as a crash does: its operations stay pending. */
  crash(): void {
    this.#stop.abort();
    void this.machine.poolMonitor.stop();
    this.machine.cowMonitor.stop().catch(() => {}); // it may wait for ever
    this.client[Symbol.dispose]();
  }

  /** Ends it; its objects and LVs stay. */
  async [Symbol.asyncDispose](): Promise<void> {
    this.#stop.abort();
    await Promise.all(this.#running);
    await this.doctor.idle();
    await this.events.stop(1_000);
    await this.machine.background.stop();
    this.client[Symbol.dispose]();
  }
}

/** A process of the driver that asks nodes for volumes and snapshots. */
export class FakeController implements AsyncDisposable {
  readonly client: HttpClient;
  readonly objects: Informer<LvmVolume>;
  readonly snapshotObjects: Informer<LvmSnapshot>;
  readonly nodes: Informer<LvmNode>;
  readonly agentLeases: Informer<Lease>;
  readonly agents: AgentLiveness;
  readonly volumes: ClusterVolumes;
  readonly transfers: ClusterTransfers;
  readonly snapshots: ClusterSnapshots;
  readonly groupSnapshots: ClusterGroupSnapshots;
  readonly lists: ClusterLists;
  readonly #stop = new AbortController();
  readonly #running: Promise<void>[];

  /** Starts it. */
  constructor(api: FakeApiServer, { wrap = (client) => client, waitMs = 5_000, clock }: ProcessOptions = {}) {
    this.client = new HttpClient({ url: api.url }, { userAgent: "denolith/test (controller)" });
    const client = wrap(this.client);
    this.objects = new Informer(client, lvmVolumes);
    this.snapshotObjects = new Informer(client, lvmSnapshots);
    this.nodes = new Informer(client, lvmNodes, { clock });
    const selection = { namespace: NAMESPACE, labelSelector: agentLeaseSelector(DRIVER) };
    this.agentLeases = new Informer(client, leases, { ...selection, clock });
    this.agents = new AgentLiveness({ nodes: this.nodes, agentLeases: this.agentLeases, clock });
    const { snapshotObjects: snapshots, nodes, agents } = this;
    const sharedOptions = { client, driver: DRIVER, snapshots, nodes, agents, waitMs };
    this.transfers = new ClusterTransfers({ ...sharedOptions, taken: () => this.snapshots });
    const parts = { volumes: this.objects, transfers: this.transfers, parseGroups: parseGroupList };
    this.volumes = new ClusterVolumes({ ...sharedOptions, ...parts });
    this.snapshots = new ClusterSnapshots({ ...sharedOptions, volumes: this.volumes });
    this.groupSnapshots = new ClusterGroupSnapshots({ ...sharedOptions, volumes: this.volumes });
    this.lists = new ClusterLists({ ...sharedOptions, found: this.snapshots });
    const { signal } = this.#stop;
    this.#running = [this.objects, this.snapshotObjects, this.nodes, this.agentLeases].map((informer) =>
      informer.start(signal)
    );
    const grants = new TransferGrants({
      ...{ client, driverName: DRIVER, snapshots: this.snapshotObjects, volumes: this.objects },
      deleted: () => this.snapshots,
    });
    this.#running.push(grants.run(signal));
  }

  /** Waits until its informers have seen all objects. */
  async waitForSync(): Promise<void> {
    await Promise.all([this.objects.synced, this.snapshotObjects.synced, this.nodes.synced]);
  }

  /** Ends it as a crash does: its operations stay pending. */
  crash(): void {
    this.#stop.abort();
    this.agents.stop();
    this.client[Symbol.dispose]();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#stop.abort();
    this.agents.stop();
    await Promise.all(this.#running);
    this.client[Symbol.dispose]();
  }
}

/** A cluster, and what the controller has of it. */
export class FakeCluster implements AsyncDisposable {
  readonly api = FakeApiServer.start({
    resources: [lvmVolumes, lvmSnapshots, lvmNodes, lvmMoves, lvmImports, openEbsVolumes, topoLvmVolumes],
  });
  /** The client of the test, which has all rights. */
  readonly client: HttpClient = new HttpClient({ url: this.api.url }, { userAgent: "denolith/test (administrator)" });
  readonly #agents = new Map<string, FakeAgent>();
  #controller: FakeController;

  private constructor(options: ProcessOptions) {
    this.#controller = new FakeController(this.api, options);
  }

  /** Starts a cluster whose controller has observed all nodes. */
  static async start(machines: Record<string, Exec>, options: ProcessOptions = {}): Promise<FakeCluster> {
    const cluster = new FakeCluster(options);
    for (const [name, machine] of Object.entries(machines)) {
      cluster.api.put(nodes, { metadata: { name } });
      cluster.startAgent(name, machine, options);
    }
    await cluster.#controller.waitForSync();
    for (const name of Object.keys(machines)) {
      await cluster.nodes.waitFor(name, (node) => node?.status?.volumeGroups !== undefined, { timeoutMs: 5_000 });
    }
    return cluster;
  }

  /** The client of the controller. */
  get controllerClient(): HttpClient {
    return this.#controller.client;
  }

  get objects(): FakeController["objects"] {
    return this.#controller.objects;
  }

  get snapshotObjects(): FakeController["snapshotObjects"] {
    return this.#controller.snapshotObjects;
  }

  get nodes(): FakeController["nodes"] {
    return this.#controller.nodes;
  }

  get volumes(): ClusterVolumes {
    return this.#controller.volumes;
  }

  get snapshots(): ClusterSnapshots {
    return this.#controller.snapshots;
  }

  get transfers(): ClusterTransfers {
    return this.#controller.transfers;
  }

  get groupSnapshots(): ClusterGroupSnapshots {
    return this.#controller.groupSnapshots;
  }

  get lists(): ClusterLists {
    return this.#controller.lists;
  }

  /** Starts another controller, which has observed all objects, after the one before was killed or stopped answering. */
  async restartController(options: ProcessOptions = {}): Promise<FakeController> {
    this.#controller.crash();
    this.#controller = new FakeController(this.api, options);
    await this.#controller.waitForSync();
    return this.#controller;
  }

  /** Makes a node Ready, with the driver, as kubelet does. */
  async registerNode(name: string): Promise<void> {
    const labels = { [TOPOLOGY_KEY]: name, "kubernetes.io/hostname": name };
    await this.client.patch(nodes, { name }, { merge: { metadata: { labels } } });
    const conditions = [{ type: "Ready", status: "True" }] as never;
    await this.client.patch(nodes, { name }, { merge: { status: { conditions } }, subresource: "status" });
    const drivers = [{ name: DRIVER, nodeID: name, topologyKeys: [TOPOLOGY_KEY] }];
    this.api.put(csiNodes, { metadata: { name }, spec: { drivers } });
  }

  /** Starts the agent of a node. */
  startAgent(name: string, exec: Exec, options: ProcessOptions = {}): FakeAgent {
    const agent = new FakeAgent(this.api, name, exec, options);
    this.#agents.set(name, agent);
    return agent;
  }

  /** Has the agent of a node die for good. */
  crashAgent(name: string): void {
    this.agent(name).crash();
    this.#agents.delete(name); // nobody waits for what it does
  }

  /** Forgets a node whose agent does not run. */
  async forgetNode(nodeName: string): Promise<void> {
    const events = new EventRecorder(this.client, { component: DRIVER, instance: "test" });
    const objects = await readNodeObjects(this.client, { driver: DRIVER, nodeName });
    await forget(this.client, objects, { events, reason: "it is dead", now: new Date() });
    await events.stop(1_000);
  }

  /** Returns the agent of a node. */
  agent(name: string): FakeAgent {
    return this.#agents.get(name)!;
  }

  /** Waits until the agent of a node has seen an object as it is kept, and has nothing to do for it. */
  async waitUntilIdle(nodeName: string, name: string): Promise<void> {
    const agent = this.agent(nodeName);
    const isSeen = <T extends KubeObject>(resource: Resource<T>, informer: Informer<T>) => {
      const stored = this.api.objects(resource).find(({ metadata }) => metadata.name === name);
      return informer.get(name)?.metadata.resourceVersion === stored?.metadata.resourceVersion;
    };
    await waitUntil(() => {
      const isCurrent = isSeen(lvmVolumes, agent.objects) && isSeen(lvmSnapshots, agent.snapshotObjects);
      return isCurrent && agent.controllers.every((controller) => controller.nextAttempt(name) === undefined);
    }, `an agent at rest of ${name}`);
  }

  /** Ends the agent of a node. */
  async stopAgent(name: string): Promise<void> {
    await this.#agents.get(name)?.[Symbol.asyncDispose]();
    this.#agents.delete(name);
  }

  /** Requires that nothing waits in silence while controllers and agents run. */
  async requireWakeUps(): Promise<void> {
    await requireWakeUps(this.api, { agentOf: (nodeName) => this.#agents.get(nodeName)?.controllers });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await using _ = { [Symbol.asyncDispose]: () => this.#stop() };
    await this.requireWakeUps();
  }

  async #stop(): Promise<void> {
    for (const name of [...this.#agents.keys()]) await this.stopAgent(name);
    await this.#controller[Symbol.asyncDispose]();
    this.client[Symbol.dispose]();
    await this.api[Symbol.asyncDispose]();
  }
}
