/**
 * What is to be told of a volume beside what its LV is: its pool, how far it is copied, its limits.
 *
 * @module
 */

import type { CopyProgress } from "../inventory/copying.ts";
import { poolProblem } from "../health/health.ts";
import type { Inventory } from "../inventory/inventory.ts";
import { hasLimits, type IoLimits, type IoRates, ratesFor } from "../spec/io_limits.ts";
import { type PoolState, poolState } from "../pools/pool_status.ts";
import { formatBytes } from "../size.ts";
import { describeSource } from "../model/tags.ts";
import { findPool } from "../pools/pool.ts";
import type { Volume } from "../inventory/volume.ts";
import { defined } from "../defined.ts";

/** What is told elsewhere of a volume: in a cluster, by its object. */
export interface ReportedVolume {
  /** What is said of the limits of its IO. */
  readonly limits: IoLimits;
  /** Why those limits do not hold for the pods that have it; absent when they do, or nothing is known of that. */
  readonly limitsProblem?: string;
  /** How far it is filled, while it is. */
  readonly copy?: CopyProgress;
}

/** What {@linkcode volumeDetails} tells of a volume. */
export interface VolumeDetails {
  /** The thin pool that it is in. */
  readonly pool?: string;
  /** The state of that pool, unless it is `Ready`. */
  readonly poolState?: Exclude<PoolState, "Ready">;
  /**
   * How far it is filled from its source, while it is; sizes in bytes. Of what nobody else tells, it is what was recorded last,
   * at most 16 GiB behind (docs/adr/0016).
   */
  readonly copy?: CopyProgress;
  /** What each pod that has it is limited to: operations or bytes a second, or `max`. Only what is said of the volume itself. */
  readonly ioLimits?: IoRates;
  /** What is wrong with any of these, in sentences. */
  readonly problems: readonly string[];
}

/** Gathers what is to be told of a volume. */
export function volumeDetails(
  volume: Volume,
  { volumes, snapshots }: Inventory,
  reported?: ReportedVolume,
): VolumeDetails {
  const { group, lv, tags, size } = volume;
  const pool = findPool(group, lv.pool);
  const state = pool === undefined ? "Ready" : poolState(group, pool);
  const limits = reported?.limits ?? tags.limits ?? {};
  const copy = tags.copied === undefined ? undefined : reported?.copy ?? recordedCopy(volume, { volumes, snapshots });
  const problems = [
    ...(state === "Full" || state === "Damaged" ? [poolProblem(lv, group)!.message] : []),
    ...(copy === undefined ? [] : [describeCopy(volume, copy, reported?.copy === undefined)]),
    ...(reported?.limitsProblem === undefined ? [] : [`its limits do not hold: ${reported.limitsProblem}`]),
  ];
  return {
    ...defined({ pool: lv.pool }),
    ...(state === "Ready" ? {} : { poolState: state }),
    ...defined({ copy }),
    ...(hasLimits(limits) ? { ioLimits: ratesFor(limits, size) } : {}),
    problems,
  };
}

/** How far a volume is filled by its tags. Its source is kept as it is until then. */
function recordedCopy(
  { tags, size }: Volume,
  { volumes, snapshots }: Pick<Inventory, "volumes" | "snapshots">,
): CopyProgress {
  const { source, copied = 0n } = tags;
  const total = source?.kind === "snapshot"
    ? snapshots.find(({ snapshot }) => snapshot.id === source.id)?.snapshot.size
    : volumes.find(({ id }) => id === source?.id)?.size;
  return { copied: copied === "all" ? total ?? size : copied, ...defined({ total }) };
}

function describeCopy(
  { tags: { source } }: Volume,
  { copied, total, lastError }: CopyProgress,
  atLeast: boolean,
): string {
  const all = total === undefined ? "" : ` of ${formatBytes(total)}`;
  const why = lastError === undefined ? "" : `, and does not go on: ${lastError}`;
  const prefix = atLeast ? "at least " : "";
  return `it is still being made from ${describeSource(source)}: ${prefix}${formatBytes(copied)}${all} copied${why}`;
}
