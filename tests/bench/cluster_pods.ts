/**
 * What pods wait for in a cluster: a claim and its pod until it runs, and until nothing is left; beside a pod without a
 * volume. And the processor time of the driver, for that and at rest.
 *
 * @module
 */

import { claimObject, isRunning, podObject, QUICK } from "../cluster/suite/helpers/objects.ts";
import type { TestNamespace } from "../cluster/suite/helpers/test_namespace.ts";
import { pidCommand } from "../rig/driver_process.ts";
import type { CpuResult, PodResult } from "./cluster_result.ts";
import { cpuOf } from "./proc.ts";
import { measureMs, median, round } from "./statistics.ts";

/** The roles of the driver's processes. */
type Role = "controller" | "node";

/** The time for which idle processes are observed, in milliseconds. */
const IDLE_MS = 120_000;

/** Times of one pod, in milliseconds. */
interface PodTimes {
  readonly runningMs: number;
  readonly goneMs: number;
}

/** Measures pods with a volume and without, by turns. */
export async function measurePods(ns: TestNamespace, runs: number): Promise<PodResult> {
  const className = await ns.createStorageClass("pods", { parameters: { volumeGroup: QUICK.volumeGroup } });
  await runPod(ns, "first-plain");
  await runPod(ns, "first", className); // who comes fresh learns its first things with this one
  const before = await cpu(ns, "node");
  const plain: PodTimes[] = [];
  const withVolume: PodTimes[] = [];
  for (let run = 0; run < runs; run++) {
    plain.push(await runPod(ns, `plain-${run}`));
    withVolume.push(await runPod(ns, `volume-${run}`, className));
  }
  const after = await cpu(ns, "node");
  const medianOf = (times: readonly PodTimes[], name: keyof PodTimes) => round(median(times.map((each) => each[name])));
  const maximumOf = (name: keyof PodTimes) => round(Math.max(...withVolume.map((each) => each[name])));
  return {
    runs,
    plain: { runningMs: medianOf(plain, "runningMs"), goneMs: medianOf(plain, "goneMs") },
    runningMs: medianOf(withVolume, "runningMs"),
    goneMs: medianOf(withVolume, "goneMs"),
    maximum: { runningMs: maximumOf("runningMs"), goneMs: maximumOf("goneMs") },
    agentCpuMs: {
      own: round((after.own - before.own) / runs),
      commands: round((after.commands - before.commands) / runs),
    },
  };
}

/** Measures the processor time of both processes while nothing happens, for each minute. */
export async function measureIdleCpu(ns: TestNamespace): Promise<Record<Role, CpuResult>> {
  const roles = ["controller", "node"] as const;
  const before = await Promise.all(roles.map((role) => cpu(ns, role)));
  const elapsedMs = await measureMs(() => new Promise((resolve) => setTimeout(resolve, IDLE_MS)));
  const after = await Promise.all(roles.map((role) => cpu(ns, role)));
  const perMinute = (n: number, kind: keyof CpuResult) =>
    round((after[n]![kind] - before[n]![kind]) * 60_000 / elapsedMs);
  const result = (n: number) => ({ own: perMinute(n, "own"), commands: perMinute(n, "commands") });
  return { controller: result(0), node: result(1) };
}

/** Creates a pod, with a claim of a class or without, waits until it runs, and deletes both. */
async function runPod(ns: TestNamespace, name: string, className?: string): Promise<PodTimes> {
  const claims = className === undefined ? [] : [{ name, path: "/data" }];
  const objects = [
    ...className === undefined ? [] : [claimObject({ name, class: className, size: "64Mi" })],
    podObject({ name, claims }),
  ];
  const runningMs = await measureMs(async () => {
    await ns.apply(objects.map((object) => JSON.stringify(object)).join("\n---\n"));
    await ns.waitFor("Pod", name, isRunning, "runs");
  });
  const volume = className === undefined ? undefined : (await ns.volumeOf(name)).metadata.name;
  const goneMs = await measureMs(async () => {
    const claim = volume === undefined ? [] : [`persistentvolumeclaim/${name}`];
    await ns.kubectl("delete", `pod/${name}`, ...claim, "--wait=false");
    await ns.waitForDeletion("Pod", name);
    if (volume === undefined) return;
    await ns.waitForDeletion("PersistentVolumeClaim", name);
    await ns.waitForDeletion("PersistentVolume", volume);
  });
  await ns.waitForCleanup();
  return { runningMs, goneMs };
}

/** Returns the processor time of a process of the driver in the guest until now. */
async function cpu(ns: TestNamespace, role: Role): Promise<CpuResult> {
  return cpuOf(await ns.runOnNode(`cat /proc/$(${pidCommand(role)})/stat`));
}
