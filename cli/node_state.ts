/**
 * The state of an agent, as /readyz and /metrics show it.
 *
 * @module
 */

import { type Clock, systemClock } from "../base/clock.ts";
import type { SurveyedGroup } from "../lvm/model/survey.ts";

/** Milliseconds without a survey after which LVM counts as unresponsive. An agent makes one each minute. */
const LVM_UNRESPONSIVE_AFTER_MS = 300_000;

/** The state of an agent. */
export class NodeState {
  /** The reason why kubelet has not registered the driver; absent once it has. */
  registrationError: string | undefined = "kubelet has not asked for the driver yet";
  readonly #clock: Clock;
  #survey: { readonly groups: readonly SurveyedGroup[]; readonly at: number } | undefined;

  /** Creates the state of an agent that has just started. */
  constructor(clock: Clock = systemClock) {
    this.#clock = clock;
  }

  /** Last survey of the volume groups; absent before the first. */
  get survey(): readonly SurveyedGroup[] | undefined {
    return this.#survey?.groups;
  }

  /** Records a survey of the volume groups that LVM has just made. */
  recordSurvey(groups: readonly SurveyedGroup[]): void {
    this.#survey = { groups, at: this.#clock.now() };
  }

  /** Returns why the agent is not ready; nothing when it is. */
  notReadyReasons(): string[] {
    const lvm = this.#lvmProblem();
    return [
      ...(this.registrationError === undefined ? [] : [`registration: ${this.registrationError}`]),
      ...(lvm === undefined ? [] : [lvm]),
    ];
  }

  #lvmProblem(): string | undefined {
    if (this.#survey === undefined) return "LVM has not answered yet";
    const ms = this.#clock.now() - this.#survey.at;
    return ms > LVM_UNRESPONSIVE_AFTER_MS ? `LVM has not answered for ${Math.floor(ms / 1000)} s` : undefined;
  }
}
