/**
 * A whole cluster in a world: an API server, the driver's controller and agents as processes of their own, kubelets, pods that
 * write, and what Kubernetes does besides.
 *
 * @module
 */

import { assertEquals } from "@std/assert";
import { runController } from "../../cli/controller.ts";
import "../../k8s/transfers/transfer_agent.ts";
import "../../k8s/client/kubeconfig.ts"; // an import that is still to be made takes time of this machine
import { type LvmNode, lvmNodes, lvmSnapshots, lvmVolumes } from "../../k8s/api/lvm_objects.ts";
import {
  csiNodes,
  events,
  type KubeObject,
  nodes,
  type PersistentVolume,
  type PersistentVolumeClaim,
  persistentVolumeClaims,
  persistentVolumes,
  type StorageClass,
  storageClasses,
} from "../../k8s/api/objects.ts";
import {
  type VolumeGroupSnapshot,
  volumeGroupSnapshotClasses,
  volumeGroupSnapshotContents,
  volumeGroupSnapshots,
  type VolumeSnapshot,
  volumeSnapshotClasses,
  volumeSnapshotContents,
  volumeSnapshots,
} from "../../k8s/api/snapshot_objects.ts";
import { NONE_KNOWN, ORPHANS_CONDITION, orphansInMessage, REMOVE_ORPHANS_ANNOTATION } from "../../k8s/agent/orphans.ts";
import { quantityToBytes } from "../../k8s/api/quantity.ts";
import { HttpClient } from "../../k8s/client/http_client.ts";
import { lvmImports, openEbsVolumes, topoLvmVolumes } from "../../k8s/handover/imports.ts";
import { type Handover, isFinished } from "../../k8s/handover/handover.ts";
import { lvmMoves } from "../../k8s/handover/moves.ts";
import { affinityTo, nodeOfVolume } from "../../k8s/handover/persistent_volume.ts";
import { planImport } from "../../plugin/import/plan.ts";
import { readSources } from "../../plugin/import/sources.ts";
import { addForeignLv } from "../fake/machine/foreign_lv.ts";
import { freeBytes } from "../fake/machine/pvs.ts";
import { forget } from "../../plugin/node_removal/forget_node.ts";
import { readNodeObjects } from "../../plugin/node_removal/plan.ts";
import { EventRecorder } from "../../k8s/runtime/events.ts";
import { previewMove } from "../../plugin/move/preview.ts";
import { parseGroupList } from "../../csi/group_list.ts";
import { StorageError } from "../../base/error.ts";
import { ApiError } from "../../k8s/client/client.ts";
import { Controller } from "../../k8s/runtime/controller.ts";
import { secrets } from "../../k8s/sidecars/secrets.ts";
import { VOLUME } from "../../lvm/model/tags.ts";
import { FakeApiServer } from "../fake/cluster/api_server.ts";
import { PROVISIONER_ANNOTATION, TOPOLOGY_KEY } from "../fake/cluster/control_plane.ts";
import { DRIVER, NAMESPACE } from "../fake/cluster/node_cluster.ts";
import { startBinder } from "../fake/cluster/volume_binder.ts";
import { requireWakeUps } from "../fake/cluster/wake_ups.ts";
import { contentOf, ownerOf } from "../fake/machine/luks.ts";
import { devicePath, type FakeLv } from "../fake/machine/machine.ts";
import type { MemoryFiles } from "../fake/machine/memory_files.ts";
import { flagsOf } from "../fake/subcommand.ts";
import { Contents, type Moment } from "./contents.ts";
import { CLAIM_PROTECTION, Kubernetes } from "./kubernetes.ts";
import { CLASSES, type ClassName, SNAPSHOT_CLASSES } from "./history.ts";
import type { Network } from "./network.ts";
import { SimulatedNode } from "./node.ts";
import type { Pod } from "./pod.ts";
import { type FullGroupSnapshot, type FullSnapshot, SNAPSHOT_FINALIZER } from "./snapshots.ts";
import { MemoryNetwork } from "./transfer_network.ts";
import { count } from "./tally.ts";
import { currentProcess, type Process, type World } from "./world.ts";

/** The size of the volume group of each node, in bytes: too small for everything at once. */
const GROUP_BYTES = 512n << 20n;

/** The time after which kube-controller-manager looks at all PersistentVolumes again, in milliseconds. */
const RESYNC_MS = 15_000;

/** The processes in which controllers run. */
const processes = new WeakMap<Controller, Process>();
const { run } = Controller.prototype;
Controller.prototype.run = async function (this: Controller, signal: AbortSignal): Promise<void> {
  const process = currentProcess();
  if (process !== undefined) {
    processes.set(this, process);
    controllersOf.set(process, [...controllersOf.get(process) ?? [], this]);
  }
  await run.call(this, signal);
};
const controllersOf = new WeakMap<Process, Controller[]>();

/** A controller of the driver that runs. */
interface RunningController {
  readonly process: Process;
  readonly end: AbortController;
  readonly ended: Promise<unknown>;
}

/** The cluster. */
export class ModelCluster {
  readonly transfers: MemoryNetwork;
  readonly nodes: SimulatedNode[];
  readonly pods: Pod[] = [];
  readonly contents = new Contents();
  /** The moments of snapshots, by their uids. */
  readonly moments = new Map<string, Moment>();
  /** The moments of which claims are copies of others, by their uids. */
  readonly copies = new Map<string, Moment>();
  /** The uids of the claims whose pods are evicted while they are moved. */
  readonly evicted = new Set<string>();
  /** The moments of group snapshots, by their uids and those of the claims. */
  readonly groups = new Map<string, ReadonlyMap<string, Moment>>();
  /** What the secrets of encrypted claims have, by the uids of the claims. */
  readonly secrets = new Map<string, Readonly<Record<string, string>>>();
  /** The claims whose passphrase was replaced, and not used since. */
  readonly #rotated = new Set<string>();
  readonly kubernetes: Kubernetes;
  /** The client of an administrator. */
  readonly #client: HttpClient;
  controller: RunningController | undefined;
  #controllers = 0;

  private constructor(
    readonly world: World,
    readonly network: Network,
    readonly api: FakeApiServer,
    readonly files: MemoryFiles,
    readonly kubeconfig: string,
    names: readonly string[],
  ) {
    this.#client = new HttpClient({ url: api.url }, { userAgent: "administrator" });
    this.transfers = new MemoryNetwork(network);
    this.kubernetes = new Kubernetes(this);
    this.nodes = names.map((name) => new SimulatedNode(name, this, GROUP_BYTES));
  }

  /** Starts an API server with all kinds. */
  static startApi(): FakeApiServer {
    const snapshotKinds = [volumeSnapshots, volumeSnapshotContents, volumeSnapshotClasses];
    const groupKinds = [volumeGroupSnapshots, volumeGroupSnapshotContents, volumeGroupSnapshotClasses];
    const ownKinds = [lvmVolumes, lvmSnapshots, lvmNodes, lvmMoves, lvmImports];
    return FakeApiServer.start({
      resources: [...ownKinds, openEbsVolumes, topoLvmVolumes, ...snapshotKinds, ...groupKinds, secrets],
    });
  }

  /** Starts a cluster, in a world that runs. */
  static async start(
    world: World,
    { network, api, files, kubeconfig }: {
      readonly network: Network;
      readonly api: FakeApiServer;
      readonly files: MemoryFiles;
      readonly kubeconfig: string;
    },
  ): Promise<ModelCluster> {
    const names = ["n1", "n2"];
    files.paths = names.flatMap((name) =>
      ["/", "/staging/", "/pods/", "/plugins/", `/plugins/${DRIVER}/`].map((folder) => name + folder)
    );
    const cluster = new ModelCluster(world, network, api, files, kubeconfig, names);
    for (const [name, { parameters, volumeBindingMode }] of Object.entries(CLASSES)) {
      cluster.addClass(name, { parameters, volumeBindingMode });
    }
    api.put(storageClasses, { metadata: { name: "local" }, provisioner: "kubernetes.io/no-provisioner" });
    for (const [name, parameters] of Object.entries(SNAPSHOT_CLASSES)) {
      api.put(volumeSnapshotClasses, { metadata: { name }, driver: DRIVER, parameters });
    }
    api.put(volumeGroupSnapshotClasses, { metadata: { name: "group" }, driver: DRIVER, parameters: {} });
    for (const name of names) {
      const labels = { [TOPOLOGY_KEY]: name, "kubernetes.io/hostname": name };
      api.put(nodes, {
        metadata: { name, labels },
        status: { conditions: [{ type: "Ready", status: "True" }] } as never,
      });
      api.put(csiNodes, {
        metadata: { name },
        spec: { drivers: [{ name: DRIVER, nodeID: name, topologyKeys: [TOPOLOGY_KEY] }] },
      });
    }
    const manager = world.process("manager");
    manager.run(() =>
      startBinder(new HttpClient({ url: api.url }, { userAgent: "binder" }), manager.end.signal, RESYNC_MS)
    );
    world.process("api").run(() =>
      setTimeout(function bookmarks() {
        api.sendBookmarks();
        setTimeout(bookmarks, 60_000);
      }, 60_000)
    );
    for (const node of cluster.nodes) {
      node.startKubelet();
      await node.startAgent();
    }
    await cluster.startController();
    await cluster.until(
      () => names.every((name) => cluster.#lvmNode(name)?.status?.volumeGroups !== undefined),
      "the nodes",
    );
    return cluster;
  }

  #lvmNode(name: string): LvmNode | undefined {
    return this.api.objects(lvmNodes).find(({ metadata }) => metadata.name === name);
  }

  /** Waits, and looks often. @throws {Error} when it takes too long */
  async until(condition: () => boolean, what: string | (() => string), ms = 600_000): Promise<void> {
    for (const end = this.world.now + ms; !condition();) {
      if (this.world.now > end) {
        throw new Error(`after ${ms / 1000} s, not so: ${typeof what === "string" ? what : what()}`);
      }
      await this.world.sleep(200);
    }
  }

  /** Adds a class of the driver. */
  addClass(name: string, { parameters, ...rest }: Omit<Partial<StorageClass>, "metadata"> = {}): void {
    this.api.put(storageClasses, {
      metadata: { name },
      provisioner: DRIVER,
      reclaimPolicy: "Delete",
      allowVolumeExpansion: true,
      volumeBindingMode: "WaitForFirstConsumer",
      parameters: { volumeGroup: "data", ...parameters },
      ...rest,
    });
  }

  /** Adds a claim. @param source the snapshot or the claim of which it is a copy */
  addClaim(
    name: string,
    { className, mib, source, ...spec }:
      & { className: ClassName | "local"; mib: number; source?: VolumeSnapshot | PersistentVolumeClaim | undefined }
      & Partial<PersistentVolumeClaim["spec"]>,
  ): PersistentVolumeClaim {
    const moment = source === undefined ? undefined : this.#momentOf(source);
    const secret = moment?.secret ?? { passphrase: `word of ${name}` };
    if (className === "locked") {
      this.api.put(secrets, { metadata: { name, namespace: "default" }, data: encode(secret) });
    }
    const isSnapshot = source !== undefined && this.moments.has(source.metadata.uid!);
    const claim = this.api.put(persistentVolumeClaims, {
      metadata: {
        name,
        namespace: "default",
        annotations: { [PROVISIONER_ANNOTATION]: DRIVER },
        finalizers: [CLAIM_PROTECTION],
      },
      spec: {
        storageClassName: className,
        accessModes: ["ReadWriteOnce"],
        resources: { requests: { storage: `${mib}Mi` } },
        ...(source && {
          dataSource: isSnapshot
            ? { apiGroup: "snapshot.storage.k8s.io", kind: "VolumeSnapshot", name: source.metadata.name }
            : { kind: "PersistentVolumeClaim", name: source.metadata.name },
        }),
        ...spec,
      },
      status: { phase: "Pending" },
    });
    const uid = claim.metadata.uid!;
    this.contents.addClaim(uid, moment);
    if (className === "locked") this.secrets.set(uid, secret);
    if (moment !== undefined && !isSnapshot) this.copies.set(uid, moment);
    return claim;
  }

  /** Returns the moment of a snapshot, or begins that of a copy of a claim. */
  #momentOf({ metadata }: KubeObject): Moment {
    const uid = metadata.uid!;
    return this.moments.get(uid) ?? this.contents.beginMoment(uid, this.secrets.get(uid));
  }

  /** Adds a snapshot of a claim. */
  addSnapshot(name: string, claim: PersistentVolumeClaim, className: string): void {
    const snapshot = this.api.put(volumeSnapshots, {
      metadata: { name, namespace: "default", finalizers: [SNAPSHOT_FINALIZER] },
      spec: { volumeSnapshotClassName: className, source: { persistentVolumeClaimName: claim.metadata.name } },
    } as FullSnapshot);
    this.moments.set(snapshot.metadata.uid!, this.#momentOf(claim));
  }

  /** Asks for a larger claim. */
  grow({ metadata: { namespace, name }, spec }: PersistentVolumeClaim, mib: number): void {
    const requested = Number(quantityToBytes(spec!.resources!.requests!["storage"])! >> 20n);
    const resources = { requests: { storage: `${requested + mib}Mi` } };
    this.api.collection(persistentVolumeClaims).patch({ spec: { resources } }, { namespace, name });
  }

  /** Adds a claim that is bound to an LV of somebody else, with data. */
  async addForeignClaim(name: string, node: SimulatedNode, mib: number): Promise<void> {
    if (!node.isOn || freeBytes(node.machine.groups[0]!) < BigInt(mib) << 20n) return;
    const lv = await addForeignLv(node.machine, { group: "data", name: `archive-${name}`, bytes: BigInt(mib) << 20n });
    lv.content.data = new Set([`archive of ${name}`]);
    const volume = `pv-${name}`;
    const claim = this.addClaim(name, { className: "local", mib, volumeMode: "Filesystem", volumeName: volume });
    const uid = claim.metadata.uid!;
    this.contents.written(uid, `archive of ${name}`);
    this.api.put(persistentVolumes, {
      metadata: { name: volume, finalizers: ["kubernetes.io/pv-protection"] },
      spec: {
        accessModes: ["ReadWriteOnce"],
        capacity: { storage: `${mib}Mi` },
        storageClassName: "local",
        volumeMode: "Filesystem",
        claimRef: { apiVersion: "v1", kind: "PersistentVolumeClaim", namespace: "default", name, uid },
        local: { path: `/dev/data/archive-${name}`, fsType: "ext4" },
        nodeAffinity: affinityTo(node.name, "kubernetes.io/hostname"),
        persistentVolumeReclaimPolicy: "Delete",
      },
    });
  }

  /** Reports whether the volume of a claim is somebody else's. */
  isForeign(claim: PersistentVolumeClaim): boolean {
    const volume = this.volumeOf(claim);
    return claim.spec?.storageClassName === "local" && (volume === undefined || volume.spec?.csi === undefined);
  }

  /** Imports a claim, as an administrator does, unless the plugin says that it is refused. */
  async import({ metadata: { namespace, name } }: PersistentVolumeClaim): Promise<void> {
    try {
      const sources = await readSources(this.#client, { driver: DRIVER, namespace: namespace!, claimName: name });
      const { plan, import: object } = await planImport(sources, {
        ...{ driver: DRIVER, topologyKey: TOPOLOGY_KEY, now: Date.now(), isProvisionerStopped: true },
        parameterProblem: () => undefined,
      });
      this.world.log(`import of ${name}: ${object === undefined ? plan.refusals.join("; ") : "asked for"}`);
      if (object !== undefined) await this.#client.create(lvmImports, object);
    } catch (error) {
      if (!(error instanceof StorageError) && !(error instanceof ApiError)) throw error;
      this.world.log(`import of ${name}: ${error.message}`);
    }
  }

  /** Moves a claim to another node, as an administrator does, unless the plugin says that it is refused. */
  async move(
    { metadata: { namespace, name, uid } }: PersistentVolumeClaim,
    { offline, evict }: { readonly offline: boolean; readonly evict: boolean },
  ): Promise<void> {
    const volume = this.volumeOf(this.claim(name)!);
    const sourceNode = volume && nodeOfVolume(volume, TOPOLOGY_KEY);
    const target = this.world.pick(this.nodes.filter((node) => node.name !== sourceNode)).name;
    const request = { driver: DRIVER, namespace: namespace!, claimName: name, targetNode: target, offline };
    const options = { topologyKey: TOPOLOGY_KEY, parseGroups: parseGroupList, now: Date.now() };
    try {
      const { plan, move } = await previewMove(this.#client, request, options);
      this.world.log(`move of ${name} to ${target}: ${plan.refusal ?? "asked for"}`);
      if (plan.refusal !== undefined) return;
      await this.#client.create(lvmMoves, move);
      if (evict) this.evicted.add(uid!);
    } catch (error) {
      if (!(error instanceof StorageError) && !(error instanceof ApiError)) throw error;
      this.world.log(`move of ${name} to ${target}: ${error.message}`);
    }
  }

  /** Replaces the passphrase of a claim, unless it was replaced before and is not in use yet, or a copy has the old one. */
  rotate({ metadata }: PersistentVolumeClaim): void {
    const uid = metadata.uid!;
    const previousPassphrase = this.secrets.get(uid)?.["passphrase"];
    const groups = [...this.groups.values()].flatMap((group) => [...group.values()]);
    const moments = [...this.moments.values(), ...this.copies.values(), ...groups];
    const isCopied = moments.some((moment) => this.contents.isOpen(moment, uid));
    if (previousPassphrase === undefined || isCopied || this.#rotated.has(uid)) return;
    const secret = { passphrase: `${previousPassphrase}+`, previousPassphrase };
    this.secrets.set(uid, secret);
    this.#rotated.add(uid);
    this.api.collection(secrets).patch({ data: encode(secret) }, { namespace: "default", name: metadata.name });
  }

  /** Called when a volume was published with a passphrase. */
  onPublished(claimUid: string, passphrase: string | undefined): void {
    if (passphrase === this.secrets.get(claimUid)?.["passphrase"] && this.#rotated.delete(claimUid)) count("rotation");
  }

  /** Adds a group snapshot of claims. */
  addGroupSnapshot(name: string, claims: readonly PersistentVolumeClaim[]): void {
    const group = this.api.put(volumeGroupSnapshots, {
      metadata: { name, namespace: "default", finalizers: ["group"] },
      spec: { claims: claims.map(({ metadata }) => metadata.name) },
    } as FullGroupSnapshot);
    const moments = new Map(claims.map((claim) => [claim.metadata.uid!, this.#momentOf(claim)]));
    for (const moment of moments.values()) moment.group = [...moments.values()];
    this.groups.set(group.metadata.uid!, moments);
  }

  /** Called when a group snapshot was taken, with the claim and the VolumeSnapshot of each of its snapshots. */
  readonly onGroupReady = (group: string, claim: string, snapshot: string): void => {
    const moment = this.groups.get(group)!.get(claim)!;
    this.contents.endMoment(moment);
    this.moments.set(snapshot, moment);
    count("snapshot in a group");
  };

  /** Deletes a group snapshot. */
  deleteGroupSnapshot({ metadata: { namespace, name } }: VolumeGroupSnapshot): void {
    this.api.collection(volumeGroupSnapshots).delete({ namespace, name });
  }

  /** Forgets a node without power, as an administrator does. */
  async forget(node: SimulatedNode): Promise<void> {
    if (node.isOn) return;
    const recorder = new EventRecorder(this.#client, { component: DRIVER, instance: "administrator" });
    const objects = await readNodeObjects(this.#client, { driver: DRIVER, nodeName: node.name });
    await forget(this.#client, objects, { events: recorder, reason: "it is dead", now: new Date() });
    await recorder.stop(1_000);
    node.wasForgotten = true;
    count("node forgotten");
  }

  /**
   * Removes what the nodes name as orphans, as an administrator does. A node that was forgotten comes back with the logical
   * volumes of objects that were deleted meanwhile.
   */
  removeOrphans(): void {
    for (const { name, wasForgotten } of this.nodes) {
      const { metadata: { annotations = {} }, status } = this.#lvmNode(name) ?? { metadata: {} };
      const condition = status?.conditions?.find(({ type, status }) => type === ORPHANS_CONDITION && status === "True");
      const uuids = orphansInMessage(condition?.message ?? "").map(({ uuid }) => uuid);
      if (!wasForgotten || uuids.length === 0) continue;
      const request = [...uuids, NONE_KNOWN].join(",");
      if (annotations[REMOVE_ORPHANS_ANNOTATION] === request) continue;
      const patch = { metadata: { annotations: { [REMOVE_ORPHANS_ANNOTATION]: request } } };
      this.api.collection(lvmNodes).patch(patch, { name, namespace: undefined });
      count("orphans removed");
    }
  }

  /** Deletes a snapshot. */
  deleteSnapshot({ metadata: { namespace, name } }: VolumeSnapshot): void {
    this.api.collection(volumeSnapshots).delete({ namespace, name });
  }

  /** Called when the snapshot of a uid is ready. */
  readonly onReady = (uid: string): void => {
    const moment = this.moments.get(uid)!;
    if (moment.most === undefined) count("snapshot");
    this.contents.endMoment(moment);
  };

  /** Adds a pod that uses a claim. */
  addPod(name: string, claim: PersistentVolumeClaim): void {
    this.pods.push({
      ...{ name, claim: claim.metadata.name, claimUid: claim.metadata.uid!, node: undefined, mounted: undefined },
      ...{
        isUnmounted: false,
        isRunning: false,
        isDeleted: false,
        knowsDeletion: false,
        isGone: false,
        waitsFor: undefined,
      },
    });
    this.kubernetes.wake();
  }

  /** Deletes a pod. */
  deletePod(pod: Pod): void {
    pod.isDeleted = true;
    this.kubernetes.wake();
  }

  /** Deletes a claim. */
  deleteClaim({ metadata: { namespace, name } }: PersistentVolumeClaim): void {
    this.api.collection(persistentVolumeClaims).delete({ namespace, name });
  }

  /** Returns the processes of the driver. */
  driverProcesses(): Process[] {
    return [this.controller?.process, ...this.nodes.map(({ agent }) => agent?.process)].filter((one) =>
      one !== undefined
    );
  }

  /** Returns a claim as it is kept. */
  claim(name: string): PersistentVolumeClaim | undefined {
    return this.api.objects(persistentVolumeClaims).find(({ metadata }) => metadata.name === name);
  }

  /** Returns the PersistentVolume of a claim that is bound. */
  volumeOf(claim: PersistentVolumeClaim): PersistentVolume | undefined {
    return this.api.objects(persistentVolumes).find(({ metadata }) => metadata.name === claim.spec?.volumeName);
  }

  /** Starts the driver's controller, unless it runs. */
  async startController(): Promise<void> {
    if (this.controller !== undefined) return;
    const { world } = this;
    const process = world.process(`controller ${++this.#controllers}`);
    const end = new AbortController();
    const flags = flagsOf(
      ...["controller", "--kubeconfig", this.kubeconfig, "--identity", `c${this.#controllers}`],
      ...["--http-address", "off", "--namespace", NAMESPACE, "--endpoint", "unix:///memory/csi.sock"],
    );
    const started = world.untilAction(process, end.signal);
    const ended = process.run(() =>
      runController(flags, end.signal, undefined, (path) => {
        void world.untilAction(process, end.signal); // it reads its kubeconfig again
        return Promise.resolve({ path, close: () => Promise.resolve(true) });
      })
    );
    ended.catch((error) => world.fail(error));
    this.controller = { process, end, ended };
    await started;
  }

  /** Kills the controller. */
  killController(): void {
    this.controller?.process.kill();
    this.controller = undefined;
  }

  /** Asks the controller to end, and waits until it has. */
  async stopController(): Promise<void> {
    const { controller } = this;
    if (controller === undefined) return;
    controller.end.abort();
    await Promise.race([
      controller.ended,
      new Promise((resolve) => controller.process.end.signal.addEventListener("abort", resolve)),
    ]);
    controller.process.kill();
    if (this.controller === controller) this.controller = undefined;
  }

  /** Called when a pod runs: it reads what is there, and writes from time to time. */
  onRunning(pod: Pod): void {
    count(`pod of ${this.claim(pod.claim)?.spec?.storageClassName}`);
    this.#read(pod);
    const write = async () => {
      while (pod.isRunning && !pod.isDeleted) {
        await this.#write(pod);
        await this.world.sleep(this.world.between(500, 10_000));
      }
    };
    write().catch((error) => this.world.fail(error));
  }

  /** Returns the device of a pod's volume. */
  #deviceOf(pod: Pod): { node: SimulatedNode; lv: FakeLv } {
    const node = this.nodes.find(({ name }) => name === pod.node)!;
    const { targetPath } = node.paths(pod.mounted!, pod.name);
    const lv = node.machine.mounts.findLast(({ target }) => target === targetPath)?.lv;
    if (lv === undefined) {
      throw new Error(`pod ${pod.name} runs on ${node.name}, and nothing is mounted at ${targetPath}`);
    }
    if (!lv.active) throw new Error(`pod ${pod.name} runs on ${node.name}, and the device of ${lv.name} is gone`);
    return { node, lv };
  }

  #read(pod: Pod): void {
    const { lv } = this.#deviceOf(pod);
    this.contents.observe(pod.claimUid, lv.content.data, `pod ${pod.name} reads claim ${pod.claim}`);
  }

  async #write(pod: Pod): Promise<void> {
    const { node, lv } = this.#deviceOf(pod);
    if (ownerOf(node.machine, lv).lv.suspended || lv.suspended) return; // it waits
    this.#read(pod);
    const token = this.contents.nextWrite(pod.claimUid, pod.claim);
    if (token === undefined) return;
    const { group, lv: own } = ownerOf(node.machine, lv);
    this.#requireOnlyMount(pod, node, own);
    const chunks = Number(lv.size >> 12n) - 101;
    const place = ["bs=4096", `seek=${100 + token.number * 17 % chunks}`, "count=1"];
    const args = [`if=${token.text}`, `of=${devicePath(group, lv)}`, ...place];
    const { code, stderr } = await node.machine.run({ program: "dd", args, mutates: true });
    if (code === 0) this.contents.written(pod.claimUid, token.text);
    else this.world.log(`pod ${pod.name} cannot write: ${stderr}`);
  }

  /** Requires that no other node has a volume mounted that a pod writes to. */
  #requireOnlyMount(pod: Pod, node: SimulatedNode, { tags }: FakeLv): void {
    const tag = [...tags].find((one) => one.startsWith(VOLUME));
    for (const { name, machine } of this.nodes.filter((other) => other !== node)) {
      const mount = machine.mounts.find(({ lv }) =>
        lv !== undefined && tag !== undefined && ownerOf(machine, lv).lv.tags.has(tag)
      );
      if (mount !== undefined) {
        throw new Error(`pod ${pod.name} writes on ${node.name}, and ${name} has ${mount.target} mounted`);
      }
    }
  }

  /** Checks the content of all volumes of claims. */
  checkContents(): void {
    for (const claim of this.api.objects(persistentVolumeClaims)) {
      const { metadata: { name, uid, deletionTimestamp }, status } = claim;
      if (status?.phase !== "Bound" || deletionTimestamp !== undefined) continue;
      const volume = this.volumeOf(claim);
      const handovers = [...this.api.objects(lvmMoves), ...this.api.objects(lvmImports)] as Handover[];
      const isMoving = handovers.some((self) => self.spec.claim.uid === uid && !isFinished(self));
      if (volume === undefined && isMoving) continue;
      if (volume === undefined) throw new Error(`claim ${name} is Bound, and its PersistentVolume is gone`);
      const { csi } = volume.spec!;
      const isOfClaim = ({ tags, name: lvName }: FakeLv) =>
        csi === undefined ? lvName === `archive-${name}` : tags.has(VOLUME + csi.volumeHandle);
      // a forgotten node that is back may have one of a volume that was made again elsewhere; those of others have other affinities
      const places = this.nodes.filter((node) =>
        csi === undefined || !node.wasForgotten || node.name === nodeOfVolume(volume, TOPOLOGY_KEY)
      );
      const lvs = places.flatMap(({ machine }) => machine.allLvs()).filter(({ lv }) => isOfClaim(lv));
      if (!isMoving) assertEquals(lvs.length, 1, `claim ${name} has ${lvs.length} LVs`);
      if (lvs.length === 1) this.contents.observe(uid!, contentOf(lvs[0]!.lv).data, `claim ${name}`);
    }
  }

  /** Requires that nothing waits in silence. */
  async requireWakeUps(): Promise<void> {
    await requireWakeUps(this.api, {
      agentOf: (name) => {
        const agent = this.nodes.find((node) => node.name === name)?.agent;
        return agent && controllersOf.get(agent.process);
      },
      timeoutMs: 300_000,
    });
  }

  /** Returns the last events, in words. */
  lastEvents(count = 8): string {
    return this.api.objects(events).slice(-count).map(({ involvedObject, reason, message }) =>
      `${involvedObject?.kind} ${involvedObject?.name}: ${reason}: ${message}`
    ).join("\n");
  }
}

/** Returns what a secret has, as the API has it. */
function encode(secret: Readonly<Record<string, string>>): Record<string, string> {
  return Object.fromEntries(Object.entries(secret).map(([key, value]) => [key, btoa(value)]));
}
