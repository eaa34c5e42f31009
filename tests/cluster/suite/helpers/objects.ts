/**
 * The objects of a volume's lifecycle.
 *
 * @module
 */

import type { PersistentVolumeClaim, Pod, StorageClass } from "../../../../k8s/api/objects.ts";
import { BUSYBOX_IMAGE } from "../../../rig/pod_image.ts";

/** The driver's name. */
export const DRIVER = "lvm.denolith.dev";

/** Parameters of volumes that are deleted quickly: the large group, and no erasure, which is slow in an emulated machine. */
export const QUICK = { volumeGroup: "data", erase: "none" } as const;

/** The options of a claim. */
export interface ClaimSpec {
  readonly name: string;
  /** The full name of its class. */
  readonly class: string;
  /** 16Mi by default. */
  readonly size?: string;
  /** ReadWriteOnce by default. */
  readonly mode?: "ReadWriteOnce" | "ReadWriteOncePod" | "ReadOnlyMany" | "ReadWriteMany";
  /** Filesystem by default. */
  readonly volumeMode?: "Filesystem" | "Block";
  /** The name of its PersistentVolume. */
  readonly volumeName?: string;
  /** The full name of its VolumeAttributesClass. */
  readonly attributes?: string;
  /** Its data source, in its namespace. */
  readonly from?: { readonly kind: "VolumeSnapshot" | "PersistentVolumeClaim"; readonly name: string };
}

/** A claim in a pod: at a path, or as a device. */
export interface ClaimMount {
  readonly name: string;
  readonly path?: string;
  readonly devicePath?: string;
  readonly readOnly?: boolean;
  readonly subPath?: string;
}

/** The options of a pod. */
export interface PodSpec {
  readonly name: string;
  readonly claims?: readonly ClaimMount[];
  /** The node on which it must run; any by default. */
  readonly node?: string;
  /** A script for the shell. By default it sleeps until SIGTERM. */
  readonly command?: string;
  /** Of the pod, as in its spec. */
  readonly securityContext?: Readonly<Record<string, unknown>>;
}

/** The options of a storage class, in addition to the defaults. */
export interface StorageClassSpec {
  readonly parameters?: Readonly<Record<string, string>>;
  readonly reclaimPolicy?: "Delete" | "Retain";
  readonly volumeBindingMode?: "Immediate" | "WaitForFirstConsumer";
  /** True by default. */
  readonly allowVolumeExpansion?: boolean;
  readonly mountOptions?: readonly string[];
}

/** A shell script that sleeps, and ends at once on SIGTERM. */
export const SLEEP = "trap 'exit 0' TERM; while :; do sleep 1000 & wait $!; done";

/** Returns a claim to apply. */
export function claimObject(spec: ClaimSpec): PersistentVolumeClaim {
  return {
    apiVersion: "v1",
    kind: "PersistentVolumeClaim",
    metadata: { name: spec.name },
    spec: {
      storageClassName: spec.class,
      accessModes: [spec.mode ?? "ReadWriteOnce"],
      volumeMode: spec.volumeMode ?? "Filesystem",
      resources: { requests: { storage: spec.size ?? "16Mi" } },
      ...(spec.volumeName === undefined ? {} : { volumeName: spec.volumeName }),
      ...(spec.attributes === undefined ? {} : { volumeAttributesClassName: spec.attributes }),
      ...(spec.from === undefined ? {} : { dataSource: dataSource(spec.from) }),
    },
  };
}

/** Returns a pod to apply. A claim that is named twice is one volume. */
export function podObject(spec: PodSpec): Pod {
  const claims = spec.claims ?? [];
  const names = [...new Set(claims.map(({ name }) => name))];
  const readOnly = (mount: ClaimMount) => mount.readOnly === undefined ? {} : { readOnly: mount.readOnly };
  const mounts = claims.flatMap((mount) => {
    const { name, path, subPath } = mount;
    if (path === undefined) return [];
    return [{ name, mountPath: path, ...readOnly(mount), ...(subPath === undefined ? {} : { subPath }) }];
  });
  const devices = claims.flatMap(({ name, devicePath }) => devicePath === undefined ? [] : [{ name, devicePath }]);
  return {
    apiVersion: "v1",
    kind: "Pod",
    metadata: { name: spec.name },
    spec: {
      // Without one second, the API forgets the pod before kubelet has taken its volumes away.
      terminationGracePeriodSeconds: 1,
      automountServiceAccountToken: false,
      ...(spec.node === undefined ? {} : { nodeSelector: { "kubernetes.io/hostname": spec.node } }),
      ...(spec.securityContext === undefined ? {} : { securityContext: spec.securityContext }),
      containers: [{
        name: "main",
        image: BUSYBOX_IMAGE,
        imagePullPolicy: "Never",
        command: ["sh", "-c", spec.command ?? SLEEP],
        volumeMounts: mounts,
        volumeDevices: devices,
      }],
      volumes: names.map((name) => ({ name, persistentVolumeClaim: { claimName: name } })),
    },
  };
}

/** The options of a StatefulSet, whose pods are `store-0` and so on. */
export interface StatefulSetSpec {
  /** 1 by default. */
  readonly replicas?: number;
  /** OrderedReady by default. */
  readonly policy?: "OrderedReady" | "Parallel";
  /** The container: its command, its mounts or devices of the volume `data`, and its image, if that is not the usual one. */
  readonly container: Readonly<Record<string, unknown>>;
  /** The volume `data`: the name of a claim, or a claim for each replica. */
  readonly data: string | ClaimSpec;
}

/** Returns a StatefulSet to apply. */
export function statefulSetObject({ replicas = 1, policy = "OrderedReady", container, data }: StatefulSetSpec) {
  const labels = { app: "store" };
  const { metadata, spec } = typeof data === "string" ? {} : claimObject(data);
  return {
    apiVersion: "apps/v1",
    kind: "StatefulSet",
    metadata: { name: "store" },
    spec: {
      replicas,
      podManagementPolicy: policy,
      selector: { matchLabels: labels },
      template: {
        metadata: { labels },
        spec: {
          terminationGracePeriodSeconds: 1,
          automountServiceAccountToken: false,
          containers: [{ name: "main", image: BUSYBOX_IMAGE, imagePullPolicy: "Never", ...container }],
          ...(typeof data === "string" && { volumes: [{ name: "data", persistentVolumeClaim: { claimName: data } }] }),
        },
      },
      ...(metadata !== undefined && { volumeClaimTemplates: [{ metadata, spec }] }),
    },
  };
}

/** Returns a storage class to apply. */
export function classObject(name: string, spec: StorageClassSpec): StorageClass {
  return {
    apiVersion: "storage.k8s.io/v1",
    kind: "StorageClass",
    metadata: { name },
    provisioner: DRIVER,
    parameters: { ...spec.parameters },
    reclaimPolicy: spec.reclaimPolicy ?? "Delete",
    volumeBindingMode: spec.volumeBindingMode ?? "WaitForFirstConsumer",
    allowVolumeExpansion: spec.allowVolumeExpansion ?? true,
    ...(spec.mountOptions === undefined ? {} : { mountOptions: [...spec.mountOptions] }),
  };
}

/** Reports whether a pod runs and is ready. */
export function isRunning(pod: Pod | undefined): boolean {
  return pod?.status?.phase === "Running" &&
    (pod.status.containerStatuses ?? []).every(({ ready }) => ready);
}

function dataSource({ kind, name }: NonNullable<ClaimSpec["from"]>) {
  return kind === "VolumeSnapshot" ? { apiGroup: "snapshot.storage.k8s.io", kind, name } : { kind, name };
}
