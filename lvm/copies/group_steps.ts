/**
 * The steps of copies, by group: one at a time in each, and none by a report from before the last one ended.
 *
 * What a step changed meanwhile may be missing in such a report: a copy that is complete would be begun again by it. A command
 * that outlasted its deadline still changes something, so its step has ended only with it.
 *
 * @module
 */

import type { VolumeGroup } from "../model/report.ts";

/** Reports whether a step may begin in a group now. */
export type MayBegin = (group: Pick<VolumeGroup, "uuid">) => boolean;

/** How a step ended. */
export interface StepEnd {
  /** Settles when a command of the step has ended that outlasted its deadline; absent when none goes on. */
  readonly late?: Promise<unknown> | undefined;
}

/** The steps of all groups. */
export class GroupSteps {
  readonly #running = new Map<string, Promise<void>>();
  /** The commands of steps that outlasted their deadlines. */
  readonly #late = new Map<string, Promise<void>>();
  /** The number of steps that have ended in each group. */
  readonly #ended = new Map<string, number>();
  readonly #onEnd: () => void;

  /** Creates an object without steps. @param onEnd called when a step has ended: another report is needed then */
  constructor(onEnd: () => void) {
    this.#onEnd = onEnd;
  }

  /** Returns what reports whether steps may begin by a report that is begun after this call. */
  beforeReport(): MayBegin {
    const ended = new Map(this.#ended);
    return ({ uuid }) => !this.#running.has(uuid) && !this.#late.has(uuid) && this.#ended.get(uuid) === ended.get(uuid);
  }

  /** Begins a step. @param step never fails */
  begin({ uuid }: Pick<VolumeGroup, "uuid">, step: () => Promise<StepEnd>): void {
    this.#running.set(uuid, this.#run(uuid, step));
  }

  async #run(uuid: string, step: () => Promise<StepEnd>): Promise<void> {
    const { late } = await step();
    this.#running.delete(uuid);
    if (late === undefined) return this.#end(uuid);
    const ended = Promise.allSettled([late]).then(() => {
      this.#late.delete(uuid);
      this.#end(uuid);
    });
    this.#late.set(uuid, ended);
  }

  #end(uuid: string): void {
    this.#ended.set(uuid, (this.#ended.get(uuid) ?? 0) + 1);
    this.#onEnd();
  }

  /** Resolves when the step of a group has ended, with its commands. */
  async ended({ uuid }: Pick<VolumeGroup, "uuid">): Promise<void> {
    await this.#running.get(uuid);
    await this.#late.get(uuid);
  }

  /** Waits for the steps that run. @returns false when none did; commands that outlasted their deadlines are not waited for */
  async idle(): Promise<boolean> {
    const running = [...this.#running.values()];
    await Promise.all(running);
    return running.length > 0;
  }
}
