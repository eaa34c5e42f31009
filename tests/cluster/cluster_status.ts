import { join } from "@std/path";
import { Cluster } from "../rig/cluster.ts";

/**
 * Returns the folder of this user's cluster: `denolith/cluster` in the XDG state folder. Disks of nodes are in it, so
 * it is not the one for runtime files, which is in memory.
 *
 * @throws {Error} when neither XDG_STATE_HOME nor HOME is set
 */
export function clusterPath(): string {
  const xdg = Deno.env.get("XDG_STATE_HOME");
  if (xdg) return join(xdg, "denolith/cluster");
  const home = Deno.env.get("HOME");
  if (home) return join(home, ".local/state/denolith/cluster");
  throw new Error("find the cluster's folder: neither XDG_STATE_HOME nor HOME is set; set one of them");
}

/** Reports whether a cluster, or the rest of one, exists. */
export async function isThere(path: string): Promise<boolean> {
  return await Deno.stat(path).then(() => true, () => false);
}

/** Takes the lock for one start or stop at a time. The lock ends with the process. */
export async function lock(path: string, log: (line: string) => void): Promise<Disposable> {
  await Deno.mkdir(join(path, ".."), { recursive: true });
  const file = await Deno.open(`${path}.lock`, { create: true, write: true });
  if (!(await file.tryLock(true))) {
    log("another process starts or stops the cluster; waiting for that");
    await file.lock(true);
  }
  return file;
}

/** The state of a cluster. */
export interface Status {
  /** True if everything runs, and all nodes are ready. */
  readonly up: boolean;
  readonly folder: string;
  readonly kubeconfig?: string;
  readonly kubectl?: string;
  readonly server?: string;
  readonly processes: readonly { name: string; pid: number | undefined; log: string }[];
  readonly nodes: readonly { name: string; ready: boolean; execPort: number; kubeletPort: number }[];
}

/** Looks at the cluster in a folder. */
export async function status(path: string): Promise<Status> {
  const cluster = await isThere(path) ? await Cluster.open(path).catch(() => undefined) : undefined;
  if (cluster === undefined) return { up: false, folder: path, processes: [], nodes: [] };
  const { folder, controlPlane } = cluster;
  const processes = await Promise.all((await folder.names()).map(async (name) => ({
    name,
    pid: await folder.pid(name),
    log: folder.log(name),
  })));
  const ready = await readyNodes(cluster);
  const nodes = cluster.nodes.map(({ name, ports }) => ({
    name,
    ready: ready.has(name),
    execPort: ports.exec,
    kubeletPort: ports.kubelet,
  }));
  return {
    up: processes.length > 0 && processes.every(({ pid }) => pid !== undefined) && nodes.every((node) => node.ready),
    folder: path,
    kubeconfig: controlPlane.kubeconfig,
    kubectl: controlPlane.programs.kubectl,
    server: controlPlane.server,
    processes,
    nodes,
  };
}

/** Returns the names of the nodes that the API calls ready; none when it does not answer. */
async function readyNodes(cluster: Cluster): Promise<Set<string>> {
  const answer = await cluster.controlPlane.request("/api/v1/nodes").catch(() => undefined);
  if (answer?.status !== 200) return new Set();
  const { items } = JSON.parse(answer.body) as {
    items: { metadata: { name: string }; status: { conditions: { type: string; status: string }[] } }[];
  };
  const ready = items.filter(({ status }) => status.conditions.some((c) => c.type === "Ready" && c.status === "True"));
  return new Set(ready.map(({ metadata }) => metadata.name));
}
