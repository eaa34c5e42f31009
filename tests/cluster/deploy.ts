/**
 * Bringing the driver into a cluster, from deploy/, as a user does.
 *
 * @module
 */

import { join } from "@std/path";
import { IMAGE, makeImageArchive } from "../../deploy/image/archive.ts";
import { cacheFolder } from "../rig/cache.ts";
import type { Cluster } from "../rig/cluster.ts";
import type { RunFolder } from "../rig/run_folder.ts";

const DEPLOY = new URL("../../deploy/", import.meta.url).pathname;

/** The archive of the driver's image, made of the present sources in the folder. */
export async function driverImage(folder: RunFolder, log: (line: string) => void): Promise<string> {
  const output = folder.file("denolith-image.tar");
  log(`image ${IMAGE}: making it`);
  await makeImageArchive({ output, cache: cacheFolder(), log });
  return output;
}

/**
 * Brings the driver into a cluster that has just come up, and waits until it is ready.
 *
 * @param log is told what is done
 */
export async function deploy(cluster: Cluster, log: (line: string) => void): Promise<void> {
  log("driver: kubectl apply --filename deploy/crds --filename deploy/manifests");
  const { controlPlane } = cluster;
  await controlPlane.kubectl(["apply", "--filename", join(DEPLOY, "crds")]);
  await controlPlane.kubectl(["wait", "--for=condition=Established", "crd", "--all", "--timeout=60s"]);
  await controlPlane.kubectl(["apply", "--filename", join(DEPLOY, "manifests")]);
  for (const workload of ["daemonset/denolith-node", "deployment/denolith-controller"]) {
    await controlPlane.kubectl(["--namespace", "denolith-system", "rollout", "status", workload, "--timeout=300s"]);
    log(`driver: ${workload} is ready`);
  }
}
