/**
 * The doctor's check of the kernel: device-mapper with its targets, and the features of xfs.
 *
 * @module
 */

import { missingXfsFeatures } from "../settings/mkfs_defaults.ts";
import { type CheckResult, error, failureSummary, type HostFacts, info, warning } from "./finding.ts";

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
