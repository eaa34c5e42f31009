/**
 * Waiting for what happens in the cluster, by watching it.
 *
 * @module
 */

import { HttpClient } from "../../../../k8s/client/http_client.ts";
import { Informer } from "../../../../k8s/runtime/informer.ts";
import {
  type LvmNode,
  lvmNodes,
  type LvmSnapshot,
  lvmSnapshots,
  type LvmVolume,
  lvmVolumes,
} from "../../../../k8s/api/lvm_objects.ts";
import {
  type Event,
  events,
  keyOfName,
  type KubeObject,
  type PersistentVolume,
  type PersistentVolumeClaim,
  persistentVolumeClaims,
  persistentVolumes,
  type Pod,
  pods,
  type Resource,
} from "../../../../k8s/api/objects.ts";
import {
  type VolumeGroupSnapshotContent,
  volumeGroupSnapshotContents,
  type VolumeSnapshotContent,
  volumeSnapshotContents,
} from "../../../../k8s/api/snapshot_objects.ts";
import { type LvmMove, lvmMoves } from "../../../../k8s/handover/moves.ts";
import type { ControlPlane } from "../../../rig/control_plane.ts";

/** The time limit of a wait, in milliseconds. Everything in the guest is slow. On a busy machine, set WAIT_SECONDS. */
export const WAIT_MS = 1000 * Number(Deno.env.get("WAIT_SECONDS") ?? 300);

/** The fields of a VolumeSnapshot that the tests read. */
export interface VolumeSnapshot extends KubeObject {
  readonly spec?: { readonly source?: { readonly persistentVolumeClaimName?: string } };
  readonly status?: {
    readonly boundVolumeSnapshotContentName?: string;
    readonly readyToUse?: boolean;
    readonly restoreSize?: string;
    readonly creationTime?: string;
    readonly error?: { readonly message?: string };
  };
}

const volumeSnapshots: Resource<VolumeSnapshot> = {
  group: volumeSnapshotContents.group,
  version: "v1",
  plural: "volumesnapshots",
  kind: "VolumeSnapshot",
  namespaced: true,
};

/** The fields of a VolumeGroupSnapshot that the tests read. */
export interface VolumeGroupSnapshot extends KubeObject {
  readonly status?: {
    readonly boundVolumeGroupSnapshotContentName?: string;
    readonly readyToUse?: boolean;
    readonly error?: { readonly message?: string };
  };
}

const volumeGroupSnapshots: Resource<VolumeGroupSnapshot> = {
  group: volumeGroupSnapshotContents.group,
  version: "v1",
  plural: "volumegroupsnapshots",
  kind: "VolumeGroupSnapshot",
  namespaced: true,
};

/** The kinds of objects that tests can wait for. */
export interface Kinds {
  Pod: Pod;
  PersistentVolumeClaim: PersistentVolumeClaim;
  PersistentVolume: PersistentVolume;
  Event: Event;
  LVMVolume: LvmVolume;
  LVMSnapshot: LvmSnapshot;
  LVMNode: LvmNode;
  LVMMove: LvmMove;
  VolumeSnapshot: VolumeSnapshot;
  VolumeSnapshotContent: VolumeSnapshotContent;
  VolumeGroupSnapshot: VolumeGroupSnapshot;
  VolumeGroupSnapshotContent: VolumeGroupSnapshotContent;
}

/** The name of a kind. */
export type Kind = keyof Kinds;

const RESOURCES: { [K in Kind]: Resource<Kinds[K]> } = {
  Pod: pods,
  PersistentVolumeClaim: persistentVolumeClaims,
  PersistentVolume: persistentVolumes,
  Event: events,
  LVMVolume: lvmVolumes,
  LVMSnapshot: lvmSnapshots,
  LVMNode: lvmNodes,
  LVMMove: lvmMoves,
  VolumeSnapshot: volumeSnapshots,
  VolumeSnapshotContent: volumeSnapshotContents,
  VolumeGroupSnapshot: volumeGroupSnapshots,
  VolumeGroupSnapshotContent: volumeGroupSnapshotContents,
};

/** Watches the objects of one namespace, and those beyond all namespaces. */
export class ObjectWatcher {
  readonly #namespace: string;
  readonly #client: HttpClient;
  readonly #informers = new Map<Kind, { informer: unknown; running: Promise<void> }>();
  readonly #stop = new AbortController();

  /** Creates a watcher. It sends its first request when something is waited for. */
  constructor({ server, token, ca }: ControlPlane, namespace: string) {
    this.#namespace = namespace;
    const access = { url: server, token: { text: token }, ca: { text: ca } };
    this.#client = new HttpClient(access, { userAgent: `denolith/test (${namespace})` });
  }

  /** Returns the informer of a kind, which runs from the first call on. */
  informer<K extends Kind>(kind: K): Informer<Kinds[K]> {
    const known = this.#informers.get(kind);
    if (known !== undefined) return known.informer as Informer<Kinds[K]>;
    // Events of what has no namespace are in "default".
    const isNamespaced = RESOURCES[kind].namespaced && kind !== "Event";
    const informer = new Informer<Kinds[K]>(
      this.#client,
      RESOURCES[kind] as Resource<Kinds[K]>,
      isNamespaced ? { namespace: this.#namespace } : {},
    );
    this.#informers.set(kind, { informer, running: informer.start(this.#stop.signal) });
    return informer;
  }

  /**
   * Waits until something holds of an object, or of its absence.
   *
   * @param description is waited for, in the words of the error
   * @throws {Error} when it takes too long, with the object's state and its events
   */
  async waitFor<K extends Kind>(
    kind: K,
    name: string,
    predicate: (object: Kinds[K] | undefined) => boolean,
    description: string,
  ): Promise<Kinds[K]> {
    const informer = this.informer(kind);
    const key = keyOfName({ name, namespace: RESOURCES[kind].namespaced ? this.#namespace : undefined });
    try {
      const found = await informer.waitFor(key, predicate, { signal: this.#stop.signal, timeoutMs: WAIT_MS });
      return found as Kinds[K];
    } catch (cause) {
      this.#stop.signal.throwIfAborted();
      const why = (cause as Error).message;
      const eventLines = formatEvents(await this.events(kind, name));
      throw new Error(`wait until ${kind} ${name} ${description}: ${why}: ${describe(informer.get(key))}${eventLines}`);
    }
  }

  /** Returns the events of an object, as far as they are known. */
  async events(kind: Kind, name: string): Promise<Event[]> {
    const informer = this.informer("Event");
    await informer.synced;
    return informer.list().filter((event) => this.#isEventOf(event, kind, name));
  }

  /**
   * Waits for an event of an object.
   *
   * @throws {Error} when none comes in time, with those that came
   */
  async waitForEvent(kind: Kind, name: string, reason: string, message: RegExp = /./): Promise<Event> {
    const matches = (event: Event) =>
      this.#isEventOf(event, kind, name) && event.reason === reason && message.test(event.message ?? "");
    const { promise, resolve } = Promise.withResolvers<Event | undefined>();
    const unsubscribe = this.informer("Event").subscribe((_key, now) => now && matches(now) && resolve(now));
    const timer = setTimeout(() => resolve(undefined), WAIT_MS);
    const found = await promise;
    clearTimeout(timer);
    unsubscribe();
    if (found !== undefined) return found;
    const eventLines = formatEvents(await this.events(kind, name));
    throw new Error(`wait for event ${reason} ${message} of ${kind} ${name}: it did not come; these did:${eventLines}`);
  }

  /** Ends all watches. */
  async close(): Promise<void> {
    this.#stop.abort(new Error(`watching ${this.#namespace} has ended`));
    await Promise.all([...this.#informers.values()].map(({ running }) => running));
    this.#client[Symbol.dispose]();
  }

  #isEventOf({ involvedObject: of }: Event, kind: Kind, name: string): boolean {
    const namespace = RESOURCES[kind].namespaced ? this.#namespace : undefined;
    return of.kind === kind && of.name === name && (namespace === undefined || of.namespace === namespace);
  }
}

/** Describes an object for the error of a wait: its status, or that there is none. */
function describe(object: KubeObject | undefined): string {
  if (object === undefined) return "it is not there";
  const { status, metadata: { deletionTimestamp, finalizers } } = object as KubeObject & { status?: unknown };
  return JSON.stringify({ status, deletionTimestamp, finalizers });
}

function formatEvents(events: readonly Event[]): string {
  return events.map(({ reason, message }) => `\n  ${reason}: ${message}`).join("");
}
