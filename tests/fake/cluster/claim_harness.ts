/**
 * A claim, and all that belongs to it, as objects in a fake API server: for answers about states that take a broken disk or
 * minutes to come about.
 *
 * @module
 */

import { lvmImports } from "../../../k8s/handover/imports.ts";
import { lvmMoves } from "../../../k8s/handover/moves.ts";
import { agentLeaseName, DRIVER_NAME_LABEL } from "../../../k8s/api/agent_leases.ts";
import type { Condition } from "../../../k8s/api/conditions.ts";
import {
  CLAIM_ANNOTATION,
  type LvmNode,
  lvmNodes,
  lvmSnapshots,
  type LvmVolume,
  lvmVolumes,
  type LvmVolumeStatus,
} from "../../../k8s/api/lvm_objects.ts";
import {
  events,
  type KubeObject,
  leases,
  nodes,
  persistentVolumeClaims,
  persistentVolumes,
  type Pod,
  pods,
  type Resource,
  storageClasses,
} from "../../../k8s/api/objects.ts";
import { volumeSnapshotContents, volumeSnapshots } from "../../../k8s/api/snapshot_objects.ts";
import { lvmVolumeFor } from "../../../k8s/api/volume_mapping.ts";
import { type Sidecar, sidecarLeaseName } from "../../../k8s/runtime/leader.ts";
import { volumeIdOf } from "../../../base/ids.ts";
import { FakeApiServer } from "./api_server.ts";
import { DRIVER, NAMESPACE } from "./node_cluster.ts";
import { pluginOver } from "./plugin_run.ts";
import { namedRequest } from "../request.ts";

/** A mebibyte in bytes. */
const MiB = 1n << 20n;

/** The objects that exist from the beginning may be left out. */
export interface HarnessOptions {
  /** Whether controllers hold their Leases; yes, when absent. */
  readonly hasController?: boolean;
  /** Whether the node has its LVMNode; yes, when absent. */
  readonly hasAgent?: boolean;
  /** The time of the agent's last sign of life; now, when absent. */
  readonly seenAt?: Date;
  /** More of the class; `undefined` for no class at all. */
  readonly storageClass?: Record<string, unknown> | undefined;
}

/** What `why` answers, as JSON. */
export interface WhyJson {
  readonly state: string;
  readonly problems: readonly {
    readonly severity: string;
    readonly reason: string;
    readonly object: string;
    readonly message: string;
    readonly remedy?: string;
    readonly runbook?: string;
  }[];
}

/** A harness: node `n1`, class `fast`, and a claim `default/data`, once it is added. */
export class ClaimHarness implements AsyncDisposable {
  /** The API server. */
  readonly api = FakeApiServer.start({
    resources: [lvmNodes, lvmVolumes, lvmMoves, lvmImports, lvmSnapshots, volumeSnapshots, volumeSnapshotContents],
  });
  /** The volume's id. */
  readonly id = volumeIdOf("data");

  /** Creates the node, the class, and the Leases. */
  constructor({ hasController = true, hasAgent = true, seenAt = new Date(), storageClass = {} }: HarnessOptions = {}) {
    const { api } = this;
    const ready = { conditions: [{ type: "Ready", status: "True" }] };
    api.put(nodes, { metadata: { name: "n1" }, status: ready as never });
    const status = { lastUpdateTime: seenAt.toISOString(), volumeGroups: [] };
    if (hasAgent) api.put<LvmNode>(lvmNodes, { metadata: { name: "n1" }, spec: { driverName: DRIVER }, status });
    this.#lease(agentLeaseName("n1"), seenAt, { [DRIVER_NAME_LABEL]: DRIVER });
    for (const sidecar of ["csi-provisioner", "csi-resizer", "csi-snapshotter"] satisfies Sidecar[]) {
      if (hasController) this.#lease(sidecarLeaseName(sidecar, DRIVER), new Date());
    }
    api.put(storageClasses, {
      metadata: { name: "fast" },
      ...{ provisioner: DRIVER, volumeBindingMode: "Immediate", allowVolumeExpansion: true, ...storageClass },
    });
  }

  #lease(name: string, renewed: Date, labels: Record<string, string> = {}): void {
    const spec = { holderIdentity: "holder", leaseDurationSeconds: 30, renewTime: renewed.toISOString() };
    this.api.put(leases, { metadata: { name, namespace: NAMESPACE, labels }, spec: spec as never });
  }

  /** Adds the claim, which is Pending. */
  addClaim({ metadata = {}, spec = {}, status = {} }: Record<string, Record<string, unknown>> = {}): void {
    this.api.put(persistentVolumeClaims, {
      metadata: { name: "data", namespace: "default", ...metadata },
      spec: {
        ...{ storageClassName: "fast", accessModes: ["ReadWriteOnce"] },
        ...{ resources: { requests: { storage: "32Mi" } }, ...spec },
      },
      status: { phase: "Pending", ...status },
    } as never);
  }

  /** Adds the claim and its volume, which are Bound. @param claim more of the claim */
  addBound(
    { conditions = [], status = {}, metadata = {}, claim = {} }: {
      readonly conditions?: readonly Partial<Condition>[];
      readonly status?: Partial<LvmVolumeStatus>;
      readonly metadata?: Partial<KubeObject["metadata"]>;
      readonly claim?: Record<string, Record<string, unknown>>;
    } = {},
  ): void {
    this.addClaim({
      ...claim,
      spec: { volumeName: "pv", ...claim["spec"] },
      status: { phase: "Bound", capacity: { storage: "32Mi" }, ...claim["status"] },
    });
    this.addVolume({ conditions, status, metadata });
  }

  /** Adds a PersistentVolume and an LVMVolume for the claim. @param phase that of the PersistentVolume */
  addVolume(
    { conditions = [], status = {}, metadata = {}, phase = "Bound", policy = "Delete" }: {
      readonly conditions?: readonly Partial<Condition>[];
      readonly status?: Partial<LvmVolumeStatus>;
      readonly metadata?: Partial<KubeObject["metadata"]>;
      readonly phase?: string;
      readonly policy?: string;
    },
  ): void {
    const object = lvmVolumeFor(namedRequest("data", 32n * MiB), { driver: DRIVER, nodeName: "n1" }) as LvmVolume;
    const lastTransitionTime = new Date().toISOString();
    this.api.put(lvmVolumes, {
      ...object,
      metadata: { ...object.metadata, annotations: { [CLAIM_ANNOTATION]: "default/data" }, ...metadata },
      status: {
        ...{ state: "Ready", volumeGroup: "data", lvUUID: "uuid", size: "32Mi" },
        conditions: conditions.map((one) => ({ lastTransitionTime, ...one }) as Condition),
        ...status,
      },
    });
    this.api.put(persistentVolumes, {
      metadata: { name: "pv" },
      spec: {
        csi: { driver: DRIVER, volumeHandle: this.id },
        claimRef: { namespace: "default", name: "data" },
        persistentVolumeReclaimPolicy: policy,
      },
      status: { phase },
    });
  }

  /** Adds an event. @param kind the kind of the object that it is about */
  addEvent(reason: string, message: string, kind = "PersistentVolumeClaim", name = "data"): void {
    const isCluster = ["PersistentVolume", "LVMVolume", "VolumeSnapshotContent"].includes(kind);
    this.api.put(events, {
      metadata: { name: `${name}.${crypto.randomUUID()}`, namespace: "default" },
      involvedObject: { kind, name, ...(isCluster ? {} : { namespace: "default" }) },
      ...{ reason, message, type: "Warning", lastTimestamp: new Date().toISOString() },
    } as never);
  }

  /** Adds a pod that uses the claim. */
  addPod({ status = {}, spec = {} }: { readonly status?: Record<string, unknown>; readonly spec?: object } = {}): void {
    const volumes = [{ name: "v", persistentVolumeClaim: { claimName: "data" } }];
    this.api.put<Pod>(pods, {
      metadata: { name: "web", namespace: "default" },
      ...{ spec: { volumes, ...spec } as never, status: { phase: "Pending", ...status } as never },
    });
  }

  /** Adds a VolumeSnapshot `default/cut`, with a content unless that is `null`. */
  addSnapshot(status?: object, content: Record<string, unknown> | null = {}): void {
    const meta = { name: "cut", namespace: "default" };
    this.api.put(volumeSnapshots, { metadata: meta, ...(status && { status }) });
    if (content === null) return;
    this.api.put(volumeSnapshotContents, {
      metadata: { name: "content" },
      spec: { driver: DRIVER, deletionPolicy: "Delete", source: { volumeHandle: this.id }, volumeSnapshotRef: meta },
      ...content,
    });
  }

  /** Deletes an object; its finalizers keep it. */
  async delete(resource: Resource, name: string, namespace?: string): Promise<void> {
    this.api.collection(resource).delete({ name, namespace }, {});
    await Promise.resolve();
  }

  /** Returns what `why` answers. @param now the time; by default that of this machine */
  async why(target = "data", now?: Date): Promise<WhyJson> {
    const { output, errors } = await pluginOver(this.api, { role: "viewer", now })(["why", target, "-o", "json"]);
    if (output === "") throw new Error(errors);
    return JSON.parse(output);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.api[Symbol.asyncDispose]();
  }
}
