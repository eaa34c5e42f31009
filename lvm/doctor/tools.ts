/**
 * The doctor's check of programs.
 *
 * @module
 */

import { isNotInstalled, type Program, PROGRAMS } from "../exec.ts";
import {
  type CheckResult,
  error,
  failureSummary,
  type Found,
  type HostFacts,
  info,
  installCommand,
  warning,
} from "./finding.ts";

/** The package that contains a program, and what needs the program. */
export interface ProgramPackage {
  /** The package in Debian and its derivatives. */
  readonly debian: string;
  /** The package in RHEL, Fedora and their derivatives. */
  readonly redHat: string;
  /** The part of the driver that needs it: every volume, some volumes, some calls, or the doctor alone. */
  readonly neededBy: "volumes" | "xfs" | "btrfs" | "encryption" | "differences" | "doctor";
}

function inPackage(debian: string, neededBy: ProgramPackage["neededBy"] = "volumes", redHat = debian): ProgramPackage {
  return { debian, redHat, neededBy };
}

/** The packages by program, so that a new program does not compile without its package. */
export const PACKAGES: Readonly<Record<Program, ProgramPackage>> = {
  blkdiscard: inPackage("util-linux"),
  blockdev: inPackage("util-linux"),
  btrfs: inPackage("btrfs-progs", "btrfs"),
  btrfstune: inPackage("btrfs-progs", "btrfs"),
  cmp: inPackage("diffutils"),
  cryptsetup: inPackage("cryptsetup-bin", "encryption", "cryptsetup"),
  dd: inPackage("coreutils"),
  df: inPackage("coreutils"),
  dmsetup: inPackage("dmsetup", "volumes", "device-mapper"),
  e2fsck: inPackage("e2fsprogs"),
  find: inPackage("findutils"),
  findmnt: inPackage("util-linux"),
  fstrim: inPackage("util-linux"),
  losetup: inPackage("mount", "volumes", "util-linux"),
  lsblk: inPackage("util-linux"),
  lvm: inPackage("lvm2"),
  mke2fs: inPackage("e2fsprogs"),
  "mkfs.btrfs": inPackage("btrfs-progs", "btrfs"),
  "mkfs.xfs": inPackage("xfsprogs", "xfs"),
  modinfo: inPackage("kmod", "doctor"),
  mount: inPackage("mount", "volumes", "util-linux"),
  resize2fs: inPackage("e2fsprogs"),
  sync: inPackage("coreutils"),
  thin_delta: inPackage("thin-provisioning-tools", "differences", "device-mapper-persistent-data"),
  tune2fs: inPackage("e2fsprogs"),
  udevadm: inPackage("udev", "doctor", "systemd-udev"),
  umount: inPackage("mount", "volumes", "util-linux"),
  whereis: inPackage("util-linux", "doctor"),
  wipefs: inPackage("util-linux"),
  xfs_db: inPackage("xfsprogs", "xfs"),
  xfs_growfs: inPackage("xfsprogs", "xfs"),
};

/**
 * The first LVM with `fullreport` and `--configreport` (WHATS_NEW of 2.02.158); everything else that the driver uses is
 * older.
 */
const OLDEST_LVM = "2.02.158";

/** Checks whether every program of the closed list is installed, LVM is new enough, and the user is root. */
export function checkTools({ programs, version, root }: Pick<HostFacts, "programs" | "version" | "root">): CheckResult {
  const findings: Found[] = [];
  if (!root) {
    findings.push(
      error("user", "not root: LVM shows volume groups only to root, and reports no error", "sudo denolith doctor"),
    );
  }
  if ("value" in programs) findings.push(...missingPrograms(programs.value));
  else {findings.push(
      warning("whereis", `installed programs cannot be found: ${failureSummary(programs.error)}`),
    );}
  if ("value" in version && isOlder(version.value.lvm, OLDEST_LVM)) {
    findings.push(
      error("lvm", `version ${version.value.lvm} is too old: ${OLDEST_LVM} is needed`, installCommand("lvm2")),
    );
  }
  if ("error" in version && !isNotInstalled(version.error)) findings.push(error("lvm", failureSummary(version.error)));
  const there = "value" in programs
    ? `${PROGRAMS.filter((name) => programs.value.has(name)).length} of ${PROGRAMS.length} programs`
    : "programs unknown";
  return { summary: "value" in version ? `lvm ${version.value.lvm}, ${there}` : there, findings };
}

function missingPrograms(there: ReadonlySet<string>): Found[] {
  const missing = PROGRAMS.filter((program) => !there.has(program));
  return [...Map.groupBy(missing, (program) => PACKAGES[program].debian)].map(([debian, names]) => {
    const { redHat, neededBy } = PACKAGES[names[0]!];
    const on = names.join(", ");
    const remedy = installCommand(debian, redHat);
    const absent = "not installed";
    switch (neededBy) {
      case "volumes":
        return error(on, absent, remedy);
      case "doctor":
        return info(on, `${absent}: the doctor cannot check everything`, remedy);
      case "differences":
        return info(on, `${absent}: changed blocks of thin snapshots cannot be listed`, remedy);
      default:
        return warning(on, `${absent}: volumes with ${neededBy} are not available`, remedy);
    }
  });
}

function isOlder(version: string, than: string): boolean {
  const [left, right] = [version, than].map((text) => text.split(".").map(Number));
  const index = right!.findIndex((part, at) => part !== left![at]);
  return index >= 0 && (left![index] ?? 0) < right![index]!;
}
