/**
 * Where kubelet keeps what belongs to a driver.
 *
 * @module
 */

import { join } from "@std/path";
import { type Flags, UsageError } from "./command_line.ts";
import { socketPath } from "../csi/endpoint.ts";
import { parseMountRoots } from "../csi/mount_roots.ts";

/** The paths of a driver below kubelet's directory. */
export interface KubeletPaths {
  /** Kubelet's directory: volumes are mounted below it. */
  readonly kubeletDir: string;
  /** The driver's socket. */
  readonly socket: string;
  /** The socket on which kubelet asks for the driver. */
  readonly registrationSocket: string;
}

/**
 * Where a cgroup v2 hierarchy is mounted, if the flags say so.
 *
 * @throws {UsageError} for what is no path, or one that Deno's permissions refuse.
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

/** The paths that the flags imply. @throws {StorageError} `InvalidArgument` for a directory that cannot be. */
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
