/**
 * Controllers over a fake cluster: those of the driver, each with a client of its own, whose writes a test may delay or lose,
 * and what Kubernetes and the driver do about PersistentVolumes.
 *
 * @module
 */

import type { VolumeId } from "../../../base/ids.ts";
import type { ApiClient } from "../../../k8s/client/client.ts";
import { HttpClient } from "../../../k8s/client/http_client.ts";
import {
  type KubeObject,
  type PersistentVolume,
  type PersistentVolumeClaim,
  persistentVolumeClaims,
  persistentVolumes,
  type Resource,
  storageClasses,
} from "../../../k8s/api/objects.ts";
import { Reclaimer } from "../../../k8s/provisioner/reclaimer.ts";
import { EventRecorder } from "../../../k8s/runtime/events.ts";
import { Informer } from "../../../k8s/runtime/informer.ts";
import { wakeWaitingDeletions } from "../../../k8s/service/waiting_work.ts";
import { WakeUps } from "../../../k8s/runtime/wake_ups.ts";
import { DRIVER, type FakeCluster } from "./node_cluster.ts";
import { startBinder } from "./volume_binder.ts";
import { Importer } from "../../../k8s/handover/importer.ts";
import { lvmImports } from "../../../k8s/handover/imports.ts";
import { planImport } from "../../../plugin/import/plan.ts";
import { type ImportOptions, readSources } from "../../../plugin/import/sources.ts";
import { TOPOLOGY_KEY } from "./control_plane.ts";

/** The namespace and the name of the claim. */
export const CLAIM = { namespace: "shop", name: "data" } as const;

/** The delay after failures. */
export const BACKOFF = { startMs: 5, capMs: 50 } as const;

/** Sends a write of a controller, by the number of it, and what is called, such as `patch` or `volumes.delete`. */
export type OnWrite = (index: number, send: () => Promise<unknown>, call: string) => Promise<unknown>;

/** Sends a write of what is called. */
type Send = <T>(write: () => Promise<T>, call: string) => Promise<T>;

/** What a controller is made of. */
export interface ControllerParts {
  /** Its client. */
  readonly client: ApiClient;
  /** The recorder of its events, which are no writes. */
  readonly events: EventRecorder;
  /** Sends a write that is none of the client. */
  readonly send: Send;
  /** Keeps objects of a kind up to date until the controller ends. */
  readonly inform: <T extends KubeObject>(resource: Resource<T>) => Informer<T>;
}

/** Wraps a client, so that what it changes is sent by `send`. */
function withWrites(client: ApiClient, send: Send): ApiClient {
  return new Proxy(client, {
    get(target, name) {
      const method = Reflect.get(target, name) as (...args: unknown[]) => Promise<unknown>;
      const call = (...args: unknown[]) => method.apply(target, args);
      const isWrite = ["create", "patch", "replace", "delete"].includes(String(name));
      return isWrite ? (...args: unknown[]) => send(() => call(...args), String(name)) : call;
    },
  });
}

/** The controllers. */
export class FakeControllers implements AsyncDisposable {
  readonly #cluster: FakeCluster;
  readonly #stop = new AbortController();
  readonly #tasks: Promise<unknown>[] = [];
  readonly #clients: HttpClient[] = [];
  /** What ends those that are not dead. */
  readonly #stops = new Set<() => Promise<void>>();

  /** Creates them; none runs yet. */
  constructor(cluster: FakeCluster) {
    this.#cluster = cluster;
  }

  /** Binds claims and PersistentVolumes, and reclaims volumes whose claims are deleted. */
  async startBinding(): Promise<void> {
    const client = this.#connect("denolith/test (administrator)");
    const { claims, volumes, running } = startBinder(client, this.#stop.signal);
    this.#tasks.push(running);
    await Promise.all([claims.synced, volumes.synced]);
    const wakeUps = new WakeUps();
    const { objects, snapshotObjects, nodes } = this.#cluster;
    wakeWaitingDeletions({ volumes: objects, snapshots: snapshotObjects, nodes }, wakeUps);
    this.start("reclaimer", undefined, ({ client, events }) =>
      new Reclaimer({
        ...{ client, driverName: DRIVER, events, claims, volumes, wakeUps, backoff: BACKOFF },
        csi: { deleteVolume: ({ volumeId }) => this.#cluster.volumes.delete(volumeId as VolumeId) },
      }));
  }

  /**
   * Starts a controller.
   *
   * @param onWrite sends each of its writes
   * @returns what ends it
   */
  start(
    name: string,
    onWrite: OnWrite = (_, send) => send(),
    create: (parts: ControllerParts) => { run(signal: AbortSignal): Promise<void> },
  ): () => Promise<void> {
    const stop = new AbortController();
    const client = this.#connect(`denolith/test (controller) ${name}`);
    const events = new EventRecorder(client, { component: DRIVER, instance: name });
    const tasks: Promise<void>[] = [];
    let writes = 0;
    const send: Send = (write, call) => onWrite(writes++, write, call) as ReturnType<typeof write>;
    const controller = create({
      ...{ client: withWrites(client, send), events, send },
      inform: (resource) => {
        const informer = new Informer(client, resource);
        tasks.push(informer.start(stop.signal));
        return informer;
      },
    });
    tasks.push(controller.run(stop.signal).then(() => events.stop(100)));
    const end = async () => {
      this.#stops.delete(end);
      stop.abort();
      await Promise.all(tasks);
    };
    this.#stops.add(end);
    return end;
  }

  /** Starts what imports volumes. @param onWrite sends each of its writes @returns what ends it */
  startImporter(onWrite?: OnWrite): () => Promise<void> {
    const { objects: lvmVolumes, snapshotObjects: snapshots, nodes: lvmNodes } = this.#cluster;
    return this.start("importer", onWrite, ({ client, events, inform }) =>
      new Importer({
        ...{ client, events, driverName: DRIVER, topologyKey: TOPOLOGY_KEY, backoff: BACKOFF },
        ...{ imports: inform(lvmImports), lvmVolumes, snapshots, lvmNodes },
        claims: inform(persistentVolumeClaims),
        persistentVolumes: inform(persistentVolumes),
        classes: inform(storageClasses),
      }));
  }

  /** Plans the import of the claim, as an administrator who has stopped the provisioner of the other driver. */
  async planImport(more: Partial<ImportOptions> = {}): Promise<ReturnType<typeof planImport>> {
    const { namespace, name: claimName } = CLAIM;
    return planImport(await readSources(this.#cluster.client, { driver: DRIVER, namespace, claimName }), {
      ...{ driver: DRIVER, topologyKey: TOPOLOGY_KEY, now: Date.now(), isProvisionerStopped: true },
      parameterProblem: () => undefined,
      ...more,
    });
  }

  /** Adds the claim, bound to a PersistentVolume of a class. @returns the uid of the claim */
  addBoundClaim(
    className: string,
    { metadata, spec }: {
      readonly metadata: PersistentVolume["metadata"];
      readonly spec: Partial<NonNullable<PersistentVolume["spec"]>>;
    },
  ): string {
    const { api } = this.#cluster;
    const accessModes = ["ReadWriteOnce"];
    const claim = api.put(persistentVolumeClaims, {
      metadata: { ...CLAIM },
      spec: { volumeName: metadata.name, storageClassName: className, accessModes },
      status: { phase: "Bound" },
    });
    const uid = claim.metadata.uid!;
    api.put(persistentVolumes, {
      metadata,
      spec: {
        ...{ accessModes, capacity: { storage: "32Mi" }, storageClassName: className },
        claimRef: { apiVersion: "v1", kind: "PersistentVolumeClaim", ...CLAIM, uid },
        persistentVolumeReclaimPolicy: "Delete",
        ...spec,
      },
      status: { phase: "Bound" },
    });
    return uid;
  }

  /** The claim, as it is kept. */
  get claim(): PersistentVolumeClaim | undefined {
    return this.#cluster.api.objects(persistentVolumeClaims)[0];
  }

  /** The PersistentVolume, as it is kept. */
  get persistentVolume(): PersistentVolume | undefined {
    return this.#cluster.api.objects(persistentVolumes)[0];
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const stop of [...this.#stops]) await stop();
    this.#stop.abort();
    await Promise.all(this.#tasks);
    for (const client of this.#clients) client[Symbol.dispose]();
  }

  #connect(userAgent: string): HttpClient {
    const client = new HttpClient({ url: this.#cluster.api.url }, { userAgent });
    this.#clients.push(client);
    return client;
  }
}

/** A controller that stalls before one of its writes. */
export interface StalledWrites {
  /** Sends the writes. */
  readonly onWrite: OnWrite;
  /** Settles when it has stalled. */
  readonly stalled: Promise<void>;
  /** Lets it send its write, and what it goes on to write. */
  readonly resume: () => Promise<void>;
}

/** Has a controller stall before the first write that is meant. */
export function stallBefore(isMeant: (index: number, call: string) => boolean): StalledWrites {
  const [stalled, resumed] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  const late: Promise<unknown>[] = [];
  let isStalled = false;
  return {
    onWrite: async (index, send, call) => {
      const isLate = isStalled;
      if (!isLate && isMeant(index, call)) {
        isStalled = true;
        stalled.resolve();
        await resumed.promise;
      }
      const sent = send();
      if (isStalled) late.push(sent.catch(() => {}));
      return await sent;
    },
    stalled: stalled.promise,
    resume: async () => {
      resumed.resolve();
      for (let known = -1; known < late.length;) {
        known = late.length;
        await Promise.all(late);
      }
    },
  };
}
