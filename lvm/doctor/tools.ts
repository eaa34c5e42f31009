/**
 * The doctor's look at programs and at the kernel.
 *
 * @module
 */

import type { LvmVersion } from "../host/device_mapper.ts";
import { isNotInstalled, type Program, PROGRAMS } from "../exec.ts";
import { type CheckResult, failureSummary, type Finding, findingsOf, type Reading } from "./finding.ts";

/** Which package brings a program, and who misses it. */
interface ProgramPackage {
  /** The package in Debian and its derivatives. */
  readonly debian: string;
  /** The package in RHEL, Fedora and their derivatives. */
  readonly redHat: string;
  /** Who needs it: every volume, those with a filesystem, or the doctor alone. */
  readonly neededBy: "volumes" | "xfs" | "btrfs" | "doctor";
}

function inPackage(debian: string, neededBy: ProgramPackage["neededBy"] = "volumes", redHat = debian): ProgramPackage {
  return { debian, redHat, neededBy };
}

/** By program, so that a new program does not compile until it is said where it comes from. */
const PACKAGES: Readonly<Record<Program, ProgramPackage>> = {
  blkdiscard: inPackage("util-linux"),
  blockdev: inPackage("util-linux"),
  btrfs: inPackage("btrfs-progs", "btrfs"),
  btrfstune: inPackage("btrfs-progs", "btrfs"),
  cmp: inPackage("diffutils"),
  dd: inPackage("coreutils"),
  df: inPackage("coreutils"),
  dmsetup: inPackage("dmsetup", "doctor", "device-mapper"),
  e2fsck: inPackage("e2fsprogs"),
  findmnt: inPackage("util-linux"),
  fstrim: inPackage("util-linux"),
  lsblk: inPackage("util-linux"),
  lvm: inPackage("lvm2"),
  mke2fs: inPackage("e2fsprogs"),
  "mkfs.btrfs": inPackage("btrfs-progs", "btrfs"),
  "mkfs.xfs": inPackage("xfsprogs", "xfs"),
  modinfo: inPackage("kmod", "doctor"),
  mount: inPackage("mount", "volumes", "util-linux"),
  resize2fs: inPackage("e2fsprogs"),
  tune2fs: inPackage("e2fsprogs"),
  udevadm: inPackage("udev", "doctor", "systemd-udev"),
  umount: inPackage("mount", "volumes", "util-linux"),
  whereis: inPackage("util-linux", "doctor"),
  wipefs: inPackage("util-linux"),
  xfs_db: inPackage("xfsprogs", "xfs"),
  xfs_growfs: inPackage("xfsprogs", "xfs"),
};

/** The first LVM with `fullreport` and `--configreport` (WHATS_NEW of 2.02.158); all else that is used is older. */
const OLDEST_LVM = "2.02.158";

/** What {@linkcode checkTools} looks at. */
export interface ToolReadings {
  /** The programs that are there. */
  readonly programs: Reading<ReadonlySet<string>>;
  /** LVM's version. */
  readonly version: Reading<LvmVersion>;
  /** Whether the commands run as root. */
  readonly root: boolean;
}

/** Whether every program of the closed list is there, LVM new enough, and the user root. */
export function checkTools({ programs, version, root }: ToolReadings): CheckResult {
  const { error, warning } = findingsOf("tools");
  const findings: Finding[] = [];
  if (!root) {
    findings.push(
      error("user", "not root: LVM shows its groups to root alone, without an error", "sudo denolith doctor"),
    );
  }
  if ("value" in programs) findings.push(...missingPrograms(programs.value));
  else {findings.push(
      warning("whereis", `it cannot be told which programs are there: ${failureSummary(programs.error)}`),
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

function missingPrograms(there: ReadonlySet<string>): Finding[] {
  const { info, warning, error } = findingsOf("tools");
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
        return info(on, `${absent}: the doctor cannot see all that it could`, remedy);
      default:
        return warning(on, `${absent}: there can be no volumes with ${neededBy}`, remedy);
    }
  });
}

/** What to type to have a package. */
export function installCommand(debian: string, redHat = debian): string {
  return `apt-get install ${debian}` + (redHat === debian ? "   (or dnf)" : `   (or dnf install ${redHat})`);
}

function isOlder(version: string, than: string): boolean {
  const [left, right] = [version, than].map((text) => text.split(".").map(Number));
  const index = right!.findIndex((part, at) => part !== left![at]);
  return index >= 0 && (left![index] ?? 0) < right![index]!;
}

/** A target of device-mapper that the driver needs, with the module that has it and what it is for. */
interface DmTarget {
  readonly name: string;
  readonly module: string;
  readonly use: string;
  /** Whether a host can do without: not every host has volumes of the kind. */
  readonly optional?: boolean;
}

const TARGETS: readonly DmTarget[] = [
  { name: "linear", module: "dm-mod", use: "volumes" },
  { name: "snapshot", module: "dm-snapshot", use: "snapshots" },
  { name: "snapshot-origin", module: "dm-snapshot", use: "snapshots" },
  { name: "striped", module: "dm-mod", use: "volumes" },
  { name: "raid", module: "dm-raid", use: "RAID volumes", optional: true },
];

/** The target of device-mapper that thin pools take, and the module that has it. */
export const THIN_TARGET = "thin-pool";
export const THIN_MODULE = "dm-thin-pool";

/** A target that not every driver needs, that of thin volumes: worth a word where it is there. */
const OPTIONAL_TARGETS = [THIN_TARGET];

/** A module that every kernel has for which there are modules at all: without it, the modules cannot be seen from here. */
export const BASE_MODULE = "dm-mod";

/** The modules to look for when the kernel has these targets: none, when it has all. */
export function modulesToProbe(targets: ReadonlyMap<string, string>): string[] {
  const missing = [...TARGETS, { name: THIN_TARGET, module: THIN_MODULE }]
    .filter(({ name }) => !targets.has(name)).map(({ module }) => module);
  return missing.length === 0 ? [] : [...new Set([...missing, BASE_MODULE])];
}

/** What {@linkcode checkKernel} looks at. */
export interface KernelReadings {
  /** The targets that the kernel has now. */
  readonly targets: Reading<ReadonlyMap<string, string>>;
  /** Of the modules that {@linkcode modulesToProbe} names, those that could be loaded. */
  readonly modules: Reading<ReadonlySet<string>>;
  /** LVM's version, which names that of the kernel's driver. */
  readonly version: Reading<LvmVersion>;
  /** Whether the commands run as root. */
  readonly root: boolean;
}

/** Whether the kernel has device-mapper, and its targets for volumes and snapshots. */
export function checkKernel({ targets, modules, version, root }: KernelReadings): CheckResult {
  const { info, warning, error } = findingsOf("kernel");
  const driver = "value" in version ? version.value.dmDriver : undefined;
  const summary = `device-mapper ${driver ?? "of unknown version"}`;
  if (!root) return { summary: "not checked", findings: [info("device-mapper", "only root can look at it")] };
  if ("error" in targets) {
    const message = failureSummary(targets.error);
    return driver === undefined
      ? {
        summary: "no device-mapper",
        findings: [error("device-mapper", `it cannot be reached: ${message}`, "modprobe dm-mod")],
      }
      : { summary, findings: [warning("device-mapper", `its targets cannot be listed: ${message}`)] };
  }
  const missing = TARGETS.filter(({ name }) => !targets.value.has(name));
  const loadable = "value" in modules ? modules.value : new Set<string>();
  const findings = [...Map.groupBy(missing, ({ module }) => module)].map(([module, absentTargets]) => {
    const [names, { use }] = [absentTargets.map(({ name }) => name).join(", "), absentTargets[0]!];
    const load = `modprobe ${module}`;
    if (loadable.has(module)) {
      return info(module, `not loaded yet (${names}): it is when the first of the ${use} is made`, load);
    }
    // in a container the kernel may find on the host what cannot be seen here
    if (!loadable.has(BASE_MODULE)) {
      return (absentTargets[0]!.optional ? info : warning)(
        module,
        `not loaded (${names}), and the kernel's modules are not here`,
        load,
      );
    }
    const install = `${load}; if there is none, install the kernel's package of further modules`;
    if (absentTargets[0]!.optional) {
      return info(module, `the kernel has no such module: there can be no ${use}`, install);
    }
    return error(module, `the kernel lacks ${names} and has no such module: there can be no ${use}`, install);
  });
  const optionalTargets = OPTIONAL_TARGETS.filter((name) => targets.value.has(name));
  const names = [...TARGETS.map(({ name }) => name).filter((name) => targets.value.has(name)), ...optionalTargets];
  return { summary: `${summary}: ${names.join(", ") || "no targets"}`, findings };
}
