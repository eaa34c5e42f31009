/**
 * The devices that pods have as block volumes, or are about to have.
 *
 * @module
 */

import { commandError, type Exec } from "../exec.ts";
import { readBlockDevices } from "../host/device.ts";
import { type Mount, readMounts } from "../host/mounts.ts";

/**
 * Reads the devices that pods have as block volumes: their nodes are mounted somewhere, or stand below kubelet's folders
 * `volumeDevices`, as CSI drivers and kubelet make them: bind mounts, nodes of their own, or links.
 *
 * @param kubeletDirectory the data directory of kubelet
 * @returns their numbers, each with a path that says so
 * @throws {StorageError} `CommandFailed` when the mounts or the folders cannot be read
 */
export async function readPublished(exec: Exec, kubeletDirectory: string): Promise<Map<string, string>> {
  const mounts = (await readMounts(exec)).filter(isNodeMount);
  const paths = [...mounts.map(({ target }) => target), ...await findDevices(exec, kubeletDirectory)];
  const published = new Map<string, string>();
  for (const path of new Set(paths)) {
    for (const { number } of await readBlockDevices(exec, [path])) published.set(number, path);
  }
  return published;
}

/** Reports whether a mount may be of a device's node: of a path in a filesystem that has such nodes. */
function isNodeMount({ fsType, root }: Mount): boolean {
  return /^(?:devtmpfs|tmpfs)$/.test(fsType) && root !== "/";
}

/**
 * Lists nodes and links below kubelet's folders `volumeDevices`. It does not enter the volumes of pods: those are at the greatest
 * depth that it looks at, or, with `plugins`, in folders `globalmount` and `mounts`.
 */
async function findDevices(exec: Exec, kubeletDirectory: string): Promise<string[]> {
  const isDevice = ["-path", "*/volumeDevices/*", "(", "-type", "b", "-o", "-type", "l", ")", "-print0"];
  const isVolume = ["(", "-name", "globalmount", "-o", "-name", "mounts", ")", "!", "-path", "*/volumeDevices/*"];
  const searches = [
    [`${kubeletDirectory}/pods`, "-maxdepth", "4", ...isDevice],
    [`${kubeletDirectory}/plugins`, "-maxdepth", "6", ...isVolume, "-prune", "-o", ...isDevice],
  ];
  const found: string[] = [];
  for (const args of searches) {
    const command = { program: "find", args: ["-H", ...args], mutates: false } as const;
    const output = await exec.run(command);
    // what pods end meanwhile takes away is no error that matters, and find(1) lists the rest
    const isGone = output.stderr.trim().split("\n").every((line) => / No such file or directory$/.test(line));
    if (output.code !== 0 && !isGone) throw commandError(command, output);
    found.push(...output.stdout.split("\0").filter((path) => path !== ""));
  }
  return found;
}
