/**
 * Publishes the capacity of the nodes to the scheduler: a CSIStorageCapacity for each node and class.
 *
 * The publisher has a Lease of its own. The official provisioner publishes capacity as well, under the provisioner's
 * Lease, but only when it is configured to, and once a minute. So the publisher runs beside a provisioner that replaces
 * the official one; an official one that also publishes capacity can replace both.
 *
 * As the official one does, it publishes the capacity of every node on which the driver is registered, whatever
 * `allowedTopologies` has: the scheduler checks that itself, and first.
 *
 * @module
 */

import {
  type CapacityKey,
  capacityName,
  type CapacityStep,
  csiStorageCapacityFor,
  maximumVolumeSizeOf,
  nextCapacityStep,
} from "./capacity_object.ts";
import { sidecarController, type SidecarOptions } from "../sidecars/sidecar_controller.ts";
import type { AgentLiveness } from "./agent_liveness.ts";
import { hasDriver } from "../sidecars/claim_topology.ts";
import { FS_TYPE } from "../sidecars/class_parameters.ts";
import { isAlreadyExists, orAbsent, orAbsentOrChanged } from "../client/client.ts";
import { systemClock } from "../../base/clock.ts";
import { CallError, type Capacity, type CapacityClient, Code } from "../sidecars/csi_client.ts";
import type { Controller, ReconcileOutcome } from "../runtime/controller.ts";
import type { Informer, WaitOptions } from "../runtime/informer.ts";
import type { LvmNode, LvmVolume } from "../api/lvm_objects.ts";
import {
  type CsiNode,
  csiStorageCapacities,
  type CsiStorageCapacity,
  keyOfName,
  type StorageClass,
} from "../api/objects.ts";

/** Options of the publisher. The caller starts and shares the informers. */
export interface CapacityOptions extends SidecarOptions {
  /** The label of a node that is its topology. */
  readonly topologyKey: string;
  /** The namespace of the objects. */
  readonly namespace: string;
  /** The driver. */
  readonly csi: CapacityClient;
  /** The LVMNodes. */
  readonly nodes: Informer<LvmNode>;
  /** The LVMVolumes, which take of their space. */
  readonly volumes: Informer<LvmVolume>;
  /** The classes. */
  readonly classes: Informer<StorageClass>;
  /** The CSINodes, which list the drivers of each node. */
  readonly csiNodes: Informer<CsiNode>;
  /** The objects of that namespace. */
  readonly published: Informer<CsiStorageCapacity>;
  /** Which agents are silent: their nodes offer no capacity. */
  readonly agents: Pick<AgentLiveness, "subscribe">;
  /** The minimum interval between two writes of an object, in milliseconds; 1 s. */
  readonly minWriteIntervalMs?: number | undefined;
}

/** The node and the class of an object. */
interface NodeAndClass {
  readonly node: LvmNode;
  readonly storageClass: StorageClass;
}

/**
 * The number of objects that are written at the same time. A burst of volumes changes all objects of a node, and other
 * clients wait for the API server, too.
 */
const MAX_CONCURRENT_WRITES = 10;

/** Keeps the published capacity up to date. Two of them at the same time write the same objects. */
export class CapacityPublisher {
  readonly #options: CapacityOptions;
  readonly #minWriteIntervalMs: number;
  /** The node and class of each object, by the object's name. */
  readonly #keys = new Map<string, CapacityKey>();
  /** The names of the objects of each node, by class. A name is a hash, and every change of a volume asks for it. */
  readonly #names = new Map<string, Map<string, string>>();
  /** The time at which each object was last written, in the clock's milliseconds. */
  readonly #writtenAtMs = new Map<string, number>();
  readonly #controller: Controller;

  /** Creates it; nothing runs before {@linkcode CapacityPublisher.run}. */
  constructor(options: CapacityOptions) {
    this.#options = options;
    this.#minWriteIntervalMs = options.minWriteIntervalMs ?? 1_000;
    const { published, parallel = MAX_CONCURRENT_WRITES } = options;
    // Without an object, the scheduler refuses every pod of a new class. With an old one, it is right for most.
    const isUrgent = (name: string) => this.#keys.has(name) && published.get(this.#cacheKeyOf(name)) === undefined;
    const controllerOptions = { ...options, parallel, isUrgent, waitsForNodes: false };
    this.#controller = sidecarController(
      "capacity",
      controllerOptions,
      (name, signal) => this.#reconcile(name, signal),
    );
  }

  /** Runs until the signal is aborted and all work in progress has ended. */
  async run(signal: AbortSignal): Promise<void> {
    const { nodes, volumes, classes, csiNodes, published, agents } = this.#options;
    agents.subscribe((nodeName) => {
      for (const name of this.#namesOfNode(nodeName)) this.#controller.add(name);
    }, signal);
    await this.#controller
      .watch(nodes, ({ metadata }) => this.#namesOfNode(metadata.name))
      // An object needs an LVMNode, so the nodes enqueue all objects at first.
      .watch(csiNodes, ({ metadata }) => this.#namesOfNode(metadata.name), { replay: false })
      .watch(volumes, ({ spec }) => this.#namesOfNode(spec.nodeName), { replay: false })
      .watch(classes, ({ metadata }) => this.#namesOfClass(metadata.name), { replay: false })
      .watch(published, ({ metadata }) => [metadata.name])
      .run(signal);
  }

  #namesOfNode(nodeName: string): string[] {
    const { driverName, classes } = this.#options;
    const ownClasses = classes.list().filter(({ provisioner }) => provisioner === driverName);
    return ownClasses.map(({ metadata }) => this.#register({ nodeName, className: metadata.name }));
  }

  #namesOfClass(className: string): string[] {
    return this.#options.nodes.list().map(({ metadata }) => this.#register({ nodeName: metadata.name, className }));
  }

  #register(key: CapacityKey): string {
    const { nodeName, className } = key;
    const names = this.#names.get(nodeName) ?? new Map<string, string>();
    const name = names.get(className) ?? capacityName(this.#options.driverName, key);
    this.#names.set(nodeName, names.set(className, name));
    this.#keys.set(name, key);
    return name;
  }

  /** Forgets an object that should not exist, and does not. */
  #forget(name: string): void {
    const { nodeName = "", className = "" } = this.#keys.get(name) ?? {};
    const names = this.#names.get(nodeName);
    names?.delete(className);
    if (names?.size === 0) this.#names.delete(nodeName);
    this.#keys.delete(name);
    this.#writtenAtMs.delete(name);
  }

  #cacheKeyOf(name: string): string {
    return keyOfName({ name, namespace: this.#options.namespace });
  }

  async #reconcile(name: string, signal: AbortSignal): Promise<ReconcileOutcome> {
    const { driverName, published, clock = systemClock } = this.#options;
    const remainingMs = (this.#writtenAtMs.get(name) ?? -Infinity) + this.#minWriteIntervalMs - clock.now();
    if (remainingMs > 0) return { requeueAfterMs: remainingMs };
    const target = this.#targetOf(name);
    const desired = target && await this.#desiredObject(target, signal);
    const current = published.get(this.#cacheKeyOf(name));
    const step = nextCapacityStep(desired, current, driverName);
    if (step !== "nothing") {
      this.#writtenAtMs.set(name, clock.now());
      return await this.#executeStep(step, { desired, current }, signal);
    }
    if (target !== undefined) return { nothingToDo: "the object has this capacity" };
    this.#forget(name);
    return { nothingToDo: "there is no object, and its node or its class is gone" };
  }

  /** Returns the node and the class of an object, or `undefined` when the object should not exist. */
  #targetOf(name: string): NodeAndClass | undefined {
    const { driverName, classes, nodes, csiNodes } = this.#options;
    const { nodeName = "", className = "" } = this.#keys.get(name) ?? {};
    const [storageClass, node, csiNode] = [classes.get(className), nodes.get(nodeName), csiNodes.get(nodeName)];
    if (storageClass?.provisioner !== driverName || node?.spec.driverName !== driverName) return undefined;
    if (csiNode === undefined || !hasDriver(csiNode, driverName)) return undefined;
    return { node, storageClass };
  }

  /** Returns the desired object. */
  async #desiredObject({ node, storageClass }: NodeAndClass, signal: AbortSignal): Promise<CsiStorageCapacity> {
    const { driverName, topologyKey, namespace } = this.#options;
    const capacity = await this.#getCapacity(storageClass, node.metadata.name, signal);
    const className = storageClass.metadata.name;
    return csiStorageCapacityFor({ driverName, topologyKey, namespace, node, className, capacity });
  }

  async #getCapacity({ parameters = {} }: StorageClass, nodeName: string, signal: AbortSignal): Promise<Capacity> {
    const { csi, topologyKey } = this.#options;
    const topology = { [topologyKey]: nodeName };
    try {
      return await csi.getCapacity({ parameters, fsType: parameters[FS_TYPE] ?? "", topology }, { signal });
    } catch (error) {
      if (!(error instanceof CallError) || error.code !== Code.InvalidArgument) throw error;
      // A claim of an invalid class has to reach the provisioner, which reports what is wrong with it.
      return await csi.getCapacity({ parameters: {}, fsType: "", topology }, { signal });
    }
  }

  /** Executes a step, and waits until the cache asks for another one, so that it is not executed again. */
  async #executeStep(
    step: Exclude<CapacityStep, "nothing">,
    { desired, current }: { desired: CsiStorageCapacity | undefined; current: CsiStorageCapacity | undefined },
    signal: AbortSignal,
  ): Promise<void> {
    const { driverName, published } = this.#options;
    if (step === "create") await this.#createObject(desired!, signal);
    if (step === "patch") await this.#patchObject(desired!, signal);
    if (step === "delete") await this.#deleteObject(current!, signal);
    const { name } = (desired ?? current)!.metadata;
    const isObserved = (now?: CsiStorageCapacity) => nextCapacityStep(desired, now, driverName) !== step;
    await this.#controller.waitForCache(published, this.#cacheKeyOf(name), isObserved);
  }

  async #createObject(object: CsiStorageCapacity, signal: AbortSignal): Promise<void> {
    try {
      await this.#options.client.create(csiStorageCapacities, object, { signal });
    } catch (error) {
      if (!isAlreadyExists(error)) throw error; // otherwise the cache is stale: the object is reconciled when it shows
    }
  }

  async #patchObject(
    { metadata, capacity, maximumVolumeSize }: CsiStorageCapacity,
    signal: AbortSignal,
  ): Promise<void> {
    const { name, namespace, labels, ownerReferences } = metadata;
    const merge = { metadata: { labels, ownerReferences }, capacity, maximumVolumeSize };
    // The cache will show when it is gone.
    await orAbsent(this.#options.client.patch(csiStorageCapacities, { name, namespace }, { merge, signal }));
  }

  async #deleteObject({ metadata: { name, namespace, uid } }: CsiStorageCapacity, signal: AbortSignal): Promise<void> {
    const { client } = this.#options;
    await orAbsentOrChanged(client.delete(csiStorageCapacities, { name, namespace }, { uid, signal }));
  }
}

/**
 * Waits until the published capacity of a node for a class is less than a number of bytes, so that the scheduler does
 * not choose it again; no longer than the options say.
 */
export async function waitForCapacityBelow(
  { driverName, namespace, published }: Pick<CapacityOptions, "driverName" | "namespace" | "published">,
  key: CapacityKey,
  bytes: bigint,
  options: WaitOptions,
): Promise<void> {
  const isBelow = (now?: CsiStorageCapacity) => now === undefined || maximumVolumeSizeOf(now) < bytes;
  await published.waitForCache(keyOfName({ name: capacityName(driverName, key), namespace }), isBelow, options);
}
