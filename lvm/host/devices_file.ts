/**
 * LVM's devices file, which lists the disks that LVM uses (lvmdevices(8)).
 *
 * Whether LVM uses it without a setting is decided when LVM is built: RHEL's and Fedora's does, Debian's does not, and so not
 * that of the image. The host's own LVM and the driver must see the same disks.
 *
 * @module
 */

import type { Exec } from "../exec.ts";

/** The value that stands for the devices file of the host, if it has one and its settings do not turn it off. */
export const HOST_DEVICES_FILE = "auto";

/**
 * Returns the settings with which LVM uses a devices file. LVM ignores one that does not exist.
 *
 * @param name its name in /etc/lvm/devices, or {@linkcode HOST_DEVICES_FILE}
 * @param exec reads LVM's settings
 * @returns `undefined` when LVM's own settings decide
 */
export async function devicesFileSettings(name: string, exec: Exec): Promise<string | undefined> {
  if (name !== HOST_DEVICES_FILE) return `devices/use_devicesfile=1 devices/devicesfile="${name}"`;
  // merged, since LVM would otherwise show the settings of its command line alone, if there are any
  const args = ["lvmconfig", "--type", "current", "--mergedconfig", "devices/use_devicesfile"];
  const { code, stderr } = await exec.run({ program: "lvm", args, mutates: false });
  return code !== 0 && /node devices\/use_devicesfile not found/.test(stderr) ? "devices/use_devicesfile=1" : undefined;
}
