/**
 * The paths of a driver below the directory of kubelet, and the mount point of cgroup v2.
 *
 * @module
 */

import { join } from "@std/path";
import { type Flags, UsageError } from "./command_line.ts";
import { parseMountRoots, socketPath } from "../csi/driver_options.ts";
import { quote } from "../base/error.ts";
import { invalidArgument } from "../csi/request.ts";

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
 */
export function kubeletPaths(flags: Flags): KubeletPaths {
  const kubeletDir = parseKubeletDir(flags["kubelet-dir"]!);
  const driver = flags["driver-name"]!;
  const field = `--kubelet-dir ${quote(kubeletDir)}: its socket`;
  return {
    kubeletDir,
    socket: socketPath(join(kubeletDir, "plugins", driver, "csi.sock"), field),
    registrationSocket: socketPath(join(kubeletDir, "plugins_registry", `${driver}-reg.sock`), field),
  };
}

/** Parses `--kubelet-dir`. @throws {StorageError} `InvalidArgument` for anything but one directory */
export function parseKubeletDir(text: string, field = "--kubelet-dir"): string {
  const [kubeletDir] = text.includes(",") ? [] : parseMountRoots(text, field);
  if (kubeletDir !== undefined) return kubeletDir;
  throw invalidArgument(`${field} ${quote(text)}: must be the absolute path of one directory`);
}
