/**
 * The PersistentVolume of a handover: on which node it is, what is recorded of it, how it is replaced, and how its policy is Retain
 * meanwhile, so that nobody deletes what it stands for.
 *
 * @module
 */

import { defined } from "../../base/defined.ts";
import type { ApiClient, NewObject } from "../client/client.ts";
import { MOVE_ANNOTATION, RECLAIM_POLICY_ANNOTATION } from "../api/lvm_objects.ts";
import { type PersistentVolume, persistentVolumes } from "../api/objects.ts";
import { VOLUME_FINALIZER } from "../provisioner/persistent_volume.ts";
import {
  type CommonStep,
  type Handover,
  type HandoverObjects,
  type RecordedPersistentVolume,
  type Wait,
  waitForFinalizers,
} from "./handover.ts";
import { deleteAsRead, patchAsRead } from "./writes.ts";

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

/**
 * Returns a PersistentVolume that was recorded, bound to the same claim, with the policy Retain.
 *
 * @param more.annotations further annotations
 * @param more.spec further fields of the spec
 */
export function volumeFrom(
  { spec: { persistentVolume: name } }: Handover,
  { metadata: { labels, annotations }, spec }: RecordedPersistentVolume,
  more: { readonly annotations?: Record<string, string>; readonly spec?: PersistentVolume["spec"] } = {},
): NewObject<PersistentVolume> {
  const { resourceVersion: _, ...claimRef } = spec.claimRef ?? {};
  return {
    metadata: { name, ...defined({ labels }), annotations: { ...annotations, ...more.annotations } },
    spec: { ...spec, claimRef, ...more.spec, persistentVolumeReclaimPolicy: "Retain" },
  };
}

/** Returns the policy that a PersistentVolume had before the handover. */
export function recordedPolicyOf({ status }: Handover): string | undefined {
  return status?.persistentVolume?.spec.persistentVolumeReclaimPolicy;
}

/** Returns the next step of the deletion of a PersistentVolume. Until it is created again, the claim is Lost, and no pod starts. */
export function deletionStep(
  persistentVolume: PersistentVolume,
  { isRetained }: { readonly isRetained: boolean },
): CommonStep {
  if (!isRetained) return { do: "retain" };
  return waitForFinalizers("the PersistentVolume", persistentVolume, foreignFinalizers(persistentVolume)) ??
    { do: "delete persistent volume" };
}

/**
 * Returns the wait until the claim is bound again; `undefined` when it is. A claim that was deleted meanwhile is not waited for: the
 * policy of the PersistentVolume decides at the end.
 */
export function bindingWait({ self, persistentVolume, claim }: HandoverObjects): Wait | undefined {
  const { namespace, name, uid } = self.spec.claim;
  if (claim?.metadata.uid !== uid) return undefined;
  if (claim.status?.phase === "Bound" && persistentVolume?.status?.phase === "Bound") return undefined;
  return { do: "wait", message: `waits until claim ${namespace}/${name} is Bound again`, agents: [] };
}

/** Sets the policy Retain. @param marks annotations by which the policy is restored */
export async function retain(
  client: ApiClient,
  persistentVolume: PersistentVolume,
  marks: Record<string, string>,
): Promise<void> {
  await patchAsRead(client, persistentVolumes, persistentVolume, {
    metadata: { annotations: marks },
    spec: { persistentVolumeReclaimPolicy: "Retain" },
  });
}

/** Restores the policy of a PersistentVolume. @param marks the names of the annotations that {@linkcode retain} added */
export async function restorePolicy(
  client: ApiClient,
  persistentVolume: PersistentVolume,
  policy: string | undefined,
  marks: readonly string[],
): Promise<void> {
  await patchAsRead(client, persistentVolumes, persistentVolume, {
    metadata: { annotations: Object.fromEntries(marks.map((name) => [name, null])) },
    spec: defined({ persistentVolumeReclaimPolicy: policy }),
  });
}

/** Deletes a PersistentVolume although it is bound: what it stands for stays, because its policy is Retain. */
export async function deletePersistentVolume(client: ApiClient, object: PersistentVolume): Promise<void> {
  if (object.metadata.deletionTimestamp === undefined) return await deleteAsRead(client, persistentVolumes, object);
  await patchAsRead(client, persistentVolumes, object, { metadata: { finalizers: foreignFinalizers(object) } });
}

/** Returns the finalizers of others, which a handover does not remove. */
function foreignFinalizers({ metadata: { finalizers = [] } }: PersistentVolume): string[] {
  return finalizers.filter((name) => name !== PROTECTION_FINALIZER && name !== VOLUME_FINALIZER);
}
