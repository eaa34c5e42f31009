/**
 * `deno task test:cluster`: tests volumes in a cluster of real components, with the driver deployed as a user does.
 *
 * @module
 */

import { parseArgs } from "@std/cli/parse-args";
import { basename, join } from "@std/path";
import { RecordedRun } from "../record/record.ts";
import { ensureChromium } from "../browser/install.ts";
import { Cluster } from "../rig/cluster.ts";
import {
  ensureHelm,
  ensureKubernetesTests,
  ensureSnapshotController,
  type KubernetesRelease,
  kubernetesReleases,
} from "../rig/kubernetes.ts";
import { ensurePrometheus } from "../rig/prometheus.ts";
import { ensureSnapshotMetadata } from "../rig/snapshot_metadata.ts";
import { SuiteLines } from "../rig/test_output.ts";
import { runTestProcess } from "../rig/test_process.ts";
import { RunFolder } from "../rig/run_folder.ts";
import { type DeployOptions, startWithDriver } from "./deploy.ts";
import { terminationSignals } from "./signals.ts";
import { clusterPath, isThere, lock } from "./cluster_status.ts";
import { CLUSTER_VARIABLE } from "./suite/helpers/test_namespace.ts";

/** The suites that always run without names and without --full: the common lifecycles, isolation and a power loss. */
const DEFAULT_SUITES = [
  "chaos_node",
  "examples",
  "expansion",
  "group_snapshots",
  "lifecycle",
  "node_isolation",
  "pods",
  "snapshots",
  "thin",
];

const HELP = `Usage: deno task test:cluster [--full] [--keep | --use] [--kubernetes RELEASE]
                                [--kubelet-dir DIR] [--filter TEXT] [SUITE...]

  SUITE   the names of files in tests/cluster/suite without "_suite.ts"; by default ${DEFAULT_SUITES.join(", ")}
  --full  all suites, and in larger numbers; the lifecycle suite again where kubelet has another folder
  --keep  leave the cluster, as "deno task cluster up" does; it is not there yet
  --use   test in the cluster that "deno task cluster up" started
  --kubernetes RELEASE  the release of Kubernetes: ${kubernetesReleases().join(", ")}; the last by default
  --kubelet-dir DIR  kubelet's folder on the nodes; /var/lib/kubelet by default
  --filter TEXT  only the tests with this in their names
`;

const SUITE = new URL("suite/", import.meta.url);

/** Where the logs of a failed run are kept. */
const LOGS = new URL("../../dist/logs/", import.meta.url).pathname;

/**
 * Reports whether a suite needs the cluster for itself: it kills and disconnects processes, or checks what other suites
 * did.
 */
const isChaos = (name: string) => name.startsWith("chaos");

/** The suites that need a cluster of their own, and what it has. */
const OWN_CLUSTERS: Readonly<Record<string, DeployOptions>> = {
  adopt: { carriedGroup: true },
  bare_host: { bareHost: true },
  changed_blocks: { snapshotMetadata: true },
  chaos_unused_rbac: {}, // others restart the API server, which refuses everything until it knows the roles
  chaos_moves: { transfers: { bandwidth: "12Mi" } }, // slow, so that each step takes some time
  chaos_moves_power: { transfers: { bandwidth: "12Mi" } },
  chaos_transfers: { transfers: { bandwidth: "6Mi" } },
  disks: { diskRules: ["spare=/test-.*/"] },
  encryption: { transfers: {}, republish: true },
  kubernetes_storage: { kubernetesTests: true },
  import: {}, // kinds of OpenEBS have the names of the driver's
  move: { transfers: {} },
  move_postgresql: { transfers: {}, postgresql: true },
  stacked_devices: {}, // the node's own LVM sees the groups of pods, too
  transfers: { transfers: {} },
  two_nodes: { twoNodes: true },
};

/** The suites without which another one says nothing: chaos_unused_rbac looks at what they did. */
const COMPANIONS: Readonly<Record<string, readonly string[]>> = {
  chaos_unused_rbac: ["expansion", "group_snapshots", "snapshots"],
};

/** The number of files that run at a time: they mostly wait for one guest. */
const JOBS = 3;

/** The time for which a suite may print nothing, in milliseconds: the limit of a test. A node alone may take ten minutes. */
const SILENCE_MS = 30 * 60_000;

/** Programs that suites need beside the cluster. They are built before the cluster starts and takes the processors. */
const PREREQUISITES: Readonly<Record<string, (log: (line: string) => void) => Promise<unknown>>> = {
  changed_blocks: async (log) => {
    await ensureSnapshotController(log);
    await ensureSnapshotMetadata(log);
  },
  chart: ensureHelm,
  encryption: ensureSnapshotController,
  group_snapshots: ensureSnapshotController,
  kubernetes_storage: async (log) => {
    await ensureSnapshotController(log);
    await ensureKubernetesTests(log);
  },
  monitoring: ensurePrometheus,
  snapshots: ensureSnapshotController,
  transfers: ensureSnapshotController,
  ui: () => ensureChromium(),
  chaos_snapshots: ensureSnapshotController,
};

/** The options of the command line, and what the cluster of a run has. */
interface RunOptions extends DeployOptions {
  readonly full: boolean;
  readonly keep: boolean;
  readonly use: boolean;
  readonly suites: readonly string[];
  /** A part of the names of the tests that run; all by default. */
  readonly filter?: string;
  /** Records the suites that pass. */
  readonly recordedRun: RecordedRun;
}

/** The kubelet's root directory of another distribution (k0s). */
const OTHER_KUBELET_ROOT = "/var/lib/k0s/kubelet";

const log = (line: string) => console.error(line);

/** Returns the names of the suites. */
function suiteNames(): string[] {
  return [...Deno.readDirSync(SUITE)].flatMap(({ name }) => /^(.*)_suite\.ts$/.exec(name)?.slice(1) ?? []).sort();
}

/** Runs suites in the cluster of a folder, each in a process of its own. @returns whether all passed */
async function runFiles(
  folder: string,
  names: readonly string[],
  { full, jobs, filter, run }: {
    full: boolean;
    jobs: number;
    filter: string | undefined;
    run: RecordedRun | undefined;
  },
): Promise<boolean> {
  const waiting = [...names];
  let passed = true;
  const work = async () => {
    for (let name = waiting.shift(); name !== undefined; name = waiting.shift()) {
      const lines = new SuiteLines(name);
      const start = performance.now();
      const hasPassed = await runTestProcess({
        args: [
          "-A",
          "--no-check",
          ...filter === undefined ? [] : ["--filter", filter],
          new URL(`${name}_suite.ts`, SUITE).pathname,
        ],
        env: { [CLUSTER_VARIABLE]: folder, FULL: full ? "1" : "" },
        silenceMs: SILENCE_MS,
        onOutput: (chunk) => lines.add(chunk),
      });
      lines.end();
      if (hasPassed && lines.passed === 0) log(`suite ${name}: FAILED: it passed no test at all`);
      if (!hasPassed || lines.passed === 0) passed = false;
      else {
        const ownStart = COMPANIONS[name] === undefined ? { start } : {};
        await run?.pass(`test:cluster ${name}`, { ...ownStart, passed: lines.passed, full });
      }
    }
  };
  await Promise.all(Array.from({ length: jobs }, work));
  return passed;
}

/** Runs the requested suites in a cluster that is up. @returns whether all passed */
async function runSuites(
  cluster: Cluster,
  { full, filter, suites: names, kubernetes, kubeletRoot, recordedRun }: RunOptions,
): Promise<boolean> {
  const path = cluster.folder.path;
  const isUsual = [kubernetes, kubeletRoot, filter].every((option) => option === undefined);
  const run = isUsual ? recordedRun : undefined;
  let passed = await runFiles(path, names.filter((name) => !isChaos(name)), { full, filter, run, jobs: JOBS });
  for (const name of names.filter(isChaos)) {
    passed = await runFiles(path, [name], { full, filter, run, jobs: 1 }) && passed;
  }
  if (!full) log("in small numbers, and without the suites that were not named; --full runs all of it");
  if (!passed) await printLogs(cluster);
  return passed;
}

/** Keeps the logs of the driver, and prints their ends, after a failure. */
async function printLogs({ controlPlane, nodes }: Cluster): Promise<void> {
  await Deno.mkdir(LOGS, { recursive: true });
  for (const workload of ["deployment/denolith-controller", "daemonset/denolith-node"]) {
    const args = ["--namespace", "denolith-system", "logs", workload, "--all-pods", "--prefix"];
    const text = await controlPlane.kubectl(args).catch((error) => String(error));
    const file = join(LOGS, `${basename(workload)}.log`);
    await Deno.writeTextFile(file, text);
    log(`== ${workload}; all of it is in ${file}\n${text.split("\n").slice(-40).join("\n")}`);
  }
  for (const node of nodes) log(await node.logs(40));
}

/** Tests in the cluster that is up, or in one of its own; answers the exit status. */
async function run(options: RunOptions): Promise<number> {
  if (options.use) return await runSuites(await Cluster.open(clusterPath()), options) ? 0 : 1;
  const path = options.keep ? clusterPath() : undefined;
  using _lock = path === undefined ? undefined : await lock(path, log);
  if (path !== undefined && await isThere(path)) {
    throw new Error(
      "keep the cluster of the tests: there is one already; use it by --use, or end it by: task cluster down",
    );
  }
  await using folder = path === undefined
    ? await RunFolder.createTemp("denolith-cluster-")
    : await RunFolder.create(path);
  const cluster = await startWithDriver(folder, log, options);
  if (options.keep) await folder.keep();
  return await runSuites(cluster, options) ? 0 : 1;
}

/**
 * Runs the requested suites, some in clusters of their own, and with --full the lifecycle suite again with another
 * kubelet folder.
 * @returns the exit status
 */
async function runAll({ suites: requested, ...others }: RunOptions): Promise<number> {
  const withCompanions = (names: readonly string[]) => names.flatMap((name) => [...COMPANIONS[name] ?? [], name]);
  const options = { ...others, suites: [...new Set(requested)].sort() };
  for (const name of withCompanions(options.suites)) await PREREQUISITES[name]?.(log);
  if (options.use) return await run(options);
  const shared = options.suites.filter((name) => OWN_CLUSTERS[name] === undefined);
  const runs = [{ ...options, suites: shared }];
  for (const name of options.suites) {
    if (OWN_CLUSTERS[name] !== undefined) {
      runs.push({ ...options, ...OWN_CLUSTERS[name], suites: withCompanions([name]) });
    }
  }
  if (shared.length === 0) runs.shift();
  if (options.keep) return await run(runs[0]!); // only one can be kept
  if (options.full && options.kubeletRoot === undefined) {
    runs.push({ ...options, full: false, suites: ["lifecycle"], kubeletRoot: OTHER_KUBELET_ROOT });
  }
  let status = 0;
  for (const next of runs) {
    log(`suites ${next.suites.join(", ")}: in a cluster of their own`);
    status = await run(next) || status;
  }
  return status;
}

/** Returns the release of Kubernetes with a name; undefined when there is none. */
function findRelease(name: unknown): KubernetesRelease | undefined {
  return kubernetesReleases().find((release) => release === name);
}

if (import.meta.main) {
  const args = parseArgs(Deno.args.filter((arg) => arg !== "--"), {
    boolean: ["full", "keep", "use", "help"],
    string: ["filter", "kubelet-dir", "kubernetes"],
    alias: { h: "help" },
  });
  const available = suiteNames();
  const requested = args._.map(String);
  const unknown = requested.filter((name) => !available.includes(name));
  const kubernetes = findRelease(args.kubernetes);
  const complaints = unknown.map((name) => `there is no suite ${name}; there are ${available.join(", ")}\n`);
  if (args.kubernetes !== undefined && kubernetes === undefined) {
    complaints.push(`there is no release ${args.kubernetes}; there are ${kubernetesReleases().join(", ")}\n`);
  }
  const isForNewCluster = args.keep || args["kubelet-dir"] || args.kubernetes;
  if (args.help || complaints.length > 0 || (args.use && isForNewCluster)) {
    for (const complaint of complaints) log(complaint);
    (args.help ? console.log : console.error)(HELP);
    Deno.exit(args.help ? 0 : 2);
  }
  using stopped = terminationSignals();
  const recordedRun = await RecordedRun.begin();
  const options: RunOptions = {
    recordedRun,
    full: args.full === true,
    keep: args.keep === true,
    use: args.use === true,
    suites: requested.length > 0 ? requested : args.full === true ? available : DEFAULT_SUITES,
    ...(args["kubelet-dir"] ? { kubeletRoot: String(args["kubelet-dir"]) } : {}),
    ...(kubernetes === undefined ? {} : { kubernetes }),
    ...(args.filter === undefined ? {} : { filter: String(args.filter) }),
  };
  const status = runAll(options).then(async (status) => {
    if (status === 0 && kubernetes !== undefined && requested.length === 0 && options.filter === undefined) {
      await recordedRun.pass(`test:cluster --kubernetes ${kubernetes}`);
    }
    return status;
  }).catch((error) => {
    log(`error: ${(error as Error).message}`);
    return 1;
  });
  const ended = await Promise.race([status, stopped.signal]);
  // What ends this process ends the folder and its processes, too.
  Deno.exit(ended === false ? 130 : ended);
}
