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

/** Reports whether a claim waits for a volume of the driver. */
export function shouldProvision(claim: PersistentVolumeClaim, driverName: string): boolean {
  if (claim.spec?.volumeName || claim.metadata.deletionTimestamp !== undefined) return false;
  return provisionerOf(claim) === driverName;
}

/** Returns the driver that Kubernetes asks for a claim's volume; `undefined` before it does, and for a static volume. */
export function provisionerOf({ metadata: { annotations } }: PersistentVolumeClaim): string | undefined {
  return PROVISIONER_ANNOTATIONS.flatMap((annotation) => annotations?.[annotation] ?? [])[0];
}

/** Returns the name of a claim's class; empty when there is none. The annotation is older than the field, and wins. */
export function classNameOf(claim: PersistentVolumeClaim): string {
  return claim.metadata.annotations?.["volume.beta.kubernetes.io/storage-class"] ?? claim.spec?.storageClassName ?? "";
}

/** Returns the node that the scheduler chose for a claim. */
export function selectedNodeOf(claim: PersistentVolumeClaim): string | undefined {
  return claim.metadata.annotations?.[SELECTED_NODE_ANNOTATION] || undefined;
}

/** Reports whether a claim waits for a pod, and so for the scheduler to select a node. */
export function waitsForConsumer(claim: PersistentVolumeClaim, { volumeBindingMode }: StorageClass): boolean {
  return volumeBindingMode === "WaitForFirstConsumer" && selectedNodeOf(claim) === undefined;
}

/** Returns the name of the PersistentVolume of a claim, and of the request for its volume. */
export function volumeNameOf(uid: string): string {
  return `pvc-${uid}`;
}

/** Returns the uid of the claim that a request name was made from, or `undefined` for other names. */
export function claimUidOf(requestName: string): string | undefined {
  return /^pvc-([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})$/.exec(requestName)?.[1];
}

/** The source of a new volume's content. */
export type DataSource =
  | { readonly kind: "nothing" }
  | { readonly kind: "snapshot" | "claim"; readonly name: string; readonly namespace: string | undefined }
  /** A source that another program populates volumes from; that program also serves the claim. */
  | { readonly kind: "populator"; readonly description: string };

/** Returns the source of the content of a claim's volume. */
export function dataSourceOf({ spec = {} }: PersistentVolumeClaim): DataSource {
  const source = spec.dataSource ?? spec.dataSourceRef;
  if (source === undefined) return { kind: "nothing" };
  const { apiGroup, kind, name } = source;
  const namespace = spec.dataSourceRef?.namespace || undefined;
  if (apiGroup === "snapshot.storage.k8s.io" && kind === "VolumeSnapshot") return { kind: "snapshot", name, namespace };
  if (!apiGroup && kind === "PersistentVolumeClaim") return { kind: "claim", name, namespace };
  return { kind: "populator", description: `${kind} of ${apiGroup || "v1"}` };
}
