/**
 * A fake API server with nodes and storage classes, over which tests start capacity publishers.
 *
 * @module
 */

import { FakeApiServer } from "./api_server.ts";
import { DRIVER, TOPOLOGY_KEY, waitUntil } from "./control_plane.ts";
import { type CapacityOptions, CapacityPublisher } from "../../../k8s/scheduling/capacity.ts";
import { capacityName } from "../../../k8s/scheduling/capacity_object.ts";
import type { ApiClient } from "../../../k8s/client/client.ts";
import { CallError, type CapacityClient, Code } from "../../../k8s/sidecars/csi_client.ts";
import { HttpClient } from "../../../k8s/client/http_client.ts";
import { Informer } from "../../../k8s/runtime/informer.ts";
import { lvmNodes, lvmVolumes } from "../../../k8s/api/lvm_objects.ts";
import {
  csiNodes,
  csiStorageCapacities,
  type CsiStorageCapacity,
  type KubeObject,
  type Resource,
  storageClasses,
} from "../../../k8s/api/objects.ts";

/** A gibibyte in bytes. */
export const GiB = 1n << 30n;

/** The namespace in which capacity is published. */
export const NAMESPACE = "system";

/** Starts a fake API server with the nodes `a` and `b` and the storage class `fast`, without a capacity publisher. */
export function startCapacityCluster() {
  const api = FakeApiServer.start({ resources: [lvmNodes, lvmVolumes] });
  const stop = new AbortController();
  const running: Promise<void>[] = [];
  const clients: HttpClient[] = [];
  const listeners: ((nodeName: string) => void)[] = [];
  const connect = (name: string) => {
    const client = new HttpClient({ url: api.url }, { userAgent: name });
    clients.push(client);
    return client;
  };
  const client = connect("test");
  const free = new Map<string, bigint>();
  const s = {
    api,
    client,
    /** The free bytes of each node. */
    free,
    addNode(name: string, bytes = 8n * GiB, drivers = [DRIVER]) {
      free.set(name, bytes);
      api.put(lvmNodes, { metadata: { name }, spec: { driverName: DRIVER } });
      const registered = drivers.map((driver) => ({ name: driver, nodeID: name, topologyKeys: [TOPOLOGY_KEY] }));
      api.put(csiNodes, { metadata: { name }, spec: { drivers: registered } });
    },
    addClass(name: string, parameters: Record<string, string> = {}, provisioner = DRIVER) {
      api.put(storageClasses, { metadata: { name }, provisioner, parameters });
    },
    /** Sets the free bytes of a node, and changes its LVMNode as a report does. */
    async report(name: string, bytes: bigint) {
      free.set(name, bytes);
      const merge = { status: { lastUpdateTime: `2026-01-01T00:00:${free.size}${bytes}Z` } };
      await client.patch(lvmNodes, { name }, { merge, subresource: "status" });
    },
    /** Returns the published capacity, as `NODE CLASS CAPACITY MAXIMUM`. */
    published: () =>
      api.objects(csiStorageCapacities).map(({ nodeTopology, storageClassName, capacity, maximumVolumeSize }) =>
        `${nodeTopology?.matchLabels?.[TOPOLOGY_KEY]} ${storageClassName} ${capacity} ${maximumVolumeSize}`
      ).sort(),
    object: (nodeName: string, className: string): CsiStorageCapacity | undefined => {
      const name = capacityName(DRIVER, { nodeName, className });
      return api.objects(csiStorageCapacities).find(({ metadata }) => metadata.name === name);
    },
    /** Waits until exactly these lines are published. */
    async waitUntilPublished(...lines: string[]) {
      const isPublished = () => JSON.stringify(s.published()) === JSON.stringify([...lines].sort());
      await waitUntil(isPublished, lines.join(", ")).catch((error) => {
        throw new Error(`${error.message}; published are ${s.published().join(", ")}`);
      });
    },
    /** Returns the HTTP methods of the writes of a client. */
    writes: (name = "loop") =>
      api.requests.filter(({ method, headers }) => method !== "GET" && headers.get("user-agent") === name)
        .map(({ method }) => method),
    /** Reports that an agent has become silent, or reports again. */
    notifyOfAgent: (nodeName: string) => {
      for (const listener of listeners) listener(nodeName);
    },
    /** Starts a publisher with a client of its own. @returns its options, its reconcile attempts, and a function that stops it */
    async start(
      { name = "loop", wrap = (client: ApiClient) => client, ...more }:
        & Partial<CapacityOptions>
        & { name?: string; wrap?: (client: ApiClient) => ApiClient } = {},
    ) {
      const end = new AbortController();
      const signal = AbortSignal.any([end.signal, stop.signal]);
      api.processes.set(name, "controller");
      const own = wrap(connect(name));
      const turns: string[] = [];
      const failures: unknown[] = [];
      const started: Promise<void>[] = [];
      const inform = <T extends KubeObject>(resource: Resource<T>, namespace?: string): Informer<T> => {
        const informer = new Informer(own, resource, { namespace, backoff: { startMs: 5, capMs: 20 } });
        started.push(informer.start(signal));
        return informer;
      };
      const options = {
        driverName: DRIVER,
        topologyKey: TOPOLOGY_KEY,
        namespace: NAMESPACE,
        client: own,
        csi: { getCapacity: capacityOf(free) },
        agents: { subscribe: (listener: (nodeName: string) => void) => void listeners.push(listener) },
        nodes: inform(lvmNodes),
        volumes: inform(lvmVolumes),
        classes: inform(storageClasses),
        csiNodes: inform(csiNodes),
        published: inform(csiStorageCapacities, NAMESPACE),
        minWriteIntervalMs: 0,
        backoff: { startMs: 2, capMs: 20 },
        onReconciled: ({ key, error }: { key: string; error?: unknown }) => {
          turns.push(key);
          if (error !== undefined) failures.push(error);
        },
        ...more,
      };
      started.push(new CapacityPublisher(options).run(signal));
      running.push(...started);
      const { nodes, volumes, classes, csiNodes: registered, published } = options;
      await Promise.all([nodes, volumes, classes, registered, published].map(({ synced }) => synced));
      return {
        options,
        turns,
        failures,
        end: async () => {
          end.abort();
          await Promise.all(started);
        },
      };
    },
    async [Symbol.asyncDispose]() {
      stop.abort();
      await Promise.all(running);
      for (const one of clients) one[Symbol.dispose]();
      await api[Symbol.asyncDispose]();
    },
  };
  for (const name of ["a", "b"]) s.addNode(name);
  s.addClass("fast");
  return s;
}

/**
 * Returns a `getCapacity` that answers with the free bytes of a node: in one group, or, with the parameter `groups: two`, half
 * of them in each of two.
 */
export function capacityOf(free: ReadonlyMap<string, bigint>): CapacityClient["getCapacity"] {
  return ({ parameters, fsType, topology }) => {
    if (parameters["stripes"] !== undefined) {
      return Promise.reject(new CallError(Code.InvalidArgument, "parameter stripes: unknown"));
    }
    const available = free.get(topology[TOPOLOGY_KEY]!) ?? 0n;
    const largest = parameters["groups"] === "two" ? available / 2n : available;
    return Promise.resolve({ available, largest, smallest: fsType === "xfs" ? 2n * GiB : 1n });
  };
}
