/**
 * The doctor's checks of programs and of the kernel.
 *
 * @module
 */

import { missingXfsFeatures } from "../settings/mkfs_defaults.ts";
import { isNotInstalled, type Program, PROGRAMS } from "../exec.ts";
import { type CheckResult, error, failureSummary, type Found, type HostFacts, info, warning } from "./finding.ts";

/** The package that contains a program, and what needs the program. */
interface ProgramPackage {
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
const PACKAGES: Readonly<Record<Program, ProgramPackage>> = {
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

/** Returns the command that installs a package on Debian, and its variant for RHEL in parentheses. */
export function installCommand(debian: string, redHat = debian): string {
  return `apt-get install ${debian}` + (redHat === debian ? "   (or dnf)" : `   (or dnf install ${redHat})`);
}

function isOlder(version: string, than: string): boolean {
  const [left, right] = [version, than].map((text) => text.split(".").map(Number));
  const index = right!.findIndex((part, at) => part !== left![at]);
  return index >= 0 && (left![index] ?? 0) < right![index]!;
}

/** A device-mapper target that the driver needs, with its module and its use. */
interface DmTarget {
  readonly name: string;
  readonly module: string;
  readonly use: string;
  /** True if a host can do without it, because not every host has volumes of this kind. */
  readonly optional?: boolean;
  /** True if the summary does not name it, which is one line. */
  readonly unlisted?: boolean;
}

const TARGETS: readonly DmTarget[] = [
  { name: "linear", module: "dm-mod", use: "volumes" },
  { name: "snapshot", module: "dm-snapshot", use: "snapshots" },
  { name: "snapshot-origin", module: "dm-snapshot", use: "snapshots" },
  { name: "striped", module: "dm-mod", use: "volumes" },
  { name: "raid", module: "dm-raid", use: "RAID volumes", optional: true },
  { name: "integrity", module: "dm-integrity", use: "RAID volumes with checksums", optional: true, unlisted: true },
  { name: "cache", module: "dm-cache", use: "volumes with a cache", optional: true, unlisted: true },
  { name: "writecache", module: "dm-writecache", use: "volumes with a writecache", optional: true, unlisted: true },
  { name: "crypt", module: "dm-crypt", use: "encrypted volumes", optional: true, unlisted: true },
];

/** The device-mapper target of thin pools, and its module. */
export const THIN_TARGET = "thin-pool";
export const THIN_MODULE = "dm-thin-pool";

/** Targets that not every host needs, such as that of thin pools: the summary names them where they exist. */
const OPTIONAL_TARGETS = [THIN_TARGET];

/** A module of every kernel that has modules: if it cannot be found, modules cannot be listed here. */
export const BASE_MODULE = "dm-mod";

/** Returns the modules to probe for the targets that the kernel does not have; none when it has all. */
export function modulesToProbe(targets: ReadonlyMap<string, string>): string[] {
  const missing = [...TARGETS, { name: THIN_TARGET, module: THIN_MODULE }]
    .filter(({ name }) => !targets.has(name)).map(({ module }) => module);
  return missing.length === 0 ? [] : [...new Set([...missing, BASE_MODULE])];
}

/** The input of {@linkcode checkKernel}. */
export type KernelFacts = Pick<HostFacts, "targets" | "modules" | "version" | "release" | "root">;

/** Checks whether the kernel has device-mapper, and its targets for volumes and snapshots. */
export function checkKernel({ targets, modules, version, release, root }: KernelFacts): CheckResult {
  const driver = "value" in version ? version.value.dmDriver : undefined;
  const summary = `device-mapper ${driver ?? "of unknown version"}`;
  if (!root) return { summary: "not checked", findings: [info("device-mapper", "only root can check it")] };
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
    const names = absentTargets.map(({ name }) => name).join(", ");
    const { use } = absentTargets[0]!;
    const load = `modprobe ${module}`;
    if (loadable.has(module)) {
      return info(module, `not loaded yet (${names}): LVM loads it for the first of the ${use}`, load);
    }
    // in a container, the kernel can load modules of the host that cannot be listed here
    if (!loadable.has(BASE_MODULE)) {
      return (absentTargets[0]!.optional ? info : warning)(
        module,
        `not loaded (${names}), and the kernel's modules cannot be listed here`,
        load,
      );
    }
    const install = `${load}; if there is no such module, install the kernel's package of additional modules`;
    if (absentTargets[0]!.optional) {
      return info(module, `the kernel has no such module: ${use} are not available`, install);
    }
    return error(module, `the kernel has neither ${names} nor this module: ${use} are not available`, install);
  });
  const unknown = "value" in release ? missingXfsFeatures(release.value) : [];
  if ("value" in release && unknown.length > 0) {
    const missing = `kernel ${release.value} does not know ${unknown.join(", ")}`;
    findings.push(info("xfs", `${missing}: new volumes are made without, and one that has them is not mounted here`));
  }
  const optionalTargets = OPTIONAL_TARGETS.filter((name) => targets.value.has(name));
  const listed = TARGETS.filter(({ name, unlisted }) => !unlisted && targets.value.has(name));
  const names = [...listed.map(({ name }) => name), ...optionalTargets];
  return { summary: `${summary}: ${names.join(", ") || "no targets"}`, findings };
}
