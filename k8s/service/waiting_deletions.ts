/**
 * Finds out when the deletion of a volume, which was refused, may succeed.
 *
 * @module
 */

import { isForgotten, type LvmNode, type LvmSnapshot, type LvmVolume } from "../api/lvm_objects.ts";
import { blocksSourceDeletion } from "../api/snapshot_mapping.ts";
import type { Informer } from "../runtime/informer.ts";
import type { WakeUps } from "../sidecars/wake_ups.ts";

/** The informers of the objects that may prevent a deletion. */
export interface DeletionInformers {
  /** All LVMVolumes. */
  readonly volumes: Pick<Informer<LvmVolume>, "subscribe" | "list">;
  /** All LVMSnapshots. */
  readonly snapshots: Pick<Informer<LvmSnapshot>, "subscribe">;
  /** All LVMNodes. */
  readonly nodes: Pick<Informer<LvmNode>, "subscribe">;
}

/** Wakes the deletion of each volume when something that may have prevented it has changed. */
export function wakeWaitingDeletions(
  { volumes, snapshots, nodes }: DeletionInformers,
  wakeUps: Pick<WakeUps, "wake">,
): void {
  volumes.subscribe((handle, now, before) => {
    if (before === undefined) return;
    const isNewlyForgotten = now !== undefined && isForgotten(now) && !isForgotten(before);
    if (now === undefined || hasOtherError(now, before) || isNewlyForgotten) wakeUps.wake("deletion", handle);
    const source = before.spec.source?.volume;
    if (source !== undefined && blocksSource(before) && (now === undefined || !blocksSource(now))) {
      wakeUps.wake("deletion", source);
    }
  });
  snapshots.subscribe((_, now, before) => {
    if (before === undefined || !blocksSourceDeletion(before)) return;
    if (now === undefined || !blocksSourceDeletion(now)) wakeUps.wake("deletion", before.spec.sourceVolume);
  });
  // the volume of a forgotten node is deleted without it, but only once it has no LVMNode; either may be seen first
  nodes.subscribe((nodeName, now) => {
    if (now !== undefined) return;
    for (const { metadata, spec } of volumes.list()) {
      if (spec.nodeName === nodeName) wakeUps.wake("deletion", metadata.name);
    }
  });
}

/** Reports whether the error of a volume is gone or another one. The first one is the refusal itself. */
function hasOtherError(now: LvmVolume, before: LvmVolume): boolean {
  const known = before.status?.error?.message;
  return known !== undefined && now.status?.error?.message !== known;
}

/** Reports whether a volume is being created from its source, which cannot be deleted meanwhile. */
export function blocksSource({ status }: LvmVolume): boolean {
  return status?.lvUUID === undefined && status?.state !== "Failed";
}
