/**
 * What the scheduler is told that there is room for.
 *
 * @module
 */

import { capacityName, offeredBy } from "../../../k8s/scheduling/capacity_object.ts";
import type { HttpClient } from "../../../k8s/client/http_client.ts";
import { Informer } from "../../../k8s/runtime/informer.ts";
import { csiStorageCapacities, type CsiStorageCapacity } from "../../../k8s/api/objects.ts";
import { SYSTEM } from "./driver_pods.ts";
import { administrator } from "./ledger.ts";
import type { Scene } from "./scene.ts";
import { DRIVER } from "./scene_objects.ts";
import { WAIT_MS } from "./scene_watch.ts";

/** The CSIStorageCapacities of the cluster. */
export class Offers implements AsyncDisposable {
  readonly #client: HttpClient;
  readonly #objects: Informer<CsiStorageCapacity>;
  readonly #end = new AbortController();
  readonly #running: Promise<void>;

  private constructor(scene: Scene) {
    this.#client = administrator(scene.cluster.controlPlane);
    this.#objects = new Informer(this.#client, csiStorageCapacities, { namespace: SYSTEM });
    this.#running = this.#objects.start(this.#end.signal);
  }

  /** Looks at the cluster of a scene. */
  static async open(scene: Scene): Promise<Offers> {
    const offers = new Offers(scene);
    await offers.#objects.synced;
    return offers;
  }

  /** The object for a class on a node, as last seen. */
  now(nodeName: string, className: string): CsiStorageCapacity | undefined {
    return this.#objects.get(keyOf(nodeName, className));
  }

  /**
   * Waits until so many MiB are the largest volume that is offered of a class on a node; undefined: until none is told of.
   *
   * @throws {Error} when that takes too long, with what is offered
   */
  async are(mib: number | undefined, nodeName: string, className: string): Promise<void> {
    const holds = (now?: CsiStorageCapacity) => mibOf(now) === mib;
    await this.#objects.waitFor(keyOf(nodeName, className), holds, { timeoutMs: WAIT_MS }).catch(() => {
      const now = mibOf(this.now(nodeName, className));
      throw new Error(`wait until ${mib} MiB of ${className} are offered on ${nodeName}: there are ${now}`);
    });
  }

  /** Looks away. */
  async [Symbol.asyncDispose](): Promise<void> {
    this.#end.abort(new Error("looked away"));
    await this.#running;
    this.#client[Symbol.dispose]();
  }
}

function keyOf(nodeName: string, className: string): string {
  return `${SYSTEM}/${capacityName(DRIVER, { nodeName, className })}`;
}

function mibOf(object: CsiStorageCapacity | undefined): number | undefined {
  return object && Number(offeredBy(object)) / 2 ** 20;
}
