/**
 * What LVM prints when it refuses a command, and the groups that it has refused to change.
 *
 * @module
 */

import type { ErrorKind, Reason } from "../../base/error.ts";
import type { Output } from "../exec.ts";
import { type Clock, systemClock } from "../../base/clock.ts";
import type { VolumeGroup } from "../model/report.ts";

/** LVM's message when it does not activate a thin pool, whose metadata is damaged. */
const POOL_CHECK_FAILED = /check of pool \S+ failed/i;

/** LVM's messages when the metadata of a volume group does not fit (LVM 2.03, lib/format_text/format-text.c). */
const METADATA_FULL = /too large for circular buffer|metadata .*(?:is too large|exceeds maximum metadata size)/i;

/**
 * LVM's messages in English (LC_ALL=C) when it refuses a command, and the kind of error of each. Its exit status is 5
 * for all of them (lvm(8)). Captured from LVM 2.03; any other message is `CommandFailed`.
 */
const REFUSALS: readonly [RegExp, ErrorKind][] = [
  [/insufficient free space/i, "NoSpace"],
  [/insufficient suitable .*allocatable extents/i, "NoSpace"],
  [/no specified PVs have space available|couldn't allocate areas array/i, "NoSpace"],
  [/number of stripes .* must not exceed number of physical volumes/i, "NoSpace"],
  [METADATA_FULL, "NoSpace"],
  [/free space in thin pool .* reached threshold/i, "NoSpace"],
  [/maximum number of logical volumes .* reached/i, "NoSpace"],
  [/already exists in volume group/i, "AlreadyExists"],
  [/message ioctl on .*failed: File exists/i, "Busy"], // until the driver has completed the pool's transaction, at its start
  [/contains a filesystem in use/i, "InUse"],
  [/is used by another device|in use: not deactivating|is in use|logical volume \S+ in use\./i, "InUse"],
  [/only while inactive/i, "InUse"],
  [/does not accept LV type/i, "FailedPrecondition"],
  [/refusing (?:activation|refresh) of partial LV/i, "FailedPrecondition"],
  [POOL_CHECK_FAILED, "FailedPrecondition"],
  // an LV that pvmove, a merge or a conversion works on
  [
    /locked (?:logical volume|devices)|invalid on LV with properties|merging snapshot logical volume/i,
    "FailedPrecondition",
  ],
  [/can't resize (?:reshaping LV|logical volume \S+ while lvconvert in progress)/i, "FailedPrecondition"],
  [/required device-mapper target\(s\) not detected/i, "FailedPrecondition"],
  [/failed to find logical volume|volume group ".*" not found/i, "NotFound"],
  [/(?:logical volume|LV) \S+ not found in volume group/i, "NotFound"],
];

/** What LVM prints when it does not see a physical volume of a group. */
export const LACKS_PV = /\bVG \S+ is missing PV \S/;

/** LVM's messages when it refuses all changes of a group. */
const GROUP_REFUSALS: readonly RegExp[] = [
  /cannot (?:change|update) (?:VG|volume group) \S+ (?:while|with) (?:PVs|physical|duplicate|unknown) .*/i,
  /cannot update partial volume group .*/i,
  /cannot activate LVs in VG \S+ while PVs appear on duplicate devices.*/i,
  /cannot access (?:clustered )?VG .*/i, // of another host, or of a lock manager
  /volume group \S+ is (?:exported|read-only).*/i,
  /multiple VGs found with the same name.*/i,
];

/** The highest exit status of a command that no signal has ended. Above it, the rest is the number of the signal. */
export const MAX_EXIT_STATUS = 128;

/** Returns what LVM said when it refused all changes of the group; `undefined` when it did not, or a signal has ended it. */
export function groupRefusalIn({ code, stderr }: Output): string | undefined {
  if (code > MAX_EXIT_STATUS) return undefined;
  return GROUP_REFUSALS.map((pattern) => pattern.exec(stderr)?.[0]).find((message) => message !== undefined);
}

/** Reports whether LVM refused a command because a thin pool must be repaired first. */
export function isPoolRefusal({ code, stderr }: Output): boolean {
  return code <= MAX_EXIT_STATUS && POOL_CHECK_FAILED.test(stderr);
}

/** Returns the reason that somebody can act on, of a command that LVM refused; `undefined` for none. */
export function refusalReason(output: Output): Reason | undefined {
  if (output.code > MAX_EXIT_STATUS) return undefined;
  if (groupRefusalIn(output) !== undefined) return "VolumeGroupRefusesChanges";
  return METADATA_FULL.test(output.stderr) ? "MetadataAreaFull" : undefined;
}

/** Returns the kind of error for the output of a failed command of LVM. One that a signal has ended has refused nothing. */
export function classifyRefusal(output: Output): ErrorKind {
  if (output.code > MAX_EXIT_STATUS) return "CommandFailed";
  if (groupRefusalIn(output) !== undefined) return "FailedPrecondition";
  return REFUSALS.find(([pattern]) => pattern.test(output.stderr))?.[1] ?? "CommandFailed";
}

/** The time after which a group that was refused is tried again, in milliseconds. */
const REFUSED_MS = 5 * 60_000;

/**
 * Remembers the groups that LVM has refused to change, whatever the change was. A report does not show why: duplicate physical
 * volumes, a lock that fails. So for some minutes after a refusal the group takes no new volumes, and others are tried first.
 */
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
  addTo<G extends Pick<VolumeGroup, "uuid" | "refusal" | "refusalReason">>(groups: readonly G[]): readonly G[] {
    const now = this.#clock.now();
    for (const [uuid, { until }] of this.#refused) if (until <= now) this.#refused.delete(uuid);
    if (this.#refused.size === 0) return groups;
    return groups.map((group) => {
      const refused = this.#refused.get(group.uuid);
      if (refused === undefined) return group;
      const refusal = `LVM refuses to change it: ${refused.message}`;
      return { ...group, refusal, refusalReason: "VolumeGroupRefusesChanges" };
    });
  }
}
