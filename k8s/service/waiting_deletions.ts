/**
 * Finds out when the deletion of a volume, which was refused, may succeed.
 *
 * @module
 */

import type { LvmSnapshot, LvmVolume } from "../api/lvm_objects.ts";
import { blocksSourceDeletion } from "../api/snapshot_mapping.ts";
import type { Informer } from "../runtime/informer.ts";

/** Receives the handles of volumes whose deletion may succeed. */
export interface WaitingDeletions {
  /** Requeues the deletion of the volume of a handle, if there is one. */
  requeueDeletion(handle: string): void;
}

/** Requeues the deletion of each volume when something that may have prevented it has changed. */
export function requeueWaitingDeletions(
  { volumes, snapshots }: { readonly volumes: Informer<LvmVolume>; readonly snapshots: Informer<LvmSnapshot> },
  deletions: WaitingDeletions,
): void {
  volumes.subscribe((handle, now, before) => {
    if (before === undefined) return;
    if (now === undefined || hasOtherError(now, before)) deletions.requeueDeletion(handle);
    const source = before.spec.source?.volume;
    if (source !== undefined && blocksSource(before) && (now === undefined || !blocksSource(now))) {
      deletions.requeueDeletion(source);
    }
  });
  snapshots.subscribe((_, now, before) => {
    if (before === undefined || !blocksSourceDeletion(before)) return;
    if (now === undefined || !blocksSourceDeletion(now)) deletions.requeueDeletion(before.spec.sourceVolume);
  });
}

/** Reports whether the error of a volume is gone or another one. The first one is the refusal itself. */
function hasOtherError(now: LvmVolume, before: LvmVolume): boolean {
  const known = before.status?.error?.message;
  return known !== undefined && now.status?.error?.message !== known;
}

/** Reports whether a volume is being created from its source, which cannot be deleted meanwhile. */
function blocksSource({ status }: LvmVolume): boolean {
  return status?.lvUUID === undefined && status?.state !== "Failed";
}
