/**
 * What is another thing for thin volumes: where their space comes from, how they share it, and how they grow.
 *
 * @module
 */

import { StorageError } from "../error.ts";
import { uniqueLvName, volumeLvName } from "../ids.ts";
import type { FreshReport, Lvm } from "../model/client.ts";
import type { PoolReservation } from "../pools/pool_reservation.ts";
import { createPool, isIncompletePool, monitoringOptions, removeIncompletePool } from "../pools/pool_commands.ts";
import type { LogicalVolume, VolumeGroup } from "../model/report.ts";
import { volumeTags } from "../model/tags.ts";
import { findPool, newPoolBytes, poolNameIn, type ThinSpec } from "../pools/pool.ts";
import { deletedLvs } from "../inventory/leftovers.ts";
import type { Volume, VolumeRequest } from "../inventory/volume.ts";

/** What it takes to work on thin volumes. */
export interface ThinContext {
  /** LVM on this machine. */
  readonly lvm: Lvm;
  /** The driver's name. */
  readonly driver: string;
  /** The gate of the machine's thin pools. */
  readonly reservation: PoolReservation;
  /** Is told when a thin pool was made; nobody by default. */
  readonly onPoolCreated?: () => void;
}

/**
 * The space of a new thin volume, as lvcreate is told of it. If its pool is not there, it is made first. To be called in turn
 * ({@linkcode PoolReservation.runExclusive}), together with the lvcreate.
 *
 * @throws {StorageError} `NoSpace`; `FailedPrecondition` when what was deleted could be read in the pool, or another LV has its
 * name.
 */
export async function thinPoolArguments(
  context: ThinContext,
  group: VolumeGroup,
  bytes: bigint,
  request: VolumeRequest & { readonly thin: ThinSpec },
): Promise<string[]> {
  const name = poolNameIn(group.name, request.thin);
  const poolExists = requirePoolSpace(context, group, bytes, request);
  const monitoring = poolExists
    ? monitoringOptions(context.driver, group, { pool: name })
    : await makeOwnPool(context, group, request);
  return ["--type", "thin", "--thinpool", name, ...monitoring, "--virtualsize", `${bytes}b`];
}

/**
 * How lvcreate makes a snapshot of a thin LV, in its pool. LVM would have it skipped whenever LVs are activated (lvmthin(7)),
 * and not even activate it now.
 */
export function thinSnapshotArguments(
  driver: string,
  group: VolumeGroup,
  origin: Pick<LogicalVolume, "pool">,
): string[] {
  return ["--setactivationskip", "n", ...monitoringOptions(driver, group, origin)];
}

/**
 * Makes a volume as a thin snapshot of an LV, which it shares its blocks with, and has it grow to its size. Its pool is asked for
 * the whole size: that much it takes when all of it was written anew. If the LV is mounted, LVM freezes its filesystem meanwhile.
 *
 * @throws {StorageError} `NoSpace`; `FailedPrecondition` when what was deleted could be read in the pool.
 */
export async function createThinClone(
  context: ThinContext,
  groups: FreshReport,
  { lv, group }: Pick<Volume, "lv" | "group">,
  { size, ...request }: VolumeRequest & { readonly thin: ThinSpec; readonly size: bigint },
): Promise<void> {
  const { lvm, driver, reservation } = context;
  await reservation.runExclusive(groups, group, async (current) => {
    requirePoolSpace(context, current, size, request);
    const name = uniqueLvName(volumeLvName(request.id), deletedLvs(driver, [current]).map(({ lv }) => lv.name));
    await lvm.change(current, [
      "lvcreate",
      "--yes",
      "--snapshot",
      "--permission", // a snapshot's LV is read-only
      "rw",
      "--name",
      name,
      ...thinSnapshotArguments(driver, current, lv),
      ...volumeTags(driver, { ...request, copied: "all" }).flatMap((tag) => ["--addtag", tag]),
      `${current.name}/${lv.name}`,
    ]);
    if (size === lv.size) return;
    await lvm.change(current, [
      "lvextend",
      "--size",
      `${size}b`,
      ...monitoringOptions(driver, current, lv),
      `${current.name}/${name}`,
    ]);
  });
}

/** Whether the pool is there; then it may promise so much. @throws {StorageError} */
function requirePoolSpace(
  { reservation }: ThinContext,
  group: VolumeGroup,
  bytes: bigint,
  { id, erase, thin }: VolumeRequest & { readonly thin: ThinSpec },
): boolean {
  const pool = findPool(group, poolNameIn(group.name, thin));
  if (pool === undefined) return false;
  const path = `${group.name}/${pool.name}`;
  if (erase !== "none" && !pool.thinPool!.zeroes) {
    throw new StorageError(
      "FailedPrecondition",
      `creating volume ${id}: thin pool ${path} does not zero new blocks, so what was deleted in it could be read; have it do ` +
        `so (lvchange --zero y ${path}), or say erase: none`,
    );
  }
  reservation.requireAvailableVirtual(`creating volume ${id}`, group, pool, bytes);
  return true;
}

/** Makes the group's own pool, and no other; answers the arguments that keep dmeventd away from it. @throws {StorageError} */
async function makeOwnPool(
  { lvm, driver, onPoolCreated }: ThinContext,
  group: VolumeGroup,
  { id, thin }: VolumeRequest & { readonly thin: ThinSpec },
): Promise<readonly string[]> {
  const name = poolNameIn(group.name, thin);
  if (thin.pool !== undefined) {
    throw new StorageError("NoSpace", `creating volume ${id}: thin pool ${group.name}/${name} is not there any more`);
  }
  const other = group.lvs.find((lv) => lv.name === name);
  if (other !== undefined && !isIncompletePool(driver, other)) {
    throw new StorageError(
      "FailedPrecondition",
      `creating volume ${id}: ${group.name}/${name} is no thin pool; rename it, or name another pool (thinPool)`,
    );
  }
  if (other !== undefined) await removeIncompletePool(lvm, group, other);
  const monitoring = await createPool(lvm, driver, group, { name, size: newPoolBytes(group, thin) });
  onPoolCreated?.();
  return monitoring;
}

/**
 * Grows a thin volume, by a promise, also while it is in use and has snapshots.
 *
 * @throws {StorageError} `OutOfRange` when its pool may not promise so much, as for a full group.
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
        `growing volume ${id}`,
        current,
        reservation.requirePool(current, lv),
        size - lv.size,
      );
      const monitoring = monitoringOptions(driver, current, lv);
      await lvm.change(current, ["lvextend", "--size", `${size}b`, ...monitoring, `${current.name}/${lv.name}`]);
    });
  } catch (error) {
    if (!(error instanceof StorageError && error.kind === "NoSpace")) throw error;
    throw new StorageError("OutOfRange", error.message, { cause: error });
  }
}
