/**
 * A small cluster in this process: an API server, the binder, and a driver, for the loops to be tried on.
 *
 * @module
 */

import type { ApiClient } from "../../../k8s/client/client.ts";
import { EventRecorder } from "../../../k8s/runtime/events.ts";
import { HttpClient } from "../../../k8s/client/http_client.ts";
import { Informer } from "../../../k8s/runtime/informer.ts";
import {
  csiNodes,
  events,
  type KubeObject,
  nodes,
  type ObjectName,
  type PersistentVolume,
  type PersistentVolumeClaim,
  persistentVolumeClaims,
  persistentVolumes,
  type Resource,
  type StorageClass,
  storageClasses,
  volumeAttributesClasses,
} from "../../../k8s/api/objects.ts";
import type { ProvisionerOptions } from "../../../k8s/provisioner/provisioner_options.ts";
import type { ResizerOptions } from "../../../k8s/resizer/resizer.ts";
import { secrets } from "../../../k8s/sidecars/secrets.ts";
import { WakeUps } from "../../../k8s/runtime/wake_ups.ts";
import { FakeApiServer } from "./api_server.ts";
import { strictCachedObjects } from "./strict_cache.ts";
import { bindVolumes } from "./volume_binder.ts";
import { FakeDriver } from "./driver.ts";
import { requireWakeUps } from "./wake_ups.ts";
import { waitUntil } from "../wait_until.ts";

export { waitUntil };

/** The driver's name. */
export const DRIVER = "lvm.denolith.dev";
/** The driver's topology key. */
export const TOPOLOGY_KEY = "topology.lvm.denolith.dev/node";
/** The annotation of who provisions. */
export const PROVISIONER_ANNOTATION = "volume.kubernetes.io/storage-provisioner";

/** The options of any controller under test. */
type ControllerOptions = ProvisionerOptions & ResizerOptions & { readonly csi: FakeDriver };

/** A task that runs until it is aborted. */
type Task = (signal: AbortSignal) => Promise<void>;

/** A cluster with the nodes `a` and `b`, the classes `now` and `later`, and nothing running but the binder. */
export class FakeControlPlane implements AsyncDisposable {
  /** The API server. */
  readonly api: FakeApiServer = FakeApiServer.start({ resources: [secrets] });
  /** The driver. */
  readonly driver = new FakeDriver();
  /** Wakes the controllers. */
  readonly wakeUps = new WakeUps();
  /** The client of the test. */
  readonly client: HttpClient;
  /** The claims that the binder sees. Tests also wait by it. */
  readonly claims: Informer<PersistentVolumeClaim>;
  /** The volumes that the binder sees. Tests also wait by it. */
  readonly volumes: Informer<PersistentVolume>;
  readonly #stop = new AbortController();
  readonly #tasks: Promise<void>[] = [];
  readonly #clients: Disposable[] = [];

  private constructor() {
    this.client = this.#connect("test");
    this.claims = this.#start(new Informer(this.client, persistentVolumeClaims));
    this.volumes = this.#start(new Informer(this.client, persistentVolumes));
    for (const name of ["a", "b"]) this.addNode(name);
    this.addStorageClass("now", { volumeBindingMode: "Immediate" });
    this.addStorageClass("later", { volumeBindingMode: "WaitForFirstConsumer" });
  }

  /** Starts a cluster, with a binder or without. */
  static async start({ withBinder = true }: { withBinder?: boolean } = {}): Promise<FakeControlPlane> {
    const cluster = new FakeControlPlane();
    const { client, claims, volumes } = cluster;
    if (withBinder) cluster.run((signal) => bindVolumes({ client, claims, volumes }, signal));
    await Promise.all([claims.synced, volumes.synced]);
    return cluster;
  }

  /** Stops everything. @throws {Error} when an object waits in silence */
  async [Symbol.asyncDispose](): Promise<void> {
    await using _ = { [Symbol.asyncDispose]: () => this.#end() };
    await requireWakeUps(this.api);
  }

  async #end(): Promise<void> {
    this.#stop.abort();
    await Promise.all(this.#tasks);
    for (const one of this.#clients) one[Symbol.dispose]();
    await this.api[Symbol.asyncDispose]();
  }

  /** Runs something until the cluster ends, or until the answer is called, which waits for its end. */
  run(work: Task): () => Promise<void> {
    const stop = new AbortController();
    const end = () => stop.abort();
    this.#stop.signal.addEventListener("abort", end);
    const running = work(stop.signal);
    this.#tasks.push(running);
    return () => {
      end();
      return running;
    };
  }

  /** Returns the options of a controller with a client and informers of its own. @param wrap wraps the client */
  controllerOptions(name = "loop", wrap: (client: ApiClient) => ApiClient = (client) => client): ControllerOptions {
    for (const userAgent of [name, `${name}-events`]) this.api.processes.set(userAgent, "controller");
    const client = wrap(this.#connect(name));
    // Events do not count as steps of a loop.
    const recorder = new EventRecorder(this.#connect(`${name}-events`), { component: DRIVER, instance: "test" });
    this.#tasks.push(
      new Promise<void>((resolve) => {
        this.#stop.signal.addEventListener("abort", () => void recorder.stop(100).then(resolve));
      }),
    );
    const options = { backoff: { startMs: 5, capMs: 20 } };
    const cached = strictCachedObjects();
    return {
      driverName: DRIVER,
      topologyKey: TOPOLOGY_KEY,
      client,
      csi: this.driver,
      intents: this.driver,
      nodeOfSource: () => undefined,
      nodeOfVolume: () => undefined,
      wakeUps: this.wakeUps,
      events: recorder,
      claims: this.#start(new Informer(client, persistentVolumeClaims, { ...options, transform: cached.claim })),
      volumes: this.#start(new Informer(client, persistentVolumes, { ...options, transform: cached.volume })),
      classes: this.#start(new Informer(client, storageClasses, options)),
      nodes: this.#start(new Informer(client, nodes, { ...options, metadataOnly: true, transform: cached.node })),
      csiNodes: this.#start(new Informer(client, csiNodes, { ...options, transform: cached.csiNode })),
      backoff: { startMs: 2, capMs: 20 },
      garbageCollectionIntervalMs: 3_600_000,
    };
  }

  /** Adds a node with the driver. */
  addNode(name: string, { labels = {}, driver = true }: { labels?: Record<string, string>; driver?: boolean } = {}) {
    this.api.put(nodes, { metadata: { name, labels: { ...(driver ? { [TOPOLOGY_KEY]: name } : {}), ...labels } } });
    const drivers = driver ? [{ name: DRIVER, nodeID: name, topologyKeys: [TOPOLOGY_KEY] }] : [];
    this.api.put(csiNodes, { metadata: { name }, spec: { drivers } });
  }

  /** Adds a storage class. */
  addStorageClass(name: string, rest: Omit<Partial<StorageClass>, "metadata"> = {}): StorageClass {
    return this.api.put(storageClasses, {
      metadata: { name },
      provisioner: DRIVER,
      reclaimPolicy: "Delete",
      allowVolumeExpansion: true,
      ...rest,
    });
  }

  /** Adds a Secret, and a class `locked` whose volumes are created with it. */
  addClassWithSecret(key: { readonly name: string; readonly namespace: string }): void {
    this.api.put(secrets, { metadata: key, data: { pass: btoa("word") } });
    this.addStorageClass("locked", {
      volumeBindingMode: "Immediate",
      parameters: {
        "csi.storage.k8s.io/provisioner-secret-name": key.name,
        "csi.storage.k8s.io/provisioner-secret-namespace": key.namespace,
      },
    });
  }

  /** Adds a VolumeAttributesClass. */
  addAttributesClass(name: string, parameters: Record<string, string>, driverName = DRIVER): void {
    this.api.put(volumeAttributesClasses, { metadata: { name }, driverName, parameters });
  }

  /** Adds a claim of 1 GiB of the class `now`, as kube-controller-manager leaves it to the provisioner. */
  addClaim(
    name = "data",
    spec: Partial<NonNullable<PersistentVolumeClaim["spec"]>> = {},
    metadata: Partial<PersistentVolumeClaim["metadata"]> = {},
  ): PersistentVolumeClaim {
    const annotations = { [PROVISIONER_ANNOTATION]: DRIVER, ...metadata.annotations };
    return this.api.put(persistentVolumeClaims, {
      metadata: { name, namespace: "default", ...metadata, annotations },
      spec: {
        storageClassName: "now",
        accessModes: ["ReadWriteOnce"],
        resources: { requests: { storage: "1Gi" } },
        volumeMode: "Filesystem",
        ...spec,
      },
      status: { phase: "Pending" },
    });
  }

  /** Removes an object. */
  async remove(resource: Resource, at: ObjectName): Promise<void> {
    await this.client.delete(resource, at);
  }

  /** Waits until the claim is bound. @returns the claim */
  async waitForBound(name = "data"): Promise<PersistentVolumeClaim> {
    const isBound = (storedClaim?: PersistentVolumeClaim) => storedClaim?.status?.phase === "Bound";
    return (await this.claims.waitFor(`default/${name}`, isBound, { timeoutMs: WAIT_TIMEOUT_MS }))!;
  }

  /** Waits for an event with this reason. @returns its message */
  async waitForEvent(reason: string): Promise<string> {
    let message: string | undefined;
    await waitUntil(() => {
      message = this.api.objects(events).find((waitForEvent) => waitForEvent.reason === reason)?.message;
      return message !== undefined;
    }, `an event ${reason}`);
    return message!;
  }

  /** Returns the reasons of all events so far, in order. */
  eventReasons(): string[] {
    return this.api.objects(events).map(({ reason }) => reason ?? "");
  }

  /** The PersistentVolumes as they are kept. */
  get storedVolumes(): PersistentVolume[] {
    return this.api.objects(persistentVolumes);
  }

  /** Returns the claim as it is kept. */
  storedClaim(name = "data"): PersistentVolumeClaim | undefined {
    return this.api.objects(persistentVolumeClaims).find(({ metadata }) => metadata.name === name);
  }

  /** Returns the requests of a client, without those that list or watch. */
  requestsOf(name = "loop"): string[] {
    const isOfClient = (request: { headers: Headers }) => request.headers.get("user-agent") === name;
    return this.api.requests.filter(isOfClient).filter(({ method, query }) =>
      method !== "GET" || !query.has("watch") && !query.has("limit")
    ).map(({ method, path }) => `${method} ${path.replace(/[0-9a-f]{8}-[0-9a-f-]{27}/, "UID")}`);
  }

  #connect(name: string): HttpClient {
    const client = new HttpClient({ url: this.api.url }, { userAgent: name });
    this.#clients.push(client);
    return client;
  }

  #start<T extends KubeObject>(informer: Informer<T>): Informer<T> {
    this.run((signal) => informer.start(signal));
    return informer;
  }
}

/**
 * The time limit for expected conditions, in milliseconds. It passes only after a fault, or on a very busy
 * machine.
 */
export const WAIT_TIMEOUT_MS = 30_000;
