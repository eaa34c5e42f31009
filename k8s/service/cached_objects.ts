/**
 * The objects as the informers of the controller keep them: only the fields that it reads. A large cluster has hundreds
 * of thousands of objects, and most of them do not change for months.
 *
 * An object that is not settled, such as a claim without a volume, is kept as it is.
 *
 * @module
 */

import {
  FORGOTTEN_ANNOTATION,
  type LvmNode,
  type LvmVolume,
  MOVE_ANNOTATION,
  type NodeVolumeGroup,
  PENDING_ANNOTATION,
  REMOVE_ANNOTATION,
} from "../api/lvm_objects.ts";
import type {
  CsiNode,
  KubeObject,
  Lease,
  Node,
  ObjectMeta,
  PersistentVolume,
  PersistentVolumeClaim,
} from "../api/objects.ts";
import { HEALTHY_CONDITION, REDUNDANT_CONDITION } from "../agent/volume_status.ts";
import { PROVISIONED_BY_ANNOTATION } from "../provisioner/persistent_volume.ts";
import { NODE_EXPANSION_NOT_REQUIRED_ANNOTATION, PRE_RESIZE_CAPACITY_ANNOTATION } from "../resizer/resize_plan.ts";
import { ValuePool } from "../runtime/value_pool.ts";
import { SECRET_ANNOTATIONS } from "../sidecars/volume_secrets.ts";
import { isCreated } from "./stored_volume.ts";

const LVM_VOLUME_ANNOTATIONS = [REMOVE_ANNOTATION, FORGOTTEN_ANNOTATION, PENDING_ANNOTATION];
const CLAIM_ANNOTATIONS = [NODE_EXPANSION_NOT_REQUIRED_ANNOTATION];
const VOLUME_ANNOTATIONS = [
  PROVISIONED_BY_ANNOTATION,
  PRE_RESIZE_CAPACITY_ANNOTATION,
  MOVE_ANNOTATION,
  ...SECRET_ANNOTATIONS,
];

/** The fields of a spec that nobody reads after the volume was created. */
const ONLY_FOR_CREATION = [
  "volumeGroups",
  "volumeGroupPreference",
  "mkfsOptions",
  "shared",
  "erase",
  "ioLimits",
  "discard",
  "fstrim",
] as const satisfies readonly (keyof LvmVolume["spec"])[];

/** Makes of objects what is kept of them. Of the driver's own, only fields that are named here are left out. */
export class CachedObjects {
  readonly #pool = new ValuePool();

  /** Returns what is kept of an LVMVolume. One that was created does not need the fields for its creation any more. */
  readonly lvmVolume = (object: LvmVolume): LvmVolume => {
    if (!isCreated(object)) return object;
    const { metadata, spec, status = {} } = object;
    const problems = status.conditions?.filter(isProblem) ?? [];
    return kept(
      object,
      this.#metadata(metadata, LVM_VOLUME_ANNOTATIONS),
      { ...without(spec, ONLY_FOR_CREATION), ...this.#pooled(spec, ["driverName", "nodeName", "size"]) },
      {
        ...without(status, ["volumeGroupUUID", "lvName", "devicePath", "layout", "usedPercent", "conditions"]),
        ...this.#pooled(status, ["volumeGroup", "size"]),
        ...(problems.length > 0 && { conditions: problems }),
      },
    );
  };

  /** Returns what is kept of an LVMNode: what is known of its groups for the choice of one, and of its agent. */
  readonly lvmNode = (object: LvmNode): LvmNode => {
    const { metadata, spec, status } = object;
    const group = (group: NodeVolumeGroup) => ({
      ...without(group, ["size", "lvCount", "pvCount", "snapshotCount", "allocationPolicy", "metadata", "erasing"]),
      ...(group.physicalVolumes && {
        physicalVolumes: group.physicalVolumes.map((pv) => without(pv, ["path", "size", "missing"])),
      }),
      ...(group.volumes && {
        volumes: group.volumes.map(({ name, size }) => ({ name, size: this.#pool.text(size) })),
      }),
    });
    return kept(
      object,
      this.#metadata(metadata, []),
      spec,
      status && {
        ...without(status, ["total", "conditions", "doctor", "disks", "acceptedDisks"]),
        ...(status.volumeGroups && { volumeGroups: status.volumeGroups.map(group) }),
        ...(status.transfer && { transfer: { validUntil: status.transfer.validUntil } }),
      },
    );
  };

  /** Returns what is kept of a claim. The secrets of one that has no volume yet may depend on any of its annotations. */
  readonly claim = (object: PersistentVolumeClaim): PersistentVolumeClaim => {
    const { metadata, spec, status = {} } = object;
    if (!spec?.volumeName) return object;
    const { volumeName, volumeAttributesClassName, resources, dataSource, dataSourceRef } = spec;
    const { phase, allocatedResources, allocatedResourceStatuses, conditions } = status;
    const { currentVolumeAttributesClassName, modifyVolumeStatus } = status;
    const isChanging =
      (allocatedResources ?? allocatedResourceStatuses ?? conditions ?? modifyVolumeStatus) !== undefined;
    const capacity = this.#pool.entries(status.capacity, ["storage"]);
    return kept(
      object,
      this.#metadata(metadata, CLAIM_ANNOTATIONS),
      {
        volumeName,
        volumeAttributesClassName,
        resources: this.#requests(resources?.requests?.["storage"]),
        dataSource,
        dataSourceRef,
      },
      !isChanging ? { phase, capacity, currentVolumeAttributesClassName } : {
        phase,
        capacity,
        currentVolumeAttributesClassName,
        allocatedResources,
        allocatedResourceStatuses,
        conditions,
        modifyVolumeStatus,
      },
    );
  };

  /** Returns what is kept of a PersistentVolume. */
  readonly volume = (object: PersistentVolume): PersistentVolume => {
    const { metadata, spec = {}, status } = object;
    const { csi, claimRef, volumeMode, mountOptions, volumeAttributesClassName, persistentVolumeReclaimPolicy } = spec;
    return kept(object, this.#metadata(metadata, VOLUME_ANNOTATIONS), {
      csi: csi && {
        driver: this.#pool.text(csi.driver),
        volumeHandle: csi.volumeHandle,
        fsType: csi.fsType,
        controllerExpandSecretRef: csi.controllerExpandSecretRef,
      },
      claimRef: claimRef && {
        namespace: this.#pool.text(claimRef.namespace),
        name: claimRef.name,
        uid: claimRef.uid,
      },
      capacity: this.#pool.entries(spec.capacity, ["storage"]),
      accessModes: this.#pool.list(spec.accessModes),
      volumeMode,
      mountOptions,
      volumeAttributesClassName,
      persistentVolumeReclaimPolicy,
    }, status && this.#pool.entries(status as Record<string, string>, ["phase"]));
  };

  /** Returns what is kept of a Node: its labels. */
  readonly node = ({ metadata: { name, resourceVersion, labels } }: Node): Node => {
    return { metadata: { name, resourceVersion, labels } as ObjectMeta };
  };

  /** Returns what is kept of a CSINode: the names of its drivers. */
  readonly csiNode = (object: CsiNode): CsiNode => {
    const drivers = (object.spec.drivers ?? []).map(({ name }) => ({ name: this.#pool.text(name) }));
    return kept(object, this.#metadata(object.metadata, []), { drivers });
  };

  /** Returns what is kept of the Lease of an agent: when it was renewed. */
  readonly agentLease = (object: Lease): Lease => {
    return kept(object, this.#metadata(object.metadata, []), { renewTime: object.spec?.renewTime });
  };

  /** Returns some fields of an object, each value of which is kept once. */
  #pooled<T extends object>(object: T, names: readonly (keyof T & string)[]): object {
    return this.#pool.entries(object as Record<string, string>, names) ?? {};
  }

  #requests(storage: string | undefined): object | undefined {
    return storage === undefined
      ? undefined
      : this.#pool.value(`requests ${storage}`, () => ({ requests: { storage } }));
  }

  #metadata(metadata: ObjectMeta, annotations: readonly string[]): ObjectMeta {
    const { name, namespace, uid, resourceVersion, generation, creationTimestamp, deletionTimestamp } = metadata;
    return {
      name,
      namespace: this.#pool.text(namespace),
      uid,
      resourceVersion,
      generation,
      creationTimestamp: this.#pool.text(creationTimestamp),
      deletionTimestamp,
      finalizers: this.#pool.list(metadata.finalizers),
      annotations: this.#pool.entries(metadata.annotations, annotations),
    } as ObjectMeta;
  }
}

/** Reports whether a condition may be about a problem. */
function isProblem({ type, status }: { readonly type: string; readonly status: string }): boolean {
  return type === REDUNDANT_CONDITION || (type === HEALTHY_CONDITION && status === "False");
}

/** Returns an object without some of its fields. */
function without<T extends object>(object: T, names: readonly (keyof T)[]): Partial<T> {
  return Object.fromEntries(Object.entries(object).filter(([name]) => !names.includes(name as keyof T))) as Partial<T>;
}

/** Returns an object with the part that is kept. */
function kept<T extends KubeObject>({ apiVersion, kind }: T, metadata: object, spec: unknown, status?: unknown): T {
  return { apiVersion, kind, metadata, spec, status } as unknown as T;
}
