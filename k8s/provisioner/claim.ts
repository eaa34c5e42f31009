/**
 * Claims: whose they are, and what they ask for.
 *
 * @module
 */

import type { PersistentVolumeClaim, StorageClass } from "../api/objects.ts";

/** The annotation by which the scheduler says where a claim's volume should be. */
export const SELECTED_NODE_ANNOTATION = "volume.kubernetes.io/selected-node";

const PROVISIONER_ANNOTATIONS = [
  "volume.kubernetes.io/storage-provisioner",
  "volume.beta.kubernetes.io/storage-provisioner",
];

/** Whether a claim waits for a volume that a driver of that name should make. */
export function shouldProvision(claim: PersistentVolumeClaim, driverName: string): boolean {
  if (claim.spec?.volumeName || claim.metadata.deletionTimestamp !== undefined) return false;
  const [provisioner] = PROVISIONER_ANNOTATIONS.flatMap((annotation) => claim.metadata.annotations?.[annotation] ?? []);
  return provisioner === driverName;
}

/** The name of a claim's class; empty when there is none. The annotation is older than the field, and wins. */
export function classNameOf(claim: PersistentVolumeClaim): string {
  return claim.metadata.annotations?.["volume.beta.kubernetes.io/storage-class"] ?? claim.spec?.storageClassName ?? "";
}

/** The node that the scheduler chose for a claim. */
export function selectedNodeOf(claim: PersistentVolumeClaim): string | undefined {
  return claim.metadata.annotations?.[SELECTED_NODE_ANNOTATION] || undefined;
}

/** Whether the claim waits for a pod, and so for the scheduler to choose a node. */
export function waitsForConsumer(claim: PersistentVolumeClaim, { volumeBindingMode }: StorageClass): boolean {
  return volumeBindingMode === "WaitForFirstConsumer" && selectedNodeOf(claim) === undefined;
}

/** The name of the PersistentVolume of a claim, and of the request for its volume. */
export function volumeNameOf(uid: string): string {
  return `pvc-${uid}`;
}

/** The uid of the claim that a request name was made from; `undefined` for other names. */
export function claimUidOf(requestName: string): string | undefined {
  return /^pvc-([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})$/.exec(requestName)?.[1];
}

/** What a new volume is filled with. */
export type DataSource =
  | { readonly kind: "nothing" }
  | { readonly kind: "snapshot" | "claim"; readonly name: string; readonly namespace: string | undefined }
  /** Something that another program fills volumes with; it also sees to the claim. */
  | { readonly kind: "populator"; readonly description: string };

/** What a claim's volume is filled with. */
export function dataSourceOf({ spec }: PersistentVolumeClaim): DataSource {
  const source = spec?.dataSource ?? spec?.dataSourceRef;
  if (source === undefined) return { kind: "nothing" };
  const { apiGroup, kind, name } = source;
  const namespace = spec?.dataSourceRef?.namespace;
  if (apiGroup === "snapshot.storage.k8s.io" && kind === "VolumeSnapshot") return { kind: "snapshot", name, namespace };
  if (!apiGroup && kind === "PersistentVolumeClaim") return { kind: "claim", name, namespace };
  return { kind: "populator", description: `${kind} of ${apiGroup || "v1"}` };
}
