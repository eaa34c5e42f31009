/**
 * The objects of the cluster that this driver works with, and where the API keeps them.
 *
 * The types are those of the official client, by `import type`: none of its code runs (docs/adr/0009).
 *
 * @module
 */

import type {
  CoreV1Event,
  V1CSINode,
  V1CSIStorageCapacity,
  V1Lease,
  V1Node,
  V1PersistentVolume,
  V1PersistentVolumeClaim,
  V1Pod,
  V1StatefulSet,
  V1StorageClass,
  V1VolumeAttachment,
  V1VolumeAttributesClass,
} from "@kubernetes/client-node";

/** A type of the official client as JSON has it: its dates are text here. */
export type Json<T> = T extends Date ? string
  : T extends readonly (infer I)[] ? Json<I>[]
  : T extends object ? { [K in keyof T]: Json<T[K]> }
  : T;

/** An owner of an object, which is deleted with its owner. */
export interface OwnerReference {
  /** The owner's group and version. */
  apiVersion: string;
  /** The owner's kind. */
  kind: string;
  /** The owner's name; in the same namespace, or cluster-scoped. */
  name: string;
  /** The owner's uid. */
  uid: string;
  /** True if the owner is the one controller of the object. */
  controller?: boolean;
  /** True if the owner, deleted in the foreground, waits for the object. */
  blockOwnerDeletion?: boolean;
}

/** The metadata of an object. */
export interface ObjectMeta {
  /** Its name; empty only in an object to be created with `generateName`. */
  name: string;
  /** The start of a name that the API server completes. */
  generateName?: string;
  /** Its namespace; absent for cluster-scoped kinds. */
  namespace?: string;
  /** Its identity; an object of the same name that is created later has another one. */
  uid?: string;
  /** Its revision, to be compared for equality only. */
  resourceVersion?: string;
  /** The revision of its desired state; only some kinds have one. */
  generation?: number;
  /** Labels. */
  labels?: Record<string, string>;
  /** Annotations. */
  annotations?: Record<string, string>;
  /** The finalizers that keep it from removal. */
  finalizers?: string[];
  /** Its owners. */
  ownerReferences?: OwnerReference[];
  /** The time of its creation (RFC 3339). */
  creationTimestamp?: string;
  /** The time at which its deletion was requested (RFC 3339). */
  deletionTimestamp?: string;
}

/** An object of any kind. */
export interface KubeObject {
  /** Its group and version. */
  apiVersion?: string;
  /** Its kind. */
  kind?: string;
  /** The metadata of an object. */
  metadata: ObjectMeta;
}

/** An object of the official client's type `T`, with the metadata of {@linkcode KubeObject}. */
export type Builtin<T> = Omit<Json<T>, "apiVersion" | "kind" | "metadata"> & KubeObject;

/** A PersistentVolume. */
export type PersistentVolume = Builtin<V1PersistentVolume>;
/** A PersistentVolumeClaim. */
export type PersistentVolumeClaim = Builtin<V1PersistentVolumeClaim>;
/** A StorageClass. */
export type StorageClass = Builtin<V1StorageClass>;
/** A VolumeAttributesClass. */
export type VolumeAttributesClass = Builtin<V1VolumeAttributesClass>;
/** A Node. */
export type Node = Builtin<V1Node>;
/** A Pod. */
export type Pod = Builtin<V1Pod>;
/** A StatefulSet. */
export type StatefulSet = Builtin<V1StatefulSet>;
/** A Lease. */
export type Lease = Builtin<V1Lease>;
/** A core/v1 Event. */
export type Event = Builtin<CoreV1Event>;
/** A CSINode: which drivers are registered on a node. */
export type CsiNode = Builtin<V1CSINode>;
/** A VolumeAttachment: a volume that is attached to a node, or is to be. */
export type VolumeAttachment = Builtin<V1VolumeAttachment>;
/** A CSIStorageCapacity. */
export type CsiStorageCapacity = Builtin<V1CSIStorageCapacity>;

/** A kind in the API, with the type of its objects. */
export interface Resource<T extends KubeObject = KubeObject> {
  /** The API group; empty for the core group. */
  readonly group: string;
  /** The version. */
  readonly version: string;
  /** The name in paths: lower case, plural. */
  readonly plural: string;
  /** The kind. */
  readonly kind: string;
  /** True if its objects are in namespaces. */
  readonly namespaced: boolean;
  /** Only for the compiler: the type of the objects. */
  readonly object?: T;
}

/** The name of an object. */
export interface ObjectName {
  /** Its name. */
  readonly name: string;
  /** Its namespace; absent for cluster-scoped kinds. */
  readonly namespace?: string | undefined;
}

/** PersistentVolumes. */
export const persistentVolumes: Resource<PersistentVolume> = clusterScoped("v1", "PersistentVolume");
/** PersistentVolumeClaims. */
export const persistentVolumeClaims: Resource<PersistentVolumeClaim> = namespaced("v1", "PersistentVolumeClaim");
/** Nodes. */
export const nodes: Resource<Node> = clusterScoped("v1", "Node");
/** Pods. */
export const pods: Resource<Pod> = namespaced("v1", "Pod");
/** StatefulSets. */
export const statefulSets: Resource<StatefulSet> = namespaced("apps/v1", "StatefulSet");
/** Events of core/v1. */
export const events: Resource<Event> = namespaced("v1", "Event");
/** StorageClasses. */
export const storageClasses: Resource<StorageClass> = clusterScoped("storage.k8s.io/v1", "StorageClass");
/** VolumeAttributesClasses. */
export const volumeAttributesClasses: Resource<VolumeAttributesClass> = clusterScoped(
  "storage.k8s.io/v1",
  "VolumeAttributesClass",
);
/** CSINodes. */
export const csiNodes: Resource<CsiNode> = clusterScoped("storage.k8s.io/v1", "CSINode");
/** VolumeAttachments. */
export const volumeAttachments: Resource<VolumeAttachment> = clusterScoped("storage.k8s.io/v1", "VolumeAttachment");
/** CSIStorageCapacities. */
export const csiStorageCapacities: Resource<CsiStorageCapacity> = namespaced("storage.k8s.io/v1", "CSIStorageCapacity");
/** Leases. */
export const leases: Resource<Lease> = namespaced("coordination.k8s.io/v1", "Lease");

/** Describes a cluster-scoped kind. */
export function clusterScoped<T extends KubeObject>(apiVersion: string, kind: string): Resource<T> {
  const [version, group = ""] = apiVersion.split("/").reverse() as [string, string?];
  return { group, version, plural: pluralOf(kind.toLowerCase()), kind, namespaced: false };
}

/** Describes a kind whose objects are in namespaces. */
export function namespaced<T extends KubeObject>(apiVersion: string, kind: string): Resource<T> {
  return { ...clusterScoped<T>(apiVersion, kind), namespaced: true };
}

/** Returns the plural of a kind, as the API's own tools form it. */
function pluralOf(kind: string): string {
  return kind.endsWith("s") ? `${kind}es` : kind.replace(/y$/, "ie") + "s";
}

/** Returns the `apiVersion` of the objects of a resource. */
export function apiVersionOf({ group, version }: Resource): string {
  return group === "" ? version : `${group}/${version}`;
}

/** Returns the path of the collection of a resource, or of one object when it is named. */
export function pathOf(resource: Resource, at: { name?: string; namespace?: string | undefined } = {}): string {
  const { group, version, plural, namespaced } = resource;
  const parts = group === "" ? ["api", version] : ["apis", group, version];
  if (namespaced && at.namespace !== undefined) parts.push("namespaces", at.namespace);
  parts.push(plural);
  if (at.name !== undefined) parts.push(at.name);
  return "/" + parts.map(encodeURIComponent).join("/");
}

/**
 * Reports whether an object can have a name. The name of a source, which a claim has, can be any text, and another one would lead to
 * another object, or to a list: servers decode `%2F`, and URLs have no `..`.
 */
export function isPathSegment(name: string): boolean {
  return /^(?!\.{1,2}$)[^/%]+$/.test(name);
}

/** Returns the key of an object: `namespace/name`, or `name` for cluster-scoped kinds. */
export function keyOf({ metadata }: KubeObject): string {
  return keyOfName(metadata);
}

/** Returns the key of an object's name. */
export function keyOfName({ name, namespace }: ObjectName): string {
  return namespace === undefined ? name : `${namespace}/${name}`;
}

/** Reports whether an object is at a revision or a later one. Revisions are numbers in one order (KEP-5504). */
export function isAtLeastVersion({ metadata: { resourceVersion = "0" } }: KubeObject, revision: string): boolean {
  return BigInt(resourceVersion) >= BigInt(revision);
}
