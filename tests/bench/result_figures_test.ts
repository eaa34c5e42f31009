import { assertEquals } from "@std/assert";
import type { ClusterBenchResult } from "./cluster_result.ts";
import { type Figure, FIGURE_FILE } from "./figures.ts";
import { type BenchResult, mapOperations } from "./result.ts";
import { benchFigures, clusterFigures, LARGE_CLUSTER, nodeFigures, scaleFigures } from "./result_figures.ts";
import type { ScaleReport, ScaleResult } from "./scale/result.ts";

const START = { socketMs: 900, readyMs: 1_200, firstCallMs: 48 };

const BENCH: BenchResult = {
  version: "0.1.0",
  machine: { cpus: 2, kernel: "6.1.0", kind: "uml" },
  start: { first: { ...START, readyMs: 4_000 }, later: { ...START, runs: 5 }, emptyFileMs: 400 },
  memory: {
    idle: { rssMiB: 72, anonymousMiB: 27 },
    afterCalls: { rssMiB: 110, anonymousMiB: 70 },
    afterOperations: { rssMiB: 120, anonymousMiB: 80 },
  },
  calls: { count: 4000, atATime: 8, perSecond: 66 },
  operations: mapOperations((name) => ({
    ...{ driverMs: 300, plainMs: 200, ratio: name.length, plain: [], runs: 20 },
    ...{ commands: name === "removeUsedVolume" ? 5 : 2 },
  })),
};

const CLUSTER: ClusterBenchResult = {
  claims: 30,
  plain: { boundMs: 10_000, deletedMs: 4_000 },
  pod: { boundMs: 8_000, deletedMs: 20_000, controllerRequests: 78, agentRequests: 63 },
  pods: {
    runs: 10,
    plain: { runningMs: 2_000, goneMs: 1_500 },
    runningMs: 3_500,
    goneMs: 7_000,
    maximum: { runningMs: 8_000, goneMs: 9_000 },
    agentCpuMs: { own: 300, commands: 400 },
  },
  idleCpuMs: { controller: { own: 500, commands: 0 }, node: { own: 200, commands: 170 } },
  memoryMiB: { controller: { rss: 105, anonymous: 60 }, agent: { rss: 86, anonymous: 40 } },
};

function scaleReport(...sizes: { nodes: number; volumes: number }[]): ScaleReport {
  const results = sizes.map((size) => ({
    ...size,
    start: { cpuMs: size.nodes, stall: { longestMs: 120, p99Ms: 5 }, requests: 30, bytes: 1 },
    memory: { heapMiB: size.volumes / 400, rssMiB: 440, anonymousMiB: 400 },
    burst: { count: 1_000, p50Ms: 4_700, p99Ms: 8_000, requests: 3_500 },
  } as unknown as ScaleResult));
  return { version: "0.1.0", cpus: 2, load: [0, 0], results };
}

const COSTS = [10, 1_000].map((volumes) => ({
  operation: "ListVolumes",
  volumes,
  commands: 1,
  kib: volumes + 5,
  cpuMs: 1,
}));

Deno.test("benchFigures() has starts beside an empty file, memory, commands of the life of a volume, and ratios", () => {
  assertEquals(benchFigures(BENCH), {
    ...{ start: 3, firstStart: 10, standaloneRss: 72, standaloneAnonymous: 27, lifecycleCommands: 15 },
    ...{ createVolume: 12, stageFirst: 10, publish: 7, createSnapshot: 14, clone: 5 },
  });
});

Deno.test("clusterFigures() has ratios, requests for each claim, and memory", () => {
  assertEquals(clusterFigures(CLUSTER, 1), {
    ...{ agentRss: 86, agentAnonymous: 40, controllerRss: 105, controllerAnonymous: 60 },
    ...{ claimsBound: 0.8, podRunning: 1.75, claimRequests: 4.7, claimAgentRequests: 2.1 },
  });
});

Deno.test("clusterFigures() of three volume groups has the figure of these alone, and other numbers have none", () => {
  assertEquals(clusterFigures(CLUSTER, 3), { claimsBoundThreeGroups: 0.8 });
  assertEquals(clusterFigures(CLUSTER, 2), {});
});

Deno.test("scaleFigures() has those of the large cluster, whatever else was measured", () => {
  const figures = scaleFigures(scaleReport({ nodes: 10, volumes: 200 }, { nodes: 5_000, volumes: 10 }, LARGE_CLUSTER));
  assertEquals(figures, {
    ...{ scaleHeap: 250, scaleRss: 440, scaleStartCpu: 5, scaleStall: 0.12 },
    ...{ scaleHalfBound: 4.7, scaleBound: 8, scaleRequests: 3.5 },
  });
  assertEquals(scaleFigures(scaleReport({ nodes: 10, volumes: 200 })), {});
});

Deno.test("nodeFigures() has the output of a report for each volume of the node with most", () => {
  assertEquals(nodeFigures(COSTS), { reportSize: 1.005 });
});

Deno.test("each figure is measured by its task", () => {
  const measured = {
    bench: benchFigures(BENCH),
    "bench:cluster": { ...clusterFigures(CLUSTER, 1), ...clusterFigures(CLUSTER, 3) },
    "bench:scale": { ...scaleFigures(scaleReport(LARGE_CLUSTER)), ...nodeFigures(COSTS) },
  };
  const figures: [string, Figure][] = Object.entries(FIGURE_FILE.read());
  for (const [task, names] of Object.entries(measured)) {
    const ofTask = figures.filter(([, figure]) => figure.task === task).map(([name]) => name);
    assertEquals(Object.keys(names).sort(), ofTask.sort());
  }
});
