/**
 * The doctor's check of cgroups: whether IO limits can be applied.
 *
 * kubelet enables the io controller for pods. The driver checks that when a pod uses a volume, and reports it then.
 *
 * @module
 */

import { dd, type Exec } from "../exec.ts";
import {
  type CgroupHierarchy,
  type CheckResult,
  failureSummary,
  type Found,
  type HostFacts,
  info,
  warning,
} from "./finding.ts";
import type { Mount } from "../host/mounts.ts";

/**
 * Reads the hierarchy of cgroup v2. If several are mounted, the one that was mounted for the driver is preferred to the
 * container's own view of its part in /sys.
 *
 * @returns the hierarchy, or `undefined` when none is mounted
 * @throws {StorageError} `CommandFailed` when it cannot be read
 */
export async function readCgroupHierarchy(exec: Exec, mounts: readonly Mount[]): Promise<CgroupHierarchy | undefined> {
  const roots = mounts.filter(({ fsType }) => fsType === "cgroup2").map(({ target }) => target);
  const root = roots.find((target) => !target.startsWith("/sys/")) ?? roots[0];
  if (root === undefined) return undefined;
  // with a program, since Deno refuses /sys under scoped permissions (docs/adr/0001)
  const answer = await dd(exec, { if: `${root}/cgroup.controllers` });
  return { root, controllers: answer.split(/\s+/).filter((name) => name !== "") };
}

/**
 * Checks whether IO limits can be applied. In a cluster the limits are in LVMVolumes, so without limits in tags a
 * problem is only a note.
 */
export function checkLimits({ mounts, hierarchy, inventory }: HostFacts): CheckResult {
  if ("error" in mounts) return { summary: "not checked", findings: [] }; // reported by the check `leftovers`
  const recorded = inventory.volumes.filter(({ tags }) => tags.limits !== undefined).length;
  const makeFinding = recorded > 0 ? warning : info;
  const consequence = recorded > 0
    ? `the IO limits of ${recorded === 1 ? "1 volume" : `${recorded} volumes`} do not apply`
    : "IO limits would be recorded, but would not apply";
  const finding = (on: string, found: string, remedy?: string): CheckResult => {
    const findings: Found[] = [makeFinding(on, `${found}: ${consequence}`, remedy)];
    return { summary: "IO limits cannot be applied", findings };
  };
  if ("error" in hierarchy) return finding("cgroup v2", failureSummary(hierarchy.error));
  const unified = "add systemd.unified_cgroup_hierarchy=1 to the kernel's command line, and reboot";
  if (hierarchy.value === undefined) {
    return finding("cgroup v2", "it is not mounted, as on a host with cgroup v1", unified);
  }
  const { root, controllers } = hierarchy.value;
  if (controllers.includes("io")) return { summary: `cgroup v2 in ${root}, with the io controller`, findings: [] };
  const has = controllers.join(", ") || "none";
  return finding(
    root,
    `it has no io controller (it has ${has}); cgroup v1 has the controller, or the kernel was built without it`,
    unified,
  );
}
