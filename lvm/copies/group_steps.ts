/**
 * The steps of copies, by group: one at a time in each, and none by a report from before the last one ended.
 *
 * What a step changed meanwhile may be missing in such a report: a copy that is complete would be begun again by it. A command
 * that outlasted its deadline still changes something, so its step has ended only with it.
 *
 * @module
 */

import type { LocatedLv, VolumeGroup } from "../model/report.ts";

/** Reports whether a step may begin in a group now. */
export type MayBegin = (group: Pick<VolumeGroup, "uuid">) => boolean;

/** How a step ended. */
export interface StepEnd {
  /** Settles when a command of the step has ended that outlasted its deadline; absent when none goes on. */
  readonly late?: Promise<unknown> | undefined;
}

/** The UUIDs of an LV and its group. */
interface LvUuids {
  readonly group: Pick<LocatedLv["group"], "uuid">;
  readonly lv: Pick<LocatedLv["lv"], "uuid">;
}

/** A step for an LV, and what settles when it has ended. */
interface Step {
  readonly lvUuid: string;
  readonly ended: Promise<void>;
}

/** The steps of all groups. */
export class GroupSteps {
  readonly #running = new Map<string, Step>();
  /** Steps of which a command outlasted its deadline. */
  readonly #late = new Map<string, Step>();
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

  /** Begins a step for an LV. @param step never fails */
  begin({ group: { uuid }, lv }: LvUuids, step: () => Promise<StepEnd>): void {
    this.#running.set(uuid, { lvUuid: lv.uuid, ended: this.#run(uuid, lv.uuid, step) });
  }

  async #run(uuid: string, lvUuid: string, step: () => Promise<StepEnd>): Promise<void> {
    const { late } = await step();
    this.#running.delete(uuid);
    if (late === undefined) return this.#end(uuid);
    const ended = Promise.allSettled([late]).then(() => {
      this.#late.delete(uuid);
      this.#end(uuid);
    });
    this.#late.set(uuid, { lvUuid, ended });
  }

  #end(uuid: string): void {
    this.#ended.set(uuid, (this.#ended.get(uuid) ?? 0) + 1);
    this.#onEnd();
  }

  /** Resolves when the step of an LV has ended, with its commands. */
  async ended({ group: { uuid }, lv }: LvUuids): Promise<void> {
    for (const steps of [this.#running, this.#late]) {
      const step = steps.get(uuid);
      if (step?.lvUuid === lv.uuid) await step.ended;
    }
  }

  /** Waits for the steps that run. @returns false when none did; commands that outlasted their deadlines are not waited for */
  async idle(): Promise<boolean> {
    const running = [...this.#running.values()].map(({ ended }) => ended);
    await Promise.all(running);
    return running.length > 0;
  }
}
