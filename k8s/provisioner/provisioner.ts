/**
 * The provisioner: creates the volumes that claims ask for, and deletes those that are no longer claimed.
 *
 * @module
 */

import { CloningProtection, SnapshotProtection } from "./cloning_protection.ts";
import type { ProvisionerOptions } from "./provisioner_options.ts";
import type { FreeSpaceGrowth } from "../sidecars/space_waiters.ts";
import { ClaimProvisioner } from "./claim_provisioner.ts";
import { Reclaimer } from "./reclaimer.ts";
import { GarbageCollector } from "./garbage_collector.ts";

export type { ProvisionerOptions } from "./provisioner_options.ts";

/** The provisioner. Two of them may run at the same time: their work is idempotent. */
export class Provisioner {
  readonly #claimProvisioner: ClaimProvisioner;
  readonly #reclaimer: Reclaimer;
  readonly #garbageCollector: GarbageCollector;
  readonly #cloningProtection: CloningProtection;
  readonly #snapshotProtection: SnapshotProtection;

  /** Creates it; nothing runs before {@linkcode Provisioner.run}. */
  constructor(options: ProvisionerOptions) {
    this.#claimProvisioner = new ClaimProvisioner(options);
    this.#reclaimer = new Reclaimer(options);
    this.#cloningProtection = new CloningProtection(options);
    this.#snapshotProtection = new SnapshotProtection(options);
    this.#garbageCollector = new GarbageCollector(options, () => this.#claimProvisioner.requestsInProgress());
  }

  /** Runs until the signal is aborted and all work in progress has ended. It may be run again. */
  async run(signal: AbortSignal): Promise<void> {
    const protections = [this.#cloningProtection, this.#snapshotProtection];
    const controllers = [this.#claimProvisioner, this.#reclaimer, this.#garbageCollector, ...protections];
    await Promise.all(controllers.map((controller) => controller.run(signal)));
  }

  /** Requeues the claims for which there was no space. Call it when a node has more. */
  requeueExhausted(growth: FreeSpaceGrowth): void {
    this.#claimProvisioner.requeueExhausted(growth);
  }

  /** Requeues the claim of a request whose outcome was unknown, and is known now. */
  requeueRequest(requestName: string): void {
    this.#claimProvisioner.requeueRequest(requestName);
  }

  /** Requeues the deletion of the volume of a handle, which was refused and may succeed now. */
  requeueDeletion(handle: string): void {
    this.#reclaimer.requeueDeletion(handle);
  }
}
