/**
 * The controller and the official sidecars as processes of this machine, in front of the cluster's API server.
 *
 * @module
 */

import { join } from "@std/path";
import { DRIVER_FLAGS } from "../../../process/driver_command.ts";
import type { ControlPlane } from "../../../rig/control_plane.ts";
import { freePorts } from "../../../rig/free_ports.ts";
import { ensureSidecar, type Sidecar } from "../../../rig/kubernetes.ts";
import { pollUntil } from "../../../rig/poll_until.ts";
import { GROUP_SNAPSHOTS, snapshotController } from "../../snapshots.ts";
import { SYSTEM_NAMESPACE } from "./driver_pods.ts";

const ROOT = new URL("../../../../", import.meta.url).pathname;

/** The time limit for a program to start or to end, in milliseconds. */
const START_MS = 60_000;

/** Flags of the sidecars beside those that all take. */
const SIDECAR_FLAGS: Record<Sidecar, readonly string[]> = {
  "csi-provisioner": [
    ...["--feature-gates=Topology=true", "--strict-topology", "--extra-create-metadata", "--volume-name-prefix=pvc"],
    "--timeout=90s",
  ],
  "csi-resizer": ["--timeout=90s", "--handle-volume-inuse-error=false"],
  "csi-snapshotter": ["--timeout=90s", GROUP_SNAPSHOTS],
};

/** A program of this machine. */
export class HostProcess implements AsyncDisposable {
  readonly #child: Deno.ChildProcess;
  /** The path of its log. */
  readonly log: string;

  private constructor(child: Deno.ChildProcess, log: string) {
    this.#child = child;
    this.log = log;
  }

  /** Starts a program; its output goes into a file. */
  static start(path: string, args: readonly string[], log: string): HostProcess {
    const shell = ["-c", 'log=$0; exec "$@" > "$log" 2>&1', log, path, ...args];
    const child = new Deno.Command("/bin/sh", { args: shell, cwd: ROOT, stdin: "null", env: { NO_COLOR: "1" } })
      .spawn();
    return new HostProcess(child, log);
  }

  get pid(): number {
    return this.#child.pid;
  }

  /** Kills it. */
  async kill(): Promise<void> {
    try {
      this.#child.kill("SIGKILL");
    } catch {
      // it has ended
    }
    await this.#child.status;
  }

  /** Ends it as it wants to end. */
  async [Symbol.asyncDispose](): Promise<void> {
    try {
      this.#child.kill("SIGTERM");
    } catch {
      // it has ended
    }
    const timer = setTimeout(() => void this.kill(), START_MS);
    await this.#child.status;
    clearTimeout(timer);
  }
}

/** A controller of the driver on this machine. */
export interface ControllerProcess extends AsyncDisposable {
  /** Its socket. */
  readonly socket: string;
  /** The URL of its metrics. */
  readonly metrics: string;
  readonly process: HostProcess;
}

/**
 * Starts the controller of this checkout, with the rights of the one in the cluster, and waits until it is ready.
 *
 * @param folder for its files
 * @param flags beyond the usual
 */
export async function startController(
  controlPlane: ControlPlane,
  folder: string,
  flags: readonly string[] = [],
): Promise<ControllerProcess> {
  const account = `system:serviceaccount:${SYSTEM_NAMESPACE}:denolith-controller`;
  const groups = ["system:serviceaccounts", `system:serviceaccounts:${SYSTEM_NAMESPACE}`];
  const kubeconfig = await controlPlane.kubeconfigFor(`host-controller-${crypto.randomUUID().slice(0, 8)}`, {
    user: account,
    groups,
  });
  const socket = join(folder, "csi.sock");
  const [port] = freePorts(1);
  const process = HostProcess.start(Deno.execPath(), [
    ...["run", ...DRIVER_FLAGS, join(ROOT, "main.ts"), "controller", "--endpoint", `unix://${socket}`],
    ...["--kubeconfig", kubeconfig, "--namespace", SYSTEM_NAMESPACE, "--identity", "host"],
    ...["--http-address", `127.0.0.1:${port}`, ...flags],
  ], join(folder, "controller.log"));
  const isReady = () => fetch(`http://127.0.0.1:${port}/readyz`).then((r) => r.text().then(() => r.ok), () => false);
  try {
    const isUp = async () => await isReady() && await Deno.stat(socket).then(() => true, () => false);
    await pollUntil(isUp, { action: "start the controller", timeoutMs: START_MS });
  } catch (error) {
    await process[Symbol.asyncDispose]();
    throw new Error(`${(error as Error).message}\n${await Deno.readTextFile(process.log)}`);
  }
  return {
    socket,
    metrics: `http://127.0.0.1:${port}/metrics`,
    process,
    [Symbol.asyncDispose]: () => process[Symbol.asyncDispose](),
  };
}

/** Starts an official sidecar in front of a socket, as the administrator. It is built on first use, which takes minutes. */
export async function startSidecar(
  name: Sidecar,
  { controlPlane: controlPlane, socket, folder }: { controlPlane: ControlPlane; socket: string; folder: string },
): Promise<HostProcess> {
  const path = await ensureSidecar(name, (line) => console.error(line));
  return HostProcess.start(path, [
    ...["--csi-address", socket, "--kubeconfig", controlPlane.kubeconfig, "--v=3"],
    ...["--leader-election", `--leader-election-namespace=${SYSTEM_NAMESPACE}`, ...SIDECAR_FLAGS[name]],
  ], join(folder, `${name}.log`));
}

/**
 * Starts the official snapshot-controller, as the administrator; the kinds of snapshots must be there. It is built on first use,
 * which takes minutes.
 */
export async function startSnapshotController(controlPlane: ControlPlane, folder: string): Promise<HostProcess> {
  const { path, args } = await snapshotController(controlPlane, (line) => console.error(line));
  return HostProcess.start(path, args, join(folder, "snapshot-controller.log"));
}
