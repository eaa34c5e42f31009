/**
 * The figures in the results of the tasks that measure.
 *
 * @module
 */

import type { ClusterBenchResult } from "./cluster_result.ts";
import type { Measured } from "./figures.ts";
import type { BenchResult, Operation } from "./result.ts";
import type { OperationCost } from "./scale/node_cost.ts";
import type { ScaleReport } from "./scale/result.ts";

/** The operations in the life of a volume that is used. */
const LIFE = [
  "createVolume",
  "stageFirst",
  "publish",
  "unpublish",
  "unstage",
  "removeUsedVolume",
] as const satisfies readonly Operation[];

/** The cluster that the figures of `bench:scale` are of. */
export const LARGE_CLUSTER = { nodes: 5_000, volumes: 100_000 } as const;

/** Returns the figures of `bench`. */
export function benchFigures({ start, memory, operations }: BenchResult): Measured {
  const { createVolume, stageFirst, publish, createSnapshot, clone } = operations;
  return {
    start: start.later.readyMs / start.emptyFileMs,
    firstStart: start.first.readyMs / start.emptyFileMs,
    standaloneRss: memory.idle.rssMiB,
    standaloneAnonymous: memory.idle.anonymousMiB,
    lifecycleCommands: LIFE.reduce((sum, name) => sum + (operations[name].commands ?? NaN), 0),
    createVolume: createVolume.ratio,
    stageFirst: stageFirst.ratio,
    publish: publish.ratio,
    createSnapshot: createSnapshot.ratio,
    clone: clone.ratio,
  };
}

/**
 * Returns the figures of `bench:cluster` on a node with so many volume groups: with one, all but that with three, and with three
 * only this one.
 */
export function clusterFigures(result: ClusterBenchResult, groups: number): Measured {
  const { claims, plain, pod, pods, memoryMiB: { agent, controller } } = result;
  const claimsBound = pod.boundMs / plain.boundMs;
  if (groups === 3) return { claimsBoundThreeGroups: claimsBound };
  if (groups !== 1) return {};
  return {
    agentRss: agent.rss,
    agentAnonymous: agent.anonymous,
    controllerRss: controller.rss,
    controllerAnonymous: controller.anonymous,
    claimsBound,
    podRunning: pods.runningMs / pods.plain.runningMs,
    claimRequests: (pod.controllerRequests + pod.agentRequests) / claims,
    claimAgentRequests: pod.agentRequests / claims,
  };
}

/** Returns the figures of `bench:scale`; none if it did not measure {@linkcode LARGE_CLUSTER}. */
export function scaleFigures({ results }: ScaleReport): Measured {
  const result = results.find(({ nodes, volumes }) =>
    nodes === LARGE_CLUSTER.nodes && volumes === LARGE_CLUSTER.volumes
  );
  if (result === undefined) return {};
  const { start, memory, burst } = result;
  return {
    scaleHeap: memory.heapMiB,
    scaleRss: memory.rssMiB,
    scaleStartCpu: start.cpuMs / 1_000,
    scaleStall: start.stall.longestMs / 1_000,
    scaleHalfBound: burst.p50Ms / 1_000,
    scaleBound: burst.p99Ms / 1_000,
    scaleRequests: burst.requests / burst.count,
  };
}

/** Returns the figures of `bench:scale --node`. */
export function nodeFigures(costs: readonly OperationCost[]): Measured {
  const listings = costs.filter(({ operation }) => operation === "ListVolumes");
  const { kib, volumes } = listings.reduce((most, next) => next.volumes > most.volumes ? next : most);
  return { reportSize: kib / volumes };
}
