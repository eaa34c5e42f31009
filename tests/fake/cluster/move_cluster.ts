/**
 * A fake cluster whose volumes can be moved: two nodes, a bound claim on the first one, and what Kubernetes and the driver do
 * about PersistentVolumes.
 *
 * @module
 */

import { parseGroupList } from "../../../csi/group_list.ts";
import { volumeIdOf } from "../../../base/ids.ts";
import type { ApiClient } from "../../../k8s/client/client.ts";
import { lvmVolumes } from "../../../k8s/api/lvm_objects.ts";
import {
  csiNodes,
  nodes,
  type PersistentVolume,
  type PersistentVolumeClaim,
  persistentVolumeClaims,
  persistentVolumes,
  storageClasses,
} from "../../../k8s/api/objects.ts";
import { lvmImports } from "../../../k8s/handover/imports.ts";
import { MoveGarbageCollector } from "../../../k8s/handover/garbage_collector.ts";
import { Mover } from "../../../k8s/handover/mover.ts";
import { affinityTo } from "../../../k8s/handover/persistent_volume.ts";
import { copyIdOf, type LvmMove, lvmMoves } from "../../../k8s/handover/moves.ts";
import { PROVISIONED_BY_ANNOTATION, VOLUME_FINALIZER } from "../../../k8s/provisioner/persistent_volume.ts";
import type { NamedVolumeRequest } from "../../../k8s/api/volume_mapping.ts";
import { TOPOLOGY_KEY, waitUntil } from "./control_plane.ts";
import { addForeignLv } from "../machine/foreign_lv.ts";
import { KillableExec } from "../machine/killable_exec.ts";
import { DRIVER, FakeCluster } from "./node_cluster.ts";
import { machineWith, MiB, request } from "./volume_cluster.ts";
import { BACKOFF, CLAIM, FakeControllers, type OnWrite } from "./fake_controllers.ts";

/** The name of the claim's PersistentVolume, and of the request for its volume. */
export const PV_NAME = "pvc-1";

/** The volume that moves. */
export const MOVED = volumeIdOf(PV_NAME);

/** Options of {@linkcode MoveCluster.start}. */
export interface MoveClusterOptions {
  /** More about the request for the volume. */
  readonly request?: Partial<NamedVolumeRequest>;
  /** The reclaim policy; Delete by default. */
  readonly reclaimPolicy?: "Delete" | "Retain";
  /** Whether the affinity of a PersistentVolume can be changed. */
  readonly mutableAffinity?: boolean;
  /** The volume groups of the second node, with their sizes in bytes; `data` by default. */
  readonly targetGroups?: Record<string, bigint>;
  /** The size of the logical sectors of the second node's disks, in bytes. */
  readonly targetSectorBytes?: number;
  /** Arguments of lvcreate for the size and the layout of an LV of somebody else, which becomes the volume by an import. */
  readonly imported?: readonly string[];
  /** The number of physical volumes of each group; 1 by default. */
  readonly pvCount?: number;
  /** Whether moves are asked to be offline. */
  readonly offline?: boolean;
  /** Whether agents take part in transfers; they do by default. */
  readonly transfers?: boolean;
  /** May put something before the clients of the processes. */
  readonly wrap?: (client: ApiClient) => ApiClient;
}

/** The cluster. */
export class MoveCluster implements AsyncDisposable {
  readonly #controllers: FakeControllers;
  #writes = 0;

  private constructor(
    readonly cluster: FakeCluster,
    readonly machines: readonly [ReturnType<typeof machineWith>, ReturnType<typeof machineWith>],
    readonly execs: readonly KillableExec[],
    /** The directory below which volumes are mounted. */
    readonly root: string,
    /** How it was started. */
    readonly options: MoveClusterOptions,
  ) {
    this.#controllers = new FakeControllers(cluster);
  }

  /** Starts a cluster with a volume of a claim that has data. */
  static async start(options: MoveClusterOptions = {}): Promise<MoveCluster> {
    const machines = [
      machineWith({ data: 1n << 30n }, options.pvCount),
      machineWith(options.targetGroups ?? { data: 1n << 30n }, options.pvCount),
    ] as const;
    if (options.targetSectorBytes !== undefined) machines[1].groups[0]!.sectorBytes = options.targetSectorBytes;
    const execs = machines.map((machine) => new KillableExec(machine));
    const root = await Deno.realPath(await Deno.makeTempDir({ prefix: "denolith-move-" }));
    const settings = { transfers: true, waitMs: 3_000, mountRoots: [root], ...options };
    const cluster = await FakeCluster.start({ "node-1": execs[0]!, "node-2": execs[1]! }, settings);
    const { api } = cluster;
    if (options.mutableAffinity) api.collection(persistentVolumes).makeMutable();
    for (const name of ["node-1", "node-2"]) {
      if (settings.transfers) {
        await cluster.nodes.waitFor(name, (node) => node?.status?.transfer !== undefined, { timeoutMs: 5_000 });
      }
      await cluster.registerNode(name);
    }
    const self = new MoveCluster(cluster, machines, execs, root, options);
    await (options.imported === undefined ? self.#addBoundClaim(options) : self.#addForeignClaim(options.imported));
    await self.#controllers.startBinding();
    if (options.imported !== undefined) await self.#importVolume();
    return self;
  }

  /** Adds a claim that is bound to a local volume, which is an LV of somebody else. */
  async #addForeignClaim(lvcreate: readonly string[]): Promise<void> {
    await addForeignLv(this.machines[0], { group: "data", name: "archive", bytes: 32n * MiB, args: lvcreate });
    const provisioner = "kubernetes.io/no-provisioner";
    this.cluster.api.put(storageClasses, { metadata: { name: "local" }, provisioner });
    this.#controllers.addBoundClaim("local", {
      metadata: { name: PV_NAME, labels: { tier: "gold" }, finalizers: ["kubernetes.io/pv-protection"] },
      spec: {
        local: { path: "/dev/data/archive", fsType: "ext4" },
        nodeAffinity: affinityTo("node-1", "kubernetes.io/hostname"),
        volumeMode: "Filesystem",
      },
    });
  }

  /** Makes the LV of somebody else a volume of the driver. */
  async #importVolume(): Promise<void> {
    const { api } = this.cluster;
    this.#controllers.startImporter();
    const { plan, import: object } = await this.#controllers.planImport();
    if (object === undefined) throw new Error(plan.refusals.join("; "));
    api.put(lvmImports, object);
    const what = () => `the import: ${JSON.stringify(api.objects(lvmImports)[0]?.status)}`;
    await waitUntil(() => api.objects(lvmImports)[0]?.status?.message === "it can be returned, or finished", what);
    await waitUntil(() => this.lvmVolumes[0] === "volume node-1 Ready", () => this.lvmVolumes.join());
  }

  async #addBoundClaim({ reclaimPolicy = "Delete", request: more }: MoveClusterOptions): Promise<void> {
    const { api, volumes } = this.cluster;
    api.put(storageClasses, { metadata: { name: "local" }, provisioner: DRIVER, reclaimPolicy });
    const uid = this.#controllers.addBoundClaim("local", {
      metadata: {
        name: PV_NAME,
        labels: { tier: "gold" },
        annotations: { [PROVISIONED_BY_ANNOTATION]: DRIVER },
        finalizers: ["kubernetes.io/pv-protection", ...(reclaimPolicy === "Delete" ? [VOLUME_FINALIZER] : [])],
      },
      spec: {
        csi: { driver: DRIVER, volumeHandle: MOVED },
        nodeAffinity: affinityTo("node-1", TOPOLOGY_KEY),
        persistentVolumeReclaimPolicy: reclaimPolicy,
        volumeMode: "Block",
      },
    });
    const raw = { format: { state: "raw" }, range: { required: 32n * MiB } } as const;
    const claim = { ...CLAIM, uid };
    await volumes.create(request(PV_NAME, { ...raw, ...more }), { allowed: ["node-1"], preferred: [] }, { claim });
    this.lv(0)!.content.data = new Set(["letters"]);
  }

  /** Starts what moves volumes. @param onWrite sends each of its writes @returns what ends it */
  startMover(onWrite?: OnWrite): () => Promise<void> {
    const { nodes: lvmNodes, snapshotObjects, objects, volumes, transfers } = this.cluster;
    return this.#controllers.start("mover", onWrite, ({ client, events, send, inform }) =>
      new Mover({
        ...{ client, events, driverName: DRIVER, topologyKey: TOPOLOGY_KEY, parseGroups: parseGroupList },
        volumes: {
          begin: (...args) => send(() => volumes.begin(...args), "volumes.begin"),
          delete: (...args) => send(() => volumes.delete(...args), "volumes.delete"),
        },
        transfers: {
          take: (...args) => send(() => transfers.take(...args), "transfers.take"),
          discard: (...args) => send(() => transfers.discard(...args), "transfers.discard"),
        },
        moves: inform(lvmMoves),
        ...{ lvmVolumes: objects, snapshots: snapshotObjects, lvmNodes },
        claims: inform(persistentVolumeClaims),
        persistentVolumes: inform(persistentVolumes),
        classes: inform(storageClasses),
        nodes: inform(nodes),
        csiNodes: inform(csiNodes),
        agents: { isSilent: (node) => this.silent.has(node) },
        backoff: BACKOFF,
        onReconciled: () => void this.moverReconciles++,
      }));
  }

  /** The number of times that a move was looked at. */
  moverReconciles = 0;

  /** The nodes whose agents have given no sign of life for minutes. */
  readonly silent = new Set<string>();

  /** The number of times that something which may be left of moves was looked at. */
  garbageReconciles = 0;

  /**
   * Starts what removes what is left of moves.
   *
   * @param onWrite sends each of its writes
   * @param options.isBlind whether its cache has no moves
   * @returns what ends it
   */
  startGarbageCollector(onWrite?: OnWrite, { isBlind = false } = {}): () => Promise<void> {
    const { objects, volumes } = this.cluster;
    return this.#controllers.start("move-garbage-collector", onWrite, ({ client, send, inform }) => {
      const moves = inform(lvmMoves);
      if (isBlind) moves.get = () => undefined;
      return new MoveGarbageCollector({
        onReconciled: () => void this.garbageReconciles++,
        ...{ client, driverName: DRIVER, backoff: BACKOFF },
        ...{ moves, persistentVolumes: inform(persistentVolumes), lvmVolumes: objects },
        volumes: { delete: (...args) => send(() => volumes.delete(...args), "volumes.delete") },
      });
    });
  }

  /**
   * Loses the disks of a node whose agent goes on, and waits until the volume is Lost.
   *
   * @returns what brings them back; without temporary snapshots, which would be orphans
   */
  async loseDisks(index: 0 | 1): Promise<() => Promise<void>> {
    const lvs = this.machines[index].groups[0]!.lvs.splice(0);
    const { node } = this.cluster.agent(index === 0 ? "node-1" : "node-2");
    const isLost = (text: string) => text.startsWith("volume") && text.includes("Lost");
    node.requeue();
    await waitUntil(() => this.lvmVolumes.some(isLost), () => `a Lost volume: ${this.lvmVolumes}`);
    return async () => {
      this.machines[index].groups[0]!.lvs.push(...lvs.filter(({ origin }) => origin === undefined));
      node.requeue();
      await waitUntil(() => !this.lvmVolumes.some(isLost), () => `no Lost volume: ${this.lvmVolumes}`);
    };
  }

  /** Has a node die with its disks, and forgets it. */
  async loseNode(index: 0 | 1): Promise<void> {
    const name = index === 0 ? "node-1" : "node-2";
    this.execs[index]!.kill();
    this.cluster.crashAgent(name);
    await this.forgetNode(name);
    this.machines[index].groups.splice(0);
  }

  /** Forgets a node whose agent does not run. */
  forgetNode(nodeName: "node-1" | "node-2"): Promise<void> {
    return this.cluster.forgetNode(nodeName);
  }

  /** Asks for the move to the second node. */
  addMove(spec: Partial<LvmMove["spec"]> = {}): LvmMove {
    const { metadata: { uid } } = this.claim!;
    return this.cluster.api.put(lvmMoves, {
      metadata: { name: MOVED },
      spec: {
        driverName: DRIVER,
        persistentVolume: PV_NAME,
        claim: { namespace: "shop", name: "data", uid: uid! },
        sourceNode: "node-1",
        targetNode: "node-2",
        ...(this.options.offline && { offline: true }),
        ...spec,
      },
    });
  }

  /** Waits until the move is in a state. */
  async waitForState(state: string): Promise<LvmMove> {
    const what = () => `the move to be ${state}: ${JSON.stringify(this.move?.status)}`;
    await waitUntil(() => this.move?.status?.state === state, what);
    return this.move!;
  }

  /** The move, as it is kept. */
  get move(): LvmMove | undefined {
    return this.cluster.api.objects(lvmMoves)[0];
  }

  /** The claim, as it is kept. */
  get claim(): PersistentVolumeClaim | undefined {
    return this.#controllers.claim;
  }

  /** The PersistentVolume, as it is kept. */
  get persistentVolume(): PersistentVolume | undefined {
    return this.#controllers.persistentVolume;
  }

  /** The LVMVolumes, as they are kept: their names, nodes and states. */
  get lvmVolumes(): string[] {
    return this.cluster.api.objects(lvmVolumes).map(({ metadata: { name }, spec, status }) => {
      const which = name === MOVED ? "volume" : this.move !== undefined && name === copyIdOf(this.move) ? "copy" : name;
      return `${which} ${spec.nodeName} ${status?.state}${spec.held ? " held" : ""}`;
    }).sort();
  }

  /** Returns the LV of the volume on a machine. */
  lv(index: 0 | 1) {
    return this.machines[index].allLvs().find(({ lv }) => lv.tags.has(`denolith.volume=${MOVED}`))?.lv;
  }

  /** Writes something to the volume on a node, as a pod does: to chunks of its own, by default to one. */
  async write(
    what: string,
    { index = 0, seek = 100 + 300 * this.#writes++, count = 1 }: {
      readonly index?: 0 | 1;
      readonly seek?: number;
      readonly count?: number;
    } = {},
  ): Promise<void> {
    const { name } = this.lv(index)!;
    const place = ["bs=4096", `seek=${seek}`, `count=${count}`];
    const args = [`if=${what}`, `of=/dev/mapper/data-${name.replaceAll("-", "--")}`, ...place];
    await this.machines[index].run({ program: "dd", args, mutates: true });
  }

  /** Waits until no background work is running. */
  async idle(): Promise<void> {
    for (const name of ["node-1", "node-2"]) await this.cluster.agent(name).machine.background.idle();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#controllers[Symbol.asyncDispose]();
    await this.cluster[Symbol.asyncDispose]();
    await Deno.remove(this.root, { recursive: true });
  }
}
