/**
 * The measurement of one cluster size: the cluster in one process, the controller in another.
 *
 * @module
 */

import { join } from "@std/path";
import { bundle } from "../../../deploy/bundle.ts";
import { LAUNCH_ENV } from "../../../deploy/launch.ts";
import { controllerV8Flags } from "./v8_flags.ts";
import { memoryOf } from "../proc.ts";
import { round } from "../statistics.ts";
import { Child } from "./child.ts";
import type { ClusterCommands } from "./cluster_commands.ts";
import type { ControllerCommands } from "./controller_process.ts";
import type { ClusterSize } from "./objects.ts";
import type { BoundTimes, ControllerMemory, Cost, ScaleResult } from "./result.ts";

/** How much is asked of a cluster. */
export interface Workload {
  /** Claims at once, for chosen nodes. */
  readonly burst: number;
  /** Claims of the steady rate, and how many in a second. */
  readonly steady: number;
  readonly perSecond: number;
  /** Claims at once, whose nodes the driver chooses. */
  readonly immediate: number;
  /** Nodes that reboot at once, and for how long, in milliseconds. */
  readonly reboot: number;
  readonly rebootMs: number;
}

/** Options of {@linkcode measureScale}. */
export interface MeasureOptions {
  /** A folder for files. */
  readonly folder: string;
  /** Whether the API server, its etcd and the binder are real ones. */
  readonly isReal: boolean;
  /** Flags of V8, in place of those of the deployment. */
  readonly v8Flags?: string | undefined;
  /** Called with what is done next. */
  readonly log: (line: string) => void;
}

type Cluster = Child<ClusterCommands>;
type Controller = Child<ControllerCommands>;

/** The Leases of a leader. */
const LEASES = 4;
const MIB = 1 << 20;

const pause = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));

/** Measures a cluster of a size. */
export async function measureScale(size: ClusterSize, work: Workload, options: MeasureOptions): Promise<ScaleResult> {
  const { folder, log, isReal, v8Flags = await controllerV8Flags() } = options;
  const script = await bundle("tests/bench/scale/controller_process.ts", folder);
  await using cluster: Cluster = Child.start({
    script: new URL(isReal ? "real_cluster_process.ts" : "cluster_process.ts", import.meta.url).pathname,
    args: [JSON.stringify(size)],
    v8Flags: "--max-old-space-size=12000",
  });
  log(`${size.nodes} nodes, ${size.volumes} volumes: filling the server`);
  const kubeconfig = join(folder, "kubeconfig");
  await Deno.writeTextFile(kubeconfig, await cluster.call("start"));
  const startController = (identity: string): Controller =>
    Child.start({
      script,
      args: [kubeconfig, join(folder, `${identity}.sock`), identity],
      v8Flags: `${v8Flags},--expose-gc`,
      env: LAUNCH_ENV.filter((entry) => !entry.startsWith("DENO_V8_FLAGS=")),
    });

  log("starting the controller");
  await using first = startController("first");
  const meter = new Meter(cluster, first);
  await waitForLeader(cluster, first, "first");
  const start = await meter.take();
  const memory = await memoryOfController(first);

  const claims: string[] = [];
  const bind = async (request: { count: number; perSecond?: number; isImmediate?: boolean }) => {
    await meter.take();
    const names = await cluster.call("createClaims", request);
    claims.push(...names);
    const times = await boundTimes(cluster, names);
    return { ...await meter.take(), ...times };
  };
  log("creating claims");
  const burst = await bind({ count: work.burst });
  const steady = { ...await bind({ count: work.steady, perSecond: work.perSecond }), perSecond: work.perSecond };
  log("creating claims whose nodes the driver chooses");
  const immediate = await bind({ count: work.immediate, isImmediate: true });
  log("deleting claims");
  const deletion = await deleteClaims(cluster, meter, claims);
  log("nodes reboot");
  const reboot = await rebootNodes(cluster, meter, size, work);

  log("another process takes over");
  await using second = startController("second");
  await waitForIdle(second);
  const before = performance.now();
  const takeoverMeter = new Meter(cluster, second);
  await takeoverMeter.take();
  await first.call("stop");
  await waitForLeader(cluster, second, "second");
  const takeover = { ...await takeoverMeter.take(), ms: round(performance.now() - before) };
  const memoryAfter = await memoryOfController(second);
  return { ...size, start, memory, burst, steady, immediate, deletion, reboot, takeover, memoryAfter };
}

/** Measures what a controller uses between two calls. */
class Meter {
  readonly #cluster: Cluster;
  readonly #controller: Controller;
  #last = { cpuMs: 0, requests: 0, bytes: 0 };

  constructor(cluster: Cluster, controller: Controller) {
    [this.#cluster, this.#controller] = [cluster, controller];
  }

  /** Returns what it used since the last call. */
  async take(): Promise<Cost> {
    const stall = await this.#controller.call("stalls");
    const now = {
      cpuMs: await this.#controller.call("cpuMs"),
      requests: (await this.#controller.call("requests")).count,
      bytes: await this.#cluster.call("sentBytes"),
    };
    const { cpuMs, requests, bytes } = this.#last;
    this.#last = now;
    return { cpuMs: now.cpuMs - cpuMs, stall, requests: now.requests - requests, bytes: now.bytes - bytes };
  }
}

/** Waits until a controller leads, and has nothing left to do. */
async function waitForLeader(cluster: Cluster, controller: Controller, identity: string): Promise<void> {
  while (await cluster.call("leasesOf", identity) < LEASES) await pause(100);
  await waitForIdle(controller);
}

/** Waits until a controller has sent no request and used little CPU time for a second. */
async function waitForIdle(controller: Controller): Promise<void> {
  for (let last = -Infinity;;) {
    await pause(1_000);
    const cpuMs = await controller.call("cpuMs");
    const { idleMs, count } = await controller.call("requests");
    if (cpuMs - last < 150 && idleMs > 1_000 && count > 0) return;
    last = cpuMs;
  }
}

/** Waits until claims are Bound, and returns how long that took. */
async function boundTimes(cluster: Cluster, names: string[]): Promise<BoundTimes> {
  for (const end = performance.now() + 600_000;;) {
    const times = await cluster.call("boundMs", names);
    if (times.length === names.length) {
      times.sort((a, b) => a - b);
      const at = (part: number) => round(times[Math.min(times.length - 1, Math.floor(times.length * part))] ?? 0);
      return { count: names.length, p50Ms: at(0.5), p99Ms: at(0.99) };
    }
    if (performance.now() > end) {
      throw new Error(`${times.length} of ${names.length} claims are Bound after 10 minutes`);
    }
    await pause(100);
  }
}

async function deleteClaims(cluster: Cluster, meter: Meter, claims: string[]): Promise<ScaleResult["deletion"]> {
  await meter.take();
  const before = performance.now();
  const left = await cluster.call("persistentVolumeCount") - claims.length;
  await cluster.call("deleteClaims", claims);
  while (await cluster.call("persistentVolumeCount") > left) await pause(100);
  return { ...await meter.take(), count: claims.length, ms: round(performance.now() - before) };
}

async function rebootNodes(
  cluster: Cluster,
  meter: Meter,
  size: ClusterSize,
  { reboot, rebootMs }: Workload,
): Promise<ScaleResult["reboot"]> {
  const pool = { first: 0, count: reboot };
  await meter.take();
  await cluster.call("silence", pool);
  const waiting = await cluster.call("createClaims", { count: reboot, on: pool });
  const on = { first: reboot, count: size.nodes - reboot };
  const others = await boundTimes(cluster, await cluster.call("createClaims", { count: reboot, on }));
  await pause(rebootMs);
  const silent = await meter.take();
  const before = performance.now();
  await cluster.call("wake");
  await boundTimes(cluster, waiting);
  return { nodes: reboot, others, silent, back: { ...await meter.take(), ms: round(performance.now() - before) } };
}

async function memoryOfController(controller: Controller): Promise<ControllerMemory> {
  const { rssMiB, anonymousMiB } = await memoryOf(controller.pid);
  return { heapMiB: round(await controller.call("heapBytes") / MIB, 1), rssMiB, anonymousMiB };
}
