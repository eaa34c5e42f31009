/**
 * The doctor's check of thin pools: whether the host supports them, whether LVM can check and repair them, and their
 * states.
 *
 * @module
 */

import type { Configuration, Setting } from "../model/configuration.ts";
import { BASE_MODULE, THIN_MODULE, THIN_TARGET } from "./kernel.ts";
import { PROGRAM_DIRECTORIES } from "../exec.ts";
import {
  type CheckResult,
  error,
  type Found,
  type HostFacts,
  info,
  installCommand,
  NO_REPORT,
  skippedCheck,
  warning,
} from "./finding.ts";
import { type PoolStatus, poolStatus } from "../pools/pool_status.ts";
import { DEFAULT_OVERCOMMIT, isPoolUsedByDriver, poolsOf } from "../pools/pool.ts";

/**
 * The programs that LVM starts for thin pools (lvm.conf(5), global/thin_check_executable and so on). The driver starts
 * none of them.
 */
export const THIN_TOOLS = ["thin_check", "thin_dump", "thin_repair"] as const;

/** One of {@linkcode THIN_TOOLS}. */
export type ThinTool = typeof THIN_TOOLS[number];

/** The consequences when a program is missing (lvmthin(7), "Metadata check and repair"). */
const USES: Readonly<Record<ThinTool, string>> = {
  thin_check: "LVM activates thin pools without a check of their metadata",
  thin_dump: "damaged metadata of a thin pool cannot be repaired",
  thin_repair: "damaged metadata of a thin pool cannot be repaired",
};

/**
 * Checks whether thin volumes can be created and thin pools repaired on this host, and whether pools have free space.
 * Problems are less severe on a host without thin pools.
 */
export function checkPools(facts: HostFacts): CheckResult {
  const { survey, groups, driver } = facts;
  if ("error" in survey) return skippedCheck(NO_REPORT);
  // the available virtual size is not checked here
  const pools = groups.flatMap((group) =>
    poolsOf(group).filter((pool) => isPoolUsedByDriver(driver, group, pool))
      .map((pool) => poolStatus(driver, group, pool, DEFAULT_OVERCOMMIT))
  );
  const used = pools.length > 0;
  const described = pools.map(({ group, name, state }) => `${group}/${name} (${state.toLowerCase()})`);
  return {
    summary: described.join(", ") || "none",
    findings: [...missingModule(facts, used), ...missingTools(facts, used), ...pools.flatMap(poolFindings)],
  };
}

function missingModule({ targets, modules }: HostFacts, used: boolean): Found[] {
  // the check `kernel` reports that the targets cannot be listed
  if ("error" in targets || targets.value.has(THIN_TARGET)) return [];
  const loadable = "value" in modules ? modules.value : new Set<string>();
  if (loadable.has(THIN_MODULE)) return []; // LVM loads it with the first pool
  const load = `modprobe ${THIN_MODULE}`;
  if (!loadable.has(BASE_MODULE)) {
    const found = "not loaded, and the kernel's modules cannot be listed here";
    return [used ? warning(THIN_MODULE, found, load) : info(THIN_MODULE, found, load)];
  }
  const found = `the kernel has neither ${THIN_TARGET} nor this module: thin volumes are not available`;
  const install = `${load}; if there is no such module, install the kernel's package of additional modules`;
  return [used ? error(THIN_MODULE, found, install) : warning(THIN_MODULE, found, install)];
}

function missingTools({ programs, configuration }: HostFacts, used: boolean): Found[] {
  if ("error" in programs || "error" in configuration) return []; // reported by other checks
  const makeFinding = used ? warning : info;
  const settings = configuration.value;
  const unset = THIN_TOOLS.filter((tool) => executablePath(settings, tool) === "").map((tool) => {
    const fix = `remove it from /etc/lvm/lvm.conf   (its default is /usr/sbin/${tool})`;
    return makeFinding(`global/${tool}_executable`, `empty: ${USES[tool]}`, fix);
  });
  const missing = THIN_TOOLS.filter((tool) => {
    const [, directory, name] = /^(.*)\/([^/]+)$/.exec(executablePath(settings, tool)) ?? [];
    // the administrator is responsible for another program, or one at another path
    return name === tool && PROGRAM_DIRECTORIES.some((known) => known === directory) && !programs.value.has(tool);
  });
  if (missing.length === 0) return unset;
  const consequences = [...new Set(missing.map((tool) => USES[tool]))].join("; ");
  const remedy = installCommand("thin-provisioning-tools", "device-mapper-persistent-data");
  return [...unset, makeFinding(missing.join(", "), `not installed: ${consequences}`, remedy)];
}

/** Returns the path of a program as LVM starts it; empty for none. */
function executablePath(settings: Configuration, tool: ThinTool): string {
  const setting: Setting = `global/${tool}_executable`;
  return settings.list(setting) === undefined ? `/usr/sbin/${tool}` : settings.value(setting) ?? "";
}

function poolFindings({ group, name, state, problem }: PoolStatus): Found[] {
  const path = `${group}/${name}`;
  switch (state) {
    case "Ready":
      return [];
    case "Erasing":
      return [info(path, problem!)];
    case "NearFull":
    case "CannotExtend":
      return [warning(path, problem!)];
    case "Full":
    case "Damaged":
      return [error(path, problem!)];
  }
}
