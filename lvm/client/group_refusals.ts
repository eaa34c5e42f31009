/**
 * The groups that LVM has refused to change, whatever the change was.
 *
 * A report does not show why: duplicate physical volumes, a lock that fails. So for some minutes after a refusal the group takes
 * no new volumes, and others are tried first.
 *
 * @module
 */

import { type Clock, systemClock } from "../../base/clock.ts";
import type { VolumeGroup } from "../model/report.ts";

/** The time after which a group that was refused is tried again, in milliseconds. */
const REFUSED_MS = 5 * 60_000;

/** Remembers refusals by groups. */
export class GroupRefusals {
  readonly #clock: Clock;
  readonly #refused = new Map<string, { readonly message: string; readonly until: number }>();

  /** Remembers nothing at first. */
  constructor(clock: Clock = systemClock) {
    this.#clock = clock;
  }

  /** Notes that LVM has refused to change a group. @param message what it said */
  note({ uuid }: Pick<VolumeGroup, "uuid">, message: string): void {
    this.#refused.set(uuid, { message, until: this.#clock.now() + REFUSED_MS });
  }

  /** Forgets the refusal of a group: it was changed since. */
  forget({ uuid }: Pick<VolumeGroup, "uuid">): void {
    this.#refused.delete(uuid);
  }

  /** Adds the refusals to groups of a report. */
  addTo<G extends Pick<VolumeGroup, "uuid" | "refusal">>(groups: readonly G[]): readonly G[] {
    const now = this.#clock.now();
    for (const [uuid, { until }] of this.#refused) if (until <= now) this.#refused.delete(uuid);
    if (this.#refused.size === 0) return groups;
    return groups.map((group) => {
      const refused = this.#refused.get(group.uuid);
      return refused === undefined ? group : { ...group, refusal: `LVM refuses to change it: ${refused.message}` };
    });
  }
}
