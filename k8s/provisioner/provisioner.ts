/**
 * The provisioner: makes the volumes that claims ask for, and removes those that nobody claims any more.
 *
 * @module
 */

import { CloningProtection } from "./cloning_protection.ts";
import type { ProvisionerOptions } from "./provisioner_options.ts";
import { ClaimProvisioner } from "./claims.ts";
import { Reclaimer } from "./reclaimer.ts";
import { GarbageCollector } from "./garbage_collector.ts";

export type { ProvisionerOptions } from "./provisioner_options.ts";

/** The provisioner. Two of them at work do everything twice, and harm nothing. */
export class Provisioner {
  readonly #claimProvisioner: ClaimProvisioner;
  readonly #reclaimer: Reclaimer;
  readonly #garbageCollector: GarbageCollector;
  readonly #cloningProtection: CloningProtection;

  /** Does nothing before {@linkcode Provisioner.run}. */
  constructor(options: ProvisionerOptions) {
    this.#claimProvisioner = new ClaimProvisioner(options);
    this.#reclaimer = new Reclaimer(options);
    this.#cloningProtection = new CloningProtection(options);
    this.#garbageCollector = new GarbageCollector(
      options,
      (requestName) => this.#claimProvisioner.isInProgress(requestName),
    );
  }

  /** Works until the signal is aborted, and comes back when nothing is being worked on any more. It may be run again. */
  async run(signal: AbortSignal): Promise<void> {
    const controllers = [this.#claimProvisioner, this.#reclaimer, this.#garbageCollector, this.#cloningProtection];
    await Promise.all(controllers.map((controller) => controller.run(signal)));
  }

  /** Tries again, soon, the claims for which there was no space: to be called when a node has more. */
  requeueExhausted(): void {
    this.#claimProvisioner.requeueExhausted();
  }

  /** Looks once for volumes that no claim wants; {@linkcode Provisioner.run} does so from time to time. */
  async collectGarbage(signal: AbortSignal): Promise<void> {
    await this.#garbageCollector.collect(signal);
  }
}
