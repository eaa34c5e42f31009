/**
 * `deno task cluster up|down|status`: a Kubernetes cluster of real components on this machine, with one node in a guest.
 *
 * @module
 */
import { parseArgs } from "@std/cli/parse-args";
import { RunFolder } from "../rig/run_folder.ts";
import { Cluster } from "../rig/cluster.ts";
import { startWithDriver } from "./deploy.ts";
import { addSnapshots } from "./snapshots.ts";
import { terminationSignals } from "./signals.ts";
import { clusterPath, isThere, lock, type Status, status } from "./cluster_status.ts";

const HELP = `Usage: deno task cluster up [--snapshots] | down | status [--json]

  up      start etcd, kube-apiserver, kube-controller-manager and kube-scheduler on 127.0.0.1, and a node in a virtual
          machine; what they take is built on first use. Harmless when the cluster is up. --snapshots: also install the
          kinds of VolumeSnapshots, and run the official snapshot-controller on this machine
  down    stop all of it and remove what it left
  status  what runs; --json: as JSON. The exit status is 1 when the cluster is not up
`;

const log = (line: string) => console.error(line);

/** How a task is run where Deno is not installed. */
const TASK = `npx --yes deno@${Deno.version.deno} task`;

/** Starts the cluster; answers the exit status. */
async function up({ snapshots }: { snapshots: boolean }): Promise<number> {
  const path = clusterPath();
  using _lock = await lock(path, log);
  if (await isThere(path)) {
    if ((await status(path)).up) {
      if (snapshots) await addSnapshots(await Cluster.open(path), log);
      printUsage(await status(path));
      return 0;
    }
    log("a cluster is there that is not whole: starting it afresh");
    await RunFolder.open(path).remove();
  }
  await using folder = await RunFolder.create(path);
  using stopped = terminationSignals();
  const started = startWithDriver(folder, log).then(async (cluster) => {
    if (snapshots) await addSnapshots(cluster, log);
    return true;
  });
  if (!(await Promise.race([started, stopped.signal]))) {
    log("stopping");
    await folder.remove();
    // Work that still runs would fail without the cluster.
    Deno.exit(130);
  }
  await folder.keep();
  printUsage(await status(path));
  return 0;
}

/** Stops the cluster, also what is left of one. */
async function down(): Promise<number> {
  const path = clusterPath();
  using _lock = await lock(path, log);
  if (!(await isThere(path))) {
    log("there is no cluster");
    return 0;
  }
  await RunFolder.open(path).remove();
  log("the cluster is gone");
  return 0;
}

async function printStatus(json: boolean): Promise<number> {
  const now = await status(clusterPath());
  console.log(json ? JSON.stringify(now, null, 2) : formatStatus(now));
  return now.up ? 0 : 1;
}

/** Returns the status as text. */
function formatStatus(now: Status): string {
  if (now.processes.length === 0) return `There is no cluster; start one by: ${TASK} cluster up`;
  const rows = [
    ["NAME", "STATE", "PID", "LOG"],
    ...now.processes.map(({ name, pid, log }) => [name, pid ? "running" : "ended", String(pid ?? "-"), log]),
  ];
  const widths = [0, 1, 2].map((column) => Math.max(...rows.map((row) => row[column]!.length)));
  const lines = rows.map((row) => row.map((cell, i) => cell.padEnd(widths[i] ?? 0)).join("  ").trimEnd());
  const nodes = now.nodes.map(({ name, ready }) => `${name} is ${ready ? "ready" : "not ready"}`);
  return [...lines, "", `${nodes.join(", ")}; the API is ${now.server}`].join("\n");
}

function printUsage(now: Status): void {
  console.log(`The cluster is up. To use it:

  export KUBECONFIG=${now.kubeconfig} PATH=${now.kubectl?.replace(/\/kubectl$/, "")}:$PATH
  kubectl get nodes
  ${TASK} ui   # nodes, volumes, and what is wrong, as a page in your browser

Stop it by: ${TASK} cluster down`);
}

if (import.meta.main) {
  const args = parseArgs(Deno.args.filter((arg) => arg !== "--"), {
    boolean: ["json", "help", "snapshots"],
    alias: { h: "help" },
  });
  const [command, ...more] = args._;
  const commands: Record<string, () => Promise<number>> = {
    up: () => up({ snapshots: args.snapshots === true }),
    down,
    status: () => printStatus(args.json === true),
  };
  const run = more.length === 0 ? commands[String(command)] : undefined;
  if (args.help || run === undefined) {
    (args.help ? console.log : console.error)(HELP);
    Deno.exit(args.help ? 0 : 2);
  }
  try {
    Deno.exitCode = await run();
  } catch (error) {
    log(`error: ${(error as Error).message}`);
    Deno.exitCode = 1;
  }
}
