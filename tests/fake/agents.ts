/**
 * A cluster in this process: a fake API server, nodes that are fake machines with the driver's agents on them, and the
 * driver's controller, as far as it asks nodes for something.
 *
 * @module
 */

import { parseGroupList } from "../../csi/parameters.ts";
import { openMachine } from "../../lvm/machine.ts";
import type { ApiClient } from "../../k8s/client/client.ts";
import { ClusterSnapshots } from "../../k8s/service/cluster_snapshots.ts";
import { ClusterVolumes } from "../../k8s/service/cluster_volumes.ts";
import { EventRecorder } from "../../k8s/runtime/events.ts";
import { HttpClient } from "../../k8s/client/http_client.ts";
import { Informer } from "../../k8s/runtime/informer.ts";
import { Loop, type Turn } from "../../k8s/runtime/controller.ts";
import {
  type LvmNode,
  lvmNodes,
  type LvmSnapshot,
  lvmSnapshots,
  type LvmVolume,
  lvmVolumes,
} from "../../k8s/api/lvm_objects.ts";
import { NodeAgent } from "../../k8s/agent/node_reconciler.ts";
import { followLimits, nodeLimiting } from "../../k8s/agent/node_limits.ts";
import { recordedIn } from "../../k8s/agent/object_reconciler.ts";
import { nodes } from "../../k8s/api/objects.ts";
import { OrphanAgent } from "../../k8s/agent/orphan_reconciler.ts";
import { PoolAgent } from "../../k8s/agent/pool_conditions.ts";
import { SnapshotAgent } from "../../k8s/agent/snapshot_reconciler.ts";
import { VolumeAgent } from "../../k8s/agent/volume_reconciler.ts";
import type { Exec } from "../../lvm/exec.ts";
import { ANY_GROUP } from "../../lvm/model/groups.ts";
import { FakeApiServer } from "./api_server.ts";
import { FakeClock } from "./clock.ts";

/** The driver's name in tests. */
export const DRIVER = "lvm.denolith.dev";

/** How a process of the cluster is started. */
export interface ProcessOptions {
  /** May put something before its client; its events do not pass there. */
  wrap?: (client: ApiClient) => ApiClient;
  /** Where an agent may mount. */
  mountRoots?: readonly string[];
  /** Where an agent finds cgroups. */
  cgroupRoot?: string;
  /** How many milliseconds a controller waits for a node's answer. */
  waitMs?: number;
}

/** A process of the driver on a node. */
export class FakeAgent implements AsyncDisposable {
  readonly node: NodeAgent;
  readonly volumes: VolumeAgent;
  readonly snapshots: SnapshotAgent;
  readonly orphans: OrphanAgent;
  /** The time of its orphans. */
  readonly clock = new FakeClock();
  readonly machine;
  /** What came of each turn of its loops. */
  readonly turns: Turn[] = [];
  readonly #stop = new AbortController();
  readonly #running: Promise<void>[];
  /** What it asks the API server by. */
  readonly client: HttpClient;
  /** The LVMVolumes of its node, as it sees them. */
  readonly objects: Informer<LvmVolume>;
  /** The LVMSnapshots of its node, as it sees them. */
  readonly snapshotObjects: Informer<LvmSnapshot>;
  readonly events: EventRecorder;
  /** What tells of its thin pools. */
  readonly pools: PoolAgent;

  /** Starts it. */
  constructor(api: FakeApiServer, readonly name: string, exec: Exec, options: ProcessOptions = {}) {
    const { wrap = (client) => client, mountRoots = ["/mnt"], cgroupRoot } = options;
    this.client = new HttpClient({ url: api.url }, { userAgent: "denolith/test (node)" });
    this.events = new EventRecorder(this.client, { component: DRIVER, instance: name, burst: 100 });
    const client = wrap(this.client);
    const own = { fieldSelector: `spec.nodeName=${name}` };
    const volumeObjects = this.objects = new Informer(client, lvmVolumes, own);
    const snapshotObjects = this.snapshotObjects = new Informer(client, lvmSnapshots, own);
    const onChange = () => this.node.poke();
    this.machine = openMachine({
      exec,
      driver: DRIVER,
      groups: ANY_GROUP,
      mountRoots,
      recorded: {
        volume: (id) => recordedIn(volumeObjects.get(id)),
        snapshot: (id) => recordedIn(snapshotObjects.get(id)),
      },
      onRemoved: onChange,
      limiting: nodeLimiting({ cgroupRoot, objects: volumeObjects, agent: () => this.volumes }),
      onGrown: (store, size) => this.snapshots.grown(store, size),
      onStuck: (store, why) => this.snapshots.stuck(store, why),
      scratch: mountRoots[0]!,
      onProgress: (id) => volumeLoop.add(id),
      onTrimFailed: (volume, why, failures) => this.volumes.trimFailed(volume, why, failures),
      onTrimUnsupported: (volume) => this.volumes.trimUnsupported(volume),
    });
    followLimits(volumeObjects, this.machine);
    this.pools = new PoolAgent({ events: this.events, driver: DRIVER });
    this.node = new NodeAgent({
      client,
      exec,
      driver: DRIVER,
      nodeName: name,
      groups: ANY_GROUP,
      onReport: async (report) => {
        this.machine.stores.see(report);
        this.machine.trimmer.see(report);
        await this.machine.filesystems.look(report);
        await this.volumes.verify(report);
        await this.snapshots.verify(report);
      },
      conditions: (report) => [...this.orphans.look(report), ...this.pools.look(report)],
      onWritten: async (object) => {
        this.pools.attend(object);
        await this.orphans.attend(object);
      },
      gatherMs: 1,
    });
    const { signal } = this.#stop;
    const shared = { client, events: this.events, ...this.machine, onChange, end: signal };
    this.orphans = new OrphanAgent({
      ...shared,
      volumeObjects,
      snapshotObjects,
      nodeName: name,
      clock: this.clock,
    });
    this.volumes = new VolumeAgent({ ...shared, objects: volumeObjects, parseGroups: parseGroupList });
    this.snapshots = new SnapshotAgent({ ...shared, objects: snapshotObjects });
    const loopOf = (name: string, agent: VolumeAgent | SnapshotAgent) =>
      new Loop({
        name,
        reconcile: (key) => agent.reconcile(key),
        onTurn: (turn) => this.turns.push(turn),
        backoff: { startMs: 10, capMs: 100 },
        drainMs: 50,
      });
    const volumeLoop = loopOf("lvmvolume", this.volumes).follow(volumeObjects);
    this.machine.background.start();
    this.#running = [
      volumeObjects.start(signal),
      snapshotObjects.start(signal),
      volumeLoop.run(signal),
      loopOf("lvmsnapshot", this.snapshots).follow(snapshotObjects).run(signal),
      this.node.run(signal),
    ];
  }

  /** Ends it as a crash does: what it waits for never comes. */
  kill(): void {
    this.#stop.abort();
    void this.machine.monitor.stop();
    this.machine.stores.stop().catch(() => {}); // it may wait for ever
    this.client[Symbol.dispose]();
  }

  /** Ends it; what it did stays. */
  async [Symbol.asyncDispose](): Promise<void> {
    this.#stop.abort();
    await Promise.all(this.#running);
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
  readonly volumes: ClusterVolumes;
  readonly snapshots: ClusterSnapshots;
  readonly #stop = new AbortController();
  readonly #running: Promise<void>[];

  /** Starts it. */
  constructor(api: FakeApiServer, { wrap = (client) => client, waitMs = 5_000 }: ProcessOptions = {}) {
    this.client = new HttpClient({ url: api.url }, { userAgent: "denolith/test (controller)" });
    const client = wrap(this.client);
    this.objects = new Informer(client, lvmVolumes);
    this.snapshotObjects = new Informer(client, lvmSnapshots);
    this.nodes = new Informer(client, lvmNodes);
    const shared = { client, driver: DRIVER, snapshots: this.snapshotObjects, nodes: this.nodes, waitMs };
    this.volumes = new ClusterVolumes({ ...shared, volumes: this.objects, parseGroups: parseGroupList });
    this.snapshots = new ClusterSnapshots({ ...shared, volumes: this.volumes });
    const { signal } = this.#stop;
    this.#running = [this.objects, this.snapshotObjects, this.nodes].map((informer) => informer.start(signal));
  }

  /** Settles when it has seen all there is. */
  async synced(): Promise<void> {
    await Promise.all([this.objects.synced, this.snapshotObjects.synced, this.nodes.synced]);
  }

  /** Ends it as a crash does: what it waits for never comes. */
  kill(): void {
    this.#stop.abort();
    this.client[Symbol.dispose]();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#stop.abort();
    await Promise.all(this.#running);
    this.client[Symbol.dispose]();
  }
}

/** A cluster, and what the controller has of it. */
export class FakeCluster implements AsyncDisposable {
  readonly api = FakeApiServer.start({ resources: [lvmVolumes, lvmSnapshots, lvmNodes] });
  readonly #agents = new Map<string, FakeAgent>();
  #controller: FakeController;

  private constructor(options: ProcessOptions) {
    this.#controller = new FakeController(this.api, options);
  }

  /** Starts one whose controller has seen all nodes. */
  static async start(machines: Record<string, Exec>, options: ProcessOptions = {}): Promise<FakeCluster> {
    const cluster = new FakeCluster(options);
    for (const [name, machine] of Object.entries(machines)) {
      cluster.api.put(nodes, { metadata: { name } });
      cluster.startAgent(name, machine, options);
    }
    await cluster.#controller.synced();
    for (const name of Object.keys(machines)) {
      await cluster.nodes.waitFor(name, (node) => node?.status?.volumeGroups !== undefined, { timeoutMs: 5_000 });
    }
    return cluster;
  }

  get client(): HttpClient {
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

  /** Starts another controller, which has seen all there is, when the one before was killed or never answers again. */
  async restartController(options: ProcessOptions = {}): Promise<FakeController> {
    this.#controller.kill();
    this.#controller = new FakeController(this.api, options);
    await this.#controller.synced();
    return this.#controller;
  }

  /** Starts the agent of a node. */
  startAgent(name: string, exec: Exec, options: ProcessOptions = {}): FakeAgent {
    const agent = new FakeAgent(this.api, name, exec, options);
    this.#agents.set(name, agent);
    return agent;
  }

  /** The agent of a node. */
  agent(name: string): FakeAgent {
    return this.#agents.get(name)!;
  }

  /** Ends the agent of a node. */
  async stopAgent(name: string): Promise<void> {
    await this.#agents.get(name)?.[Symbol.asyncDispose]();
    this.#agents.delete(name);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const name of [...this.#agents.keys()]) await this.stopAgent(name);
    await this.#controller[Symbol.asyncDispose]();
    await this.api[Symbol.asyncDispose]();
  }
}
