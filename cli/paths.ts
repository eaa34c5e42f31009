/**
 * The paths of a driver below the directory of kubelet, and the mount point of cgroup v2.
 *
 * @module
 */

import { join } from "@std/path";
import { type Flags, UsageError } from "./command_line.ts";
import { socketPath } from "../csi/endpoint.ts";
import { parseMountRoots } from "../csi/mount_roots.ts";

/** The paths of a driver below the directory of kubelet. */
export interface KubeletPaths {
  /** Directory of kubelet, below which volumes are mounted. */
  readonly kubeletDir: string;
  /** Socket of the driver. */
  readonly socket: string;
  /** Socket on which kubelet asks for the driver. */
  readonly registrationSocket: string;
}

/**
 * Returns where a cgroup v2 hierarchy is mounted, or `undefined` without `--cgroup-root`.
 *
 * @throws {UsageError} for a path that is not absolute, or that Deno's permissions refuse
 */
export function cgroupRoot(flags: Flags): string | undefined {
  const path = flags["cgroup-root"];
  if (path === undefined) return undefined;
  if (!/^\/[^\0]+$/.test(path) || /(?:^|\/)\.{1,2}(?:\/|$)|^\/(?:sys|proc|dev)(?:\/|$)/.test(path)) {
    throw new UsageError(
      `--cgroup-root ${
        JSON.stringify(path)
      }: must be an absolute path where cgroup v2 is mounted, and not in /sys, /proc ` +
        "or /dev, which Deno refuses to every program that is not allowed all: mount it, or bind it, elsewhere",
    );
  }
  return path.replace(/\/+$/, "");
}

/**
 * Returns the paths for `--kubelet-dir` and `--driver-name`.
 *
 * @throws {StorageError} `InvalidArgument` for an invalid directory
 * @throws {UsageError} for several directories
 */
export function kubeletPaths(flags: Flags): KubeletPaths {
  const [kubeletDir, ...more] = parseMountRoots(flags["kubelet-dir"]!);
  if (kubeletDir === undefined || more.length > 0) throw new UsageError("--kubelet-dir: must be one directory");
  const driver = flags["driver-name"]!;
  return {
    kubeletDir,
    socket: socketPath(join(kubeletDir, "plugins", driver, "csi.sock")),
    registrationSocket: socketPath(join(kubeletDir, "plugins_registry", `${driver}-reg.sock`)),
  };
}
