/**
 * What copy-on-write snapshots mean for the volume that is their origin: they live by it, and hinder its growth.
 *
 * @module
 */

import { StorageError } from "../error.ts";
import type { Exec } from "../exec.ts";
import { deviceMounts, readMounts } from "../host/mounts.ts";
import type { LogicalVolume, VolumeGroup } from "../model/report.ts";
import { isThin } from "../pools/pool.ts";
import { staleCopySnapshots } from "../inventory/copying.ts";
import { deletedLvs } from "../inventory/leftovers.ts";
import type { Volume } from "../inventory/volume.ts";

/** The copy-on-write snapshots of a volume: those that somebody has, and those that are only to be removed. */
export function cowSnapshotsOf(
  driver: string,
  { lv, group }: Volume,
  groups: readonly VolumeGroup[],
): { kept: LogicalVolume[]; deleted: LogicalVolume[] } {
  const deletedUuids = [...deletedLvs(driver, [group]), ...staleCopySnapshots(driver, groups)].map(({ lv }) => lv.uuid);
  const { kept = [], deleted = [] } = Object.groupBy(
    group.lvs.filter((other) => other.origin === lv.name && !isThin(other)),
    ({ uuid }) => deletedUuids.includes(uuid) ? "deleted" : "kept",
  );
  return { kept, deleted };
}

/**
 * Makes sure that a volume and its snapshots can be deactivated for a moment.
 *
 * @param published whether the volume's device is at a target: a bind mount of the device's node would not hinder it, and lead to
 * another device afterwards
 * @throws {StorageError} `FailedPrecondition` naming the snapshots.
 */
export function requireDeactivatable(
  { id, lv }: Volume,
  snapshots: readonly LogicalVolume[],
  published: boolean,
): void {
  const names = snapshots.map(({ name }) => name).join(", ");
  const open = snapshots.filter((snapshot) => snapshot.open).map(({ name }) => name);
  const why = lv.open || published
    ? `it is in use and has the snapshots ${names}; LVM grows the origin of a copy-on-write snapshot only while it is ` +
      "inactive: unpublish and unstage it (in a cluster, end its pods) until it has grown, or delete the snapshots"
    : open.length > 0
    ? `of its snapshots ${names}, ${open.join(", ")} is open; LVM grows the origin of a copy-on-write snapshot only ` +
      "while both are inactive: unmount it"
    : undefined;
  if (why !== undefined) throw new StorageError("FailedPrecondition", `growing volume ${id}: ${why}`);
}

/** Whether a volume's device is at a target. A bind mount of its node does not show in LVM's report as open. */
export async function isPublishedAsDevice(exec: Exec, { tags, lv }: Volume): Promise<boolean> {
  return tags.format.state === "raw" && deviceMounts(await readMounts(exec), lv).length > 0;
}
