/**
 * The doctor's check of locks: whether LVM's commands exclude each other, and whether one of them hangs.
 *
 * @module
 */

import type { StorageError } from "../../base/error.ts";
import { type Command, isNotInstalled, isTimeout } from "../exec.ts";
import { type Mount, mountAbove } from "../host/mounts.ts";
import type { Configuration } from "../model/configuration.ts";
import {
  type CheckResult,
  error,
  failureSummary,
  type Found,
  type HostFacts,
  info,
  NO_SETTINGS,
  settingRemedy,
  warning,
} from "./finding.ts";

/** Returns the command that describes the directory of locks: the number of its owner, its mode, and its kind. */
export function lockFolderCommand(folder: string): Command {
  return { program: "find", args: ["-P", folder, "-maxdepth", "0", "-printf", "%U %m %y"], mutates: false };
}

/** Checks whether LVM's commands exclude each other, and whether one of them hangs. */
export function checkLocks({ configuration, mounts, survey, lockStuck, lockFolder }: HostFacts): CheckResult {
  const findings: Found[] = [];
  if (lockStuck) {
    findings.push(error(
      "lvm",
      "it reports only without locks: a command that holds a lock hangs, and all others wait for it",
      "lslocks --notruncate | grep /lvm/   (shows it; if it waits for udev: dmsetup udevcookies, dmsetup udevcomplete_all)",
    ));
  }
  if ("error" in survey && isTimeout(survey.error)) {
    findings.push(error(
      "lvm",
      "it does not respond, with locks or without: it waits for a disk, a suspended device or udev",
      "dmesg | tail; dmsetup info --columns --options name,suspended; ps -eo pid,stat,wchan:20,args | grep ' D'",
    ));
  }
  if ("error" in configuration) {
    return { summary: "settings unknown", findings: [...findings, noSettings(configuration.error)] };
  }
  const { value: settings } = configuration;
  findings.push(...lockSettings(settings), ...lockDirectory(settings, "value" in mounts ? mounts.value : []));
  if ("value" in lockFolder) findings.push(...lockOwner(settings.value("global/locking_dir")!, lockFolder.value));
  return { summary: `lock files in ${settings.value("global/locking_dir") ?? "LVM's own directory"}`, findings };
}

function noSettings(reason: StorageError): Found {
  return isNotInstalled(reason)
    ? info("lvm", NO_SETTINGS)
    : error("lvm", failureSummary(reason), "lvmconfig --validate");
}

function lockSettings(settings: Configuration): Found[] {
  const findings: Found[] = [];
  const type = settings.value("global/locking_type") ?? "1";
  if (type !== "1") {
    findings.push(
      error(
        "global/locking_type",
        `${type}: LVM's commands do not exclude each other`,
        settingRemedy("global/locking_type", "1"),
      ),
    );
  }
  if (settings.value("global/wait_for_locks") === "0") {
    const found = "0: a command fails at once while another command runs, instead of waiting for it";
    findings.push(warning("global/wait_for_locks", found, settingRemedy("global/wait_for_locks", "1")));
  }
  if (settings.value("global/use_lvmetad") === "1") {
    const found =
      "1: LVM of this host, before 2.03, works with cached metadata, and does not see what the driver's LVM changes: a " +
      "command of the host can destroy volumes";
    const fix = "systemctl mask --now lvm2-lvmetad.service lvm2-lvmetad.socket";
    findings.push(warning("global/use_lvmetad", found, `${fix}; ${settingRemedy("global/use_lvmetad", "0")}`));
  }
  if (settings.value("global/use_lvmlockd") === "1") {
    findings.push(
      info(
        "global/use_lvmlockd",
        "1: only volume groups that are shared with other hosts need lvmlockd; the driver's are local",
      ),
    );
  }
  return findings;
}

/**
 * Checks whether the lock files are where other commands of this host use them, too. LVM creates the directory, but not
 * on a suitable mount.
 */
function lockDirectory(settings: Configuration, mounts: readonly Mount[]): Found[] {
  const folder = settings.value("global/locking_dir");
  const mount = folder === undefined ? undefined : mountAbove(mounts, folder);
  if (folder === undefined || mount === undefined) return [];
  if (mount.readOnly) {
    return [
      error(folder, `${mount.target} is mounted read-only: LVM cannot lock`, `mount -o remount,rw ${mount.target}`),
    ];
  }
  if (mount.fsType === "overlay") {
    const found =
      "it is in a container's own filesystem: commands of the host and of the container do not exclude each other";
    return [warning(folder, found, `mount the host's ${folder} into the container`)];
  }
  return [];
}

/** Finds another owner of the directory of locks than root: whoever makes it first owns it, where all may write beside it. */
function lockOwner(folder: string, described: string): Found[] {
  const [, owner, mode = "", kind] = /^(\d+) ([0-7]+) (\w)/.exec(described) ?? [];
  if (owner === undefined) return [];
  const who = kind === "l"
    ? "it is a link, which whoever made it can lead elsewhere"
    : owner !== "0"
    ? `it belongs to the user with the number ${owner}, who`
    : (parseInt(mode, 8) & 0o022) !== 0
    ? `its mode is ${mode}: any user, or a group,`
    : undefined;
  if (who === undefined) return [];
  const message = kind === "l" ? who : `${who} can keep LVM waiting by its locks, and take them away`;
  return [warning(folder, message, `rm -r ${folder}; install -d -m 0700 ${folder}   (while no command of LVM runs)`)];
}
