/**
 * The published capacity.
 *
 * @module
 */

import { capacityName, maximumVolumeSizeOf } from "../../../../k8s/scheduling/capacity_object.ts";
import type { HttpClient } from "../../../../k8s/client/http_client.ts";
import { Informer } from "../../../../k8s/runtime/informer.ts";
import { csiStorageCapacities, type CsiStorageCapacity } from "../../../../k8s/api/objects.ts";
import { SYSTEM_NAMESPACE } from "./driver_pods.ts";
import { adminClient } from "./claim_tracker.ts";
import type { TestNamespace } from "./test_namespace.ts";
import { DRIVER } from "./objects.ts";
import { WAIT_MS } from "./object_watcher.ts";

/** The CSIStorageCapacities of the cluster. */
export class PublishedCapacity implements AsyncDisposable {
  readonly #client: HttpClient;
  readonly #objects: Informer<CsiStorageCapacity>;
  readonly #stop = new AbortController();
  readonly #running: Promise<void>;

  private constructor(ns: TestNamespace) {
    this.#client = adminClient(ns.cluster.controlPlane);
    this.#objects = new Informer(this.#client, csiStorageCapacities, { namespace: SYSTEM_NAMESPACE });
    this.#running = this.#objects.start(this.#stop.signal);
  }

  /** Watches the cluster of a test namespace. */
  static async open(ns: TestNamespace): Promise<PublishedCapacity> {
    const published = new PublishedCapacity(ns);
    await published.#objects.synced;
    return published;
  }

  /** Returns the object for a class on a node, as last seen. */
  current(nodeName: string, className: string): CsiStorageCapacity | undefined {
    return this.#objects.get(capacityKey(nodeName, className));
  }

  /**
   * Waits until the published maximum size of a class on a node is so many MiB; undefined waits until nothing is
   * published.
   *
   * @throws {Error} after the time limit, with the published capacities
   */
  async waitFor(mib: number | undefined, nodeName: string, className: string): Promise<void> {
    const matches = (current?: CsiStorageCapacity) => maxVolumeMib(current) === mib;
    await this.#objects.waitFor(capacityKey(nodeName, className), matches, { timeoutMs: WAIT_MS }).catch(() => {
      const current = maxVolumeMib(this.current(nodeName, className));
      throw new Error(`wait until ${mib} MiB of ${className} are offered on ${nodeName}: there are ${current}`);
    });
  }

  /** Looks away. */
  async [Symbol.asyncDispose](): Promise<void> {
    this.#stop.abort(new Error("looked away"));
    await this.#running;
    this.#client[Symbol.dispose]();
  }
}

function capacityKey(nodeName: string, className: string): string {
  return `${SYSTEM_NAMESPACE}/${capacityName(DRIVER, { nodeName, className })}`;
}

function maxVolumeMib(object: CsiStorageCapacity | undefined): number | undefined {
  return object && Number(maximumVolumeSizeOf(object)) / 2 ** 20;
}
