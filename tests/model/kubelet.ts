/**
 * The part of kubelet that has the volumes of pods staged and published, expanded, and unpublished and unstaged again.
 *
 * @module
 */

import { Node as NodeService } from "../../csi/proto/csi_pb.ts";
import {
  type PersistentVolume,
  type PersistentVolumeClaim,
  persistentVolumeClaims,
  persistentVolumes,
} from "../../k8s/api/objects.ts";
import { capacityOf, sizesOf } from "../../k8s/resizer/resize_plan.ts";
import { secrets } from "../../k8s/sidecars/secrets.ts";
import type { Pod } from "./pod.ts";
import { CallFailure, type SimulatedNode } from "./node.ts";
import { count } from "./tally.ts";
import type { Process } from "./world.ts";

/** The delays after failures, in milliseconds. */
const BACKOFF = { startMs: 500, capMs: 122_000 } as const;

/** The time after which kubelet looks at a pod again, in milliseconds. */
const PERIOD_MS = 2_000;

/** Kubelet. It ends with its process. */
export class Kubelet {
  readonly process: Process;
  readonly #node: SimulatedNode;
  /** The ends of what is done with each volume: one thing at a time. */
  readonly #busy = new Map<string, Promise<unknown>>();

  constructor(node: SimulatedNode) {
    this.#node = node;
    this.process = node.cluster.world.process(`kubelet ${node.name}`);
    for (const pod of node.cluster.pods) if (pod.node === node.name && isKept(pod)) this.add(pod);
  }

  /** Starts a pod, or what is left of it. */
  add(pod: Pod): void {
    this.process.run(() => this.#keep(pod)).catch((error) => this.#node.cluster.world.fail(error));
  }

  async #keep(pod: Pod): Promise<void> {
    const { cluster } = this.#node;
    pod.isRunning = false;
    for (let failures = 0; isKept(pod);) {
      try {
        if (pod.isDeleted) await this.#end(pod);
        else await this.#start(pod);
        failures = 0;
        await cluster.world.sleep(PERIOD_MS / 2 + cluster.world.random() * PERIOD_MS);
      } catch (error) {
        if (!(error instanceof CallFailure)) throw error;
        cluster.world.log(`kubelet ${this.#node.name}: pod ${pod.name}: ${error.message}`);
        pod.waitsFor = error.message;
        const delayMs = Math.min(BACKOFF.capMs, BACKOFF.startMs * 2 ** failures++);
        for (let waited = 0; waited < delayMs && pod.isDeleted === pod.knowsDeletion; waited += PERIOD_MS) {
          await cluster.world.sleep(Math.min(PERIOD_MS, delayMs));
        }
        pod.knowsDeletion = pod.isDeleted;
      }
    }
  }

  async #start(pod: Pod): Promise<void> {
    const { cluster } = this.#node;
    if (cluster.network.cutOf(this.process) !== undefined) return;
    if (!pod.isRunning) {
      const volume = this.#volumeOf(pod);
      if (volume === undefined) return;
      pod.mounted = volume;
      const secrets = this.#secretsOf(volume);
      await this.#alone(volume, () => this.#node.publish(volume, pod.name, secrets));
      cluster.onPublished(pod.claimUid, secrets["passphrase"]);
      pod.isRunning = true;
      pod.waitsFor = undefined;
      cluster.world.log(`kubelet ${this.#node.name}: pod ${pod.name} runs`);
      cluster.onRunning(pod);
    }
    await this.#expand(pod);
  }

  /** Unmounts the volume of a pod, which is gone then, and unstages the volume after its last pod. */
  async #end(pod: Pod): Promise<void> {
    const { world, kubernetes } = this.#node.cluster;
    pod.isRunning = false;
    const volume = pod.mounted;
    if (volume !== undefined && !pod.isUnmounted) {
      const { volumeId, targetPath } = this.#node.paths(volume, pod.name);
      await this.#alone(
        volume,
        () => this.#node.call(NodeService.method.nodeUnpublishVolume, { volumeId, targetPath }),
      );
      pod.isUnmounted = true;
    }
    pod.isGone = true;
    world.log(`pod ${pod.name} is gone`);
    kubernetes.wake();
    if (volume === undefined) return;
    await world.sleep(world.between(0, 300));
    await this.#alone(volume, () => this.#unstage(pod, volume));
    pod.mounted = undefined;
  }

  /** Unstages the volume of a pod, unless another one uses it. */
  async #unstage(pod: Pod, volume: PersistentVolume): Promise<void> {
    const { volumeId, stagingTargetPath } = this.#node.paths(volume, pod.name);
    const isUsed = this.#node.cluster.pods.some((other) => {
      const isHere = other !== pod && other.node === this.#node.name && !other.isUnmounted;
      return isHere && other.mounted?.spec?.csi?.volumeHandle === volumeId;
    });
    if (!isUsed) await this.#node.call(NodeService.method.nodeUnstageVolume, { volumeId, stagingTargetPath });
  }

  /** Expands the filesystem of a volume whose controller has expanded it. */
  async #expand(pod: Pod): Promise<void> {
    const { api } = this.#node.cluster;
    const claim = claimOf(pod, api.objects(persistentVolumeClaims));
    const volume = pod.mounted!;
    const now = api.objects(persistentVolumes).find(({ metadata }) => metadata.name === volume.metadata.name);
    if (claim === undefined || now === undefined) return;
    const { state, actual, allocated } = sizesOf(claim);
    const isPending = claim.status?.conditions?.some(({ type }) => type === "FileSystemResizePending") ?? false;
    const required = capacityOf(now);
    if (actual >= required || (!isPending && state !== "NodeResizePending" && state !== "NodeResizeInProgress")) return;
    const { volumeId, targetPath, stagingTargetPath } = this.#node.paths(volume, pod.name);
    await this.#alone(volume, () =>
      this.#node.call(NodeService.method.nodeExpandVolume, {
        ...{ volumeId, volumePath: targetPath, stagingTargetPath },
        capacityRange: { requiredBytes: required },
      }));
    count("expansion on the node");
    const { namespace, name } = claim.metadata;
    const storage = allocated === undefined
      ? now.spec!.capacity!["storage"]
      : claim.status!.allocatedResources!["storage"];
    const conditions = claim.status?.conditions?.filter(({ type }) => {
      return type !== "FileSystemResizePending" && type !== "Resizing";
    });
    api.collection(persistentVolumeClaims).patch(
      { status: { capacity: { storage }, conditions, allocatedResourceStatuses: { storage: null } } },
      { namespace, name },
      "status",
    );
  }

  /** Returns the PersistentVolume of a pod's claim, if that is bound and belongs to this node. */
  #volumeOf(pod: Pod): PersistentVolume | undefined {
    const { api } = this.#node.cluster;
    const claim = claimOf(pod, api.objects(persistentVolumeClaims));
    if (claim?.status?.phase !== "Bound") return undefined;
    const volume = api.objects(persistentVolumes).find(({ metadata }) => metadata.name === claim.spec?.volumeName);
    const isOfClaim = volume?.status?.phase === "Bound" && volume.spec?.claimRef?.uid === claim.metadata.uid;
    return isOfClaim ? volume : undefined;
  }

  #secretsOf({ spec }: PersistentVolume): Record<string, string> {
    const { api } = this.#node.cluster;
    const reference = spec?.csi?.nodeStageSecretRef;
    const secret = api.objects(secrets).find(({ metadata }) => metadata.name === reference?.name);
    return Object.fromEntries(Object.entries(secret?.data ?? {}).map(([key, value]) => [key, atob(value)]));
  }

  /** Does something with a volume, after what is done with it. */
  async #alone(volume: PersistentVolume, body: () => Promise<void>): Promise<void> {
    const id = volume.spec!.csi!.volumeHandle;
    const before = this.#busy.get(id);
    const own = (async () => {
      await before?.catch(() => {});
      await body();
    })();
    own.catch(() => {});
    this.#busy.set(id, own);
    await own;
  }
}

/** Reports whether there is a pod, or something is left of it. */
function isKept(pod: Pod): boolean {
  return !pod.isGone || pod.mounted !== undefined;
}

function claimOf(pod: Pod, claims: readonly PersistentVolumeClaim[]): PersistentVolumeClaim | undefined {
  return claims.find(({ metadata }) => metadata.uid === pod.claimUid);
}
