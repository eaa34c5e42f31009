/**
 * Resumes LVs that a crash left suspended.
 *
 * LVM loads the tables of devices before it puts them in use, and a command that is killed leaves what it had loaded. When a
 * device is resumed, the kernel puts the table in use that was loaded last, and LVM loads no other one where the table in use
 * is right already. That of a snapshot which is no snapshot yet leads to a hidden device without a table: what waited to be
 * written fails, and the filesystem becomes read-only. So such tables are removed first.
 *
 * dmsetup takes no lock of LVM. A command of another process, such as an administrator's lvcreate, has loaded tables, too, until
 * it puts them in use. Without them it fails, or leaves a snapshot that the kernel does not have. So only those are removed that
 * are there before a report, and after it: LVM's report waits for the lock of a command that runs in the group, and by then the
 * tables of that are in use. What is left is a command that begins in the few milliseconds after the report, and about an LV with
 * tables of a killed command.
 *
 * @module
 */

import { deviceUuidOf, type MappedDevice, readMappedDevices } from "../host/device_mapper.ts";
import { type Lvm, requireResponsive } from "../client/client.ts";
import { runOk } from "../exec.ts";
import { lvchange } from "../model/command_lines.ts";
import { type LocatedLv, lvPath, type VolumeGroup } from "../model/report.ts";
import { isOwned } from "../model/tags.ts";

/** What these functions need of {@linkcode Lvm}. */
export type ResumingLvm = Pick<Lvm, "exec" | "runAlone" | "report">;

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
      await removeTables(lvm, driver, group);
      await change(group, lvchange({ refresh: true }, lvPath(located)));
    }, { waits: true });
  }
  return suspended.length > 0;
}

/** Removes the tables that killed commands of LVM have loaded for the driver's LVs in a group, and that are not in use. */
export async function removeLeftTables(lvm: ResumingLvm, driver: string, group: VolumeGroup): Promise<void> {
  await lvm.runAlone([group], () => removeTables(lvm, driver, group), { waits: true });
}

/**
 * Removes tables that are not in use, and the devices that have no other one, with the COW space of a snapshot that has none: LVM
 * would refuse a snapshot of the same name. No command of LVM that this process runs may run in the group.
 *
 * @throws {StorageError} `Unavailable` when LVM cannot read the group, as while a command of another process runs for long
 */
async function removeTables(lvm: Pick<Lvm, "exec" | "report">, driver: string, group: VolumeGroup): Promise<void> {
  const { exec } = lvm;
  const before = leftDevices(await readMappedDevices(exec), driver, group);
  if (before.unused.length + before.loaded.length === 0) return;
  // it waits for commands of other processes, but not for ever
  const current = (await lvm.report()).find(({ uuid }) => uuid === group.uuid);
  if (current !== undefined) requireResponsive("removing tables of killed commands", current);
  const now = leftDevices(await readMappedDevices(exec), driver, group);
  const loaded = namesOf(now.loaded.filter(({ uuid }) => before.loaded.some((one) => one.uuid === uuid)));
  if (loaded.length > 0) await runOk(exec, { program: "dmsetup", args: ["clear", ...loaded], mutates: true });
  const unused = now.unused.filter(({ uuid }) => before.unused.some((one) => one.uuid === uuid));
  // the device of an LV before the hidden ones below it
  for (const name of namesOf(unused.sort((a, b) => a.uuid.length - b.uuid.length))) {
    // one that another device needs stays
    await exec.run({ program: "dmsetup", args: ["remove", "--noudevsync", name], mutates: true });
  }
}

/** Returns the devices of the driver's LVs in a group with a table that is not in use, and those without one that is. */
function leftDevices(
  all: readonly MappedDevice[],
  driver: string,
  group: VolumeGroup,
): { readonly loaded: MappedDevice[]; readonly unused: MappedDevice[] } {
  const ownUuids = group.lvs.filter(({ tags }) => isOwned(driver, tags)).map((lv) => deviceUuidOf(group, lv));
  const devices = all.filter(({ uuid }) => ownUuids.some((own) => uuid === own || uuid.startsWith(`${own}-`)));
  const inUse = devices.filter(({ tables }) => tables === "Live" || tables === "Both").map(({ uuid }) => uuid);
  const isUnused = ({ uuid }: MappedDevice) =>
    !inUse.includes(uuid) || uuid.endsWith(COW_SUFFIX) && !inUse.includes(uuid.slice(0, -COW_SUFFIX.length));
  return {
    loaded: devices.filter(({ tables }) => tables === "Inactive" || tables === "Both"),
    unused: devices.filter(isUnused),
  };
}

/** The end of the UUID of the hidden device with the COW space of a snapshot. */
const COW_SUFFIX = "-cow";

function namesOf(devices: readonly MappedDevice[]): string[] {
  return devices.map(({ name }) => name);
}
