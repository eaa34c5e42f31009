/**
 * A cluster in this process: a fake API server, and nodes that are fake machines with the driver's agents on them.
 *
 * @module
 */

import { parseGroupList } from "../../csi/parameters.ts";
import { openMachine } from "../../csi/driver.ts";
import { ClusterVolumes } from "../../k8s/cluster_volumes.ts";
import { EventRecorder } from "../../k8s/events.ts";
import { HttpClient } from "../../k8s/http_client.ts";
import { Informer } from "../../k8s/informer.ts";
import { Loop } from "../../k8s/loop.ts";
import { lvmNodes, type LvmVolume, lvmVolumes } from "../../k8s/lvm_objects.ts";
import { NodeAgent } from "../../k8s/node_agent.ts";
import { nodes } from "../../k8s/objects.ts";
import { OrphanAgent } from "../../k8s/orphan_agent.ts";
import { recordedIn, VolumeAgent } from "../../k8s/volume_agent.ts";
import type { Exec } from "../../lvm/exec.ts";
import { ANY_GROUP } from "../../lvm/groups.ts";
import { FakeApiServer } from "./api_server.ts";
import { FakeClock } from "./clock.ts";

/** The driver's name in tests. */
export const DRIVER = "lvm.denolith.dev";

/** A process of the driver on a node. */
export class FakeAgent implements AsyncDisposable {
  readonly node: NodeAgent;
  readonly volumes: VolumeAgent;
  readonly orphans: OrphanAgent;
  /** The time of its orphans. */
  readonly clock = new FakeClock();
  readonly machine;
  readonly #stop = new AbortController();
  readonly #running: Promise<void>[];
  /** What it asks the API server by. */
  readonly client: HttpClient;
  /** The LVMVolumes of its node, as it sees them. */
  readonly objects: Informer<LvmVolume>;
  readonly events: EventRecorder;

  /** Starts it. */
  constructor(api: FakeApiServer, readonly name: string, exec: Exec) {
    this.client = new HttpClient({ url: api.url }, { userAgent: "denolith/test (node)" });
    this.events = new EventRecorder(this.client, { component: DRIVER, instance: name, burst: 100 });
    const objects = this.objects = new Informer(this.client, lvmVolumes, { fieldSelector: `spec.nodeName=${name}` });
    this.machine = openMachine({
      exec,
      driver: DRIVER,
      groups: ANY_GROUP,
      mountRoots: ["/mnt"],
      recorded: (id) => recordedIn(objects.get(id)),
      onRemoved: () => this.node.poke(),
    });
    this.node = new NodeAgent({
      client: this.client,
      exec,
      driver: DRIVER,
      nodeName: name,
      groups: ANY_GROUP,
      onReport: (report) => this.volumes.verify(report),
      conditions: (report) => this.orphans.look(report),
      onWritten: (object) => this.orphans.attend(object),
      gatherMs: 1,
    });
    const onChange = () => this.node.poke();
    this.orphans = new OrphanAgent({
      ...this.machine,
      client: this.client,
      objects,
      nodeName: name,
      events: this.events,
      onChange,
      clock: this.clock,
    });
    this.volumes = new VolumeAgent({
      client: this.client,
      objects,
      events: this.events,
      ...this.machine,
      parseGroups: parseGroupList,
      onChange,
      end: this.#stop.signal,
    });
    const loop = new Loop({
      name: "lvmvolume",
      reconcile: (key) => this.volumes.reconcile(key),
      backoff: { startMs: 10, capMs: 100 },
      drainMs: 50,
    }).follow(objects);
    this.machine.upkeep.start();
    const { signal } = this.#stop;
    this.#running = [objects.start(signal), loop.run(signal), this.node.run(signal)];
  }

  /** Ends it as a crash does: what it waits for never comes. */
  kill(): void {
    this.#stop.abort();
    this.client[Symbol.dispose]();
  }

  /** Ends it; what it did stays. */
  async [Symbol.asyncDispose](): Promise<void> {
    this.#stop.abort();
    await Promise.all(this.#running);
    await this.events.stop(1_000);
    await this.machine.upkeep.stop();
    this.client[Symbol.dispose]();
  }
}

/** A cluster, and what the controller has of it. */
export class FakeCluster implements AsyncDisposable {
  readonly api = FakeApiServer.start({ resources: [lvmVolumes, lvmNodes] });
  readonly client = new HttpClient({ url: this.api.url }, { userAgent: "denolith/test (controller)" });
  readonly objects = new Informer(this.client, lvmVolumes);
  readonly nodes = new Informer(this.client, lvmNodes);
  readonly volumes: ClusterVolumes;
  readonly #agents = new Map<string, FakeAgent>();
  readonly #stop = new AbortController();
  #running: Promise<void>[] = [];

  private constructor(waitMs: number) {
    const { client, objects, nodes } = this;
    const parseGroups = parseGroupList;
    this.volumes = new ClusterVolumes({ client, driver: DRIVER, volumes: objects, nodes, parseGroups, waitMs });
  }

  /** Starts one whose controller has seen all nodes, and waits so many milliseconds for a node's answer. */
  static async start(machines: Record<string, Exec>, { waitMs = 5_000 } = {}): Promise<FakeCluster> {
    const cluster = new FakeCluster(waitMs);
    const { signal } = cluster.#stop;
    cluster.#running = [cluster.objects.start(signal), cluster.nodes.start(signal)];
    for (const [name, machine] of Object.entries(machines)) {
      cluster.api.put(nodes, { metadata: { name } });
      cluster.startAgent(name, machine);
    }
    await Promise.all([cluster.objects.synced, cluster.nodes.synced]);
    for (const name of Object.keys(machines)) {
      await cluster.nodes.waitFor(name, (node) => node?.status?.volumeGroups !== undefined, { timeoutMs: 5_000 });
    }
    return cluster;
  }

  /** Starts the agent of a node. */
  startAgent(name: string, exec: Exec): FakeAgent {
    const agent = new FakeAgent(this.api, name, exec);
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
    this.#stop.abort();
    await Promise.all(this.#running);
    this.client[Symbol.dispose]();
    await this.api[Symbol.asyncDispose]();
  }
}
