/**
 * The origins of COW snapshots, and the external origins of thin LVs: what they may be used for, and the separation of a
 * snapshot from its origin. An active origin with COW snapshots cannot be extended.
 *
 * @module
 */

import { lvconvert } from "../model/command_lines.ts";
import { type Lvm, requirePvs } from "../client/client.ts";
import { isOfKind, StorageError } from "../../base/error.ts";
import { contentDevice } from "../encryption/mapping.ts";
import type { Exec } from "../exec.ts";
import { deviceMounts, readMounts } from "../host/mounts.ts";
import { type LocatedLv, type LogicalVolume, lvPath, type VolumeGroup } from "../model/report.ts";
import { cowSnapshotsOn, isThin } from "../pools/pool.ts";
import { staleCopySnapshots } from "../inventory/copying.ts";
import { deletedLvs } from "../inventory/leftovers.ts";
import type { Volume } from "../inventory/volume.ts";

/**
 * Returns the COW snapshots of a volume.
 *
 * @param driver the driver's name
 * @param groups a report of LVM
 * @returns the snapshots that exist for a user or a copy, and the deleted ones, which are to be removed
 */
export function cowSnapshotsOf(
  driver: string,
  { lv, group }: Volume,
  groups: readonly VolumeGroup[],
): { kept: LogicalVolume[]; deleted: LogicalVolume[] } {
  const deletedUuids = [...deletedLvs(driver, [group]), ...staleCopySnapshots(driver, groups)].map(({ lv }) => lv.uuid);
  const { kept = [], deleted = [] } = Object.groupBy(
    cowSnapshotsOn({ lv, group }),
    ({ uuid }) => deletedUuids.includes(uuid) ? "deleted" : "kept",
  );
  return { kept, deleted };
}

/**
 * Returns the LVs that an LV is the external origin of (lvmthin(7)): thin LVs that read from it what was never written to
 * them. lvremove would remove them with it. A thin snapshot in the pool of its origin is independent of it.
 */
export function thinLvsOnOrigin({ lv, group }: LocatedLv): LogicalVolume[] {
  return group.lvs.filter((other) => other.origin === lv.name && isThin(other) && other.pool !== lv.pool);
}

/**
 * Requires that no other LV depends on an LV: no COW snapshot, such as that of a backup tool, and no thin LV whose external
 * origin it is. lvremove removes an LV with those that depend on it.
 *
 * @throws {StorageError} `InUse` with their names
 */
export function requireNoDependents({ lv, group }: LocatedLv): void {
  const snapshots = cowSnapshotsOn({ lv, group });
  const names = [...snapshots, ...thinLvsOnOrigin({ lv, group })].map(({ name }) => name);
  if (names.length === 0) return;
  const kind = snapshots.length > 0 ? "the origin of the snapshots" : "the external origin of the thin volumes";
  throw new StorageError(
    "InUse",
    `removing ${lvPath({ lv, group })}: it is ${kind} ${
      names.join(", ")
    }, which LVM would remove with it; remove them ` +
      "first (lvremove)",
  );
}

/**
 * Makes sure that a volume and its COW snapshots can be deactivated for a moment.
 *
 * @param published whether the volume's device is published ({@linkcode isPublishedAsDevice}). A bind mount of the
 * device node would not prevent the deactivation, but could refer to another device afterwards
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
    ? `it is in use and has the snapshots ${names}; LVM extends the origin of a copy-on-write snapshot only while it is ` +
      "inactive: unpublish and unstage it (in a cluster, end its pods) until it is extended, or delete the snapshots"
    : open.length > 0
    ? `of its snapshots ${names}, ${
      open.join(", ")
    } is open; LVM extends the origin of a copy-on-write snapshot only ` +
      "while both are inactive: unmount it"
    : undefined;
  if (why === undefined) return;
  const reason = lv.open || published ? "OriginInUse" : "SnapshotOpen";
  throw new StorageError("FailedPrecondition", `expanding volume ${id}: ${why}`, { reason });
}

/**
 * Reports whether a volume's device is published. LVM does not report a device as open because of a bind mount of its
 * node.
 */
export async function isPublishedAsDevice(exec: Exec, { tags, lv }: Volume): Promise<boolean> {
  return tags.format.state === "raw" && deviceMounts(await readMounts(exec), contentDevice(lv)).length > 0;
}

/**
 * Separates a copy-on-write snapshot from its origin, so that the origin is free of it. The COW space stays, as an LV with the
 * same tags (lvconvert(8), --splitsnapshot). The function accepts a snapshot that is separate or gone already.
 *
 * @throws {StorageError} `FailedPrecondition` when LVM refuses, as while PVs of the group are missing.
 */
export async function splitSnapshot(lvm: Lvm, group: VolumeGroup, lv: LogicalVolume): Promise<void> {
  const path = lvPath({ group, lv });
  requirePvs(`separating ${path} from its origin`, group);
  await lvm.change(group, lvconvert({ yes: true, splitsnapshot: true }, path)).catch((error) => {
    // of the refusals of its kind, this one alone means that it is separate already
    const isSeparate = error instanceof StorageError && ALREADY_SEPARATE.test(error.message);
    if (!isSeparate && !isOfKind(error, "NotFound")) throw error;
  });
}

/** LVM's message about an LV that is no snapshot. */
const ALREADY_SEPARATE = /does not accept LV type/i;
