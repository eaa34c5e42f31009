/**
 * `deno task bench:cluster`: what claims cost in a cluster, beside plain LVM, and beside the official csi-provisioner.
 *
 * @module
 */

import { parseArgs } from "@std/cli/parse-args";
import { defined } from "../../base/defined.ts";
import { startWithDriver } from "../cluster/deploy.ts";
import { terminationSignals } from "../cluster/signals.ts";
import { DriverPods, SYSTEM_NAMESPACE } from "../cluster/suite/helpers/driver_pods.ts";
import { startController, startSidecar } from "../cluster/suite/helpers/host_processes.ts";
import { ClaimTracker } from "../cluster/suite/helpers/claim_tracker.ts";
import { CLUSTER_VARIABLE, TestNamespace } from "../cluster/suite/helpers/test_namespace.ts";
import { RecordedRun } from "../record/record.ts";
import { clusterPath } from "../cluster/cluster_status.ts";
import type { AuditEvent } from "../rig/control_plane.ts";
import { pidCommand } from "../rig/driver_process.ts";
import { ensureSidecar } from "../rig/kubernetes.ts";
import { RunFolder } from "../rig/run_folder.ts";
import { TempFolder } from "../rig/temp_folder.ts";
import { MAX_DATA_DISKS } from "../rig/uml.ts";
import { measureIdleCpu, measurePods } from "./cluster_pods.ts";
import {
  type ClusterBenchResult,
  clusterTable,
  type ProcessMemory,
  type ProvisioningResult,
} from "./cluster_result.ts";
import { settleFigures } from "./figures.ts";
import { clusterFigures } from "./result_figures.ts";
import { measureMs, round } from "./statistics.ts";
import { kibOf } from "./proc.ts";

/** How many claims and pods there are by default. */
const USUAL = { claims: 30, pods: 10 };

const HELP = `Usage: deno task bench:cluster [flags]

Measures in a cluster of its own, from claims to Bound and to nothing left: commands, requests, memory; beside as many plain
lvcreate, and beside the official csi-provisioner. Measures claims with their pods, one after the other, beside pods without a
volume, and the processor time of the driver. Takes some 25 minutes, more when something must be built. Fails when a figure of
tests/bench/figures.json is beyond its limit. They are of ${USUAL.claims} claims and one volume group, and one of three.

Flags:
  --claims N  how many claims, ${USUAL.claims} by default
  --pods N    how many pods, one after the other, ${USUAL.pods} by default
  --groups N  how many volume groups the node has, 1 by default; the volumes are in one of them. Several imply --in-pods
  --in-pods   leave out the controller on the host, and the official csi-provisioner: half the time
  --use       measure in the cluster that "deno task cluster up" started, and nobody else uses; it is not compared
  --update    write the figures, and the page that has them
  --json      print one JSON document instead of a table; its keys are in tests/bench/cluster_result.ts
  -h, --help  show this help`;

const TRACE = "/sys/kernel/tracing";
const AGENT = `system:serviceaccount:${SYSTEM_NAMESPACE}:denolith-node`;

const log = (line: string) => console.error(line);

/** The options of the command line. */
interface Options {
  readonly claims: number;
  readonly pods: number;
  /** The number of volume groups of the cluster that is started; absent with `--use`. */
  readonly groups: number | undefined;
  readonly isInPods: boolean;
  readonly update: boolean;
  readonly json: boolean;
}

/** Measures in a cluster, compares and prints. @returns the exit status */
async function main(options: Options): Promise<number> {
  const { claims, pods, groups, isInPods, update, json } = options;
  const run = await RecordedRun.begin({ needsCommit: update });
  if (!isInPods) await ensureSidecar("csi-provisioner", log);
  await using folder = groups === undefined ? undefined : await RunFolder.createTemp("denolith-bench-");
  if (folder !== undefined) await startWithDriver(folder, log, defined({ groups }));
  Deno.env.set(CLUSTER_VARIABLE, folder?.path ?? clusterPath());
  const result = await measure(claims, pods, isInPods);
  console.log(json ? JSON.stringify(result, undefined, 2) : clusterTable(result));
  if (!isCompared(options)) return 0;
  const command = groups !== 1 ? `bench:cluster --groups ${groups}` : isInPods ? undefined : "bench:cluster";
  const print = json ? console.error : console.log;
  return await settleFigures(clusterFigures(result, groups!), { run, command, update, print }) ? 0 : 1;
}

/** Reports whether there are figures of such a run. */
function isCompared({ claims, pods, groups }: Options): boolean {
  return claims === USUAL.claims && pods >= USUAL.pods && (groups === 1 || groups === 3);
}

/** Measures everything. */
async function measure(claims: number, podCount: number, isInPods: boolean): Promise<ClusterBenchResult> {
  await using ns = await TestNamespace.open("bench");
  await using driver = await DriverPods.open(ns.cluster);
  const className = await ns.createStorageClass("now", {
    volumeBindingMode: "Immediate",
    parameters: { volumeGroup: "data" },
  });
  const bench = { ns, className, claims };
  log("plain LVM");
  const plain = await measurePlain(ns, claims);
  log("the controller in a pod");
  const pod = await measureProvisioning(bench, "pod");
  log("claims with their pods");
  const pods = await measurePods(ns, podCount);
  log("nothing");
  const idleCpuMs = await measureIdleCpu(ns);
  const memoryMiB = { controller: await memory(ns, "controller"), agent: await memory(ns, "node") };
  const inPods = { claims, plain, pod, pods, idleCpuMs, memoryMiB };
  if (isInPods) return inPods;
  await driver.scaleController(0);
  try {
    await using folder = await TempFolder.create("/tmp", "denolith-bench-");
    const { controlPlane } = ns.cluster;
    // By turns, twice: what else the machine does should not decide between them.
    const [own, official]: [ProvisioningResult[], ProvisioningResult[]] = [[], []];
    for (const round of [1, 2]) {
      log(`the controller on the host, round ${round}`);
      {
        await using _controller = await startController(controlPlane, folder.path);
        own.push(await measureProvisioning(bench, `own-${round}`));
      }
      log(`the controller on the host, behind csi-provisioner, round ${round}`);
      const flags = ["--disable-controllers", "provisioner,resizer"];
      await using controller = await startController(controlPlane, folder.path, flags);
      const where = { controlPlane, socket: controller.socket, folder: folder.path };
      await using _sidecar = await startSidecar("csi-provisioner", where);
      official.push(await measureProvisioning(bench, `official-${round}`));
    }
    return { ...inPods, onHost: { own: fasterOf(own), official: fasterOf(official) } };
  } finally {
    await driver.scaleController(1);
  }
}

/** Measures plain LVM, as an administrator uses it: one lvcreate after the other, in one shell. */
export async function measurePlain(ns: TestNamespace, count: number): Promise<ClusterBenchResult["plain"]> {
  const repeat = (command: string) => `for n in $(seq ${count}); do ${command} || exit 1; done`;
  const boundMs = await measureMs(() => ns.runOnNode(repeat("lvcreate -qq -y -W y -Z y -L 16M -n plain-$n data")));
  const deletedMs = await measureMs(() => ns.runOnNode(repeat("lvremove -qq -f data/plain-$n")));
  return { boundMs: round(boundMs), deletedMs: round(deletedMs) };
}

export async function measureProvisioning(
  { ns, className, claims }: { ns: TestNamespace; className: string; claims: number },
  prefix: string,
): Promise<ProvisioningResult> {
  await using tracker = await ClaimTracker.open(ns);
  // Who comes fresh learns its first things with this one.
  await tracker.createClaim(`${prefix}-first`, className);
  await tracker.waitForBound([`${prefix}-first`]);
  const names = Array.from({ length: claims }, (_, n) => `${prefix}-${n}`);
  const isTraced = await startTrace(ns);
  const startedAt = Date.now();
  const boundMs = await measureMs(async () => {
    await Promise.all(names.map((name) => tracker.createClaim(name, className)));
    await tracker.waitForBound(names);
  });
  const endedAt = Date.now();
  const commands = isTraced ? await countTracedCommands(ns) : undefined;
  await tracker.waitForConsistency();
  const deletedMs = await measureMs(async () => {
    await Promise.all([...names, `${prefix}-first`].map((name) => tracker.deleteClaim(name)));
    await tracker.waitUntilEmpty();
  });
  await tracker.waitForConsistency();
  const events = (await ns.cluster.controlPlane.auditEvents()).filter((event) => isWithin(event, startedAt, endedAt));
  return {
    boundMs: round(boundMs),
    deletedMs: round(deletedMs),
    controllerRequests: events.filter(isOfController).length,
    agentRequests: events.filter(({ user }) => user.username === AGENT).length,
    ...(commands === undefined ? {} : { commands }),
  };
}

/** Begins to record the programs that are started on the node. @returns false where its kernel cannot, as user-mode Linux */
async function startTrace(ns: TestNamespace): Promise<boolean> {
  const mount = `[ -d ${TRACE} ] || { echo none; exit; }; mountpoint -q ${TRACE} || mount -t tracefs tracefs ${TRACE}`;
  const start = `echo > ${TRACE}/trace; echo 1 > ${TRACE}/events/sched/sched_process_exec/enable`;
  return (await ns.runOnNode(`${mount}; ${start}`)).trim() !== "none";
}

/** Ends the record of {@linkcode startTrace}. @returns the number of commands of LVM in it */
async function countTracedCommands(ns: TestNamespace): Promise<number> {
  const traced = await ns.runOnNode(`echo 0 > ${TRACE}/events/sched/sched_process_exec/enable; cat ${TRACE}/trace`);
  return traced.split("\n").filter((line) => /filename=\S*\/lvm\b/.test(line)).length;
}

function fasterOf(results: readonly ProvisioningResult[]): ProvisioningResult {
  return results.reduce((a, b) => a.boundMs <= b.boundMs ? a : b);
}

function isWithin({ requestReceivedTimestamp }: AuditEvent, startedAt: number, endedAt: number): boolean {
  const at = Date.parse(requestReceivedTimestamp);
  return at >= startedAt && at <= endedAt;
}

/**
 * Reports whether a request is from one of the provisioners: this controller, or the official one, which its user agent
 * names.
 */
function isOfController({ user, userAgent = "", objectRef }: AuditEvent): boolean {
  if (objectRef?.resource === "leases") return false;
  return user.username === `system:serviceaccount:${SYSTEM_NAMESPACE}:denolith-controller` ||
    /csi-provisioner/.test(userAgent);
}

/** Returns the memory of a process of the driver in the guest. */
async function memory(ns: TestNamespace, role: "controller" | "node"): Promise<ProcessMemory> {
  const status = await ns.runOnNode(`cat /proc/$(${pidCommand(role)})/status`);
  const mib = (name: string) => Math.round((kibOf(status, name) ?? 0) / 1024);
  return { rss: mib("VmRSS"), anonymous: mib("RssAnon") };
}

if (import.meta.main) {
  const args = parseArgs(Deno.args.filter((arg) => arg !== "--"), {
    boolean: ["json", "help", "in-pods", "update", "use"],
    string: ["claims", "pods", "groups"],
    alias: { h: "help" },
    default: { claims: String(USUAL.claims), pods: String(USUAL.pods), groups: "1" },
  });
  const counts = [args.claims, args.pods, args.groups];
  const [claims, pods, groups] = counts.map(Number) as [number, number, number];
  const options: Options = {
    claims,
    pods,
    groups: args.use ? undefined : groups,
    isInPods: args["in-pods"] === true || groups > 1,
    update: args.update === true,
    json: args.json === true,
  };
  const isUsage = args._.length === 0 && counts.every((count) => /^[1-9]\d{0,2}$/.test(String(count))) &&
    groups <= (args.use ? 1 : MAX_DATA_DISKS) && (isCompared(options) || !options.update);
  if (args.help || !isUsage) {
    (args.help ? console.log : console.error)(HELP);
    Deno.exit(args.help ? 0 : 2);
  }
  using stopped = terminationSignals();
  const status = main(options).catch((error) => {
    log(`error: ${(error as Error).message}`);
    return 1;
  });
  const ended = await Promise.race([status, stopped.signal]);
  // What ends this process ends the folder and its processes, too.
  Deno.exit(ended === false ? 130 : ended);
}
