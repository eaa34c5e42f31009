/**
 * The controller and the official sidecars as processes of this machine, in front of the cluster's API server.
 *
 * @module
 */

import { join } from "@std/path";
import { DRIVER_FLAGS } from "../../driver_command.ts";
import type { ControlPlane } from "../../rig/control_plane.ts";
import { freePorts } from "../../rig/free_ports.ts";
import { ensureSidecar, ensureSnapshotController, type Sidecar } from "../../rig/kubernetes.ts";
import { until } from "../../rig/until.ts";
import { SYSTEM } from "./driver_pods.ts";

const ROOT = new URL("../../../", import.meta.url).pathname;

/** How long a program may take to start or to end, in milliseconds. */
const START_MS = 60_000;

/** Groups of snapshots have kinds of their own, which the snapshot-controller would wait for. */
const NO_GROUPS = "--feature-gates=CSIVolumeGroupSnapshot=false";

/** Flags of the sidecars beside those that all take. */
const SIDECAR_FLAGS: Record<Sidecar, readonly string[]> = {
  "csi-provisioner": [
    ...["--feature-gates=Topology=true", "--strict-topology", "--extra-create-metadata", "--volume-name-prefix=pvc"],
    "--timeout=90s",
  ],
  "csi-resizer": ["--timeout=90s"],
  "csi-snapshotter": ["--timeout=90s", NO_GROUPS],
};

/** A program of this machine. */
export class Program implements AsyncDisposable {
  readonly #child: Deno.ChildProcess;
  /** What it wrote. */
  readonly log: string;

  private constructor(child: Deno.ChildProcess, log: string) {
    this.#child = child;
    this.log = log;
  }

  /** Starts a program; its output goes into a file. */
  static start(path: string, args: readonly string[], log: string): Program {
    const shell = ["-c", 'log=$0; exec "$@" > "$log" 2>&1', log, path, ...args];
    const child = new Deno.Command("/bin/sh", { args: shell, cwd: ROOT, stdin: "null", env: { NO_COLOR: "1" } })
      .spawn();
    return new Program(child, log);
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
export interface HostController extends AsyncDisposable {
  /** Its socket. */
  readonly socket: string;
  /** Where its figures are. */
  readonly metrics: string;
  readonly program: Program;
}

/**
 * Starts the controller of this checkout, with the rights of the one in the cluster, and waits until it is ready.
 *
 * @param folder for its files
 * @param flags beyond the usual
 */
export async function startController(
  plane: ControlPlane,
  folder: string,
  flags: readonly string[] = [],
): Promise<HostController> {
  const account = `system:serviceaccount:${SYSTEM}:denolith-controller`;
  const groups = ["system:serviceaccounts", `system:serviceaccounts:${SYSTEM}`];
  const kubeconfig = await plane.kubeconfigFor(`host-controller-${crypto.randomUUID().slice(0, 8)}`, {
    user: account,
    groups,
  });
  const socket = join(folder, "csi.sock");
  const [port] = freePorts(1);
  const program = Program.start(Deno.execPath(), [
    ...["run", ...DRIVER_FLAGS, join(ROOT, "main.ts"), "controller", "--endpoint", `unix://${socket}`],
    ...["--kubeconfig", kubeconfig, "--namespace", SYSTEM, "--identity", "host"],
    ...["--http-address", `127.0.0.1:${port}`, ...flags],
  ], join(folder, "controller.log"));
  const ready = () => fetch(`http://127.0.0.1:${port}/readyz`).then((r) => r.text().then(() => r.ok), () => false);
  try {
    const isThere = async () => await ready() && await Deno.stat(socket).then(() => true, () => false);
    await until(isThere, { action: "start the controller", timeoutMs: START_MS });
  } catch (error) {
    await program[Symbol.asyncDispose]();
    throw new Error(`${(error as Error).message}\n${await Deno.readTextFile(program.log)}`);
  }
  return {
    socket,
    metrics: `http://127.0.0.1:${port}/metrics`,
    program,
    [Symbol.asyncDispose]: () => program[Symbol.asyncDispose](),
  };
}

/** Starts an official sidecar in front of a socket, as the administrator. It is built on first use, which takes minutes. */
export async function startSidecar(
  name: Sidecar,
  { controlPlane: plane, socket, folder }: { controlPlane: ControlPlane; socket: string; folder: string },
): Promise<Program> {
  const path = await ensureSidecar(name, (line) => console.error(line));
  return Program.start(path, [
    ...["--csi-address", socket, "--kubeconfig", plane.kubeconfig, "--v=3"],
    ...["--leader-election", `--leader-election-namespace=${SYSTEM}`, ...SIDECAR_FLAGS[name]],
  ], join(folder, `${name}.log`));
}

/**
 * Starts the official snapshot-controller, as the administrator; the kinds of snapshots must be there. It is built on first use,
 * which takes minutes.
 */
export async function startSnapshotController(plane: ControlPlane, folder: string): Promise<Program> {
  const path = await ensureSnapshotController((line) => console.error(line));
  return Program.start(
    path,
    ["--kubeconfig", plane.kubeconfig, "--v=3", NO_GROUPS],
    join(folder, "snapshot-controller.log"),
  );
}
