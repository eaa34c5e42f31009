/**
 * What moves volumes, over a fake API server without agents: a test puts what agents would write.
 *
 * @module
 */

import { parseGroupList } from "../../../csi/group_list.ts";
import { snapshotIdOf, transferSnapshotName } from "../../../base/ids.ts";
import { FULL_COW } from "../../../lvm/settings/cow_size.ts";
import {
  type LvmNode,
  lvmNodes,
  lvmSnapshots,
  type LvmVolume,
  lvmVolumes,
  MOVE_ANNOTATION,
} from "../../../k8s/api/lvm_objects.ts";
import {
  csiNodes,
  type KubeObject,
  nodes,
  persistentVolumeClaims,
  persistentVolumes,
  type Resource,
  storageClasses,
} from "../../../k8s/api/objects.ts";
import { heldConditions } from "../../../k8s/api/volume_conditions.ts";
import { formatGrant, grantAnnotation } from "../../../k8s/api/transfers.ts";
import { copySpecOf } from "../../../k8s/api/volume_mapping.ts";
import { HttpClient } from "../../../k8s/client/http_client.ts";
import { MoveGarbageCollector } from "../../../k8s/handover/garbage_collector.ts";
import { Mover, type MoverOptions } from "../../../k8s/handover/mover.ts";
import { copyIdOf, copyRequestName, type LvmMove, lvmMoves, MOVE_FINALIZER } from "../../../k8s/handover/moves.ts";
import { affinityTo } from "../../../k8s/handover/persistent_volume.ts";
import { PROVISIONED_BY_ANNOTATION } from "../../../k8s/provisioner/persistent_volume.ts";
import type { EventRecorder } from "../../../k8s/runtime/events.ts";
import { Informer } from "../../../k8s/runtime/informer.ts";
import { FakeApiServer } from "./api_server.ts";
import { FakeClock } from "../clock.ts";
import { waitUntil } from "./control_plane.ts";
import { requireWakeUps } from "./wake_ups.ts";
import { KEY, move, NAME, RECORD } from "./move_objects.ts";

/** The driver. */
export const MOVE_DRIVER = "d";

/** Returns an LVMNode that reports a volume group `data`, and takes part in transfers. */
export function lvmNodeOf(name: string, { free = "1Gi", driver = MOVE_DRIVER, transfers = true } = {}): LvmNode {
  const physicalVolumes = [{ uuid: "pv", free }];
  const group = { name: "data", uuid: "group", size: "1Gi", free, extentSize: "4Mi", writeable: true };
  const transfer = { address: "192.0.2.1:1", certificate: "c", validUntil: "2200-01-01T00:00:00Z" };
  return {
    metadata: { name },
    spec: { driverName: driver },
    status: {
      total: { free },
      volumeGroups: [{ ...group, missingPVCount: 0, physicalVolumes, thinPools: [], volumes: [] }],
      ...(transfers && { transfer }),
    },
  } as unknown as LvmNode;
}

/** Returns the volume on node `a`, as its agent reports it. */
export function movableVolume(more: Partial<LvmVolume> = {}): LvmVolume {
  return {
    metadata: { name: NAME, uid: "v", generation: 7 },
    spec: {
      ...{ driverName: MOVE_DRIVER, requestName: "pv", nodeName: "a", size: "32Mi", volumeGroupPreference: "mostFree" },
      ...{ volumeMode: "Block", shared: false, erase: "none" },
    },
    status: { state: "Ready", volumeGroup: "data", volumeGroupUUID: "group", lvUUID: "lv", size: "32Mi" },
    ...more,
  } as LvmVolume;
}

/** The copy of the move. */
export const COPY = copyIdOf(move());

/** Returns the volume, held for the move, while nobody uses it. */
export function heldVolume(more: Partial<LvmVolume> = {}): LvmVolume {
  const { metadata, spec, ...rest } = movableVolume();
  const object = {
    ...rest,
    metadata: { ...metadata, annotations: { [MOVE_ANNOTATION]: "m" } },
    spec: { ...spec, held: true },
  } as LvmVolume;
  return { ...object, status: { ...object.status, conditions: heldConditions(object, {}) }, ...more };
}

/** Returns the copy, which is complete. */
export function completeCopy(): LvmVolume {
  const { spec, status } = movableVolume();
  const snapshot = snapshotIdOf(transferSnapshotName(COPY, 0, 7));
  return {
    metadata: { name: COPY, uid: "k", generation: 1 },
    spec: {
      ...{ ...spec, nodeName: "b", requestName: copyRequestName(move()), source: { volume: NAME } },
      copy: copySpecOf({ round: 0, snapshot, last: true }),
    },
    status: { ...status, lvUUID: "copied" },
  } as LvmVolume;
}

/** Makes the objects those of a move that is about to record the PersistentVolume. */
export function complete(s: MoverHarness): void {
  s.restore(lvmVolumes, heldVolume());
  s.restore(lvmVolumes, completeCopy());
}

/** Returns what a move has that has begun. */
export const begun = (status: LvmMove["status"] = {}): Partial<LvmMove> => ({
  metadata: { ...move().metadata, finalizers: [MOVE_FINALIZER] },
  status: { state: "Copying", copyMode: "Offline", ...status },
});
/** What a move has when its volume is to be removed. */
export const removing = begun({
  ...{ ...RECORD, state: "Removing", removing: true },
  volume: { metadata: {}, spec: heldVolume().spec },
});

/** The parts of the harness that fail, with what they fail. */
export interface MoverFailures {
  begin?: Error | (() => Error);
  take?: Error;
  delete?: Error;
}

/** The harness: a bound claim with a volume on node `a`, and nodes `b` and `c`. */
export class MoverHarness implements AsyncDisposable {
  readonly api = FakeApiServer.start({ resources: [lvmVolumes, lvmSnapshots, lvmNodes, lvmMoves] });
  /** The client of the test. */
  readonly client: HttpClient = new HttpClient({ url: this.api.url }, { userAgent: "denolith/test (administrator)" });
  /** The events: kind, type, reason and message. */
  readonly events: string[] = [];
  /** What was asked of the services of volumes and transfers. */
  readonly calls: string[] = [];
  /** The uids of the LVMVolumes that were to be deleted. */
  readonly deleted: string[] = [];
  /** What fails. */
  readonly failures: MoverFailures = {};
  /** The nodes whose agents are silent. */
  readonly silent = new Set<string>();
  /** The definitions that are too old. */
  outdatedDefinitions: string | undefined;
  /** The time. */
  readonly clock = new FakeClock();
  /** The moves that were looked at, and why that failed. */
  readonly reconciled: { readonly key: string; readonly error: unknown }[] = [];
  readonly #stop = new AbortController();
  readonly #tasks: Promise<void>[] = [];
  readonly #moverClient: HttpClient;

  private constructor() {
    this.#moverClient = new HttpClient({ url: this.api.url }, { userAgent: "denolith/test (controller) mover" });
    for (const name of ["a", "b", "c"]) {
      this.api.put(nodes, { metadata: { name, labels: { [KEY]: name } } });
      this.register(name);
      this.restore(lvmNodes, lvmNodeOf(name));
    }
    this.api.put(storageClasses, { metadata: { name: "local" }, provisioner: MOVE_DRIVER });
    this.restore(lvmVolumes, movableVolume());
    const claimRef = { namespace: "n", name: "c", uid: "u" };
    this.restore(persistentVolumeClaims, {
      metadata: claimRef,
      spec: { volumeName: "pv", storageClassName: "local" },
      status: { phase: "Bound" },
    });
    this.restore(persistentVolumes, {
      metadata: { name: "pv", uid: "p", annotations: { [PROVISIONED_BY_ANNOTATION]: MOVE_DRIVER } },
      spec: {
        ...{ claimRef, csi: { driver: MOVE_DRIVER, volumeHandle: NAME }, nodeAffinity: affinityTo("a", KEY) },
        persistentVolumeReclaimPolicy: "Delete",
      },
      status: { phase: "Bound" },
    });
  }

  /**
   * Starts it.
   *
   * @param change changes the objects before the mover sees them
   * @param options.collects whether what is left of moves is removed, in place of moving
   * @param options.isBlind whether its cache has no moves
   */
  static async start(
    change: (s: MoverHarness) => void = () => {},
    options: { readonly collects?: boolean; readonly isBlind?: boolean } = {},
  ): Promise<MoverHarness> {
    const s = new MoverHarness();
    change(s);
    await s.#run(options);
    return s;
  }

  async #run({ collects = false, isBlind = false }: { collects?: boolean; isBlind?: boolean }): Promise<void> {
    const client = this.#moverClient;
    const inform = <T extends KubeObject>(resource: Resource<T>) => {
      const informer = new Informer(client, resource);
      this.#tasks.push(informer.start(this.#stop.signal));
      return informer;
    };
    const record = ({ kind }: KubeObject, type: string, reason: string, message: string) =>
      void this.events.push(`${kind} ${type} ${reason}: ${message}`);
    const informers = {
      moves: inform(lvmMoves),
      lvmVolumes: inform(lvmVolumes),
      lvmNodes: inform(lvmNodes),
      snapshots: inform(lvmSnapshots),
      claims: inform(persistentVolumeClaims),
      persistentVolumes: inform(persistentVolumes),
      classes: inform(storageClasses),
      nodes: inform(nodes),
      csiNodes: inform(csiNodes),
    };
    await Promise.all(Object.values(informers).map(({ synced }) => synced));
    if (isBlind) informers.moves.get = () => undefined;
    const options: MoverOptions = {
      ...{ client, driverName: MOVE_DRIVER, topologyKey: KEY, parseGroups: parseGroupList, ...informers },
      events: { record } as unknown as EventRecorder,
      volumes: {
        begin: ({ id, goal, source }, { allowed }) => {
          this.#call(`begin ${id === copyIdOf(this.move!) ? "copy" : id} on ${allowed}`, this.failures.begin);
          const spec = {
            ...{ ...movableVolume().spec, nodeName: allowed![0]!, requestName: copyRequestName(this.move!) },
            ...{ source: { [source!.kind]: source!.id }, copy: copySpecOf(goal) },
          };
          const metadata = { name: id, uid: "k", generation: 1 };
          this.restore(lvmVolumes, { metadata, spec, status: { state: "Pending" } } as LvmVolume);
          return Promise.resolve();
        },
        delete: (id, { uid = "any" } = {}) => {
          this.deleted.push(uid);
          this.#call(`delete ${id === NAME ? "volume" : "copy"}`, this.failures.delete);
          this.remove(lvmVolumes, id);
          return Promise.resolve();
        },
      },
      transfers: {
        take: ({ name, source, cowSize }, { volume, node }) => {
          this.#call(`take ${cowSize === FULL_COW ? "full" : "small"} snapshot`, this.failures.take);
          const grant = { [grantAnnotation(volume)]: formatGrant({ node, until: 4e12 }) };
          this.restore(lvmSnapshots, {
            metadata: { name: snapshotIdOf(name), uid: name, annotations: grant },
            spec: { driverName: MOVE_DRIVER, requestName: name, nodeName: "a", sourceVolume: source },
          } as never);
          return Promise.resolve();
        },
        discard: (id) => {
          this.#call("discard snapshot");
          this.remove(lvmSnapshots, id);
          return Promise.resolve();
        },
      },
      outdatedDefinitions: () => this.outdatedDefinitions,
      agents: { isSilent: (node) => this.silent.has(node) },
      clock: this.clock,
      onReconciled: ({ key, error }) => void this.reconciled.push({ key, error }),
    };
    const controller = collects ? new MoveGarbageCollector(options) : new Mover(options);
    this.#tasks.push(controller.run(this.#stop.signal));
  }

  #call(text: string, failure?: Error | (() => Error)): void {
    this.calls.push(text);
    if (failure !== undefined) throw typeof failure === "function" ? failure() : failure;
  }

  /** Asks for a move to node `b`. */
  addMove(spec: Partial<LvmMove["spec"]> = {}, more: Partial<LvmMove> = {}): void {
    const object = move();
    const { finalizers: _, ...metadata } = object.metadata;
    this.restore(lvmMoves, { metadata, spec: { ...object.spec, ...spec }, ...more });
  }

  /** Puts an object as it is, with its uid and status. */
  restore<T extends KubeObject>(resource: Resource<T>, object: T): void {
    this.api.restore(resource, { apiVersion: "v1", kind: resource.kind, ...object });
  }

  /** Removes an object. */
  remove(resource: Resource<KubeObject>, name: string, namespace?: string): void {
    this.api.collection(resource).delete({ name, namespace });
  }

  /** Registers the driver on a node, or another one. */
  register(node: string, drivers: readonly string[] = [MOVE_DRIVER]): void {
    const registered = drivers.map((name) => ({ name, nodeID: node, topologyKeys: [KEY] }));
    this.restore(csiNodes, { metadata: { name: node }, spec: { drivers: registered } });
  }

  /** Changes an object that is there. */
  change<T extends KubeObject>(resource: Resource<T>, name: string, how: (object: T) => T): void {
    const found = this.api.objects(resource).find(({ metadata }) => metadata.name === name)!;
    this.restore(resource, how(structuredClone(found)));
  }

  /** Writes the status of the volume that moves. */
  setVolume(status: Partial<NonNullable<LvmVolume["status"]>>, name: string = NAME): void {
    this.change(lvmVolumes, name, (object) => ({ ...object, status: { ...object.status, ...status } as never }));
  }

  /** The move. */
  get move(): LvmMove | undefined {
    return this.api.objects(lvmMoves)[0];
  }

  /** The volume that moves. */
  get volume(): LvmVolume | undefined {
    return this.api.objects(lvmVolumes).find(({ metadata }) => metadata.name === NAME);
  }

  /** Waits until the status of the move says something. Time does not pass. */
  async waitForMessage(text: string): Promise<LvmMove> {
    await this.waitUntil(() => this.move?.status?.message?.includes(text) ?? false, text);
    return this.move!;
  }

  /** Waits until the move is in a state. Time does not pass. */
  async waitForState(state: string): Promise<LvmMove> {
    await this.waitUntil(() => this.move?.status?.state === state, state);
    return this.move!;
  }

  /** Waits until something holds. */
  async waitUntil(condition: () => boolean, what: string): Promise<void> {
    const state = () => `${JSON.stringify(this.move?.status)} ${this.calls} ${this.reconciled.at(-1)?.error}`;
    await waitUntil(condition, () => `${what}: ${state()}`);
  }

  /** Waits until events have been recorded about the LVMMove. @returns the last one of a reason */
  async waitForEvent(reason: string): Promise<string> {
    const found = () => this.events.findLast((text) => text.startsWith("LVMMove") && text.includes(` ${reason}: `));
    await this.waitUntil(() => found() !== undefined, `${reason} in ${this.events}`);
    return found()!;
  }

  /** Lets time pass until something holds. */
  async advanceUntil(condition: () => boolean, what: string): Promise<void> {
    const timer = setInterval(() => void this.clock.advance(1_000), 5);
    await this.waitUntil(condition, what).finally(() => clearInterval(timer));
  }

  /** Waits until the move is looked at once more than now. */
  async waitForReconcile(): Promise<void> {
    const { length } = this.reconciled;
    await waitUntil(() => this.reconciled.length > length, "the mover");
  }

  /** Waits until neither a request came nor a move was looked at for a while. */
  async waitUntilIdle(): Promise<void> {
    const state = () => `${this.api.requests.length} ${this.reconciled.length}`;
    for (let last = ""; last !== state();) {
      last = state();
      for (let turn = 0; turn < 20; turn++) await new Promise((resolve) => setTimeout(resolve, 1));
    }
  }

  /** Stops everything. @throws {Error} when a move waits in silence */
  async [Symbol.asyncDispose](): Promise<void> {
    await using _ = { [Symbol.asyncDispose]: () => this.#end() };
    await requireWakeUps(this.api, { driver: MOVE_DRIVER });
  }

  async #end(): Promise<void> {
    this.#stop.abort();
    await Promise.all(this.#tasks);
    for (const client of [this.client, this.#moverClient]) client[Symbol.dispose]();
    await this.api[Symbol.asyncDispose]();
  }
}
