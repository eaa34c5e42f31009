/**
 * Plays a history over a whole cluster, and checks what a user may see: during it, after everything has come back, and after
 * everything was deleted.
 *
 * @module
 */

import { lvmSnapshots, lvmVolumes } from "../../k8s/api/lvm_objects.ts";
import { events, persistentVolumeClaims, persistentVolumes, type Resource } from "../../k8s/api/objects.ts";
import { kubeconfigOf } from "../fake/cluster/kubeconfig.ts";
import { FakeMachine } from "../fake/machine/machine.ts";
import { MemoryFiles } from "../fake/machine/memory_files.ts";
import { ModelCluster } from "./cluster.ts";
import { CLASSES, type History, type Step } from "./history.ts";
import { World } from "./world.ts";

/** The time in which all that waits comes to its end when nothing fails any more, in milliseconds. */
const SETTLE_MS = 45 * 60_000;

/** Plays a history. @throws {Error} when a user sees what they may not see */
export async function play(history: History, { onLog }: { onLog?: (line: string) => void } = {}): Promise<void> {
  await using api = ModelCluster.startApi();
  const kubeconfig = await Deno.makeTempFile({ prefix: "denolith-model-" });
  try {
    await Deno.writeTextFile(kubeconfig, kubeconfigOf({ server: api.url }));
    using files = new MemoryFiles();
    using world = new World(1);
    world.onLog = onLog;
    await world.run(async () => {
      await using cluster = await ModelCluster.start(world, { api, files, kubeconfig });
      for (const [name, { parameters, volumeBindingMode }] of Object.entries(CLASSES)) {
        cluster.addClass(name, { parameters, volumeBindingMode });
      }
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

  constructor(cluster: ModelCluster) {
    [this.#cluster, this.#world] = [cluster, cluster.world];
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
        return void cluster.addClaim(`c${++this.#count}`, {
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
      case "wait":
        return;
    }
  }

  /** Ends a fault after some time. */
  #later(ms: number, end: () => Promise<void>): void {
    const once = async () => {
      if (this.#ends.delete(once)) await end();
    };
    this.#ends.add(once);
    setTimeout(() => void once().catch((error) => this.#world.fail(error)), ms);
  }

  #claims() {
    return this.#cluster.api.objects(persistentVolumeClaims).filter(({ metadata }) =>
      metadata.deletionTimestamp === undefined
    );
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
    const claims = api.objects(persistentVolumeClaims).flatMap(
      ({ metadata: { name, uid, deletionTimestamp }, spec, status }) => {
        const isUsed = pods.some((pod) => pod.claimUid === uid && !pod.isGone);
        if (deletionTimestamp !== undefined) return isUsed ? [] : [`claim ${name} is still being deleted`];
        if (status?.phase === "Bound") return [];
        if (status?.phase !== "Pending") return [`claim ${name} is ${status?.phase}`];
        if (spec?.storageClassName === "later" && !isUsed) return [];
        const isToldWhy = api.objects(events).some(({ involvedObject, reason }) =>
          involvedObject?.uid === uid && reason === "ProvisioningFailed"
        );
        return isToldWhy || spec?.storageClassName === "later"
          ? []
          : [`claim ${name} is Pending, and nothing says why`];
      },
    );
    const waiting = pods.filter((pod) => {
      if (pod.isGone) return false;
      const claim = api.objects(persistentVolumeClaims).find(({ metadata }) => metadata.uid === pod.claimUid);
      return pod.isDeleted ||
        (claim?.status?.phase === "Bound" && !pod.isRunning && claim.metadata.deletionTimestamp === undefined);
    });
    return [
      ...claims,
      ...waiting.map((pod) =>
        `pod ${pod.name} on ${pod.node} is not ${pod.isDeleted ? "gone" : "running"}: ${pod.waitsFor}`
      ),
    ];
  }

  /** Deletes everything, and requires that nothing is left. */
  async cleanUp(): Promise<void> {
    const cluster = this.#cluster;
    this.#world.log("CLEAN UP");
    for (const pod of cluster.pods.filter(({ isDeleted }) => !isDeleted)) cluster.deletePod(pod);
    for (const claim of this.#claims()) cluster.deleteClaim(claim);
    await cluster.until(
      () => this.#left().length === 0,
      () => `${this.#left().join("; ")}\n${cluster.lastEvents()}`,
      SETTLE_MS,
    );
  }

  #left(): string[] {
    const { api, nodes } = this.#cluster;
    const kinds: Resource[] = [persistentVolumeClaims, persistentVolumes, lvmVolumes, lvmSnapshots];
    const objects = kinds.flatMap((resource) =>
      api.objects(resource).map(({ metadata: { name } }) => `${resource.kind} ${name}`)
    );
    const machines = nodes.flatMap(({ name, machine }) => [
      ...machine.allLvs().filter(({ lv }) => lv.thinPool === undefined).map(({ lv }) => `LV ${lv.name} on ${name}`),
      ...machine.groups.flatMap(({ tags }) => [...tags].map((tag) => `tag ${tag} on ${name}`)),
      ...machine.mounts.slice(new FakeMachine().mounts.length).map(({ target }) => `mount ${target} on ${name}`),
    ]);
    return [...objects, ...machines];
  }
}

/** Returns one of several things. */
function oneOf<T>(from: readonly T[], which: number): T | undefined {
  return from[which % from.length];
}
