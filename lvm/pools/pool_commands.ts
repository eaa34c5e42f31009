/**
 * Commands for thin pools: the driver creates its pools when they are first needed, extends them, and removes empty
 * ones if that is configured. It uses pools that an administrator created, but never changes them.
 *
 * @module
 */

import { ignoring } from "../../base/error.ts";
import type { Lvm } from "../client/client.ts";
import type { LogicalVolume, VolumeGroup } from "../model/report.ts";
import { hasPoolTag, poolTags } from "../model/tags.ts";
import { findPool, isDriverPool, newPoolFootprint } from "./pool.ts";
import {
  lvchange,
  lvcreate,
  type LvcreateOptions,
  lvextend,
  type LvextendOptions,
  lvremove,
} from "../model/command_lines.ts";

/**
 * Keeps dmeventd from a pool. LVM registers a pool with dmeventd whenever the pool or an LV in it is created, activated
 * or extended (lvm.conf(5), activation/monitoring). Then both the driver and dmeventd would extend it.
 */
const NO_MONITORING: MonitoringOptions = { config: "activation/monitoring=0" };

/** The options that {@linkcode monitoringOptions} returns. */
export type MonitoringOptions = Pick<LvextendOptions, "config">;

/**
 * Returns the options for a change of an LV that affects its pool: they keep dmeventd from pools of the driver, but not
 * from other pools.
 */
export function monitoringOptions(
  driver: string,
  group: VolumeGroup,
  { pool }: Pick<LogicalVolume, "pool">,
): MonitoringOptions {
  const found = findPool(group, pool);
  return found !== undefined && isDriverPool(driver, found) ? NO_MONITORING : {};
}

/**
 * Creates a thin pool of the driver in a group. New blocks of it read as zeros before they are written.
 *
 * @param size bytes
 * @returns the options that keep dmeventd from the pool
 */
export async function createPool(
  lvm: Lvm,
  driver: string,
  group: VolumeGroup,
  { name, size }: { readonly name: string; readonly size: bigint },
): Promise<MonitoringOptions> {
  const options: LvcreateOptions = {
    yes: true, // Wipes old signatures without asking, as for volumes.
    type: "thin-pool",
    zero: "y",
    name,
    size,
    ...NO_MONITORING,
    addtag: poolTags(driver),
  };
  await lvm.allocate(group, newPoolFootprint(size, group.extentSize), lvcreate(options, group.name));
  return NO_MONITORING;
}

/**
 * Removes what an interrupted `lvcreate` left of a pool of the driver. LVM first creates the LV of the metadata under
 * the name of the pool (lvmthin(7)), so a report shows it only when the `lvcreate` has ended. It contains no data.
 */
export async function removeIncompletePool(lvm: Lvm, group: VolumeGroup, { name, uuid }: LogicalVolume): Promise<void> {
  await lvm.changeSelected(group, lvremove({ yes: true, uuid }, `${group.name}/${name}`));
}

/** Reports whether an LV is what an interrupted `lvcreate` left of a pool of the driver. */
export function isIncompletePool(driver: string, lv: LogicalVolume): boolean {
  return lv.thinPool === undefined && hasPoolTag(driver, lv.tags);
}

/**
 * Extends the data or the metadata of a pool of the driver.
 *
 * @param newSize the new size, in bytes
 */
export async function extendPool(
  lvm: Lvm,
  group: VolumeGroup,
  pool: LogicalVolume,
  newSize: { readonly data: bigint } | { readonly metadata: bigint },
): Promise<void> {
  const size = "data" in newSize ? { size: newSize.data } : { poolmetadatasize: newSize.metadata };
  // the spare of the metadata is extended with it
  const bytes = "data" in newSize ? newSize.data - pool.size : 2n * (newSize.metadata - pool.thinPool!.metadataSize);
  await lvm.allocate(group, bytes, lvextend({ ...size, ...NO_MONITORING }, `${group.name}/${pool.name}`));
}

/**
 * Removes an empty pool of the driver. With `--yes`, LVM would remove all LVs of a pool with it. Without it, LVM asks,
 * gets no answer, and refuses (lvremove(8)). It does not ask about an inactive pool without LVs.
 */
export async function removePool(lvm: Lvm, group: VolumeGroup, pool: LogicalVolume): Promise<void> {
  const path = `${group.name}/${pool.name}`;
  await lvm.change(group, lvchange({ activate: "n", ...NO_MONITORING }, path));
  await lvm.change(group, lvremove({ uuid: pool.uuid }, path));
}

/**
 * Deactivates the LVs of which the driver's pools consist in which nothing was created yet. An `lvcreate` of a pool that was
 * killed leaves them active, and LVM then never activates the pool. Where that fails, LVM says why when it activates the pool.
 */
export async function deactivateParts(lvm: Lvm, driver: string, group: VolumeGroup): Promise<void> {
  const isEmpty = ({ name }: LogicalVolume) => group.lvs.every(({ pool }) => pool !== name);
  const pools = group.lvs.filter((lv) => lv.thinPool && !lv.active && isDriverPool(driver, lv) && isEmpty(lv));
  for (const { name } of pools) {
    for (const part of ["tmeta", "tdata"]) {
      const command = lvchange({ activate: "n" }, `${group.name}/${name}_${part}`);
      await lvm.change(group, command).catch(ignoring("InUse", "CommandFailed", "NotFound"));
    }
  }
}
