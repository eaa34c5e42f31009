/**
 * The provisioner: makes the volumes that claims ask for, and removes those that nobody claims any more.
 *
 * @module
 */

import { CloningProtection } from "./cloning_protection.ts";
import type { ProvisionerOptions } from "./provisioner_options.ts";
import { Provisioning } from "./claims.ts";
import { Reclaiming } from "./reclaimer.ts";
import { Sweep } from "./garbage_collector.ts";

export type { ProvisionerOptions } from "./provisioner_options.ts";

/** The provisioner. Two of them at work do everything twice, and harm nothing. */
export class Provisioner {
  readonly #provisioning: Provisioning;
  readonly #reclaiming: Reclaiming;
  readonly #sweep: Sweep;
  readonly #cloning: CloningProtection;

  /** Does nothing before {@linkcode Provisioner.run}. */
  constructor(options: ProvisionerOptions) {
    this.#provisioning = new Provisioning(options);
    this.#reclaiming = new Reclaiming(options);
    this.#cloning = new CloningProtection(options);
    this.#sweep = new Sweep(options, (requestName) => this.#provisioning.isBusyWith(requestName));
  }

  /** Works until the signal is aborted, and comes back when nothing is being worked on any more. It may be run again. */
  async run(signal: AbortSignal): Promise<void> {
    const loops = [this.#provisioning, this.#reclaiming, this.#sweep, this.#cloning];
    await Promise.all(loops.map((loop) => loop.run(signal)));
  }

  /** Tries again, soon, the claims for which there was no space: to be called when a node has more. */
  poke(): void {
    this.#provisioning.poke();
  }

  /** Looks once for volumes that no claim wants; {@linkcode Provisioner.run} does so from time to time. */
  async sweep(signal: AbortSignal): Promise<void> {
    await this.#sweep.sweep(signal);
  }
}
