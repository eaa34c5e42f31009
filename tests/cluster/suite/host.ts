/**
 * A controller on this machine, instead of the one in the cluster.
 *
 * @module
 */

import { officialLeaseName } from "../../../k8s/runtime/leader.ts";
import { leases } from "../../../k8s/api/objects.ts";
import type { Sidecar } from "../../rig/kubernetes.ts";
import { TempFolder } from "../../rig/temp_folder.ts";
import { until } from "../../rig/until.ts";
import { DriverPods, SYSTEM } from "./driver_pods.ts";
import { type HostController, type Program, startController, startSidecar } from "./host_programs.ts";
import { administrator } from "./ledger.ts";
import type { Scene } from "./scene.ts";
import { DRIVER } from "./scene_objects.ts";
import { WAIT_MS } from "./scene_watch.ts";

/** A controller on this machine, instead of the one in the cluster. */
export class Host implements AsyncDisposable {
  readonly #scene: Scene;
  readonly #stack: AsyncDisposableStack;
  readonly #controller: HostController;
  readonly #folder: string;

  private constructor(
    scene: Scene,
    stack: AsyncDisposableStack,
    parts: { controller: HostController; folder: string },
  ) {
    this.#scene = scene;
    this.#stack = stack;
    this.#controller = parts.controller;
    this.#folder = parts.folder;
  }

  /** Starts one, and takes that of the cluster away as long as it runs. */
  static async open(scene: Scene, flags: readonly string[]): Promise<Host> {
    await using stack = new AsyncDisposableStack();
    const driver = stack.use(await DriverPods.open(scene.cluster, { controller: false }));
    stack.defer(() => driver.scaleController(1));
    await driver.scaleController(0);
    const folder = stack.use(await TempFolder.create("/tmp", "denolith-"));
    const controller = stack.use(await startController(scene.cluster.controlPlane, folder.path, flags));
    return new Host(scene, stack.move(), { controller, folder: folder.path });
  }

  /** Starts an official sidecar in front of its socket. */
  async sidecar(name: Sidecar): Promise<Program> {
    const { controlPlane } = this.#scene.cluster;
    return await startSidecar(name, { controlPlane, socket: this.#controller.socket, folder: this.#folder });
  }

  /** Who holds a sidecar's Lease, if that is not the one that held it before. */
  async holder(sidecar: Sidecar, before = ""): Promise<string> {
    using client = administrator(this.#scene.cluster.controlPlane);
    const at = { namespace: SYSTEM, name: officialLeaseName(sidecar, DRIVER) };
    const look = async () => {
      const { spec } = await client.get(leases, at);
      const live = Date.parse(spec?.renewTime ?? "") > Date.now() - 15_000;
      return live && spec?.holderIdentity && spec.holderIdentity !== before ? spec.holderIdentity : undefined;
    };
    return await until(look, { action: "wait for a holder of the Lease", timeoutMs: WAIT_MS, everyMs: 500 });
  }

  /** Ends it, and brings that of the cluster back. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.#stack.disposeAsync();
  }
}
