/**
 * A large cluster, as a process: the fake API server, and thin agents and a binder, which write without requests.
 *
 * @module
 */

import { lvmNodes, lvmSnapshots, type LvmVolume, lvmVolumes } from "../../../k8s/api/lvm_objects.ts";
import {
  csiNodes,
  csiStorageCapacities,
  type KubeObject,
  leases,
  nodes,
  type PersistentVolume,
  persistentVolumeClaims,
  persistentVolumes,
  type Resource,
  storageClasses,
} from "../../../k8s/api/objects.ts";
import { volumeSnapshotClasses, volumeSnapshotContents, volumeSnapshots } from "../../../k8s/api/snapshot_objects.ts";
import { FakeApiServer } from "../../fake/cluster/api_server.ts";
import type { StoredObject } from "../../fake/cluster/api_store.ts";
import { kubeconfigOf } from "../../fake/cluster/kubeconfig.ts";
import { serveCommands } from "./child.ts";
import type { ClusterCommands } from "./cluster_commands.ts";
import { NEW_NAMESPACE, NewClaims } from "./new_claims.ts";
import { ThinAgents } from "./thin_agents.ts";
import {
  agentLeaseObject,
  capacityObject,
  claimObject,
  CLASSES,
  classObject,
  type ClusterSize,
  csiNodeObject,
  IMMEDIATE_CLASS,
  lvmNodeObject,
  lvmVolumeObject,
  nodeName,
  nodeObject,
  volumeObject,
} from "./objects.ts";

const size: ClusterSize = JSON.parse(Deno.args[0]!);
const snapshotKinds = [volumeSnapshotClasses, volumeSnapshotContents, volumeSnapshots];
const api = FakeApiServer.start({ resources: [lvmVolumes, lvmSnapshots, lvmNodes, ...snapshotKinds] });
let agents: ThinAgents;
const claims = new NewClaims(
  size.nodes,
  (claim) => void api.collection(persistentVolumeClaims).create(claim as unknown as StoredObject, NEW_NAMESPACE),
);

/** Fills the server. */
function populate(): void {
  const volumeNames: string[] = [];
  for (const name of CLASSES) {
    const mode = name === IMMEDIATE_CLASS ? "Immediate" : "WaitForFirstConsumer";
    api.restore(storageClasses, { ...classObject(name, mode), metadata: { name, uid: name } });
  }
  for (let index = 0; index < size.volumes; index++) {
    const node = nodeName(index % size.nodes);
    const claim = claimObject(persistentVolumeClaims, index, node);
    const object = lvmVolumeObject(index, claim, node);
    api.restore(persistentVolumeClaims, claim);
    api.restore(persistentVolumes, volumeObject(persistentVolumes, index, claim, node));
    api.restore(lvmVolumes, object);
    volumeNames.push(object.metadata.name);
  }
  agents = new ThinAgents(size, volumeNames, change);
  for (let index = 0; index < size.nodes; index++) {
    const node = lvmNodeObject(index, agents.volumesOf(nodeName(index)));
    api.restore(nodes, nodeObject(index));
    api.restore(csiNodes, csiNodeObject(csiNodes, index));
    api.restore(lvmNodes, node);
    api.restore(leases, agentLeaseObject(leases, node));
    for (const className of CLASSES) {
      const capacity = capacityObject(node, className);
      api.restore(csiStorageCapacities, {
        ...capacity,
        metadata: { ...capacity.metadata, uid: `${index}-${className}` },
      });
    }
  }
  api.compact();
}

/** Changes an object, unless it is gone. */
function change(
  resource: Resource,
  { name, namespace }: KubeObject["metadata"],
  patch: object,
  subresource?: "status",
) {
  const collection = api.collection(resource);
  const key = namespace === undefined ? name : `${namespace}/${name}`;
  if (collection.objects.has(key)) collection.patch(patch, { name, namespace }, subresource);
}

/** Binds the claims of new PersistentVolumes, and releases those of deleted claims, as kube-controller-manager does. */
function runBinder(): void {
  api.collection(persistentVolumes).listeners.add(({ before, after }) => {
    if (before !== undefined) return;
    const { metadata, spec } = after as unknown as PersistentVolume;
    const claim = { name: spec!.claimRef!.name!, namespace: spec!.claimRef!.namespace! };
    setTimeout(() => {
      change(persistentVolumes, metadata, { status: { phase: "Bound" } }, "status");
      change(persistentVolumeClaims, claim, { spec: { volumeName: metadata.name } });
      const status = { phase: "Bound", accessModes: spec!.accessModes, capacity: spec!.capacity };
      change(persistentVolumeClaims, claim, { status }, "status");
      claims.noteBound(claim.name);
    }, 0);
  });
  api.collection(persistentVolumeClaims).listeners.add(({ after, deleted }) => {
    const { spec } = after as unknown as { spec: { volumeName?: string } };
    if (!deleted || spec.volumeName === undefined) return;
    setTimeout(
      () => change(persistentVolumes, { name: spec.volumeName! }, { status: { phase: "Released" } }, "status"),
      0,
    );
  });
}

await serveCommands<ClusterCommands>({
  start: () => {
    populate();
    api.collection(lvmVolumes).listeners.add(({ before, after, deleted }) => {
      if (!deleted) agents.handle(before as unknown as LvmVolume | undefined, after as unknown as LvmVolume);
    });
    runBinder();
    agents.renewLeases();
    setInterval(() => api.sendBookmarks(), 60_000);
    return kubeconfigOf({ server: api.url });
  },
  sentBytes: () => api.sentBytes,
  leasesOf: (identity) => {
    const held = [...api.collection(leases).objects.values()] as unknown as { spec?: { holderIdentity?: string } }[];
    return held.filter(({ spec }) => spec?.holderIdentity?.startsWith(`${identity}-`)).length;
  },
  createClaims: (request) => claims.create(request),
  boundMs: (names) => claims.boundMs(names),
  deleteClaims: (names) => {
    for (const name of names) api.collection(persistentVolumeClaims).delete({ name, namespace: NEW_NAMESPACE });
  },
  persistentVolumeCount: () => api.collection(persistentVolumes).objects.size,
  silence: (pool) => agents.silence(pool),
  wake: () => agents.wake(),
});
Deno.exit(0);
