/**
 * What is another thing for thin volumes: where their space comes from, how they share it, and how they grow.
 *
 * @module
 */

import { StorageError } from "../error.ts";
import { freeLvName, volumeLvName } from "../ids.ts";
import type { Lvm } from "../model/client.ts";
import type { PoolGate } from "../pools/pool_reservation.ts";
import { isUnfinishedPool, makePool, monitoringOf, removeUnfinishedPool } from "../pools/pool_commands.ts";
import type { LogicalVolume, VolumeGroup } from "../model/report.ts";
import { volumeTags } from "../model/tags.ts";
import { newPoolBytes, poolNameIn, poolOf, type ThinWish } from "../pools/pool.ts";
import { doomedLvs } from "./reaper.ts";
import type { Volume, VolumeRequest } from "../inventory/volume.ts";

/** What it takes to work on thin volumes. */
export interface ThinContext {
  /** LVM on this machine. */
  readonly lvm: Lvm;
  /** The driver's name. */
  readonly driver: string;
  /** The gate of the machine's thin pools. */
  readonly gate: PoolGate;
  /** Is told when a thin pool was made; nobody by default. */
  readonly onPool?: () => void;
}

/**
 * The space of a new thin volume, as lvcreate is told of it. If its pool is not there, it is made first. To be called in turn
 * ({@linkcode PoolGate.inTurn}), together with the lvcreate.
 *
 * @throws {StorageError} `NoSpace`; `FailedPrecondition` when what was deleted could be read in the pool, or another LV has its
 * name.
 */
export async function spaceInPool(
  context: ThinContext,
  group: VolumeGroup,
  bytes: bigint,
  request: VolumeRequest & { readonly thin: ThinWish },
): Promise<string[]> {
  const name = poolNameIn(group.name, request.thin);
  const pool = requirePool(context, group, bytes, request);
  const monitoring = pool
    ? monitoringOf(context.driver, group, { pool: name })
    : await makeOwnPool(context, group, request);
  return ["--type", "thin", "--thinpool", name, ...monitoring, "--virtualsize", `${bytes}b`];
}

/**
 * How lvcreate makes a snapshot of a thin LV, in its pool. LVM would have it skipped whenever LVs are activated (lvmthin(7)),
 * and not even activate it now.
 */
export function thinSnapshotOptions(driver: string, group: VolumeGroup, of: Pick<LogicalVolume, "pool">): string[] {
  return ["--setactivationskip", "n", ...monitoringOf(driver, group, of)];
}

/**
 * Makes a volume as a thin snapshot of an LV, which it shares its blocks with, and has it grow to its size. Its pool is asked for
 * the whole size: that much it takes when all of it was written anew. If the LV is mounted, LVM freezes its filesystem meanwhile.
 *
 * @throws {StorageError} `NoSpace`; `FailedPrecondition` when what was deleted could be read in the pool.
 */
export async function shareThin(
  context: ThinContext,
  groups: readonly VolumeGroup[],
  { lv, group }: Pick<Volume, "lv" | "group">,
  { size, ...request }: VolumeRequest & { readonly thin: ThinWish; readonly size: bigint },
): Promise<void> {
  const { lvm, driver, gate } = context;
  await gate.inTurn(groups, group, async (now) => {
    requirePool(context, now, size, request);
    const name = freeLvName(volumeLvName(request.id), doomedLvs(driver, [now]).map(({ lv }) => lv.name));
    await lvm.change(now, [
      "lvcreate",
      "--yes",
      "--snapshot",
      "--permission", // a snapshot's LV is read-only
      "rw",
      "--name",
      name,
      ...thinSnapshotOptions(driver, now, lv),
      ...volumeTags(driver, { ...request, copied: "all" }).flatMap((tag) => ["--addtag", tag]),
      `${now.name}/${lv.name}`,
    ]);
    if (size === lv.size) return;
    await lvm.change(now, ["lvextend", "--size", `${size}b`, ...monitoringOf(driver, now, lv), `${now.name}/${name}`]);
  });
}

/** Whether the pool is there; then it may promise so much. @throws {StorageError} */
function requirePool(
  { gate }: ThinContext,
  group: VolumeGroup,
  bytes: bigint,
  { id, erase, thin }: VolumeRequest & { readonly thin: ThinWish },
): boolean {
  const pool = poolOf(group, poolNameIn(group.name, thin));
  if (pool === undefined) return false;
  const path = `${group.name}/${pool.name}`;
  if (erase !== "none" && !pool.thinPool!.zeroes) {
    throw new StorageError(
      "FailedPrecondition",
      `creating volume ${id}: thin pool ${path} does not zero new blocks, so what was deleted in it could be read; have it do ` +
        `so (lvchange --zero y ${path}), or say erase: none`,
    );
  }
  gate.require(`creating volume ${id}`, group, pool, bytes);
  return true;
}

/** Makes the group's own pool, and no other; answers the arguments that keep dmeventd away from it. @throws {StorageError} */
async function makeOwnPool(
  { lvm, driver, onPool }: ThinContext,
  group: VolumeGroup,
  { id, thin }: VolumeRequest & { readonly thin: ThinWish },
): Promise<readonly string[]> {
  const name = poolNameIn(group.name, thin);
  if (thin.pool !== undefined) {
    throw new StorageError("NoSpace", `creating volume ${id}: thin pool ${group.name}/${name} is not there any more`);
  }
  const other = group.lvs.find((lv) => lv.name === name);
  if (other !== undefined && !isUnfinishedPool(driver, other)) {
    throw new StorageError(
      "FailedPrecondition",
      `creating volume ${id}: ${group.name}/${name} is no thin pool; rename it, or name another pool (thinPool)`,
    );
  }
  if (other !== undefined) await removeUnfinishedPool(lvm, group, other);
  const monitoring = await makePool(lvm, driver, group, { name, size: newPoolBytes(group, thin) });
  onPool?.();
  return monitoring;
}

/**
 * Grows a thin volume, by a promise, also while it is in use and has snapshots.
 *
 * @throws {StorageError} `OutOfRange` when its pool may not promise so much, as for a full group.
 */
export async function growThin(
  { lvm, driver, gate }: ThinContext,
  groups: readonly VolumeGroup[],
  { id, lv, group }: Volume,
  size: bigint,
): Promise<void> {
  try {
    await gate.inTurn(groups, group, async (now) => {
      gate.require(`growing volume ${id}`, now, gate.poolOf(now, lv), size - lv.size);
      const monitoring = monitoringOf(driver, now, lv);
      await lvm.change(now, ["lvextend", "--size", `${size}b`, ...monitoring, `${now.name}/${lv.name}`]);
    });
  } catch (error) {
    if (!(error instanceof StorageError && error.kind === "NoSpace")) throw error;
    throw new StorageError("OutOfRange", error.message, { cause: error });
  }
}
