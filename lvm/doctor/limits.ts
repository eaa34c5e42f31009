/**
 * The doctor's look at cgroups: whether limits of IO can be applied.
 *
 * Whether the io controller is enabled for pods is kubelet's part: the driver looks when a pod comes, and says so then.
 *
 * @module
 */

import { type Exec, runOk } from "../exec.ts";
import { type CheckResult, failureSummary, type Finding, findingsOf, type Reading } from "./finding.ts";
import type { Inventory } from "../inventory/inventory.ts";
import type { Mount } from "../host/mounts.ts";

/** A hierarchy of cgroup v2. */
export interface CgroupHierarchy {
  /** Where it is mounted. */
  readonly root: string;
  /** The controllers that it has. */
  readonly controllers: readonly string[];
}

/**
 * The hierarchy of cgroup v2 that is mounted here; `undefined` when there is none. Of several it is one that was mounted for the
 * driver, and not the container's own view of its part in /sys.
 *
 * @throws {StorageError} `CommandFailed` when it cannot be read.
 */
export async function readCgroupHierarchy(exec: Exec, mounts: readonly Mount[]): Promise<CgroupHierarchy | undefined> {
  const roots = mounts.filter(({ fsType }) => fsType === "cgroup2").map(({ target }) => target);
  const root = roots.find((target) => !target.startsWith("/sys/")) ?? roots[0];
  if (root === undefined) return undefined;
  // by a program, since Deno refuses /sys under scoped permissions (docs/adr/0001)
  const args = [`if=${root}/cgroup.controllers`, "status=none"];
  const answer = await runOk(exec, { program: "dd", args, mutates: false });
  return { root, controllers: answer.split(/\s+/).filter((name) => name !== "") };
}

/** What {@linkcode checkLimits} looks at. */
export interface LimitReadings {
  /** The mount table. */
  readonly mounts: Reading<readonly Mount[]>;
  /** The hierarchy of cgroup v2, if there is one. */
  readonly hierarchy: Reading<CgroupHierarchy | undefined>;
  /** What there is of the driver. */
  readonly inventory: Pick<Inventory, "volumes">;
}

/** Whether limits can be applied. In a cluster they stand in objects: who has none in tags is only told. */
export function checkLimits({ mounts, hierarchy, inventory }: LimitReadings): CheckResult {
  if ("error" in mounts) return { summary: "not checked", findings: [] }; // told by the check of what is left over
  const { info, warning } = findingsOf("limits");
  const recorded = inventory.volumes.filter(({ tags }) => tags.limits !== undefined).length;
  const makeFinding = recorded > 0 ? warning : info;
  const consequence = recorded > 0
    ? `the limits of ${recorded === 1 ? "1 volume" : `${recorded} volumes`} do not hold`
    : "limits of IO would only be recorded";
  const finding = (on: string, found: string, remedy?: string): CheckResult => {
    const findings: Finding[] = [makeFinding(on, `${found}: ${consequence}`, remedy)];
    return { summary: "limits of IO cannot be applied", findings };
  };
  if ("error" in hierarchy) return finding("cgroup v2", failureSummary(hierarchy.error));
  const unified = "systemd.unified_cgroup_hierarchy=1 on the kernel's command line, and a restart";
  if (hierarchy.value === undefined) return finding("cgroup v2", "it is not mounted", unified);
  const { root, controllers } = hierarchy.value;
  if (controllers.includes("io")) return { summary: `cgroup v2 in ${root}, with the io controller`, findings: [] };
  const has = controllers.join(", ") || "none";
  return finding(
    root,
    `it has no io controller (it has ${has}); cgroup v1 has it, or the kernel does without`,
    unified,
  );
}
