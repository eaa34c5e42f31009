/**
 * The objects of a large cluster, with all that a real API server keeps of them: managedFields, annotations, conditions,
 * and the images of a Node are most of their bytes.
 *
 * @module
 */

import type { ConditionReason } from "../../../k8s/api/condition_reasons.ts";
import type { Condition } from "../../../k8s/api/conditions.ts";
import { agentLeaseFor } from "../../../k8s/api/agent_leases.ts";
import {
  type LvmNode,
  lvmNodes,
  type LvmVolume,
  lvmVolumes,
  type NodeVolumeGroup,
} from "../../../k8s/api/lvm_objects.ts";
import {
  apiVersionOf,
  type CsiNode,
  type CsiStorageCapacity,
  type KubeObject,
  type Lease,
  type Node,
  nodes,
  type PersistentVolume,
  type PersistentVolumeClaim,
  type Resource,
  type StorageClass,
} from "../../../k8s/api/objects.ts";
import { lvmVolumeFor } from "../../../k8s/api/volume_mapping.ts";
import { csiStorageCapacityFor } from "../../../k8s/scheduling/capacity_object.ts";
import { volumeIdOf } from "../../../base/ids.ts";
import { formatQuantity } from "../../../base/size.ts";
import { DRIVER, TOPOLOGY_KEY } from "../../fake/cluster/control_plane.ts";
import { namedRequest } from "../../fake/request.ts";

/** The namespace of the driver. */
export const NAMESPACE = "denolith-system";
/** The StorageClasses. */
export const CLASSES = ["fast", "slow", "thin"] as const;
/** The class of claims whose node the driver chooses. */
export const IMMEDIATE_CLASS = "slow";
/** The namespaces of the claims. */
export const CLAIM_NAMESPACES = 200;
const GiB = 1n << 30n;
const GROUP_BYTES = 1024n * GiB;
const TIME = "2026-03-01T08:00:00Z";
const VG = "data";

/** A cluster: so many nodes, and volumes that are spread over them. */
export interface ClusterSize {
  readonly nodes: number;
  readonly volumes: number;
}

/** Returns the name of a node. */
export function nodeName(index: number): string {
  return `worker-pool-a-${String(index).padStart(5, "0")}`;
}

/** Returns the uid of an object, which is the same in each run. */
function uidOf(kind: number, index: number): string {
  return `${kind.toString(16).padStart(8, "0")}-5ca1-4e00-8000-${index.toString(16).padStart(12, "0")}`;
}

/** Returns the fields of managers, as a server keeps them of each object that they wrote. */
function managedFields(apiVersion: string, ...managers: readonly (readonly [string, object, string?])[]) {
  return managers.map(([manager, fieldsV1, subresource]) => ({
    ...{ manager, operation: "Update", apiVersion, time: TIME, fieldsType: "FieldsV1", fieldsV1 },
    ...(subresource !== undefined && { subresource }),
  }));
}

/** Returns an object of nested paths as managedFields have it: `f:a` for each. */
function fields(tree: Readonly<Record<string, string | readonly string[]>>): object {
  return Object.fromEntries(
    Object.entries(tree).map(([key, names]) => [
      `f:${key}`,
      Object.fromEntries([names].flat().map((name) => [name === "." ? "." : `f:${name}`, {}])),
    ]),
  );
}

/** Returns an object as the server keeps it, with kind, uid, time and managedFields. */
function stored<T extends KubeObject>(
  { kind, ...resource }: Resource<T>,
  object: Omit<T, "metadata"> & { metadata: T["metadata"] },
  managed: readonly (readonly [string, object, string?])[],
): T {
  const apiVersion = apiVersionOf({ kind, ...resource });
  const { name, namespace, uid, generation, labels, annotations, finalizers, ownerReferences } = object.metadata;
  const metadata = Object.fromEntries(
    Object.entries({
      ...{
        name,
        namespace,
        uid,
        generation,
        creationTimestamp: TIME,
        labels,
        annotations,
        ownerReferences,
        finalizers,
      },
      managedFields: managedFields(apiVersion, ...managed),
    }).filter(([, value]) => value !== undefined),
  );
  return { apiVersion, kind, ...object, metadata } as unknown as T;
}

function condition(type: string, reason: ConditionReason, message: string): Condition {
  return { type, status: "True", reason, message, lastTransitionTime: TIME };
}

/** Returns a Node, with the labels, conditions and images of one of a cloud. */
export function nodeObject(index: number): Node {
  const name = nodeName(index);
  const nodeCondition = (type: string) => ({
    ...{ type, status: type === "Ready" ? "True" : "False", lastHeartbeatTime: TIME, lastTransitionTime: TIME },
    ...{ reason: `Kubelet${type}`, message: `kubelet reports ${type} for this node as it was last seen` },
  });
  const image = (n: number) => ({
    names: [
      `registry.example.com/team-${n}/service-${n}@sha256:${"0123456789abcdef".repeat(4)}`,
      `registry.example.com/team-${n}/service-${n}:v1.${n}.0`,
    ],
    sizeBytes: 100_000_000 + n,
  });
  return stored(nodes, {
    metadata: {
      name,
      uid: uidOf(1, index),
      labels: {
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        "node.kubernetes.io/instance-type": "m6id.4xlarge",
        "topology.kubernetes.io/region": "region-1",
        "topology.kubernetes.io/zone": `region-1${"abc"[index % 3]}`,
        [TOPOLOGY_KEY]: name,
      },
      annotations: {
        "csi.volume.kubernetes.io/nodeid": JSON.stringify({ [DRIVER]: name }),
        "node.alpha.kubernetes.io/ttl": "300",
        "volumes.kubernetes.io/controller-managed-attach-detach": "true",
      },
    },
    spec: { podCIDR: "10.0.0.0/24", podCIDRs: ["10.0.0.0/24"], providerID: `cloud:///region-1/${name}` },
    status: {
      capacity: { cpu: "16", memory: "65536000Ki", pods: "110", "ephemeral-storage": "100Gi" },
      allocatable: { cpu: "15", memory: "62536000Ki", pods: "110", "ephemeral-storage": "90Gi" },
      conditions: ["MemoryPressure", "DiskPressure", "PIDPressure", "Ready"].map(nodeCondition),
      addresses: [{ type: "InternalIP", address: "10.1.2.3" }, { type: "Hostname", address: name }],
      images: Array.from({ length: 30 }, (_, n) => image(n)),
      // deno-lint-ignore no-explicit-any
    } as any,
  }, [
    ["kube-controller-manager", fields({ metadata: [".", "annotations"], spec: ["podCIDR", "podCIDRs"] })],
    ["kubelet", fields({ status: ["allocatable", "capacity", "conditions", "images", "volumesInUse"] }), "status"],
  ]);
}

/** Returns a CSINode with the driver registered, beside another one. */
export function csiNodeObject(resource: Resource<CsiNode>, index: number): CsiNode {
  const name = nodeName(index);
  return stored(resource, {
    metadata: {
      name,
      uid: uidOf(2, index),
      annotations: { "storage.alpha.kubernetes.io/migrated-plugins": "a,b,c,d" },
    },
    spec: {
      drivers: [
        { name: "ebs.csi.aws.com", nodeID: name, topologyKeys: ["topology.kubernetes.io/zone"] },
        { name: DRIVER, nodeID: name, topologyKeys: [TOPOLOGY_KEY] },
      ],
    },
  }, [["kubelet", fields({ spec: ["drivers"] })]]);
}

/** Returns the volume group of a node. @param volumes its volumes */
export function groupOf(index: number, volumes: NonNullable<NodeVolumeGroup["volumes"]>): NodeVolumeGroup {
  const free = formatQuantity(GROUP_BYTES - BigInt(volumes.length) * GiB);
  return {
    ...{ name: VG, uuid: `vg${uidOf(3, index)}`, size: formatQuantity(GROUP_BYTES), free, extentSize: "4Mi" },
    ...{ lvCount: volumes.length, pvCount: 1, snapshotCount: 0, missingPVCount: 0, writeable: true },
    ...{ allocationPolicy: "normal", metadata: { size: "1020Ki", free: "500Ki" } },
    physicalVolumes: [{ uuid: `pv${uidOf(3, index)}`, path: "/dev/nvme1n1", size: formatQuantity(GROUP_BYTES), free }],
    volumes,
    thinPools: [],
  };
}

/** Returns the LVMNode of a node. @param volumes the names of its volumes */
export function lvmNodeObject(index: number, volumes: readonly string[]): LvmNode {
  const group = groupOf(index, volumes.map((name) => ({ name, size: "1Gi" })));
  const name = nodeName(index);
  return stored(lvmNodes, {
    metadata: {
      ...{ name, uid: uidOf(4, index), generation: 1 },
      ownerReferences: [{ apiVersion: "v1", kind: "Node", name, uid: uidOf(1, index) }],
    },
    spec: { driverName: DRIVER },
    status: {
      total: { volumeGroups: 1, size: group.size, free: group.free },
      ...{ volumeGroups: [group], thinPoolOvercommit: "1", lastUpdateTime: TIME },
      conditions: [condition("OrphansAbsent", "NoOrphans", "all logical volumes of the driver have their objects")],
    },
  }, [["denolith", fields({ metadata: [".", "ownerReferences"], spec: ["driverName"] })], [
    "denolith",
    fields({ status: [".", "conditions", "lastUpdateTime", "total", "volumeGroups", "thinPoolOvercommit"] }),
    "status",
  ]]);
}

/** Returns the Lease of an agent that has renewed it. */
export function agentLeaseObject(resource: Resource<Lease>, node: LvmNode): Lease {
  const lease = agentLeaseFor(node, NAMESPACE);
  const spec = { ...lease.spec, holderIdentity: node.metadata.name, renewTime: "2026-03-01T08:00:00.000000Z" };
  return stored(resource, { ...lease, spec }, [["denolith", fields({ spec: ["holderIdentity", "renewTime"] })]]);
}

/** Returns a StorageClass. */
export function classObject(name: string, volumeBindingMode: string): StorageClass {
  return {
    metadata: { name },
    provisioner: DRIVER,
    volumeBindingMode,
    reclaimPolicy: "Delete",
    allowVolumeExpansion: true,
  };
}

/** Returns the published capacity of a node for a class, as the controller computes it. */
export function capacityObject(node: LvmNode, className: string): CsiStorageCapacity {
  const { free } = node.status!.volumeGroups![0]!;
  const bytes = BigInt(free.replace("Gi", "")) * GiB;
  const options = { driverName: DRIVER, topologyKey: TOPOLOGY_KEY, namespace: NAMESPACE, node, className };
  return csiStorageCapacityFor({ ...options, capacity: { available: bytes, largest: bytes, smallest: 4n << 20n } });
}

/** Returns a claim to be created, for a node that the scheduler chose or, without one, where the driver chooses. */
export function newClaimObject(name: string, node: string | undefined): PersistentVolumeClaim {
  const annotations = {
    "volume.kubernetes.io/storage-provisioner": DRIVER,
    ...(node !== undefined && { "volume.kubernetes.io/selected-node": node }),
  };
  const spec = {
    ...{ accessModes: ["ReadWriteOnce"], resources: { requests: { storage: "1Gi" } }, volumeMode: "Filesystem" },
    storageClassName: node === undefined ? IMMEDIATE_CLASS : CLASSES[0],
  };
  const object = { apiVersion: "v1", kind: "PersistentVolumeClaim", metadata: { name, annotations }, spec };
  return object as unknown as PersistentVolumeClaim;
}

/** Returns the claim of a volume that is bound. */
export function claimObject(
  resource: Resource<PersistentVolumeClaim>,
  index: number,
  node: string,
): PersistentVolumeClaim {
  const uid = uidOf(5, index);
  return stored(resource, {
    metadata: {
      ...{ name: `data-database-${index}`, namespace: `team-${index % CLAIM_NAMESPACES}`, uid },
      labels: { "app.kubernetes.io/name": "database", "app.kubernetes.io/instance": `database-${index % 7}` },
      annotations: {
        "pv.kubernetes.io/bind-completed": "yes",
        "pv.kubernetes.io/bound-by-controller": "yes",
        "volume.beta.kubernetes.io/storage-provisioner": DRIVER,
        "volume.kubernetes.io/selected-node": node,
        "volume.kubernetes.io/storage-provisioner": DRIVER,
      },
      finalizers: ["kubernetes.io/pvc-protection"],
    },
    spec: {
      ...{ accessModes: ["ReadWriteOnce"], resources: { requests: { storage: "1Gi" } }, storageClassName: CLASSES[0] },
      ...{ volumeMode: "Filesystem", volumeName: `pvc-${uid}` },
    },
    status: { accessModes: ["ReadWriteOnce"], capacity: { storage: "1Gi" }, phase: "Bound" },
  }, [
    ["kube-scheduler", fields({ metadata: ["annotations", "volume.kubernetes.io/selected-node"] })],
    ["kube-controller-manager", {
      ...fields({ metadata: ["annotations", "pv.kubernetes.io/bind-completed", "labels"] }),
      ...fields({ spec: ["accessModes", "resources", "storageClassName", "volumeMode", "volumeName"] }),
    }],
    ["kube-controller-manager", fields({ status: ["accessModes", "capacity", "phase"] }), "status"],
  ]);
}

/** Returns the PersistentVolume of a claim. */
export function volumeObject(
  resource: Resource<PersistentVolume>,
  index: number,
  claim: PersistentVolumeClaim,
  node: string,
): PersistentVolume {
  const { name, namespace, uid } = claim.metadata;
  const requirement = { key: TOPOLOGY_KEY, operator: "In", values: [node] };
  return stored(resource, {
    metadata: {
      ...{ name: `pvc-${uid}`, uid: uidOf(6, index) },
      annotations: {
        "pv.kubernetes.io/provisioned-by": DRIVER,
        "volume.kubernetes.io/provisioner-deletion-secret-name": "",
        "volume.kubernetes.io/provisioner-deletion-secret-namespace": "",
      },
      finalizers: ["external-provisioner.volume.kubernetes.io/finalizer", "kubernetes.io/pv-protection"],
    },
    spec: {
      ...{ accessModes: ["ReadWriteOnce"], capacity: { storage: "1Gi" }, volumeMode: "Filesystem" },
      claimRef: { apiVersion: "v1", kind: "PersistentVolumeClaim", name: name, namespace: namespace!, uid: uid! },
      csi: { driver: DRIVER, fsType: "ext4", volumeHandle: volumeIdOf(`pvc-${uid}`) },
      nodeAffinity: { required: { nodeSelectorTerms: [{ matchExpressions: [requirement] }] } },
      ...{ persistentVolumeReclaimPolicy: "Delete", storageClassName: CLASSES[0] },
    },
    status: { phase: "Bound", lastPhaseTransitionTime: TIME },
  }, [
    ["denolith", {
      ...fields({ metadata: [".", "pv.kubernetes.io/provisioned-by", "finalizers"] }),
      ...fields({
        spec: ["accessModes", "capacity", "claimRef", "csi", "nodeAffinity", "storageClassName", "volumeMode"],
      }),
    }],
    ["kube-controller-manager", fields({ status: ["phase", "lastPhaseTransitionTime"] }), "status"],
  ]);
}

/** Returns the status of an LVMVolume that its agent has created. */
export function readyStatus(
  { metadata: { name, generation = 1 }, spec }: LvmVolume,
  index: number,
): LvmVolume["status"] & object {
  const lvName = `denolith-${name.slice(3, 40)}`;
  return {
    ...{ state: "Ready", observedGeneration: generation, volumeGroup: VG, volumeGroupUUID: `vg${uidOf(3, index)}` },
    ...{ lvName, lvUUID: `lv-${uidOf(7, index)}`, devicePath: `/dev/mapper/data-${lvName}`, size: spec.size },
    conditions: [
      condition("Ready", "Created", "its logical volume exists"),
      condition("Healthy", "PhysicalVolumesPresent", "volume group data has all its disks"),
    ],
  };
}

/** Returns the LVMVolume of a claim that is bound. */
export function lvmVolumeObject(index: number, claim: PersistentVolumeClaim, node: string): LvmVolume {
  const { name, namespace, uid } = claim.metadata;
  const object = lvmVolumeFor(namedRequest(`pvc-${uid}`, GiB), { driver: DRIVER, nodeName: node });
  const annotations = {
    "lvm.denolith.dev/claim": `${namespace}/${name}`,
    "lvm.denolith.dev/request-id": uid!.slice(0, 8),
  };
  const metadata = { ...object.metadata, uid: uidOf(8, index), generation: 1, annotations };
  return stored(lvmVolumes, { ...object, metadata, status: readyStatus({ ...object, metadata }, index) }, [
    ["denolith", {
      ...fields({ metadata: ["annotations", "finalizers"] }),
      ...fields({ spec: ["driverName", "erase", "fsType", "nodeName", "requestName", "shared", "size", "volumeMode"] }),
    }],
    [
      "denolith",
      fields({ status: ["conditions", "devicePath", "lvName", "lvUUID", "size", "state", "volumeGroup"] }),
      "status",
    ],
  ]);
}
