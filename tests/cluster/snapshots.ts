/**
 * What VolumeSnapshots need in a cluster: their kinds, and the official snapshot-controller.
 *
 * @module
 */

import type { Cluster } from "../rig/cluster.ts";
import type { ControlPlane } from "../rig/control_plane.ts";
import { ensureSnapshotController, ensureSnapshotCrds } from "../rig/kubernetes.ts";

/** Turns group snapshots on in the snapshot-controller, and in csi-snapshotter. */
export const GROUP_SNAPSHOTS = "--feature-gates=CSIVolumeGroupSnapshot=true";

/** The name of the snapshot-controller among a cluster's processes. */
const CONTROLLER = "snapshot-controller";

/** Adds both to a cluster, whose process the snapshot-controller becomes. Harmless if it has them. */
export async function addSnapshots({ folder, controlPlane }: Cluster, log: (line: string) => void): Promise<void> {
  log("snapshots: their kinds, and the snapshot-controller");
  await applySnapshotCrds(controlPlane, log);
  if (await folder.isRunning(CONTROLLER)) return;
  const { path, args } = await snapshotController(controlPlane, log);
  await folder.start(CONTROLLER, path, args);
}

/** Applies the CRDs of snapshots and group snapshots, and waits until the API server serves them. */
export async function applySnapshotCrds(controlPlane: ControlPlane, log: (line: string) => void): Promise<void> {
  const crds = await ensureSnapshotCrds(log);
  const apply = () => controlPlane.kubectl(["apply", "--filename", crds]);
  await apply().catch(apply); // another suite may create them between its look and its creation
  await controlPlane.kubectl(["wait", "--for=condition=Established", "--filename", crds, "--timeout=60s"]);
}

/** Returns the command line of the snapshot-controller, as the administrator. It is built on first use, which takes minutes. */
export async function snapshotController(
  controlPlane: ControlPlane,
  log: (line: string) => void,
): Promise<{ path: string; args: string[] }> {
  const path = await ensureSnapshotController(log);
  return { path, args: ["--kubeconfig", controlPlane.kubeconfig, "--v=3", GROUP_SNAPSHOTS] };
}
