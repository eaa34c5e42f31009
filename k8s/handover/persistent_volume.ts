/**
 * The PersistentVolume of a volume that moves: on which node it is, what is recorded of it, and how it is made again.
 *
 * @module
 */

import { defined } from "../../base/defined.ts";
import type { NewObject } from "../client/client.ts";
import { MOVE_ANNOTATION, RECLAIM_POLICY_ANNOTATION } from "../api/lvm_objects.ts";
import type { PersistentVolume } from "../api/objects.ts";
import { VOLUME_FINALIZER } from "../provisioner/persistent_volume.ts";
import type { LvmMove, RecordedPersistentVolume } from "./moves.ts";

/** The finalizer of Kubernetes that keeps a PersistentVolume while it is bound. */
const PROTECTION_FINALIZER = "kubernetes.io/pv-protection";

/** Returns the node that a PersistentVolume is bound to by one label alone; `undefined` when its affinity says something else. */
export function nodeOfVolume({ spec }: Pick<PersistentVolume, "spec">, topologyKey: string): string | undefined {
  const [term, ...otherTerms] = spec?.nodeAffinity?.required?.nodeSelectorTerms ?? [];
  const { matchExpressions = [], matchFields = [] } = term ?? {};
  const [only, ...others] = matchExpressions;
  if (only === undefined || others.length + otherTerms.length + matchFields.length > 0) return undefined;
  const { key, operator, values = [] } = only;
  return key === topologyKey && operator === "In" && values.length === 1 ? values[0] : undefined;
}

/** Returns the affinity to a node. */
export function affinityTo(node: string, topologyKey: string) {
  const matchExpressions = [{ key: topologyKey, operator: "In", values: [node] }];
  return { required: { nodeSelectorTerms: [{ matchExpressions }] } };
}

/** Returns what is recorded of a PersistentVolume. */
export function recordOf(
  { metadata: { uid = "", labels, annotations }, spec = {} }: PersistentVolume,
): RecordedPersistentVolume {
  const { [MOVE_ANNOTATION]: _, [RECLAIM_POLICY_ANNOTATION]: policy, ...others } = annotations ?? {};
  return {
    metadata: { uid, ...defined({ labels }), ...(annotations && { annotations: others }) },
    spec: { ...spec, ...(policy !== undefined && { persistentVolumeReclaimPolicy: policy }) },
  };
}

/** Returns the patch that sets the Retain policy for a move. */
export function retainedFor({ metadata: { uid = "" } }: LvmMove, policy: string | undefined) {
  return {
    metadata: { annotations: { [MOVE_ANNOTATION]: uid, ...defined({ [RECLAIM_POLICY_ANNOTATION]: policy }) } },
    spec: { persistentVolumeReclaimPolicy: "Retain" },
  };
}

/** Returns the patch that restores the original policy. */
export function restoredTo(policy: string | undefined) {
  return {
    metadata: { annotations: { [MOVE_ANNOTATION]: null, [RECLAIM_POLICY_ANNOTATION]: null } },
    spec: defined({ persistentVolumeReclaimPolicy: policy }),
  };
}

/**
 * Returns a PersistentVolume as it was, on a node, and bound to the same claim. Nobody deletes what it stands for, because its
 * policy is Retain.
 */
export function volumeFrom(
  move: LvmMove,
  { metadata: { labels, annotations }, spec }: RecordedPersistentVolume,
  node: string,
  topologyKey: string,
): NewObject<PersistentVolume> {
  const { resourceVersion: _, ...claimRef } = spec.claimRef ?? {};
  const retained = retainedFor(move, spec.persistentVolumeReclaimPolicy);
  return {
    apiVersion: "v1",
    kind: "PersistentVolume",
    metadata: {
      name: move.spec.persistentVolume,
      ...defined({ labels }),
      annotations: { ...annotations, ...retained.metadata.annotations },
    },
    spec: { ...spec, claimRef, ...retained.spec, nodeAffinity: affinityTo(node, topologyKey) },
  };
}

/** Returns the finalizers of others, which a move does not remove. */
export function foreignFinalizers({ metadata: { finalizers = [] } }: PersistentVolume): string[] {
  return finalizers.filter((name) => name !== PROTECTION_FINALIZER && name !== VOLUME_FINALIZER);
}
