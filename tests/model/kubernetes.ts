/**
 * What Kubernetes itself does for claims and pods, besides binding: the scheduler chooses nodes, and claims in use are kept.
 *
 * @module
 */

import {
  csiStorageCapacities,
  type PersistentVolumeClaim,
  persistentVolumeClaims,
  persistentVolumes,
  type Resource,
  storageClasses,
} from "../../k8s/api/objects.ts";
import {
  volumeGroupSnapshotContents,
  volumeGroupSnapshots,
  volumeSnapshotContents,
  volumeSnapshots,
} from "../../k8s/api/snapshot_objects.ts";
import { quantityToBytes } from "../../k8s/api/quantity.ts";
import { isFinished } from "../../k8s/handover/handover.ts";
import { lvmMoves } from "../../k8s/handover/moves.ts";
import { nodeOfVolume } from "../../k8s/handover/persistent_volume.ts";
import { SELECTED_NODE_ANNOTATION } from "../../k8s/provisioner/claim.ts";
import { TOPOLOGY_KEY } from "../fake/cluster/control_plane.ts";
import type { ModelCluster } from "./cluster.ts";
import type { Pod } from "./pod.ts";
import { controlGroups, controlSnapshots, isBeingSnapshotted } from "./snapshots.ts";
import type { Process } from "./world.ts";

/** The finalizer of claims that pods use. */
export const CLAIM_PROTECTION = "kubernetes.io/pvc-protection";

/** The time after which it looks at everything, also without a change, in milliseconds. */
const PERIOD_MS = 10_000;

/** The part of Kubernetes. It looks at everything again after each change. */
export class Kubernetes {
  readonly #cluster: ModelCluster;
  readonly #process: Process;
  #isAwake = false;

  constructor(cluster: ModelCluster) {
    this.#cluster = cluster;
    this.#process = cluster.world.process("kubernetes");
    const kinds: Resource[] = [persistentVolumeClaims, persistentVolumes, csiStorageCapacities];
    for (
      const resource of [
        ...kinds,
        volumeSnapshots,
        volumeSnapshotContents,
        volumeGroupSnapshots,
        volumeGroupSnapshotContents,
      ]
    ) {
      cluster.api.collection(resource).listeners.add(() => this.wake());
    }
    const look = () => {
      this.wake();
      setTimeout(look, PERIOD_MS);
    };
    this.#process.run(look);
  }

  /** Has it look at everything soon. */
  wake(): void {
    if (this.#isAwake) return;
    this.#isAwake = true;
    const { world } = this.#cluster;
    this.#process.run(() =>
      void setTimeout(() => {
        this.#isAwake = false;
        if (this.#cluster.network.cutOf(this.#process) !== undefined) return this.wake();
        this.#releaseClaims();
        controlGroups(this.#cluster);
        controlSnapshots(this.#cluster);
        this.#endCopies();
        this.#evict();
        for (const pod of this.#cluster.pods) this.#schedule(pod);
      }, 50 + world.random() * 500)
    );
  }

  /** Lets claims go that are deleted, and that no pod uses. */
  #releaseClaims(): void {
    const { api, pods } = this.#cluster;
    for (const { metadata } of api.objects(persistentVolumeClaims)) {
      const { finalizers = [], deletionTimestamp, uid, name, namespace } = metadata;
      if (deletionTimestamp === undefined || !finalizers.includes(CLAIM_PROTECTION)) continue;
      if (pods.some((pod) => pod.claimUid === uid && !pod.isGone) || isBeingSnapshotted(this.#cluster, name)) continue;
      const others = finalizers.filter((one) => one !== CLAIM_PROTECTION);
      api.collection(persistentVolumeClaims).patch({ metadata: { finalizers: others } }, { namespace, name });
    }
  }

  /** Ends the moments of copies that are made. */
  #endCopies(): void {
    const { api, copies, contents } = this.#cluster;
    for (const { metadata: { uid }, status } of api.objects(persistentVolumeClaims)) {
      const moment = copies.get(uid!);
      if (moment !== undefined && status?.phase === "Bound") contents.endMoment(moment);
    }
  }

  /** Evicts the pods of claims that are moved, as the plugin does; most are replaced at once. */
  #evict(): void {
    const { api, evicted, pods, world } = this.#cluster;
    for (const { spec, status } of api.objects(lvmMoves).filter((move) => !isFinished(move))) {
      const { uid, name } = spec.claim;
      const claim = this.#cluster.claim(name);
      if (!evicted.has(uid) || status?.state !== "Holding" || claim === undefined) continue;
      for (const pod of pods.filter((pod) => pod.claimUid === uid && pod.node === spec.sourceNode && !pod.isDeleted)) {
        this.#cluster.deletePod(pod);
        if (world.random() < 0.7) this.#cluster.addPod(`${pod.name}e`, claim);
      }
    }
  }

  #schedule(pod: Pod): void {
    if (pod.isGone) return;
    const { api, nodes } = this.#cluster;
    if (pod.node !== undefined) return this.#replaceStranded(pod);
    if (pod.isDeleted) {
      pod.isGone = true;
      return this.wake();
    }
    const claim = api.objects(persistentVolumeClaims).find(({ metadata }) => metadata.uid === pod.claimUid);
    if (claim === undefined || claim.metadata.deletionTimestamp !== undefined) return;
    const volume = api.objects(persistentVolumes).find(({ metadata }) => metadata.name === claim.spec?.volumeName);
    if (claim.status?.phase !== "Bound" || volume === undefined) return this.#selectNode(claim);
    const node = nodes.find(({ name }) => name === nodeOfVolume(volume, TOPOLOGY_KEY));
    if (node === undefined || !node.isOn) return;
    pod.node = node.name;
    node.kubelet!.add(pod);
  }

  /** Replaces a pod that waits where its volume is not any more, as somebody has to do. */
  #replaceStranded(pod: Pod): void {
    const { api, world } = this.#cluster;
    const claim = api.objects(persistentVolumeClaims).find(({ metadata }) => metadata.uid === pod.claimUid);
    const volume = api.objects(persistentVolumes).find(({ metadata }) => metadata.name === claim?.spec?.volumeName);
    if (pod.isRunning || pod.isDeleted || claim?.status?.phase !== "Bound" || volume?.status?.phase !== "Bound") return;
    if (nodeOfVolume(volume, TOPOLOGY_KEY) === pod.node) return;
    world.log(`pod ${pod.name} is stranded on ${pod.node}`);
    this.#cluster.deletePod(pod);
    this.#cluster.addPod(`${pod.name}x`, claim);
  }

  /** Chooses a node for a claim that waits for its first consumer. */
  #selectNode({ metadata, spec }: PersistentVolumeClaim): void {
    const { api, nodes, world } = this.#cluster;
    const { namespace, name, annotations } = metadata;
    const storageClass = api.objects(storageClasses).find((one) => one.metadata.name === spec?.storageClassName);
    if (storageClass?.volumeBindingMode === "Immediate" || annotations?.[SELECTED_NODE_ANNOTATION]) return;
    const bytes = quantityToBytes(spec!.resources!.requests!["storage"])!;
    const capacities = api.objects(csiStorageCapacities).filter((one) => {
      const largest = quantityToBytes(one.maximumVolumeSize ?? one.capacity) ?? 0n;
      return one.storageClassName === spec?.storageClassName && largest >= bytes;
    });
    const offered = nodes.filter((node) =>
      node.isOn && capacities.some(({ nodeTopology }) => nodeTopology?.matchLabels?.[TOPOLOGY_KEY] === node.name)
    );
    if (offered.length === 0) return;
    const merge = { metadata: { annotations: { [SELECTED_NODE_ANNOTATION]: world.pick(offered).name } } };
    api.collection(persistentVolumeClaims).patch(merge, { namespace, name });
  }
}
