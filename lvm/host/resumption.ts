/**
 * Resumes LVs that a crash left suspended.
 *
 * LVM loads the tables of devices before it puts them in use, and a command that is killed leaves what it had loaded. When a
 * device is resumed, the kernel puts the table in use that was loaded last, and LVM loads no other one where the table in use
 * is right already. That of a snapshot which is no snapshot yet leads to a hidden device without a table: what waited to be
 * written fails, and the filesystem becomes read-only. So such tables are removed first.
 *
 * @module
 */

import type { Lvm } from "../client/client.ts";
import { type Exec, runOk } from "../exec.ts";
import { lvchange } from "../model/commands.ts";
import { type LocatedLv, lvPath, type VolumeGroup } from "../model/report.ts";
import { isOwned } from "../model/tags.ts";
import { type MappedDevice, readMappedDevices } from "./device_mapper.ts";

/** What these functions need of {@linkcode Lvm}. */
export type ResumingLvm = Pick<Lvm, "exec" | "runAlone">;

/**
 * Resumes LVs that are suspended. Whatever reads or writes one waits, and LVM does not make its pool take a snapshot of a
 * suspended thin one, although it says so. A refresh also loads the right tables.
 *
 * @param driver the driver's name
 * @param lvs LVs of a report
 * @returns whether there were any
 */
export async function resumeSuspended(lvm: ResumingLvm, driver: string, lvs: readonly LocatedLv[]): Promise<boolean> {
  const suspended = lvs.filter(({ lv }) => lv.suspended);
  for (const located of suspended) {
    const { group } = located;
    await lvm.runAlone([group], async (change) => {
      await removeTables(lvm.exec, driver, group);
      await change(group, lvchange({ refresh: true }, lvPath(located)));
    }, { waits: true });
  }
  return suspended.length > 0;
}

/** Removes the tables that killed commands of LVM have loaded for the driver's LVs in a group, and that are not in use. */
export async function removeLeftTables(lvm: ResumingLvm, driver: string, group: VolumeGroup): Promise<void> {
  await lvm.runAlone([group], () => removeTables(lvm.exec, driver, group), { waits: true });
}

/**
 * Removes tables that are not in use, and the devices that have no other one, with the COW space of a snapshot that has none: LVM
 * would refuse a snapshot of the same name. No command of LVM may run in the group.
 */
async function removeTables(exec: Exec, driver: string, group: VolumeGroup): Promise<void> {
  const ownUuids = group.lvs.filter(({ tags }) => isOwned(driver, tags)).map(({ uuid }) => deviceUuid(group, uuid));
  const devices = (await readMappedDevices(exec)).filter(({ uuid }) =>
    ownUuids.some((own) => uuid === own || uuid.startsWith(`${own}-`))
  );
  const left = devices.filter(({ tables }) => tables === "Inactive" || tables === "Both");
  if (left.length > 0) await runOk(exec, { program: "dmsetup", args: ["clear", ...namesOf(left)], mutates: true });
  const inUse = devices.filter(({ tables }) => tables === "Live" || tables === "Both").map(({ uuid }) => uuid);
  const isUnused = ({ uuid }: MappedDevice) =>
    !inUse.includes(uuid) || uuid.endsWith(COW_SUFFIX) && !inUse.includes(uuid.slice(0, -COW_SUFFIX.length));
  // the device of an LV before the hidden ones below it
  for (const name of namesOf(devices.filter(isUnused).sort((a, b) => a.uuid.length - b.uuid.length))) {
    // one that another device needs stays
    await exec.run({ program: "dmsetup", args: ["remove", "--noudevsync", name], mutates: true });
  }
}

/** The end of the UUID of the hidden device with the COW space of a snapshot. */
const COW_SUFFIX = "-cow";

function namesOf(devices: readonly MappedDevice[]): string[] {
  return devices.map(({ name }) => name);
}

function deviceUuid(group: VolumeGroup, uuid: string): string {
  return `LVM-${`${group.uuid}${uuid}`.replaceAll("-", "")}`;
}
