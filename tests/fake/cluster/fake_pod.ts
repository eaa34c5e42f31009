/**
 * A pod that uses the volume of a {@linkcode MoveCluster}, as far as kubelet calls the driver for it.
 *
 * @module
 */

import { StorageError } from "../../../base/error.ts";
import type { Access } from "../../../lvm/staging/publication.ts";
import { type MoveCluster, MOVED } from "./move_cluster.ts";

let count = 0;

/** A pod. It ends when it is disposed of. */
export class FakePod implements AsyncDisposable {
  #ended: Promise<void> | undefined;

  private constructor(
    readonly cluster: MoveCluster,
    readonly node: string,
    readonly access: Access,
    readonly stagingPath: string,
    readonly target: string,
  ) {}

  /** Starts one on a node. @throws {StorageError} when the driver refuses */
  static async start(cluster: MoveCluster, node = "node-1", access: Access = { kind: "block" }): Promise<FakePod> {
    const [stagingPath, target] = [`${cluster.root}/${node}-staged`, `${cluster.root}/${node}-pod-${++count}`];
    const pod = new FakePod(cluster, node, access, stagingPath, target);
    const { staging } = cluster.cluster.agent(node).machine;
    await staging.stage(MOVED, stagingPath, access);
    await pod.publish();
    return pod;
  }

  /** Publishes the volume, as kubelet repeats it. @throws {StorageError} when the driver refuses */
  async publish(target: string = this.target): Promise<void> {
    const { staging } = this.cluster.cluster.agent(this.node).machine;
    const { stagingPath, access } = this;
    await staging.publish(MOVED, { stagingPath, target, access, readOnly: false, exclusive: false });
  }

  /** Ends it. */
  end(): Promise<void> {
    return this.#ended ??= this.#end();
  }

  async #end(): Promise<void> {
    const { nodeService } = this.cluster.cluster.agent(this.node);
    await untilFree(() => nodeService.nodeUnpublishVolume!({ volumeId: MOVED, targetPath: this.target } as never));
    const unstaged = { volumeId: MOVED, stagingTargetPath: this.stagingPath };
    await untilFree(() => nodeService.nodeUnstageVolume!(unstaged as never));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.end();
  }
}

/** Repeats a call while another operation has the volume, as kubelet does. */
async function untilFree(call: () => Promise<unknown>): Promise<void> {
  for (let isFree = false; !isFree;) {
    isFree = await call().then(() => true, (error) => {
      if (error instanceof StorageError && error.kind === "Busy") return false;
      throw error;
    });
  }
}
