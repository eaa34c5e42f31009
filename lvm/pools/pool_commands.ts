/**
 * Thin pools on this machine: made when they are first needed, grown, and removed when nothing is in them and that was asked
 * for. Pools that somebody else made are used, and never changed.
 *
 * @module
 */

import { StorageError } from "../error.ts";
import type { Lvm } from "../model/client.ts";
import type { LogicalVolume, VolumeGroup } from "../model/report.ts";
import { hasPoolTag, poolTags } from "../model/tags.ts";
import { findPool, isDriverPool } from "./pool.ts";

/**
 * What keeps dmeventd away from a pool: LVM registers it there whenever the pool or an LV in it is made, activated or grown
 * (lvm.conf(5), activation/monitoring), and two would grow it.
 */
const NO_MONITORING = ["--config", "activation/monitoring=0"];

/** Arguments for a change of an LV that touches its pool: dmeventd is kept away from pools of the driver, and from no other. */
export function monitoringOptions(driver: string, group: VolumeGroup, { pool }: Pick<LogicalVolume, "pool">): string[] {
  const found = findPool(group, pool);
  return found !== undefined && isDriverPool(driver, found) ? NO_MONITORING : [];
}

/**
 * Makes a thin pool of the driver in the group, of that many bytes. New blocks of it read as zeros before they are written.
 * Answers the arguments that keep dmeventd away from it.
 */
export async function createPool(
  lvm: Lvm,
  driver: string,
  group: VolumeGroup,
  { name, size }: { readonly name: string; readonly size: bigint },
): Promise<readonly string[]> {
  await lvm.change(group, [
    "lvcreate",
    "--yes", // wipe old signatures without asking, as for volumes
    "--type",
    "thin-pool",
    "--zero",
    "y",
    "--name",
    name,
    "--size",
    `${size}b`,
    ...NO_MONITORING,
    ...poolTags(driver).flatMap((tag) => ["--addtag", tag]),
    group.name,
  ]);
  return NO_MONITORING;
}

/**
 * Removes what is left of a pool of the driver that was never finished: LVM makes the LV of its metadata under the pool's name
 * first (lvmthin(7)), so that a report shows it only when the lvcreate is dead. Nothing is on it.
 */
export async function removeIncompletePool(lvm: Lvm, group: VolumeGroup, { name }: LogicalVolume): Promise<void> {
  try {
    await lvm.change(group, ["lvremove", "--yes", `${group.name}/${name}`]);
  } catch (error) {
    if (!(error instanceof StorageError && error.kind === "NotFound")) throw error; // else somebody was quicker
  }
}

/** Whether an LV is what is left of a pool of the driver that was never finished. */
export function isIncompletePool(driver: string, lv: LogicalVolume): boolean {
  return lv.thinPool === undefined && hasPoolTag(driver, lv.tags);
}

/** Grows the data or the metadata of a pool of the driver to that many bytes. */
export async function extendPool(
  lvm: Lvm,
  group: VolumeGroup,
  pool: LogicalVolume,
  newSize: { readonly data: bigint } | { readonly metadata: bigint },
): Promise<void> {
  const size = "data" in newSize ? ["--size", `${newSize.data}b`] : ["--poolmetadatasize", `${newSize.metadata}b`];
  await lvm.change(group, ["lvextend", ...size, ...NO_MONITORING, `${group.name}/${pool.name}`]);
}

/**
 * Removes a pool of the driver in which nothing is. LVM takes everything in a pool with it when it is told yes, so it is not:
 * asked, it finds nobody to answer, and refuses (lvremove(8)). It does not ask about an inactive pool without LVs.
 */
export async function removePool(lvm: Lvm, group: VolumeGroup, pool: LogicalVolume): Promise<void> {
  const path = `${group.name}/${pool.name}`;
  await lvm.change(group, ["lvchange", "--activate", "n", ...NO_MONITORING, path]);
  await lvm.change(group, ["lvremove", path]);
}
