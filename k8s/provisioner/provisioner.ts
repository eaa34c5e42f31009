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
  readonly #controllers: readonly { run(signal: AbortSignal): Promise<void> }[];

  /** Creates it; nothing runs before {@linkcode Provisioner.run}. */
  constructor(options: ProvisionerOptions) {
    const claimProvisioner = new ClaimProvisioner(options);
    this.#controllers = [
      claimProvisioner,
      new Reclaimer(options),
      new GarbageCollector(options, () => claimProvisioner.requestsInProgress()),
      new CloningProtection(options),
      new SnapshotProtection(options),
    ];
  }

  /** Runs until the signal is aborted and all work in progress has ended. */
  async run(signal: AbortSignal): Promise<void> {
    await Promise.all(this.#controllers.map((controller) => controller.run(signal)));
  }
}
