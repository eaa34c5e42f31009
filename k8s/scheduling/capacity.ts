/**
 * Tells the scheduler what the nodes have room for: a CSIStorageCapacity for each node and class.
 *
 * It works under a Lease of its own. The official provisioner tells of capacity as well, under the provisioner's Lease; but only
 * when it is told to, and once a minute. So this loop goes on beside one that takes the provisioner's place, and an official one
 * that also tells of capacity can take both places.
 *
 * As that one does, it tells of every node on which the driver is registered, whatever `allowedTopologies` says: the scheduler
 * looks at that itself, and first.
 *
 * @module
 */

import { capacityName, capacityObject, type CapacityStep, nextStep, offeredBy, type Place } from "./capacity_object.ts";
import { centralLoop, type CentralLoopOptions } from "../sidecars/controller_options.ts";
import { hasDriver } from "../sidecars/claim_topology.ts";
import { FS_TYPE } from "../sidecars/class_parameters.ts";
import { isAlreadyExists, isConflict, isNotFound } from "../client/client.ts";
import { systemClock } from "../runtime/clock.ts";
import { CallError, type Capacity, type CapacityCalls, Code } from "../sidecars/csi_client.ts";
import type { Informer, WaitOptions } from "../runtime/informer.ts";
import type { LvmNode, LvmVolume } from "../api/lvm_objects.ts";
import {
  type CsiNode,
  csiStorageCapacities,
  type CsiStorageCapacity,
  keyFor,
  type StorageClass,
} from "../api/objects.ts";

/** What the publisher works with. The informers are started, and shared, by whoever supplies them. */
export interface CapacityOptions extends CentralLoopOptions {
  /** The label of a node that is its topology. */
  readonly topologyKey: string;
  /** Where the objects are. */
  readonly namespace: string;
  /** The driver. */
  readonly csi: CapacityCalls;
  /** What the nodes have. */
  readonly nodes: Informer<LvmNode>;
  /** The volumes, which take of it. */
  readonly volumes: Informer<LvmVolume>;
  /** The classes. */
  readonly classes: Informer<StorageClass>;
  /** What is registered on the nodes. */
  readonly csiNodes: Informer<CsiNode>;
  /** The objects of that namespace. */
  readonly published: Informer<CsiStorageCapacity>;
  /** How long an object is left as it was written, in milliseconds, while its figures change; 1 s. */
  readonly everyMs?: number | undefined;
}

/** What an object is about. */
interface Subject {
  readonly node: LvmNode;
  readonly storageClass: StorageClass;
}

/** How many objects are written at once: a burst of volumes changes all of a node's, and others wait for the API server, too. */
const PARALLEL = 10;

/** How waiting grows with the failures of an object: what is not told misleads the scheduler. */
const BACKOFF = { startMs: 1_000, capMs: 30_000 };

/** Milliseconds in which a change that was made should be seen by the informer. */
const SEEN_WITHIN_MS = 10_000;

/** Keeps what the scheduler is told true. Two of them at work write the same, under the same names. */
export class CapacityPublisher {
  readonly #options: CapacityOptions;
  readonly #everyMs: number;
  /** What the names of objects stand for. */
  readonly #places = new Map<string, Place>();
  /** When objects were last written, in the clock's milliseconds. */
  readonly #written = new Map<string, number>();
  #stopping: AbortSignal | undefined;

  /** Does nothing before {@linkcode CapacityPublisher.run}. */
  constructor(options: CapacityOptions) {
    this.#options = options;
    this.#everyMs = options.everyMs ?? 1_000;
  }

  /** Works until the signal is aborted, and comes back when nothing is being worked on any more. It may be run again. */
  async run(signal: AbortSignal): Promise<void> {
    const { nodes, volumes, classes, csiNodes, published } = this.#options;
    this.#stopping = signal;
    this.#places.clear();
    this.#written.clear();
    const { parallel = PARALLEL, backoff = BACKOFF } = this.#options;
    const options = { ...this.#options, parallel, backoff };
    await centralLoop("capacity", options, (name, ending) => this.#reconcile(name, ending))
      .follow(nodes, ({ metadata }) => this.#onNode(metadata.name))
      .follow(csiNodes, ({ metadata }) => this.#onNode(metadata.name))
      .follow(volumes, ({ spec }) => this.#onNode(spec.nodeName))
      .follow(classes, ({ metadata }) => this.#ofClass(metadata.name))
      .follow(published, ({ metadata }) => [metadata.name])
      .run(signal);
  }

  /**
   * Waits until a node is not said to have room for so many bytes of a class, so that the scheduler does not choose it again; no
   * longer than the options say.
   */
  async withdrawn(place: Place, bytes: bigint, options: WaitOptions): Promise<void> {
    const { driverName, published } = this.#options;
    const isWithdrawn = (now?: CsiStorageCapacity) => now === undefined || offeredBy(now) < bytes;
    await published.seen(this.#key(capacityName(driverName, place)), isWithdrawn, options);
  }

  #onNode(nodeName: string): string[] {
    const { driverName, classes } = this.#options;
    const ours = classes.list().filter(({ provisioner }) => provisioner === driverName);
    return ours.map(({ metadata }) => this.#name({ nodeName, className: metadata.name }));
  }

  #ofClass(className: string): string[] {
    return this.#options.nodes.list().map(({ metadata }) => this.#name({ nodeName: metadata.name, className }));
  }

  #name(place: Place): string {
    const name = capacityName(this.#options.driverName, place);
    this.#places.set(name, place);
    return name;
  }

  #key(name: string): string {
    return keyFor({ name, namespace: this.#options.namespace });
  }

  async #reconcile(name: string, signal: AbortSignal): Promise<void | { again: number }> {
    const { driverName, published, clock = systemClock } = this.#options;
    const early = (this.#written.get(name) ?? -Infinity) + this.#everyMs - clock.now();
    if (early > 0) return { again: early };
    const subject = this.#subjectOf(name);
    const wanted = subject && await this.#wanted(subject, signal);
    const there = published.get(this.#key(name));
    const step = nextStep(wanted, there, driverName);
    if (step !== "nothing") {
      this.#written.set(name, clock.now());
      await this.#take(step, { wanted, there }, signal);
    } else if (subject === undefined) {
      this.#places.delete(name);
      this.#written.delete(name);
    }
  }

  /** The node and the class that the object of a name is about; undefined where there should be none. */
  #subjectOf(name: string): Subject | undefined {
    const { driverName, classes, nodes, csiNodes } = this.#options;
    const { nodeName = "", className = "" } = this.#places.get(name) ?? {};
    const [storageClass, node, csiNode] = [classes.get(className), nodes.get(nodeName), csiNodes.get(nodeName)];
    if (storageClass?.provisioner !== driverName || node?.spec.driverName !== driverName) return undefined;
    if (csiNode === undefined || !hasDriver(csiNode, driverName)) return undefined;
    return { node, storageClass };
  }

  /** The object as it should be. */
  async #wanted({ node, storageClass }: Subject, signal: AbortSignal): Promise<CsiStorageCapacity> {
    const { driverName, topologyKey, namespace } = this.#options;
    const capacity = await this.#capacity(storageClass, node.metadata.name, signal);
    const className = storageClass.metadata.name;
    return capacityObject({ driverName, topologyKey, namespace, node, className, capacity });
  }

  async #capacity({ parameters = {} }: StorageClass, nodeName: string, signal: AbortSignal): Promise<Capacity> {
    const { csi, topologyKey } = this.#options;
    const topology = { [topologyKey]: nodeName };
    try {
      return await csi.getCapacity({ parameters, fsType: parameters[FS_TYPE] ?? "", topology }, { signal });
    } catch (error) {
      if (!(error instanceof CallError) || error.code !== Code.InvalidArgument) throw error;
      // A claim of a class that is wrong is to get as far as the provisioner, which says what is wrong with it.
      return await csi.getCapacity({ parameters: {}, fsType: "", topology }, { signal });
    }
  }

  /** Does it, and waits until the copy asks for something else, so that it is not done again. */
  async #take(
    step: Exclude<CapacityStep, "nothing">,
    { wanted, there }: { wanted: CsiStorageCapacity | undefined; there: CsiStorageCapacity | undefined },
    signal: AbortSignal,
  ): Promise<void> {
    const { driverName, published } = this.#options;
    if (step === "create") await this.#create(wanted!, signal);
    if (step === "patch") await this.#patch(wanted!, signal);
    if (step === "delete") await this.#delete(there!, signal);
    const { name } = (wanted ?? there)!.metadata;
    const isDone = (now?: CsiStorageCapacity) => nextStep(wanted, now, driverName) !== step;
    await published.seen(this.#key(name), isDone, { signal: this.#stopping, timeoutMs: SEEN_WITHIN_MS });
  }

  async #create(object: CsiStorageCapacity, signal: AbortSignal): Promise<void> {
    try {
      await this.#options.client.create(csiStorageCapacities, object, { signal });
    } catch (error) {
      if (!isAlreadyExists(error)) throw error; // else the copy is behind: what is there has a turn when it shows
    }
  }

  async #patch({ metadata, capacity, maximumVolumeSize }: CsiStorageCapacity, signal: AbortSignal): Promise<void> {
    const { name, namespace, labels, ownerReferences } = metadata;
    const merge = { metadata: { labels, ownerReferences }, capacity, maximumVolumeSize };
    try {
      await this.#options.client.patch(csiStorageCapacities, { name, namespace }, { merge, signal });
    } catch (error) {
      if (!isNotFound(error)) throw error; // else the copy will say that it is gone
    }
  }

  async #delete({ metadata: { name, namespace, uid } }: CsiStorageCapacity, signal: AbortSignal): Promise<void> {
    try {
      await this.#options.client.delete(csiStorageCapacities, { name, namespace }, { uid, signal });
    } catch (error) {
      if (!isNotFound(error) && !isConflict(error)) throw error; // else it is gone, or another one
    }
  }
}
