/**
 * Creates, clones and extends thin volumes, and creates their pools.
 *
 * @module
 */

import { StorageError } from "../../base/error.ts";
import type { FreshReport } from "../client/client.ts";
import type { PoolContext } from "../pools/pool_reservation.ts";
import {
  createPool,
  isIncompletePool,
  type MonitoringOptions,
  monitoringOptions,
  removeIncompletePool,
} from "../pools/pool_commands.ts";
import type { LogicalVolume, VolumeGroup } from "../model/report.ts";
import { isDeleted, volumeTags } from "../model/tags.ts";
import { findPool, poolNameIn, type ThinSpec, unzeroedReason } from "../pools/pool.ts";
import type { Volume, VolumeRequest } from "../inventory/volume.ts";
import { lvcreate, type LvcreateOptions, lvextend } from "../model/command_lines.ts";
import { newVolumeLvName } from "./volume_command.ts";

/** Context of operations on thin volumes. */
export interface ThinContext extends PoolContext {
  /** Called after a thin pool was created. */
  readonly onPoolCreated?: () => void;
}

/**
 * Requires that a thin pool has space for a new volume, or creates the group's own pool if it does not exist. The
 * caller holds the pool reservation ({@linkcode PoolReservation.runExclusive}) until the lvcreate has ended.
 *
 * @param bytes the virtual size of the volume, in bytes
 * @returns the options of lvcreate for a volume of that size in the pool
 * @throws {StorageError} `NoSpace`; `FailedPrecondition` when deleted data could be read in the pool, or another LV has
 * the pool's name.
 */
export async function prepareThinPool(
  context: ThinContext,
  group: VolumeGroup,
  bytes: bigint,
  request: VolumeRequest & { readonly thin: ThinSpec },
): Promise<LvcreateOptions> {
  const name = poolNameIn(group.name, request.thin);
  const poolExists = requirePoolSpace(context, group, bytes, request);
  const monitoring = poolExists
    ? monitoringOptions(context.driver, group, { pool: name })
    : await createOwnPool(context, group, bytes, request);
  return { type: "thin", thinpool: name, ...monitoring, virtualsize: bytes };
}

/**
 * Returns the arguments of lvcreate for a snapshot of a thin LV, which is in the same pool. By default LVM skips thin
 * snapshots when it activates LVs (lvmthin(7)), and does not activate them at their creation either.
 */
export function thinSnapshotOptions(
  driver: string,
  group: VolumeGroup,
  origin: Pick<LogicalVolume, "pool">,
): LvcreateOptions {
  return { setactivationskip: "n", ...monitoringOptions(driver, group, origin) };
}

/**
 * Creates a volume as a thin snapshot of an LV, and extends it to the requested size. The two share blocks, but the
 * whole size is reserved in the pool, because the volume needs that much once all of its blocks were overwritten. If
 * the LV is mounted, LVM freezes its filesystem meanwhile.
 *
 * @param groups the report in which the source was found
 * @param source the LV to clone, and its group
 * @param request the volume to create, with its size in bytes
 * @throws {StorageError} `NoSpace`; `FailedPrecondition` when deleted data could be read in the pool; `Busy` when the source was
 * deleted since the report: it may be discarded already.
 */
export async function createThinClone(
  context: ThinContext,
  groups: FreshReport,
  { lv: { uuid, name: sourceName }, group }: Pick<Volume, "lv" | "group">,
  { size, ...request }: VolumeRequest & { readonly thin: ThinSpec; readonly size: bigint },
): Promise<void> {
  const { lvm, driver, reservation } = context;
  await reservation.runExclusive(groups, group, async (current) => {
    const lv = current.lvs.find((lv) => lv.uuid === uuid);
    if (lv === undefined || isDeleted(lv.tags)) {
      const path = `${current.name}/${sourceName}`;
      throw new StorageError(
        "Busy",
        `creating volume ${request.id}: its source ${path} was deleted meanwhile; try again`,
      );
    }
    requirePoolSpace(context, current, size, request);
    const name = newVolumeLvName(driver, current, request.id);
    const options: LvcreateOptions = {
      yes: true,
      snapshot: true,
      permission: "rw", // The LV of a snapshot of the driver is read-only.
      name,
      ...thinSnapshotOptions(driver, current, lv),
      addtag: volumeTags(driver, { ...request, copied: "all" }),
    };
    await lvm.change(current, lvcreate(options, `${current.name}/${lv.name}`));
    reservation.recordMessagesSent(current, lv.pool!);
    if (size === lv.size) return;
    const monitoring = monitoringOptions(driver, current, lv);
    await lvm.change(current, lvextend({ size, ...monitoring }, `${current.name}/${name}`));
  });
}

/**
 * Makes sure that a pool, if it exists, zeroes new blocks where the volume needs that, and has enough available virtual
 * size.
 *
 * @param bytes the virtual size to allocate, in bytes
 * @returns whether the pool exists
 * @throws {StorageError} `FailedPrecondition` when deleted data could be read in the pool; `NoSpace`.
 */
function requirePoolSpace(
  { reservation }: ThinContext,
  group: VolumeGroup,
  bytes: bigint,
  { id, erase, thin }: VolumeRequest & { readonly thin: ThinSpec },
): boolean {
  const pool = findPool(group, poolNameIn(group.name, thin));
  if (pool === undefined) return false;
  const unzeroed = unzeroedReason(group, { pool: pool.name });
  if (erase !== "none" && unzeroed !== undefined) {
    throw new StorageError("FailedPrecondition", `creating volume ${id}: ${unzeroed}, or set erase: none`);
  }
  reservation.requireAvailableVirtual(`creating volume ${id}`, group, pool, bytes);
  return true;
}

/**
 * Creates the group's own pool. A pool that the request names is never created.
 *
 * @param bytes the virtual size that the pool must be able to allocate, in bytes
 * @returns the options of lvcreate that keep dmeventd from monitoring the pool
 * @throws {StorageError} `NoSpace` when the request names a pool, or the group has too little space;
 * `FailedPrecondition` when another LV has the pool's name.
 */
async function createOwnPool(
  { lvm, driver, reservation, onPoolCreated }: ThinContext,
  group: VolumeGroup,
  bytes: bigint,
  { id, thin }: VolumeRequest & { readonly thin: ThinSpec },
): Promise<MonitoringOptions> {
  const name = poolNameIn(group.name, thin);
  if (thin.pool !== undefined) {
    throw new StorageError("NoSpace", `creating volume ${id}: thin pool ${group.name}/${name} does not exist any more`);
  }
  const other = group.lvs.find((lv) => lv.name === name);
  if (other !== undefined && !isIncompletePool(driver, other)) {
    throw new StorageError(
      "FailedPrecondition",
      `creating volume ${id}: ${group.name}/${name} is not a thin pool; rename it, or name another pool (thinPool)`,
    );
  }
  if (other !== undefined) await removeIncompletePool(lvm, group, other);
  // The group was chosen by an earlier report. What was created since has taken space from the pool.
  const size = reservation.requireNewPool(`creating volume ${id}`, group, thin, bytes);
  const monitoring = await createPool(lvm, driver, group, { name, size });
  onPoolCreated?.();
  return monitoring;
}

/**
 * Extends a thin volume, also while it is in use and has snapshots. That only allocates virtual size in its pool.
 *
 * @param groups the report in which the volume was found
 * @param size the new virtual size, in bytes
 * @throws {StorageError} `OutOfRange` when the pool has too little available virtual size, as for a full group
 * ({@linkcode extendThick}).
 */
export async function extendThin(
  { lvm, driver, reservation }: ThinContext,
  groups: FreshReport,
  { id, lv, group }: Volume,
  size: bigint,
): Promise<void> {
  try {
    await reservation.runExclusive(groups, group, async (current) => {
      reservation.requireAvailableVirtual(
        `expanding volume ${id}`,
        current,
        reservation.requirePool(current, lv),
        size - lv.size,
      );
      const monitoring = monitoringOptions(driver, current, lv);
      await lvm.change(current, lvextend({ size, ...monitoring }, `${current.name}/${lv.name}`));
    });
  } catch (error) {
    if (!(error instanceof StorageError && error.kind === "NoSpace")) throw error;
    throw new StorageError("OutOfRange", error.message, { cause: error });
  }
}
