/**
 * A controller on this machine, instead of the one in the cluster.
 *
 * @module
 */

import { sidecarLeaseName } from "../../../../k8s/runtime/leader.ts";
import { leases } from "../../../../k8s/api/objects.ts";
import type { Sidecar } from "../../../rig/kubernetes.ts";
import { TempFolder } from "../../../rig/temp_folder.ts";
import { pollUntil } from "../../../rig/poll_until.ts";
import { DriverPods, SYSTEM_NAMESPACE } from "./driver_pods.ts";
import { type ControllerProcess, type HostProcess, startController, startSidecar } from "./host_processes.ts";
import { adminClient } from "./claim_tracker.ts";
import type { TestNamespace } from "./test_namespace.ts";
import { DRIVER } from "./objects.ts";
import { WAIT_MS } from "./object_watcher.ts";

/** A controller on this machine, instead of the one in the cluster. */
export class OutOfClusterController implements AsyncDisposable {
  readonly #ns: TestNamespace;
  readonly #cleanup: AsyncDisposableStack;
  readonly #controller: ControllerProcess;
  readonly #folder: string;

  private constructor(
    ns: TestNamespace,
    cleanup: AsyncDisposableStack,
    parts: { controller: ControllerProcess; folder: string },
  ) {
    this.#ns = ns;
    this.#cleanup = cleanup;
    this.#controller = parts.controller;
    this.#folder = parts.folder;
  }

  /** Starts one, and takes that of the cluster away as long as it runs. */
  static async open(ns: TestNamespace, flags: readonly string[]): Promise<OutOfClusterController> {
    await using cleanup = new AsyncDisposableStack();
    const driver = cleanup.use(await DriverPods.open(ns.cluster, { controller: false }));
    cleanup.defer(() => driver.scaleController(1));
    await driver.scaleController(0);
    const folder = cleanup.use(await TempFolder.create("/tmp", "denolith-"));
    const controller = cleanup.use(await startController(ns.cluster.controlPlane, folder.path, flags));
    return new OutOfClusterController(ns, cleanup.move(), { controller, folder: folder.path });
  }

  /** Starts an official sidecar in front of its socket. */
  async startSidecarProcess(name: Sidecar): Promise<HostProcess> {
    const { controlPlane } = this.#ns.cluster;
    return await startSidecar(name, { controlPlane, socket: this.#controller.socket, folder: this.#folder });
  }

  /** Waits until a sidecar's Lease has a holder other than the one before. @returns the holder */
  async waitForLeaseHolder(sidecar: Sidecar, before = ""): Promise<string> {
    using client = adminClient(this.#ns.cluster.controlPlane);
    const at = { namespace: SYSTEM_NAMESPACE, name: sidecarLeaseName(sidecar, DRIVER) };
    const findHolder = async () => {
      const { spec } = await client.get(leases, at);
      const isLive = Date.parse(spec?.renewTime ?? "") > Date.now() - 15_000;
      return isLive && spec?.holderIdentity && spec.holderIdentity !== before ? spec.holderIdentity : undefined;
    };
    return await pollUntil(findHolder, {
      action: "wait for a holder of the Lease",
      timeoutMs: WAIT_MS,
      intervalMs: 500,
    });
  }

  /** Ends it, and brings that of the cluster back. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.#cleanup.disposeAsync();
  }
}
