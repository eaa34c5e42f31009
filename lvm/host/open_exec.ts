/**
 * Opens the exec of a driver.
 *
 * @module
 */

import { dd, type Exec, HostExec, type HostExecOptions } from "../exec.ts";
import { openMountTable } from "./mount_table.ts";
import { FilteredExec } from "./filtered_exec.ts";

/** Options of {@linkcode openExec}. */
export interface OpenExecOptions extends HostExecOptions {
  /** LVM's devices file, as {@linkcode devicesFileSettings} takes it; without it, LVM's settings decide. */
  readonly devicesFile?: string;
  /** A directory of the driver, in which it opens the mount table; without it, a command lists the mounts. */
  readonly mountTableDirectory?: string;
  /** Called when the mount table cannot be opened, or not be read any more: a command lists the mounts then. */
  readonly onNoMountTable?: (error: unknown) => void;
}

/** Creates what runs commands; {@linkcode openExec}, or a fake. */
export type CreateExec = (options: OpenExecOptions) => Exec | Promise<Exec>;

/** Opens an exec on this host. */
export async function openExec(
  { mountTableDirectory, onNoMountTable = () => {}, devicesFile, ...given }: OpenExecOptions = {},
): Promise<Exec> {
  const options = { ownSessions: !await isService(), ...given, ...await lvmConfigWith(devicesFile, given) };
  const processes = new HostExec(options);
  try {
    if (mountTableDirectory !== undefined) {
      processes.readMountTable = await openMountTable(processes, mountTableDirectory, onNoMountTable);
    }
  } catch (error) {
    onNoMountTable(error);
  }
  return new FilteredExec(processes);
}

/** Returns the settings of LVM, with those for a devices file, and without one that {@linkcode FilteredExec} sets. */
async function lvmConfigWith(devicesFile: string | undefined, options: HostExecOptions): Promise<HostExecOptions> {
  const ofFile = devicesFile === undefined ? undefined : await devicesFileSettings(devicesFile, new HostExec(options));
  const settings = [options.lvmConfig?.replace(/(?<!\S)devices\/scan_lvs=\S*\s*/, "").trim(), ofFile];
  const lvmConfig = settings.filter(Boolean).join(" ");
  return { lvmConfig: lvmConfig === "" ? undefined : lvmConfig };
}

/**
 * Reports whether a service manager or a container runtime started this process. They ask it alone to end, whereas signals
 * to its process group come from a terminal, or from who started it in their own session, as timeout(1).
 */
async function isService(): Promise<boolean> {
  return await readChildStat().then(isOfService, () => false);
}

/** Returns the status of a child of this process (proc(5), stat). Only a child is to be had: Deno lets no worker read /proc. */
export async function readChildStat(): Promise<string> {
  return await dd(new HostExec({ ownSessions: false }), { if: "/proc/self/stat" });
}

/**
 * Reports whether the parent of a process leads a session without a terminal.
 *
 * @param stat the status of the process: pid, comm, state, ppid, pgrp, session, tty_nr (proc(5))
 */
export function isOfService(stat: string): boolean {
  const [, parent, session, terminal] = /^\d+ \(\w+\) \w (\d+) \d+ (\d+) (-?\d+) /.exec(stat) ?? [];
  return parent !== undefined && parent === session && terminal === "0";
}

/**
 * The value that stands for the devices file of the host (lvmdevices(8)), if it has one and its settings do not turn it off.
 *
 * Whether LVM uses it without a setting is decided when LVM is built: RHEL's and Fedora's does, Debian's does not, and so not
 * that of the image. The host's own LVM and the driver must see the same disks.
 */
const HOST_DEVICES_FILE = "auto";

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
