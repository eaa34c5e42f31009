/**
 * A node as those of distributions for containers are: without lvm2 and its rules for udev, and with a read-only `/etc`.
 *
 * @module
 */

import type { Node } from "../rig/node.ts";

/** The directories on such a node, which the values of the chart name. */
export const BARE_DIRECTORIES = {
  configDir: "/var/lib/denolith/lvm",
  archiveDir: "/var/lib/denolith/archive",
} as const;

/** The values of the chart for such a node. */
export const BARE_VALUES = {
  lvm: {
    ...BARE_DIRECTORIES,
    // LVM does not know the disks of user-mode Linux. On the other nodes, lvm.conf says it.
    settings: ['devices/types=["ubd", 16]', "devices/md_component_detection=0"],
  },
};

/** Takes lvm2 from a node that has its volume groups, and makes `/etc` read-only. */
const STRIP = `
set -e
find /usr/sbin -lname '*lvm' -delete
rm -f /usr/sbin/lvm /usr/sbin/dmsetup /usr/sbin/dmeventd /usr/sbin/blkdeactivate /usr/sbin/thin_* /usr/sbin/pdata_tools
rm -f /usr/lib/udev/rules.d/*lvm*.rules /usr/lib/udev/rules.d/*-dm*.rules
udevadm control --reload
rm -r /etc/lvm /run/lock/lvm
mount --bind /etc /etc
mount -o remount,bind,ro /etc
`;

/** Strips a node. @throws {Error} when it cannot be done */
export async function stripNode(node: Node): Promise<void> {
  const { code, stderr } = await node.exec(STRIP);
  if (code !== 0) throw new Error(`take lvm2 from ${node.name}: exit status ${code}: ${stderr.trim()}`);
}
