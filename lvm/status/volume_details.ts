/**
 * Details of a volume besides its LV: its pool, the progress of its copy, and its IO limits.
 *
 * @module
 */

import type { CopyProgress } from "../inventory/copying.ts";
import { findHeaderBackup } from "../encryption/header_tags.ts";
import { interruptionMessage } from "../encryption/key_changes.ts";
import { poolProblem } from "../health/health.ts";
import type { Inventory } from "../inventory/inventory.ts";
import { hasLimits, type IoLimits, type IoRates, ratesFor } from "../settings/io_limits.ts";
import { type PoolState, poolState } from "../pools/pool_status.ts";
import { formatBytes } from "../../base/size.ts";
import { describeSource } from "../model/tags.ts";
import { findPool } from "../pools/pool.ts";
import type { Volume } from "../inventory/volume.ts";
import { defined } from "../../base/defined.ts";

/** Reports on a volume from elsewhere: in a cluster, from its object. */
export interface ReportedVolume {
  /** The IO limits that are set for the volume. */
  readonly limits: IoLimits;
  /** The reason why these limits do not apply to the pods that use the volume; absent when they do, or if unknown. */
  readonly limitsProblem?: string;
  /** Why it does not have the passphrase and the volume key that its secret requests; absent when it does, or if unknown. */
  readonly keysProblem?: string;
  /** The progress of its copy, while it is copied. */
  readonly copy?: CopyProgress;
}

/** The result of {@linkcode volumeDetails}. */
export interface VolumeDetails {
  /** The thin pool that contains the volume. */
  readonly pool?: string;
  /** The state of that pool, unless it is `Ready`. */
  readonly poolState?: Exclude<PoolState, "Ready">;
  /**
   * The progress of its copy, while it is copied; sizes in bytes. Without a reported progress it is the last recorded one,
   * at most 16 GiB behind (docs/adr/0005).
   */
  readonly copy?: CopyProgress;
  /**
   * The limits of each pod that uses the volume: operations or bytes per second, or `max`. Only limits that are set for
   * the volume itself.
   */
  readonly ioLimits?: IoRates;
  /** The problems of any of these, in sentences. */
  readonly problems: readonly string[];
}

/**
 * Returns the details of a volume.
 *
 * @param reported what the cluster reports on the volume; absent outside a cluster
 */
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
  const backup = tags.format.luks && findHeaderBackup(volume);
  const keysProblem = reported?.keysProblem ?? (backup && interruptionMessage(backup));
  const problems = [
    ...(state === "Full" || state === "Damaged" ? [poolProblem(lv, group)!.message] : []),
    ...(copy === undefined ? [] : [describeCopy(volume, copy, reported?.copy === undefined)]),
    ...(reported?.limitsProblem === undefined ? [] : [`its IO limits do not apply: ${reported.limitsProblem}`]),
    ...(keysProblem === undefined ? [] : [keysProblem]),
  ];
  return {
    ...defined({
      pool: lv.pool,
      poolState: state === "Ready" ? undefined : state,
      copy,
      ioLimits: hasLimits(limits) ? ratesFor(limits, size) : undefined,
    }),
    problems,
  };
}

/**
 * Returns the progress of a copy from the volume's tags. The copy's source is kept unchanged until the copy is
 * complete.
 */
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
  const why = lastError === undefined ? "" : `, and it does not continue: ${lastError}`;
  const prefix = atLeast ? "at least " : "";
  return `it is still being copied from ${describeSource(source)}: ${prefix}${formatBytes(copied)}${all} copied${why}`;
}
