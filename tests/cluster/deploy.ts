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
import type { ControlPlane } from "../rig/control_plane.ts";
import type { KubernetesRelease } from "../rig/kubernetes.ts";
import { ensureKubernetesTestImage } from "../rig/pod_image.ts";
import { ensurePostgresqlImage } from "../rig/postgresql_image.ts";
import type { RunFolder } from "../rig/run_folder.ts";
import { ensureSnapshotMetadata } from "../rig/snapshot_metadata.ts";
import { BARE_VALUES, stripNode } from "./bare_host.ts";
import { prepareSnapshotMetadata, snapshotMetadataValues } from "./changed_blocks/sidecar.ts";

const DEPLOY = new URL("../../deploy/", import.meta.url).pathname;

/** Returns the node of a cluster, with a volume group for tests, and smaller ones up to a number. */
function oneNode(groups: number) {
  const smaller = Array.from({ length: groups - 1 }, (_, n) => n === 0 ? "small" : `small${n + 1}`);
  const volumeGroups = [
    { name: "data", disksGiB: [10] },
    ...smaller.map((name) => ({ name, disksGiB: [1] })),
  ];
  return [{ name: "node1", volumeGroups }];
}

/** Two nodes, the first of which has twice as much space. */
const TWO_NODES = [
  { name: "node1", volumeGroups: [{ name: "data", disksGiB: [2] }] },
  { name: "node2", volumeGroups: [{ name: "data", disksGiB: [1] }] },
];

/** A node with disks that nobody uses, and which a rule names. Rules of udev give them names in /dev/disk/by-id. */
const DISK_NODES = [{ ...oneNode(2)[0]!, bareDisksGiB: [2, 2] }];

/** For nodes where processes are killed often. */
const QUICK_RESTARTS = { kubeletConfig: { crashLoopBackOff: { maxContainerRestartPeriod: "2s" } } };

/** The volume group whose disks are carried from the first node to the second. */
export const CARRIED_GROUP = "carried";

/** Two nodes, of which the first has a volume group that can be carried. */
const CARRIED_NODES = [
  { name: "node1", volumeGroups: [{ name: CARRIED_GROUP, disksGiB: [1, 1] }] },
  { name: "node2", volumeGroups: [{ name: "other", disksGiB: [1] }] },
].map((node) => ({ ...node, ...QUICK_RESTARTS }));

/** Two nodes with space for volumes and their copies. */
const TRANSFER_NODES = ["node1", "node2"].map((name) => ({
  name,
  volumeGroups: [{ name: "data", disksGiB: [6] }],
  ...QUICK_RESTARTS,
}));

/** Options of {@linkcode startWithDriver}. */
export interface DeployOptions {
  /** The kubelet's root directory, on every node. */
  readonly kubeletRoot?: string;
  /** The number of volume groups of the only node; two by default. */
  readonly groups?: number;
  /** True for two nodes with small groups; one node by default. */
  readonly twoNodes?: boolean;
  /** True for two nodes, the first with {@linkcode CARRIED_GROUP}. */
  readonly carriedGroup?: boolean;
  /** For two nodes with larger groups, whose agents send snapshots to each other: the values of the chart for it. */
  readonly transfers?: { readonly bandwidth?: string };
  /** Whether kubelet publishes volumes again and again, so that the passphrases of encrypted volumes change under pods. */
  readonly republish?: boolean;
  /** Whether the nodes have an image with PostgreSQL. */
  readonly postgresql?: boolean;
  /** Whether the nodes have the image that Kubernetes' own storage tests run. */
  readonly kubernetesTests?: boolean;
  /** The release of Kubernetes; the usual one by default. */
  readonly kubernetes?: KubernetesRelease;
  /** Whether the node has neither lvm2 nor a writable `/etc`. */
  readonly bareHost?: boolean;
  /** Rules that propose disks of the node, which then has two without a volume group. */
  readonly diskRules?: readonly string[];
  /** Whether external-snapshot-metadata runs beside the controller, as deploy/snapshot-metadata describes. */
  readonly snapshotMetadata?: boolean;
}

/** The time limit for a workload to be ready, in seconds. */
const ROLLOUT_TIMEOUT_SECONDS = 600;

/** kubelet's folder as the manifests have it. */
const DEFAULT_KUBELET_ROOT = "/var/lib/kubelet";

/** The folder of the custom resource definitions. */
export const CRDS = join(DEPLOY, "crds");

/** The driver's workloads. */
const WORKLOADS = ["daemonset/denolith-node", "deployment/denolith-controller"];

/**
 * Starts a cluster with the driver, of the present sources by default.
 *
 * @param log called with what is done
 */
export async function startWithDriver(
  folder: RunFolder,
  log: (line: string) => void,
  options: DeployOptions = {},
): Promise<Cluster> {
  const { kubeletRoot = DEFAULT_KUBELET_ROOT, kubernetes } = options;
  const { snapshotMetadata = false, postgresql = false, kubernetesTests = false } = options;
  const images = [
    await buildDriverImage(folder, log),
    ...postgresql ? [await ensurePostgresqlImage(log)] : [],
    ...kubernetesTests ? [await ensureKubernetesTestImage(log)] : [],
    ...snapshotMetadata ? [(await ensureSnapshotMetadata(log)).image] : [],
  ];
  const nodes = nodesFor(options).map((node) => ({ ...node, images, kubeletRoot }));
  const cluster = await Cluster.start({ folder, nodes, log, ...kubernetes === undefined ? {} : { kubernetes } });
  if (snapshotMetadata) await prepareSnapshotMetadata(cluster, log);
  if (options.bareHost === true) await Promise.all(cluster.nodes.map(stripNode));
  await deploy(cluster, log, await manifestFolder(folder, options));
  return cluster;
}

/** Returns the nodes of a cluster, with their disks. */
export function nodesFor({ groups = 2, twoNodes = false, carriedGroup = false, transfers, diskRules }: DeployOptions) {
  if (carriedGroup) return CARRIED_NODES;
  if (diskRules !== undefined) return DISK_NODES;
  if (transfers !== undefined) return TRANSFER_NODES;
  return twoNodes ? TWO_NODES : oneNode(groups);
}

/** Builds the archive of the driver's image from the present sources, in the folder. @returns its path */
async function buildDriverImage(folder: RunFolder, log: (line: string) => void): Promise<string> {
  const output = folder.file("denolith-image.tar");
  log(`image ${IMAGE}: making it`);
  await makeImageArchive({ output, cache: cacheFolder(), log });
  return output;
}

/** Returns the folder of manifests for a deployment: the plain ones, or what the chart becomes for its options. */
async function manifestFolder(
  folder: RunFolder,
  options: DeployOptions,
): Promise<string> {
  const { kubeletRoot, transfers, bareHost = false, snapshotMetadata = false, diskRules } = options;
  const defaultFolder = join(DEPLOY, "manifests");
  const values = {
    ...(kubeletRoot === undefined || kubeletRoot === DEFAULT_KUBELET_ROOT ? {} : { kubeletDir: kubeletRoot }),
    ...(transfers === undefined ? {} : { transfer: { enabled: true, ...transfers } }),
    ...(options.republish === true ? { encryption: { republish: true } } : {}),
    ...(bareHost ? BARE_VALUES : {}),
    ...(diskRules === undefined ? {} : { diskRules }),
    ...(snapshotMetadata ? await snapshotMetadataValues() : {}),
  };
  if (Object.keys(values).length === 0) return defaultFolder;
  const renderedFolder = folder.file("manifests");
  await Deno.mkdir(renderedFolder);
  await Deno.copyFile(join(defaultFolder, NAMESPACE_FILE), join(renderedFolder, NAMESPACE_FILE));
  const rendered = renderChart({ values: { ...values, crds: { enabled: false } } });
  for (const [name, text] of rendered) await Deno.writeTextFile(join(renderedFolder, name), text);
  return renderedFolder;
}

/**
 * Deploys the driver into a cluster that has just started, and waits until it is ready.
 *
 * @param log called with what is done
 */
async function deploy(
  { controlPlane }: Cluster,
  log: (line: string) => void,
  manifests: string,
): Promise<void> {
  log(`driver: kubectl apply --filename ${CRDS} --filename ${manifests}`);
  await controlPlane.kubectl(["apply", "--filename", CRDS]);
  await controlPlane.kubectl(["wait", "--for=condition=Established", "crd", "--all", "--timeout=60s"]);
  await controlPlane.kubectl(["apply", "--filename", manifests]);
  for (const workload of WORKLOADS) {
    await waitForRollout(controlPlane, workload);
    log(`driver: ${workload} is ready`);
  }
}

/** Waits until all pods of a workload have its present template, and are ready. */
async function waitForRollout(controlPlane: ControlPlane, workload: string): Promise<void> {
  const args = ["--namespace", "denolith-system", "rollout", "status", workload];
  await controlPlane.kubectl([...args, `--timeout=${ROLLOUT_TIMEOUT_SECONDS}s`]);
}
