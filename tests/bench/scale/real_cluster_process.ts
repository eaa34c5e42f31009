/**
 * A large cluster, as a process: a real API server with etcd and kube-controller-manager, and thin agents.
 *
 * @module
 */

import { lvmNodes, type LvmVolume, lvmVolumes } from "../../../k8s/api/lvm_objects.ts";
import {
  csiNodes,
  csiStorageCapacities,
  type KubeObject,
  leases,
  nodes,
  persistentVolumeClaims,
  persistentVolumes,
  type Resource,
  storageClasses,
} from "../../../k8s/api/objects.ts";
import { orAbsent } from "../../../k8s/client/client.ts";
import { HttpClient } from "../../../k8s/client/http_client.ts";
import { Informer } from "../../../k8s/runtime/informer.ts";
import { ControlPlane } from "../../rig/control_plane.ts";
import { controllerManagerFlags } from "../../rig/control_plane_flags.ts";
import { ensureKubernetes, ensureSnapshotCrds } from "../../rig/kubernetes.ts";
import { RunFolder } from "../../rig/run_folder.ts";
import { serveCommands } from "./child.ts";
import type { ClusterCommands } from "./cluster_commands.ts";
import { NEW_NAMESPACE, NewClaims } from "./new_claims.ts";
import {
  agentLeaseObject,
  capacityObject,
  CLAIM_NAMESPACES,
  claimObject,
  CLASSES,
  classObject,
  type ClusterSize,
  csiNodeObject,
  IMMEDIATE_CLASS,
  lvmNodeObject,
  lvmVolumeObject,
  NAMESPACE,
  nodeName,
  nodeObject,
  volumeObject,
} from "./objects.ts";
import { ThinAgents } from "./thin_agents.ts";

/** The number of requests under way while the server is filled. */
const CONCURRENCY = 32;

const MANAGER = "kube-controller-manager";

/** What kube-controller-manager runs: the binder and the finalizers of volumes, without limits of their own. */
const MANAGER_FLAGS = [
  "--controllers=persistentvolume-binder-controller,persistentvolume-protection-controller," +
  "persistentvolumeclaim-protection-controller,serviceaccount-controller,serviceaccount-token-controller",
  ...["--kube-api-qps=2000", "--kube-api-burst=4000"],
];

const CRDS = new URL("../../../deploy/crds/", import.meta.url).pathname;

const namespaces: Resource = { group: "", version: "v1", plural: "namespaces", kind: "Namespace", namespaced: false };

const log = (line: string) => console.error(line);
const size: ClusterSize = JSON.parse(Deno.args[0]!);
await using folder = await RunFolder.createTemp("denolith-scale-");
const plane = await ControlPlane.start({
  folder,
  programs: await ensureKubernetes(log),
  controllerManagerFlags: MANAGER_FLAGS,
  log,
});
const server = { url: plane.server, ca: { text: plane.ca }, token: { text: plane.token } };
using client = new HttpClient(server, { userAgent: "agents", timeoutMs: 60_000 });
const volumes = new Informer(client, lvmVolumes);
const claimsSeen = new Informer(client, persistentVolumeClaims, { namespace: NEW_NAMESPACE });
const volumesSeen = new Informer(client, persistentVolumes, { metadataOnly: true });
const claims = new NewClaims(size.nodes, async (claim) => {
  const metadata = { ...claim.metadata, namespace: NEW_NAMESPACE };
  await client.create(persistentVolumeClaims, { ...claim, metadata });
});
let agents: ThinAgents;
let sentBytes = 0;

/** Does something for each of so many numbers, several at a time. */
async function forEach(count: number, action: (index: number) => Promise<void>): Promise<void> {
  let next = 0;
  const work = async () => {
    while (next < count) await action(next++);
  };
  await Promise.all(Array.from({ length: CONCURRENCY }, work));
}

/** Creates an object, with its status. @returns it as the server has it */
async function put<T extends KubeObject>(resource: Resource<T>, object: T): Promise<T> {
  const { uid: _uid, creationTimestamp: _time, generation: _generation, managedFields: _fields, ...metadata } = object
    .metadata as T["metadata"] & Record<string, unknown>;
  const created = await client.create(resource, { ...object, metadata } as never);
  const { status } = object as { status?: object };
  if (status === undefined) return created;
  const { name, namespace } = object.metadata;
  return await client.patch(resource, { name, namespace }, { merge: { status } as never, subresource: "status" });
}

/** Returns an object with the uid that the server gave it. */
function withUid<T extends KubeObject>(object: T, { metadata: { uid } }: KubeObject): T {
  return { ...object, metadata: { ...object.metadata, uid } };
}

/** Fills the server, while no binder runs. */
async function populate(): Promise<void> {
  const names = [NAMESPACE, NEW_NAMESPACE, ...Array.from({ length: CLAIM_NAMESPACES }, (_, n) => `team-${n}`)];
  await forEach(names.length, async (n) => void await put(namespaces, { metadata: { name: names[n]! } }));
  for (const name of CLASSES) {
    const mode = name === IMMEDIATE_CLASS ? "Immediate" : "WaitForFirstConsumer";
    await put(storageClasses, classObject(name, mode));
  }
  const volumeNames: string[] = [];
  await forEach(size.volumes, async (index) => {
    const node = nodeName(index % size.nodes);
    const wanted = claimObject(persistentVolumeClaims, index, node);
    const volume = lvmVolumeObject(index, wanted, node);
    volumeNames[index] = volume.metadata.name;
    const claim = await put(persistentVolumeClaims, wanted);
    const persistentVolume = volumeObject(persistentVolumes, index, wanted, node);
    Object.assign(persistentVolume.spec!.claimRef!, { uid: claim.metadata.uid });
    await put(persistentVolumes, persistentVolume);
    await put(lvmVolumes, volume);
    if (index % 1_000 === 999) log(`${index + 1} volumes`);
  });
  agents = new ThinAgents(size, volumeNames, async (resource, { name, namespace }, merge, subresource) => {
    const options = { merge: merge as never, ...subresource !== undefined && { subresource } };
    await orAbsent(client.patch(resource, { name, namespace }, options));
  });
  await forEach(size.nodes, async (index) => {
    const node = await put(nodes, nodeObject(index));
    await put(csiNodes, csiNodeObject(csiNodes, index));
    const wanted = lvmNodeObject(index, agents.volumesOf(nodeName(index)));
    Object.assign(wanted.metadata.ownerReferences![0]!, { uid: node.metadata.uid });
    const lvmNode = withUid(wanted, await put(lvmNodes, wanted));
    await put(leases, agentLeaseObject(leases, lvmNode));
    for (const className of CLASSES) await put(csiStorageCapacities, capacityObject(lvmNode, className));
  });
}

/** Forwards connections to the API server, and counts what it sends. @returns the port */
function forward(): number {
  const listener = Deno.listen({ hostname: "127.0.0.1", port: 0 });
  const pipe = async (from: Deno.Conn) => {
    const to = await Deno.connect({ hostname: "127.0.0.1", port: plane.ports.api });
    const counted = new TransformStream<Uint8Array, Uint8Array>({
      transform: (chunk, output) => {
        sentBytes += chunk.length;
        output.enqueue(chunk);
      },
    });
    await Promise.all([from.readable.pipeTo(to.writable), to.readable.pipeThrough(counted).pipeTo(from.writable)]);
  };
  (async () => {
    for await (const connection of listener) pipe(connection).catch(() => {}); // a controller that ended
  })();
  return listener.addr.port;
}

await serveCommands<ClusterCommands>({
  start: async () => {
    await folder.stop(MANAGER);
    await plane.kubectl(["apply", "--filename", CRDS, "--filename", await ensureSnapshotCrds(log)]);
    await plane.kubectl(["wait", "--for=condition=Established", "crd", "--all", "--timeout=60s"]);
    await populate();
    await folder.start(MANAGER, plane.programs.controllerManager, [
      ...controllerManagerFlags(folder),
      ...MANAGER_FLAGS,
    ]);
    const { signal } = new AbortController();
    for (const informer of [volumes, claimsSeen, volumesSeen]) void informer.start(signal);
    await Promise.all([volumes.synced, claimsSeen.synced, volumesSeen.synced]);
    volumes.subscribe((_key, now, before) => now !== undefined && agents.handle(before, now as LvmVolume), {
      replay: false,
    });
    claimsSeen.subscribe((_key, now) => {
      if (now?.status?.phase === "Bound") claims.noteBound(now.metadata.name);
    });
    agents.renewLeases();
    const kubeconfig = await Deno.readTextFile(plane.kubeconfig);
    return kubeconfig.replaceAll(plane.server, `https://127.0.0.1:${forward()}`);
  },
  sentBytes: () => sentBytes,
  leasesOf: async (identity) => {
    const { items } = await client.list(leases, { namespace: NAMESPACE });
    return items.filter(({ spec }) => spec?.holderIdentity?.startsWith(`${identity}-`)).length;
  },
  createClaims: (request) => claims.create(request),
  boundMs: (names) => claims.boundMs(names),
  deleteClaims: (names) =>
    forEach(
      names.length,
      (n) => client.delete(persistentVolumeClaims, { name: names[n]!, namespace: NEW_NAMESPACE }),
    ),
  persistentVolumeCount: () => volumesSeen.list().length,
  silence: (pool) => agents.silence(pool),
  wake: () => agents.wake(),
});
Deno.exit(0);
