/**
 * A cluster with a dead and a live node, which both have volumes and snapshots of all kinds.
 *
 * @module
 */

import { snapshotIdOf, volumeIdOf } from "../../../base/ids.ts";
import { FULL_COW } from "../../../lvm/settings/cow_size.ts";
import {
  type AgentManaged,
  FORGOTTEN_ANNOTATION,
  type LvmNode,
  lvmNodes,
  type LvmSnapshot,
  lvmSnapshots,
  type LvmVolume,
  lvmVolumes,
} from "../../../k8s/api/lvm_objects.ts";
import { type PersistentVolume, persistentVolumes } from "../../../k8s/api/objects.ts";
import { type VolumeSnapshotContent, volumeSnapshotContents } from "../../../k8s/api/snapshot_objects.ts";
import { lvmSnapshotFor } from "../../../k8s/api/snapshot_mapping.ts";
import { lvmVolumeFor } from "../../../k8s/api/volume_mapping.ts";
import type { ApiClient } from "../../../k8s/client/client.ts";
import { HttpClient } from "../../../k8s/client/http_client.ts";
import { EventRecorder } from "../../../k8s/runtime/events.ts";
import { lvmImports } from "../../../k8s/handover/imports.ts";
import { lvmMoves } from "../../../k8s/handover/moves.ts";
import { forget } from "../../../plugin/node_removal/forget_node.ts";
import { readNodeObjects } from "../../../plugin/node_removal/plan.ts";
import { FakeApiServer } from "./api_server.ts";
import { DRIVER } from "./node_cluster.ts";
import { namedRequest } from "../request.ts";

/** The time of the removal. */
export const NOW = new Date("2026-02-03T04:05:06Z");
/** The dead node. */
export const DEAD = { driver: DRIVER, nodeName: "dead" };
const MADE: LvmVolume["status"] = {
  ...{ state: "Ready", observedGeneration: 1, volumeGroup: "data", lvUUID: "lv-uuid", size: "32Mi" },
  conditions: [{
    type: "Ready",
    status: "True",
    lastTransitionTime: "2026-01-01T00:00:00Z",
    reason: "Created",
    message: "",
  }],
};

/** Starts an API server with a dead and a live node, which both have volumes of all kinds. */
export function harness() {
  const api = FakeApiServer.start({
    resources: [lvmVolumes, lvmSnapshots, lvmNodes, lvmMoves, lvmImports, volumeSnapshotContents],
  });
  const client = new HttpClient({ url: api.url }, { userAgent: "denolith/test" });
  const recorder = new EventRecorder(client, { component: DRIVER, instance: "test" });
  for (const name of ["dead", "alive"]) {
    putNode(api, name, "2026-02-03T03:00:00Z");
    putVolume(api, `${name}-bound`, { nodeName: name, pv: { phase: "Bound", policy: "Delete" } });
    putVolume(api, `${name}-released`, { nodeName: name, pv: { phase: "Released", policy: "Delete" } });
    putVolume(api, `${name}-kept`, { nodeName: name, pv: { phase: "Released", policy: "Retain" } });
    putVolume(api, `${name}-begun`, { nodeName: name, status: { state: "Pending" } });
    putVolume(api, `${name}-spare`, { nodeName: name });
    putVolume(api, `${name}-asked`, { nodeName: name, status: {}, pv: { phase: "Bound", policy: "Retain" } });
    putVolume(api, `${name}-others`, { nodeName: name, driver: "other.driver" });
    putSnapshot(api, `${name}-cut`, { nodeName: name, policy: "Delete" });
    putSnapshot(api, `${name}-loose`, { nodeName: name });
    putSnapshot(api, `${name}-wanted`, { nodeName: name, status: {}, policy: "Retain" });
    putSnapshot(api, `${name}-theirs`, { nodeName: name, driver: "other.driver" });
  }
  return {
    api,
    client,
    events: recorder,
    forget: async (
      { apiClient = client, reason, now = NOW }: { apiClient?: ApiClient; reason?: string; now?: Date } = {},
    ) => await forget(apiClient, await readNodeObjects(apiClient, DEAD), { now, events: recorder, reason }),
    /** Returns the objects that exist, in words; `without` a node. */
    left: (without = "") =>
      [...api.objects(lvmVolumes), ...api.objects(lvmSnapshots)].filter(({ spec }) => spec.nodeName !== without)
        .map(({ metadata, spec, status }: AgentManaged) =>
          [
            spec.requestName,
            status?.state ?? "none",
            ...metadata.annotations?.[FORGOTTEN_ANNOTATION] ? ["forgotten"] : [],
            ...metadata.finalizers?.length ? [] : ["unguarded"],
          ].join(" ")
        ).sort(),
    [Symbol.asyncDispose]: async () => {
      await recorder.stop(1_000);
      client[Symbol.dispose]();
      await api[Symbol.asyncDispose]();
    },
  };
}

/** Adds an LVMNode whose agent reported at that time. */
export function putNode(api: FakeApiServer, name: string, lastUpdateTime: string): LvmNode {
  return api.put(lvmNodes, { metadata: { name }, spec: { driverName: DRIVER }, status: { lastUpdateTime } });
}

interface VolumeFixture {
  nodeName: string;
  driver?: string;
  status?: LvmVolume["status"];
  pv?: { phase: string; policy: string };
}

/** Adds a volume of a node, with its PersistentVolume if it has one. */
export function putVolume(
  api: FakeApiServer,
  name: string,
  { nodeName, driver = DRIVER, status = MADE, pv }: VolumeFixture,
): void {
  api.put(lvmVolumes, { ...lvmVolumeFor(namedRequest(name, 30n << 20n), { driver, nodeName }), status: status! });
  if (pv === undefined) return;
  const csi = { driver, volumeHandle: volumeIdOf(name) };
  const volume: PersistentVolume = {
    metadata: { name: `pv-${name}` },
    spec: {
      csi,
      persistentVolumeReclaimPolicy: pv.policy,
      claimRef: { namespace: "default", name, uid: `uid-${name}` },
    },
    status: { phase: pv.phase },
  };
  api.put(persistentVolumes, volume);
}

interface SnapshotFixture {
  nodeName: string;
  driver?: string;
  status?: LvmSnapshot["status"];
  policy?: "Delete" | "Retain";
}

function putSnapshot(
  api: FakeApiServer,
  name: string,
  { nodeName, driver = DRIVER, status = { ...MADE, state: "Ready", restoreSize: "32Mi", readyToUse: true }, policy }:
    SnapshotFixture,
): void {
  const id = snapshotIdOf(name);
  const request = { id, name, source: volumeIdOf(`${nodeName}-bound`), cowSize: FULL_COW };
  api.put(lvmSnapshots, { ...lvmSnapshotFor(request, { driver, nodeName }), status: status! });
  if (policy === undefined) return;
  const content: VolumeSnapshotContent = {
    apiVersion: "snapshot.storage.k8s.io/v1",
    metadata: { name: `content-${name}` },
    spec: {
      driver,
      deletionPolicy: policy,
      source: { volumeHandle: request.source },
      volumeSnapshotRef: { namespace: "default", name, uid: `uid-${name}` },
    },
    status: { snapshotHandle: id },
  };
  api.put(volumeSnapshotContents, content);
}
