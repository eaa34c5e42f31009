/**
 * Bringing the driver into a cluster, from deploy/, as a user does.
 *
 * @module
 */

import { join } from "@std/path";
import { renderChart } from "../../deploy/chart.ts";
import { IMAGE, makeImageArchive } from "../../deploy/image/archive.ts";
import { NAMESPACE_FILE } from "../../deploy/manifests.ts";
import { cacheFolder } from "../rig/cache.ts";
import { Cluster } from "../rig/cluster.ts";
import { ensureTools } from "../rig/debian.ts";
import type { RunFolder } from "../rig/run_folder.ts";

const DEPLOY = new URL("../../deploy/", import.meta.url).pathname;

/** The node of a cluster, with a volume group for tests and a smaller one. */
const ONE_NODE = [{
  name: "node1",
  volumeGroups: [{ name: "data", disksGiB: [10] }, { name: "small", disksGiB: [1] }],
}];

/** Two nodes, the first of which has twice as much space. */
const TWO_NODES = [
  { name: "node1", volumeGroups: [{ name: "data", disksGiB: [2] }] },
  { name: "node2", volumeGroups: [{ name: "data", disksGiB: [1] }] },
];

/** Options of {@linkcode deploy}. */
export interface DeployOptions {
  /** The kubelet's root directory, on every node. */
  readonly kubeletRoot?: string;
  /** True for two nodes with small groups; one node by default. */
  readonly twoNodes?: boolean;
}

/** kubelet's folder as the manifests have it. */
const DEFAULT_KUBELET_ROOT = "/var/lib/kubelet";

/**
 * Starts a cluster with the driver of the present sources.
 *
 * @param log called with what is done
 */
export async function startWithDriver(
  folder: RunFolder,
  log: (line: string) => void,
  { kubeletRoot = DEFAULT_KUBELET_ROOT, twoNodes = false }: DeployOptions = {},
): Promise<Cluster> {
  const images = [await buildDriverImage(folder, log)];
  const nodes = (twoNodes ? TWO_NODES : ONE_NODE).map((node) => ({ ...node, images, kubeletRoot }));
  const cluster = await Cluster.start({ folder, nodes, log });
  await deploy(cluster, log, kubeletRoot);
  return cluster;
}

/** Builds the archive of the driver's image from the present sources, in the folder. @returns its path */
async function buildDriverImage(folder: RunFolder, log: (line: string) => void): Promise<string> {
  const output = folder.file("denolith-image.tar");
  log(`image ${IMAGE}: making it`);
  // Only root can build the system of the image. Any user can use a cached one.
  if (Deno.uid() === 0) await ensureTools([{ program: "debootstrap", packages: ["debootstrap"] }], log);
  await makeImageArchive({ output, cache: cacheFolder(), log });
  return output;
}

/** Returns the folder of manifests for a kubelet: the plain ones, or what the chart becomes for it. */
async function manifestFolder(folder: RunFolder, kubeletRoot: string): Promise<string> {
  const defaultFolder = join(DEPLOY, "manifests");
  if (kubeletRoot === DEFAULT_KUBELET_ROOT) return defaultFolder;
  const folderForKubelet = folder.file("manifests");
  await Deno.mkdir(folderForKubelet);
  await Deno.copyFile(join(defaultFolder, NAMESPACE_FILE), join(folderForKubelet, NAMESPACE_FILE));
  for (const [name, text] of renderChart({ values: { kubeletDir: kubeletRoot } })) {
    await Deno.writeTextFile(join(folderForKubelet, name), text);
  }
  return folderForKubelet;
}

/**
 * Deploys the driver into a cluster that has just started, and waits until it is ready.
 *
 * @param log called with what is done
 */
async function deploy(cluster: Cluster, log: (line: string) => void, kubeletRoot: string): Promise<void> {
  log("driver: kubectl apply --filename deploy/crds --filename deploy/manifests");
  const { controlPlane } = cluster;
  await controlPlane.kubectl(["apply", "--filename", join(DEPLOY, "crds")]);
  await controlPlane.kubectl(["wait", "--for=condition=Established", "crd", "--all", "--timeout=60s"]);
  await controlPlane.kubectl(["apply", "--filename", await manifestFolder(cluster.folder, kubeletRoot)]);
  for (const workload of ["daemonset/denolith-node", "deployment/denolith-controller"]) {
    await controlPlane.kubectl(["--namespace", "denolith-system", "rollout", "status", workload, "--timeout=300s"]);
    log(`driver: ${workload} is ready`);
  }
}
