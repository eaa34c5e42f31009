/**
 * The objects that a life is made of.
 *
 * @module
 */

import type { PersistentVolumeClaim, Pod, StorageClass } from "../../../k8s/api/objects.ts";
import { BUSYBOX_IMAGE } from "../../rig/pod_image.ts";

/** The driver's name. */
export const DRIVER = "lvm.denolith.dev";

/** Parameters of volumes that others do not wait for: the large group, and nothing to be erased in an emulated machine. */
export const QUICK = { volumeGroup: "data", erase: "none" } as const;

/** What a claim asks for. */
export interface ClaimWish {
  readonly name: string;
  /** The full name of its class. */
  readonly class: string;
  /** 16Mi by default. */
  readonly size?: string;
  /** ReadWriteOnce by default. */
  readonly mode?: "ReadWriteOnce" | "ReadWriteOncePod" | "ReadOnlyMany" | "ReadWriteMany";
  /** Filesystem by default. */
  readonly volumeMode?: "Filesystem" | "Block";
  /** The PV that it names. */
  readonly volumeName?: string;
  /** The full name of its VolumeAttributesClass. */
  readonly attributes?: string;
  /** What it is made from, in its namespace. */
  readonly from?: { readonly kind: "VolumeSnapshot" | "PersistentVolumeClaim"; readonly name: string };
}

/** A claim in a pod: at a path, or as a device. */
export interface ClaimUse {
  readonly name: string;
  readonly path?: string;
  readonly devicePath?: string;
  readonly readOnly?: boolean;
  readonly subPath?: string;
}

/** What a pod is to be. */
export interface PodWish {
  readonly name: string;
  readonly claims?: readonly ClaimUse[];
  /** Lines for the shell; by default it sleeps until it is asked to end. */
  readonly command?: string;
  /** Of the pod, as in its spec. */
  readonly securityContext?: Readonly<Record<string, unknown>>;
}

/** What a class is to be, over those of the default. */
export interface ClassWish {
  readonly parameters?: Readonly<Record<string, string>>;
  readonly reclaimPolicy?: "Delete" | "Retain";
  readonly volumeBindingMode?: "Immediate" | "WaitForFirstConsumer";
  /** True by default. */
  readonly allowVolumeExpansion?: boolean;
  readonly mountOptions?: readonly string[];
}

/** A shell that sleeps and ends at once when it is asked to. */
export const SLEEP = "trap 'exit 0' TERM; while :; do sleep 1000 & wait $!; done";

/** The claim as it is applied. */
export function claimObject(wish: ClaimWish): PersistentVolumeClaim {
  return {
    apiVersion: "v1",
    kind: "PersistentVolumeClaim",
    metadata: { name: wish.name },
    spec: {
      storageClassName: wish.class,
      accessModes: [wish.mode ?? "ReadWriteOnce"],
      volumeMode: wish.volumeMode ?? "Filesystem",
      resources: { requests: { storage: wish.size ?? "16Mi" } },
      ...(wish.volumeName === undefined ? {} : { volumeName: wish.volumeName }),
      ...(wish.attributes === undefined ? {} : { volumeAttributesClassName: wish.attributes }),
      ...(wish.from === undefined ? {} : { dataSource: sourceObject(wish.from) }),
    },
  };
}

/** The pod as it is applied; claims that are named twice are one volume. */
export function podObject(wish: PodWish): Pod {
  const claims = wish.claims ?? [];
  const names = [...new Set(claims.map(({ name }) => name))];
  const readOnly = (use: ClaimUse) => use.readOnly === undefined ? {} : { readOnly: use.readOnly };
  const mounts = claims.flatMap((use) => {
    const { name, path, subPath } = use;
    if (path === undefined) return [];
    return [{ name, mountPath: path, ...readOnly(use), ...(subPath === undefined ? {} : { subPath }) }];
  });
  const devices = claims.flatMap(({ name, devicePath }) => devicePath === undefined ? [] : [{ name, devicePath }]);
  return {
    apiVersion: "v1",
    kind: "Pod",
    metadata: { name: wish.name },
    spec: {
      // Without one second, the API forgets the pod before kubelet has taken its volumes away.
      terminationGracePeriodSeconds: 1,
      automountServiceAccountToken: false,
      ...(wish.securityContext === undefined ? {} : { securityContext: wish.securityContext }),
      containers: [{
        name: "main",
        image: BUSYBOX_IMAGE,
        imagePullPolicy: "Never",
        command: ["sh", "-c", wish.command ?? SLEEP],
        volumeMounts: mounts,
        volumeDevices: devices,
      }],
      volumes: names.map((name) => ({ name, persistentVolumeClaim: { claimName: name } })),
    },
  };
}

/** The class as it is applied. */
export function classObject(name: string, wish: ClassWish): StorageClass {
  return {
    apiVersion: "storage.k8s.io/v1",
    kind: "StorageClass",
    metadata: { name },
    provisioner: DRIVER,
    parameters: { ...wish.parameters },
    reclaimPolicy: wish.reclaimPolicy ?? "Delete",
    volumeBindingMode: wish.volumeBindingMode ?? "WaitForFirstConsumer",
    allowVolumeExpansion: wish.allowVolumeExpansion ?? true,
    ...(wish.mountOptions === undefined ? {} : { mountOptions: [...wish.mountOptions] }),
  };
}

/** Whether a pod runs and is ready. */
export function isRunning(pod: Pod | undefined): boolean {
  return pod?.status?.phase === "Running" &&
    (pod.status.containerStatuses ?? []).every(({ ready }) => ready);
}

function sourceObject({ kind, name }: NonNullable<ClaimWish["from"]>) {
  return kind === "VolumeSnapshot" ? { apiGroup: "snapshot.storage.k8s.io", kind, name } : { kind, name };
}
