/**
 * The provisioner: creates the volumes that claims ask for, and deletes those that are no longer claimed.
 *
 * @module
 */

import { CloningProtection, SnapshotProtection } from "./cloning_protection.ts";
import type { ProvisionerOptions } from "./provisioner_options.ts";
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

  /** Runs until the signal is aborted and all work in progress has ended. */
  async run(signal: AbortSignal): Promise<void> {
    const protections = [this.#cloningProtection, this.#snapshotProtection];
    const controllers = [this.#claimProvisioner, this.#reclaimer, this.#garbageCollector, ...protections];
    await Promise.all(controllers.map((controller) => controller.run(signal)));
  }
}
