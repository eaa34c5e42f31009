/**
 * Plays a history over a whole cluster, and checks what a user may see: during it, after everything has come back, and after
 * everything was deleted.
 *
 * @module
 */

import { defined } from "../../base/defined.ts";
import { isFinished } from "../../k8s/handover/handover.ts";
import { lvmImports } from "../../k8s/handover/imports.ts";
import { lvmMoves } from "../../k8s/handover/moves.ts";
import { lvmSnapshots, lvmVolumes } from "../../k8s/api/lvm_objects.ts";
import {
  type Event,
  events,
  type KubeObject,
  type PersistentVolume,
  type PersistentVolumeClaim,
  persistentVolumeClaims,
  persistentVolumes,
  type Resource,
} from "../../k8s/api/objects.ts";
import { isPendingCloneOf } from "../../k8s/provisioner/cloning_protection.ts";
import { quantityToBytes } from "../../k8s/api/quantity.ts";
import {
  type VolumeGroupSnapshot,
  volumeGroupSnapshotContents,
  volumeGroupSnapshots,
  type VolumeSnapshot,
  volumeSnapshotContents,
  volumeSnapshots,
} from "../../k8s/api/snapshot_objects.ts";
import { needsExpansion } from "../../k8s/resizer/resize_plan.ts";
import { kubeconfigOf } from "../fake/cluster/kubeconfig.ts";
import { HEADER_BYTES } from "../fake/machine/luks.ts";
import { freeBytes } from "../fake/machine/pvs.ts";
import { type FakeLv, FakeMachine } from "../fake/machine/machine.ts";
import { MemoryFiles } from "../fake/machine/memory_files.ts";
import { ModelCluster } from "./cluster.ts";
import type { History, Step } from "./history.ts";
import { Network } from "./network.ts";
import { type FullSnapshot, GROUP_LABEL, isBeingSnapshotted } from "./snapshots.ts";
import { World } from "./world.ts";

/** The time in which all that waits comes to its end when nothing fails any more, in milliseconds. */
const SETTLE_MS = 20 * 60_000;

/** The time without a fault after which every agent answers, in milliseconds. */
const CALM_MS = 180_000;

/** What a volume may take besides its size, in bytes: a LUKS header, and what is rounded up. */
const MORE_BYTES = 24n << 20n;

/** Plays a history. @throws {Error} when a user sees what they may not see */
export async function play(history: History, { onLog }: { onLog?: (line: string) => void } = {}): Promise<void> {
  await using api = ModelCluster.startApi();
  const kubeconfig = await Deno.makeTempFile({ prefix: "denolith-model-" });
  try {
    await Deno.writeTextFile(kubeconfig, kubeconfigOf({ server: api.url }));
    using files = new MemoryFiles();
    using world = new World(1);
    using network = new Network(world);
    world.onLog = onLog;
    await world.run(async () => {
      const cluster = await ModelCluster.start(world, { network, api, files, kubeconfig });
      const player = new Player(cluster);
      for (const step of history) await player.play(step);
      await player.heal();
      await player.settle();
      await player.cleanUp();
    });
  } finally {
    await Deno.remove(kubeconfig);
  }
}

/** Plays the steps. */
class Player {
  readonly #cluster: ModelCluster;
  readonly #world: World;
  #count = 0;
  /** What ends the faults that last. */
  readonly #ends = new Set<() => Promise<void>>();
  /** The time since which nothing fails. */
  #calmSince = 0;

  constructor(cluster: ModelCluster) {
    [this.#cluster, this.#world] = [cluster, cluster.world];
    cluster.api.collection(events).listeners.add(({ after }) => this.#requireAnswer(after as unknown as Event));
  }

  /** Plays a step. */
  async play(step: Step): Promise<void> {
    this.#world.reseed(step.seed);
    this.#world.log(`STEP ${JSON.stringify(step)}`);
    await this.#do(step);
    await this.#world.sleep(step.ms);
  }

  async #do(step: Step): Promise<void> {
    const cluster = this.#cluster;
    const { nodes } = cluster;
    switch (step.do) {
      case "claim":
        return this.#add(step.pod, {
          ...{ className: step.class, mib: step.mib, volumeMode: step.block ? "Block" : "Filesystem" },
        });
      case "pod": {
        const claim = oneOf(this.#claims(), step.claim);
        return claim && cluster.addPod(`p${++this.#count}`, claim);
      }
      case "end pod": {
        const pod = oneOf(cluster.pods.filter(({ isDeleted }) => !isDeleted), step.pod);
        return pod && cluster.deletePod(pod);
      }
      case "delete claim": {
        const claim = oneOf(this.#claims(), step.claim);
        return claim && cluster.deleteClaim(claim);
      }
      case "snapshot": {
        const claim = oneOf(this.#claims().filter((claim) => !cluster.isForeign(claim)), step.claim);
        return claim && cluster.addSnapshot(`s${++this.#count}`, claim, step.class);
      }
      case "delete snapshot": {
        const alone = this.#snapshots().filter(({ metadata }) => metadata.labels?.[GROUP_LABEL] === undefined);
        const snapshot = oneOf(alone, step.snapshot);
        return snapshot && cluster.deleteSnapshot(snapshot);
      }
      case "group snapshot": {
        const bound = this.#claims().filter((claim) => claim.status?.phase === "Bound" && !cluster.isForeign(claim));
        const claims = new Set(step.claims.map((claim) => oneOf(bound, claim)).filter((claim) => claim !== undefined));
        return claims.size > 0 ? cluster.addGroupSnapshot(`g${++this.#count}`, [...claims]) : undefined;
      }
      case "delete group snapshot": {
        const group = oneOf(this.#groups(), step.group);
        return group && cluster.deleteGroupSnapshot(group);
      }
      case "forget node":
        return await cluster.forget(oneOf(nodes, step.node)!);
      case "restore":
      case "clone": {
        const snapshot = step.do === "restore" ? oneOf(this.#snapshots(), step.from) : undefined;
        const origin = snapshot === undefined
          ? oneOf(this.#claims().filter((claim) => !cluster.isForeign(claim)), step.from)
          : cluster.claim((snapshot as FullSnapshot).spec.source.persistentVolumeClaimName);
        if (origin?.spec === undefined || (step.do === "restore" && snapshot === undefined)) return;
        const { storageClassName, volumeMode } = origin.spec;
        const requested = Number(quantityToBytes(origin.spec.resources!.requests!["storage"])! >> 20n);
        const classes = storageClassName === "locked" ? ["locked"] as const : ["now", "later", "thin"] as const;
        return this.#add(step.pod, {
          className: oneOf(classes, step.class)!,
          mib: requested + step.more,
          source: snapshot ?? origin,
          ...defined({ volumeMode }),
        });
      }
      case "grow": {
        const claim = oneOf(this.#claims(), step.claim);
        return claim && cluster.grow(claim, step.mib);
      }
      case "rotate key": {
        const claim = oneOf(
          this.#claims().filter(({ metadata }) => cluster.secrets.has(metadata.uid!)),
          step.claim,
        );
        return claim && cluster.rotate(claim);
      }
      case "move": {
        const claim = oneOf(this.#claims(), step.claim);
        return claim && await cluster.move(claim, step);
      }
      case "undo move": {
        const move = oneOf(cluster.api.objects(lvmMoves).filter((move) => !isFinished(move)), step.move);
        return move && void cluster.api.collection(lvmMoves).delete({ name: move.metadata.name, namespace: undefined });
      }
      case "foreign claim":
        return await cluster.addForeignClaim(`c${++this.#count}`, oneOf(nodes, step.node)!, step.mib);
      case "import": {
        const claim = oneOf(this.#claims().filter((claim) => cluster.isForeign(claim)), step.claim);
        return claim && await cluster.import(claim);
      }
      case "finish import":
      case "undo import": {
        const self = oneOf(cluster.api.objects(lvmImports).filter((self) => !isFinished(self)), step.import);
        if (self === undefined) return;
        const at = { name: self.metadata.name, namespace: undefined };
        const imports = cluster.api.collection(lvmImports);
        return void (step.do === "undo import" ? imports.delete(at) : imports.patch({ spec: { finish: true } }, at));
      }
      case "kill agent": {
        const node = oneOf(nodes, step.node)!;
        await node.killAgent();
        return this.#later(step.forMs, () => node.startAgent());
      }
      case "restart agent": {
        const node = oneOf(nodes, step.node)!;
        await node.stopAgent();
        return this.#later(step.forMs, () => node.startAgent());
      }
      case "kill controller":
        cluster.killController();
        return this.#later(step.forMs, () => cluster.startController());
      case "restart controller":
        await cluster.stopController();
        return this.#later(step.forMs, () => cluster.startController());
      case "power off": {
        const node = oneOf(nodes, step.node)!;
        await node.turnOff();
        return this.#later(step.forMs, () => node.turnOn());
      }
      case "slow down": {
        const node = oneOf(nodes, step.node)!;
        node.slowness = step.times;
        return this.#later(step.forMs, () => Promise.resolve(void (node.slowness = 1)));
      }
      case "cut": {
        const process = oneOf([undefined, ...cluster.driverProcesses()], step.who);
        cluster.network.cut(step.how, process);
        return this.#later(step.forMs, () => Promise.resolve(cluster.network.mend(process)));
      }
      case "pause": {
        const process = oneOf(cluster.driverProcesses(), step.who);
        if (process === undefined) return;
        process.isPaused = true;
        return this.#later(step.forMs, () => Promise.resolve(void (process.isPaused = false)));
      }
      case "forget history":
        cluster.api.compact();
        return cluster.api.endWatches();
    }
  }

  /** Requires that no event says that an agent does not answer, when nothing has failed for long. */
  #requireAnswer({ involvedObject, message = "" }: Event): void {
    if (this.#ends.size > 0 || this.#world.now < this.#calmSince + CALM_MS) return;
    if (!/has (?:not answered|not reported|begun, and not ended)/.test(message)) return;
    this.#world.fail(new Error(`nothing fails, and ${involvedObject?.kind} ${involvedObject?.name} has: ${message}`));
  }

  /** Adds a claim, and perhaps a pod for it. */
  #add(withPod: boolean, options: Parameters<ModelCluster["addClaim"]>[1]): void {
    const claim = this.#cluster.addClaim(`c${++this.#count}`, options);
    if (withPod) this.#cluster.addPod(`p${++this.#count}`, claim);
  }

  /** Ends a fault after some time. */
  #later(ms: number, end: () => Promise<void>): void {
    const once = async () => {
      if (this.#ends.delete(once)) await end();
      this.#calmSince = this.#world.now;
    };
    this.#ends.add(once);
    setTimeout(() => void once().catch((error) => this.#world.fail(error)), ms);
  }

  #claims() {
    return this.#cluster.api.objects(persistentVolumeClaims).filter(({ metadata }) =>
      metadata.deletionTimestamp === undefined
    );
  }

  #snapshots(): VolumeSnapshot[] {
    const { api } = this.#cluster;
    return api.objects(volumeSnapshots).filter(({ metadata }) => metadata.deletionTimestamp === undefined);
  }

  #groups(): VolumeGroupSnapshot[] {
    const { api } = this.#cluster;
    return api.objects(volumeGroupSnapshots).filter(({ metadata }) => metadata.deletionTimestamp === undefined);
  }

  /** Ends all faults. */
  async heal(): Promise<void> {
    this.#world.log("HEAL");
    for (const end of [...this.#ends]) await end();
    this.#cluster.network.mend();
    for (const process of this.#cluster.driverProcesses()) process.isPaused = false;
    for (const node of this.#cluster.nodes) await node.turnOn();
    for (const node of this.#cluster.nodes) await node.startAgent();
    await this.#cluster.startController();
  }

  /** Waits until nothing waits any more but what may, and checks what is there. */
  async settle(): Promise<void> {
    const unsettled = () => this.#unsettled();
    await this.#cluster.until(
      () => unsettled().length === 0,
      () => `${unsettled().join("; ")}\n${this.#cluster.lastEvents()}`,
      SETTLE_MS,
    );
    this.#world.log("SETTLED");
    await this.#cluster.requireWakeUps();
    this.#cluster.checkContents();
  }

  /** Returns what waits, and may not. */
  #unsettled(): string[] {
    const { api, pods } = this.#cluster;
    const waiting = pods.flatMap((pod) => {
      const on = `pod ${pod.name} on ${pod.node}`;
      if (pod.isGone) return [];
      if (pod.isDeleted) return [`${on} is not gone: ${pod.waitsFor}`];
      const claim = api.objects(persistentVolumeClaims).find(({ metadata }) => metadata.uid === pod.claimUid);
      const isMoving = api.objects(lvmMoves).some((move) => move.spec.claim.uid === pod.claimUid && !isFinished(move));
      if (claim === undefined || this.#cluster.isForeign(claim)) return [];
      const mayRun = claim?.status?.phase === "Bound" && claim.metadata.deletionTimestamp === undefined && !isMoving;
      const group = this.#cluster.nodes.find(({ name }) => name === pod.node)?.machine.groups[0];
      const isFull = /has no 16 MiB free/.test(pod.waitsFor ?? "") && freeBytes(group!) < HEADER_BYTES;
      return mayRun && !isFull && !pod.isRunning ? [`${on} is not running: ${pod.waitsFor}`] : [];
    });
    const snapshots = this.#snapshots().flatMap(({ metadata: { name }, status }) => {
      const content = api.objects(volumeSnapshotContents).find(({ metadata }) => {
        return metadata.name === status?.boundVolumeSnapshotContentName;
      });
      if (content === undefined || status?.readyToUse || content.status?.error !== undefined) return [];
      return [`snapshot ${name} is not ready, and nothing says why`];
    });
    const groups = api.objects(volumeGroupSnapshotContents).flatMap(({ metadata, status }) => {
      const isWaiting = metadata.deletionTimestamp === undefined && !status?.readyToUse && status?.error === undefined;
      return isWaiting ? [`group snapshot ${metadata.name} is not ready, and nothing says why`] : [];
    });
    const claims = api.objects(persistentVolumeClaims).flatMap((claim) => this.#whyUnsettled(claim) ?? []);
    const moves = api.objects(lvmMoves).flatMap((move) => {
      const { name, uid } = move.spec.claim;
      const volume = api.objects(lvmVolumes).find(({ metadata }) => metadata.name === move.metadata.name);
      // the volume can be used until somebody deletes them
      const isForSnapshots = !volume?.spec.held && /^waits until snapshots /.test(move.status?.message ?? "");
      const mayWait = this.#isUsed(uid) || isForSnapshots;
      return isFinished(move) || mayWait ? [] : [`the move of ${name} is ${JSON.stringify(move.status)}`];
    });
    const imports = api.objects(lvmImports).flatMap(({ spec: { claim }, status }) => {
      const isBlocked = /^it cannot be returned: |was moved to node|not moved any more/.test(status?.message ?? "");
      const isResting = ["Imported", "Complete", "Failed"].includes(status?.state ?? "") || isBlocked;
      return isResting || this.#isUsed(claim.uid) ? [] : [`the import of ${claim.name} is ${JSON.stringify(status)}`];
    });
    return [...claims, ...waiting, ...snapshots, ...groups, ...moves, ...imports];
  }

  /** Reports whether a pod that is on a node uses a claim: moves and returns wait for its end. */
  #isUsed(claimUid: string): boolean {
    return this.#cluster.pods.some((pod) => pod.claimUid === claimUid && !pod.isGone && pod.node !== undefined);
  }

  /** Returns why a claim waits, and may not. */
  #whyUnsettled(claim: PersistentVolumeClaim): string | undefined {
    const { api, pods } = this.#cluster;
    const { metadata: { name, uid, deletionTimestamp }, spec, status } = claim;
    const usedBy = pods.filter((pod) => pod.claimUid === uid && !pod.isGone);
    if (deletionTimestamp !== undefined) {
      const isCloned = api.objects(persistentVolumeClaims).some((other) => isPendingCloneOf(other, claim));
      const isKept = usedBy.length > 0 || isBeingSnapshotted(this.#cluster, name) || isCloned;
      return isKept ? undefined : `claim ${name} is still being deleted`;
    }
    const warned = (reason: RegExp) =>
      api.objects(events).some((event) => event.involvedObject?.uid === uid && reason.test(event.reason ?? ""));
    if (status?.phase === "Bound") {
      const isExpected = needsExpansion(claim) && usedBy.some(({ isRunning }) => isRunning);
      return isExpected && !warned(/Resize/) ? `claim ${name} is not expanded, and nothing says why` : undefined;
    }
    if (status?.phase === "Lost") {
      const isReturned = api.objects(lvmImports).some((self) => self.spec.claim.uid === uid && !isFinished(self));
      return isReturned && this.#isUsed(uid!) ? undefined : `claim ${name} is Lost`;
    }
    if (status?.phase !== "Pending") return `claim ${name} is ${status?.phase}`;
    if (spec?.storageClassName === "later" && usedBy.length === 0) return undefined;
    if (spec?.dataSource === undefined && this.#hasRoom(claim)) return `claim ${name} is Pending, and there is room`;
    return spec?.storageClassName === "later" || warned(/ProvisioningFailed/)
      ? undefined
      : `claim ${name} is Pending, and nothing says why`;
  }

  /** Reports whether a node surely has room for a claim. */
  #hasRoom({ spec }: PersistentVolumeClaim): boolean {
    if (spec?.storageClassName === "thin") return false;
    const bytes = quantityToBytes(spec!.resources!.requests!["storage"])! + MORE_BYTES;
    return this.#cluster.nodes.some(({ machine }) => machine.groups.some((group) => freeBytes(group) >= bytes));
  }

  /** Deletes everything, and requires that nothing is left. */
  async cleanUp(): Promise<void> {
    const cluster = this.#cluster;
    this.#world.log("CLEAN UP");
    for (const pod of cluster.pods.filter(({ isDeleted }) => !isDeleted)) cluster.deletePod(pod);
    for (const claim of this.#claims()) cluster.deleteClaim(claim);
    for (const group of this.#groups()) cluster.deleteGroupSnapshot(group);
    for (const snapshot of this.#snapshots()) cluster.deleteSnapshot(snapshot);
    for (const resource of [lvmMoves, lvmImports] as Resource[]) {
      for (const { metadata: { name } } of cluster.api.objects(resource)) {
        cluster.api.collection(resource).delete({ name, namespace: undefined });
      }
    }
    await cluster.until(
      () => {
        cluster.removeOrphans();
        return this.#left().length === 0;
      },
      () => `${this.#left().join("; ")}\n${cluster.lastEvents()}`,
      SETTLE_MS,
    );
  }

  #left(): string[] {
    const { api, nodes } = this.#cluster;
    const kinds: Resource[] = [persistentVolumeClaims, persistentVolumes, lvmVolumes, lvmSnapshots];
    kinds.push(volumeSnapshots, volumeSnapshotContents, volumeGroupSnapshots, volumeGroupSnapshotContents);
    kinds.push(lvmMoves, lvmImports);
    const isOurs = (object: KubeObject) => object.metadata.name.startsWith("pv-c") === false || hasCsi(object);
    const objects = kinds.flatMap((resource) =>
      api.objects(resource).filter(isOurs).map(({ metadata: { name } }) => `${resource.kind} ${name}`)
    );
    const machines = nodes.filter(({ wasForgotten }) => !wasForgotten).flatMap(({ name, machine }) => [
      ...machine.allLvs().filter(({ lv }) => lv.thinPool === undefined && !isForeign(lv)).map(({ lv }) =>
        `LV ${lv.name} on ${name}`
      ),
      ...machine.groups.flatMap(({ tags }) => [...tags].map((tag) => `tag ${tag} on ${name}`)),
      ...machine.mounts.slice(new FakeMachine().mounts.length).map(({ target }) => `mount ${target} on ${name}`),
    ]);
    return [...objects, ...machines];
  }
}

/** Reports whether a PersistentVolume is not somebody else's. */
function hasCsi(object: KubeObject): boolean {
  return (object as PersistentVolume).spec?.csi !== undefined;
}

/** Reports whether an LV is somebody else's, or is again. */
function isForeign({ name, tags }: FakeLv): boolean {
  return name.startsWith("archive-") && tags.size === 0;
}

/** Returns one of several things. */
function oneOf<T>(from: readonly T[], which: number): T | undefined {
  return from[which % from.length];
}
