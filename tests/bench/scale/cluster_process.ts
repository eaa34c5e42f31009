/**
 * A large cluster, as a process: the fake API server, and thin agents and a binder, which write without requests.
 *
 * @module
 */

import { agentLeaseName, nodeOfAgentLease } from "../../../k8s/api/agent_leases.ts";
import { lvmNodes, lvmSnapshots, type LvmVolume, lvmVolumes, REMOVE_ANNOTATION } from "../../../k8s/api/lvm_objects.ts";
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
import { FakeApiServer } from "../../fake/api_server.ts";
import type { Change, StoredObject } from "../../fake/api_store.ts";
import { DRIVER } from "../../fake/control_plane.ts";
import { serveCommands } from "./child.ts";
import {
  agentLeaseObject,
  capacityObject,
  claimObject,
  CLASSES,
  classObject,
  type ClusterSize,
  csiNodeObject,
  groupOf,
  lvmNodeObject,
  lvmVolumeObject,
  NAMESPACE,
  nodeName,
  nodeObject,
  readyStatus,
  volumeObject,
} from "./objects.ts";

/** The time that an agent takes for an LV, and for the report that lists it, in milliseconds. */
const [CREATE_MS, REPORT_MS] = [50, 1_000];
/** The interval at which an agent renews its Lease, in milliseconds. */
const RENEW_MS = 120_000;
/** The class of claims whose node the driver chooses. */
const IMMEDIATE_CLASS = "slow";

const size: ClusterSize = JSON.parse(Deno.args[0]!);
const snapshotKinds = [volumeSnapshotClasses, volumeSnapshotContents, volumeSnapshots];
const api = FakeApiServer.start({ resources: [lvmVolumes, lvmSnapshots, lvmNodes, ...snapshotKinds] });
const indexes = new Map(Array.from({ length: size.nodes }, (_, index) => [nodeName(index), index]));
/** The names of the volumes of each node. */
const volumesOf = new Map<string, Set<string>>([...indexes.keys()].map((name) => [name, new Set()]));
/** The nodes whose agents are silent, and what they do when they are back. */
const silent = new Map<string, (() => void)[]>();
/** When each claim was created and bound, in milliseconds. */
const claimTimes = new Map<string, { createdMs: number; boundMs?: number }>();
/** When something other than a Lease was last written or read by a request. */
let seen = { requests: 0, atMs: performance.now() };

/** Fills the server. */
function populate(): void {
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
    volumesOf.get(node)!.add(object.metadata.name);
  }
  for (const [name, index] of indexes) {
    const node = lvmNodeObject(index, [...volumesOf.get(name)!]);
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

/** Has the agent of a node do something, when it is not silent. */
function asAgent(nodeName: string, ms: number, action: () => void): void {
  setTimeout(() => {
    const later = silent.get(nodeName);
    if (later === undefined) action();
    else later.push(action);
  }, ms);
}

const reporting = new Set<string>();

/** Has an agent report its volumes, once for all changes of a second. */
function report(nodeName: string): void {
  if (reporting.has(nodeName)) return;
  reporting.add(nodeName);
  asAgent(nodeName, REPORT_MS, () => {
    reporting.delete(nodeName);
    const group = groupOf(indexes.get(nodeName)!, [...volumesOf.get(nodeName)!].map((name) => ({ name, size: "1Gi" })));
    const total = { volumeGroups: 1, size: group.size, free: group.free };
    const lastUpdateTime = new Date().toISOString();
    change(lvmNodes, { name: nodeName }, { status: { total, volumeGroups: [group], lastUpdateTime } }, "status");
  });
}

/** Carries out what an LVMVolume asks for, with the two writes of an agent. */
function runAgents({ before, after, deleted }: Change): void {
  if (deleted) return;
  const { metadata, spec } = after as unknown as LvmVolume;
  if (before === undefined) {
    return asAgent(spec.nodeName, 0, () => {
      change(lvmVolumes, metadata, { status: { state: "Pending", volumeGroup: "data" } }, "status");
      asAgent(spec.nodeName, CREATE_MS, () => {
        volumesOf.get(spec.nodeName)!.add(metadata.name);
        const status = readyStatus(after as unknown as LvmVolume, indexes.get(spec.nodeName)!);
        change(lvmVolumes, metadata, { status }, "status");
        report(spec.nodeName);
      });
    });
  }
  const isDeleting = metadata.deletionTimestamp !== undefined && before.metadata.deletionTimestamp === undefined;
  if (isDeleting && metadata.annotations?.[REMOVE_ANNOTATION] !== undefined) {
    asAgent(spec.nodeName, CREATE_MS, () => {
      volumesOf.get(spec.nodeName)!.delete(metadata.name);
      change(lvmVolumes, metadata, { metadata: { finalizers: [] } });
      report(spec.nodeName);
    });
  }
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
      const times = claimTimes.get(`${claim.namespace}/${claim.name}`);
      if (times !== undefined) times.boundMs = performance.now();
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

/** Renews the Leases of all agents, each every two minutes. */
function renewLeases(): void {
  let next = 0;
  const tickMs = 250;
  setInterval(() => {
    for (const end = next + size.nodes * tickMs / RENEW_MS; next < end; next++) {
      renew(nodeName(Math.floor(next) % size.nodes));
    }
  }, tickMs);
}

function renew(name: string): void {
  if (silent.has(name)) return;
  const metadata = { name: agentLeaseName(name), namespace: NAMESPACE };
  change(leases, metadata, { spec: { renewTime: new Date().toISOString() } });
}

let claimCount = 0;

/** Creates a claim, for a node that the scheduler chose or, without one, where the driver chooses. */
function createClaim(node: string | undefined): string {
  const name = `new-${claimCount++}`;
  const annotations = {
    "volume.kubernetes.io/storage-provisioner": DRIVER,
    ...(node !== undefined && { "volume.kubernetes.io/selected-node": node }),
  };
  const spec = {
    ...{ accessModes: ["ReadWriteOnce"], resources: { requests: { storage: "1Gi" } }, volumeMode: "Filesystem" },
    storageClassName: node === undefined ? IMMEDIATE_CLASS : CLASSES[0],
  };
  const object = { apiVersion: "v1", kind: "PersistentVolumeClaim", metadata: { name, annotations }, spec };
  claimTimes.set(`new/${name}`, { createdMs: performance.now() });
  api.collection(persistentVolumeClaims).create(object as unknown as StoredObject, "new");
  return name;
}

/** Claims to create: so many, at once or so many in a second. */
interface ClaimRequest {
  readonly count: number;
  readonly perSecond?: number;
  /** Whether the driver chooses the node. */
  readonly isImmediate?: boolean;
  /** The first node, and their number. */
  readonly on?: { readonly first: number; readonly count: number };
}

/** The commands of this process. */
const commands = {
  /** Fills the server. @returns its URL */
  start: () => {
    populate();
    api.collection(lvmVolumes).listeners.add(runAgents);
    runBinder();
    renewLeases();
    setInterval(() => api.sendBookmarks(), 60_000);
    return api.url;
  },
  /** Returns what was sent so far, and how long it is since a request that is not about a Lease. */
  traffic: () => {
    const requests = api.requests.filter(({ path }) => nodeOfLeaseIn(path) === undefined).length;
    if (requests !== seen.requests) seen = { requests, atMs: performance.now() };
    return { requests, bytes: api.sentBytes, idleMs: performance.now() - seen.atMs };
  },
  /** Returns how many Leases of leaders a process holds. @param identity the beginning of its identity */
  leasesOf: (identity: string) => {
    const held = [...api.collection(leases).objects.values()] as unknown as { spec?: { holderIdentity?: string } }[];
    return held.filter(({ spec }) => spec?.holderIdentity?.startsWith(`${identity}-`)).length;
  },
  /** Creates claims. @returns their names */
  createClaims: async ({ count, perSecond = Infinity, isImmediate = false, on }: ClaimRequest) => {
    const { first, count: nodeCount } = on ?? { first: 0, count: size.nodes };
    const names: string[] = [];
    for (let index = 0; index < count; index++) {
      names.push(createClaim(isImmediate ? undefined : nodeName((first + index % nodeCount) % size.nodes)));
      if (perSecond !== Infinity) await new Promise((resolve) => setTimeout(resolve, 1_000 / perSecond));
    }
    return names;
  },
  /** Returns how long each of the claims took until it was Bound, in milliseconds; absent for one that is not. */
  boundMs: (names: string[]) =>
    names.map((name) => {
      const { createdMs, boundMs } = claimTimes.get(`new/${name}`)!;
      return boundMs === undefined ? undefined : boundMs - createdMs;
    }).filter((ms) => ms !== undefined),
  /** Deletes claims. */
  deleteClaims: (names: string[]) => {
    for (const name of names) api.collection(persistentVolumeClaims).delete({ name, namespace: "new" });
  },
  /** Returns the numbers of objects. */
  counts: () => ({
    volumes: api.collection(lvmVolumes).objects.size,
    persistentVolumes: api.collection(persistentVolumes).objects.size,
  }),
  /** Makes the agents of nodes silent, as a reboot does. */
  silence: ({ first, count }: { first: number; count: number }) => {
    for (let index = first; index < first + count; index++) silent.set(nodeName(index), []);
  },
  /** Lets all silent agents report at once. */
  wake: () => {
    const woken = [...silent];
    silent.clear();
    for (const [name, actions] of woken) {
      renew(name);
      report(name);
      for (const action of actions) action();
    }
  },
};

function nodeOfLeaseIn(path: string): string | undefined {
  const name = /\/leases\/(.+)$/.exec(path)?.[1];
  return name === undefined ? undefined : nodeOfAgentLease({ metadata: { name } }) ?? name;
}

/** The commands of this process. */
export type ClusterCommands = typeof commands;

if (import.meta.main) {
  await serveCommands(commands);
  Deno.exit(0);
}
