/**
 * Where kubelet keeps what belongs to a driver.
 *
 * @module
 */

import { join } from "@std/path";
import { type Flags, UsageError } from "./command_line.ts";
import { socketPath } from "./csi/endpoint.ts";
import { parseMountRoots } from "./csi/mount_roots.ts";

/** The paths of a driver below kubelet's directory. */
export interface KubeletPaths {
  /** Kubelet's directory: volumes are mounted below it. */
  readonly kubeletRoot: string;
  /** The driver's socket. */
  readonly socket: string;
  /** The socket on which kubelet asks for the driver. */
  readonly registrationSocket: string;
}

/** The paths that the flags imply. @throws {StorageError} `InvalidArgument` for a directory that cannot be. */
export function kubeletPaths(flags: Flags): KubeletPaths {
  const [kubeletRoot, ...more] = parseMountRoots(flags["kubelet-root"]!);
  if (kubeletRoot === undefined || more.length > 0) throw new UsageError("--kubelet-root: must be one directory");
  const driver = flags["driver-name"]!;
  return {
    kubeletRoot,
    socket: socketPath(join(kubeletRoot, "plugins", driver, "csi.sock")),
    registrationSocket: socketPath(join(kubeletRoot, "plugins_registry", `${driver}-reg.sock`)),
  };
}
