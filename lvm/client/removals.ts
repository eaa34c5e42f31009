/**
 * Removals of LVs that wait for another removal from their group, and then run together.
 *
 * LVM changes a group for one command after the other, and each command scans the disks and writes the metadata. One
 * command that removes sixteen LVs takes about a third of the time of sixteen commands.
 *
 * LVM looks at all LVs before it removes the first one, and removes none when a program has one of them open. Then, and
 * for each LV that it does not name as removed, a command of its own decides, as without this module.
 *
 * @module
 */

import { type Clock, systemClock } from "../../base/clock.ts";
import { lateCompletion, StorageError } from "../../base/error.ts";
import { currentRequestId, withRequestIds } from "../../base/request_id.ts";
import { lvremove, type LvremoveOptions, lvremoveTogether } from "../model/command_lines.ts";
import type { VolumeGroup } from "../model/report.ts";

/** What {@linkcode Removals} needs of {@linkcode Lvm}. */
export interface RemovalRunner {
  /** Removes an LV by a command of its own. @returns whether LVM removed it */
  removeOne(group: VolumeGroup, args: readonly string[]): Promise<boolean>;
  /**
   * Removes LVs by one command.
   *
   * @param args the command
   * @param parts the commands that would do the same, one for each LV
   * @returns of each part, whether LVM says that it removed the LV
   */
  removeTogether(
    group: VolumeGroup,
    args: readonly string[],
    parts: readonly (readonly string[])[],
  ): Promise<readonly boolean[]>;
}

/** A removal that waits. */
interface Waiting {
  readonly group: VolumeGroup;
  readonly options: LvremoveOptions;
  /** The LV, as `vg/lv`. */
  readonly lv: string;
  /** The id of the request that it is for, since the command may run within another one. */
  readonly requestId: string | undefined;
  readonly removal: PromiseWithResolvers<boolean>;
}

/** The number of LVs that a command removes at most. */
const MAX_LVS = 16;

/** The time for which a command should hold a group at most, in milliseconds: all other changes of the group wait. */
const MAX_HOLD_MS = 2_000;

/** The removals of a client of LVM. */
export class Removals {
  readonly #runner: RemovalRunner;
  readonly #clock: Clock;
  /** Of each group from which something is being removed, by its UUID: what waits for that. */
  readonly #waiting = new Map<string, Waiting[]>();
  /** The time that each LV took in the last command, in milliseconds. */
  #msPerLv = MAX_HOLD_MS / MAX_LVS;

  /** Creates the removals. None runs. */
  constructor(runner: RemovalRunner, clock: Clock = systemClock) {
    this.#runner = runner;
    this.#clock = clock;
  }

  /**
   * Removes an LV, if it is as selected: at once, or together with others when the removal that runs has ended.
   *
   * @param lv the LV, as `vg/lv`
   * @returns whether LVM says that it removed the LV
   * @throws {StorageError} those of {@linkcode RemovalRunner.removeOne}; `Unavailable` when the removal before it outlasts its
   * deadline: what is removed from the group now would hang, too
   */
  async remove(group: VolumeGroup, options: LvremoveOptions, lv: string): Promise<boolean> {
    const waiting = this.#waiting.get(group.uuid);
    const removal: Waiting = { group, options, lv, requestId: currentRequestId(), removal: Promise.withResolvers() };
    if (waiting !== undefined) {
      waiting.push(removal);
    } else {
      this.#waiting.set(group.uuid, [removal]);
      void this.#run(group.uuid);
    }
    return await removal.removal.promise;
  }

  /** Runs what waits, until nothing is left. */
  async #run(uuid: string): Promise<void> {
    const waiting = this.#waiting.get(uuid)!;
    while (waiting.length > 0) {
      const removals = waiting.splice(0, this.#limit());
      const hangs = removals.length > 1 ? await this.#removeTogether(removals) : await this.#removeEach(removals);
      if (!hangs) continue;
      for (const { lv, removal } of waiting.splice(0)) removal.reject(hangingError(lv));
    }
    this.#waiting.delete(uuid);
  }

  /** Returns how many LVs the next command may remove. */
  #limit(): number {
    return Math.max(1, Math.min(MAX_LVS, Math.floor(MAX_HOLD_MS / this.#msPerLv)));
  }

  /** Removes LVs by one command; each that is left after it by a command of its own. @returns whether a command hangs */
  async #removeTogether(removals: readonly Waiting[]): Promise<boolean> {
    const [{ group }] = removals as readonly [Waiting];
    const startedAt = this.#clock.now();
    let areRemoved: readonly boolean[] = [];
    try {
      const parts = removals.map(({ options, lv }) => lvremove(options, lv));
      areRemoved = await withRequestIds(
        removals.map(({ requestId }) => requestId),
        () => this.#runner.removeTogether(group, lvremoveTogether(removals), parts),
      );
      this.#msPerLv = (this.#clock.now() - startedAt) / removals.length;
    } catch (error) {
      if (lateCompletion(error) !== undefined) {
        for (const { removal } of removals) removal.reject(error);
        return true;
      }
      // which of them LVM has removed is not known
    }
    for (const [index, { removal }] of removals.entries()) if (areRemoved[index]) removal.resolve(true);
    return await this.#removeEach(removals.filter((_, index) => !areRemoved[index]));
  }

  /** Removes each LV by a command of its own. @returns whether a command hangs: none runs after it */
  async #removeEach(removals: readonly Waiting[]): Promise<boolean> {
    let hangs = false;
    for (const { group, options, lv, requestId, removal } of removals) {
      if (hangs) {
        removal.reject(hangingError(lv));
        continue;
      }
      const startedAt = this.#clock.now();
      try {
        const remove = () => this.#runner.removeOne(group, lvremove(options, lv));
        removal.resolve(await withRequestIds([requestId], remove));
        this.#msPerLv = this.#clock.now() - startedAt;
      } catch (error) {
        hangs = lateCompletion(error) !== undefined;
        removal.reject(error);
      }
    }
    return hangs;
  }
}

function hangingError(lv: string): StorageError {
  return new StorageError("Unavailable", `removing ${lv}: the removal of another LV of its volume group does not end`);
}
