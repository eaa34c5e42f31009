/**
 * `deno task bench:cluster`: what claims cost in the cluster that `deno task cluster up` started, beside plain LVM, and beside
 * the official csi-provisioner. Nobody else should use the cluster meanwhile.
 *
 * @module
 */

import { parseArgs } from "@std/cli/parse-args";
import { DriverPods, SYSTEM_NAMESPACE } from "../cluster/suite/helpers/driver_pods.ts";
import { startController, startSidecar } from "../cluster/suite/helpers/host_processes.ts";
import { ClaimTracker } from "../cluster/suite/helpers/claim_tracker.ts";
import { CLUSTER_VARIABLE, TestNamespace } from "../cluster/suite/helpers/test_namespace.ts";
import { RecordedRun } from "../record/record.ts";
import { clusterPath } from "../cluster/cluster_status.ts";
import type { AuditEvent } from "../rig/control_plane.ts";
import { pidCommand } from "../rig/driver_process.ts";
import { ensureSidecar } from "../rig/kubernetes.ts";
import { TempFolder } from "../rig/temp_folder.ts";
import { measureIdleCpu, measurePods } from "./cluster_pods.ts";
import {
  type ClusterBenchResult,
  clusterTable,
  type ProcessMemory,
  type ProvisioningResult,
} from "./cluster_result.ts";
import { measureMs, round } from "./statistics.ts";
import { kibOf } from "./proc.ts";

/** How many claims and pods there are by default, and at least in a run that the record has. */
const USUAL = { claims: 30, pods: 10 };

const HELP = `Usage: deno task bench:cluster [--claims N] [--pods N] [--in-pods] [--json]

Measures, in the cluster of deno task cluster up, from claims to Bound and to nothing left: commands, requests, memory; beside
as many plain lvcreate, and beside the official csi-provisioner. Measures claims with their pods, one after the other, beside pods
without a volume, and the processor time of the driver. Takes about twenty minutes, more when the sidecar must be built.

Flags:
  --claims N  how many claims, ${USUAL.claims} by default
  --pods N    how many pods, one after the other, ${USUAL.pods} by default
  --in-pods   leave out the controller on the host, and the official csi-provisioner: half the time
  --json      print one JSON document instead of a table; its keys are in tests/bench/cluster_result.ts
  -h, --help  show this help`;

const TRACE = "/sys/kernel/tracing";
const AGENT = `system:serviceaccount:${SYSTEM_NAMESPACE}:denolith-node`;

/** Measures everything. */
async function measure(claims: number, podCount: number, isInPods: boolean): Promise<ClusterBenchResult> {
  const log = (line: string) => console.error(line);
  if (!isInPods) await ensureSidecar("csi-provisioner", log);
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
    boolean: ["json", "help", "in-pods"],
    string: ["claims", "pods"],
    alias: { h: "help" },
    default: { claims: String(USUAL.claims), pods: String(USUAL.pods) },
  });
  const isCount = (text: unknown) => /^[1-9]\d{0,2}$/.test(String(text));
  if (args.help || args._.length > 0 || !isCount(args.claims) || !isCount(args.pods)) {
    (args.help ? console.log : console.error)(HELP);
    Deno.exit(args.help ? 0 : 2);
  }
  if (!Deno.env.get(CLUSTER_VARIABLE)) Deno.env.set(CLUSTER_VARIABLE, clusterPath());
  const [claims, pods, isInPods] = [Number(args.claims), Number(args.pods), args["in-pods"] === true];
  const run = await RecordedRun.begin();
  const result = await measure(claims, pods, isInPods);
  console.log(args.json ? JSON.stringify(result, undefined, 2) : clusterTable(result));
  if (!isInPods && claims >= USUAL.claims && pods >= USUAL.pods) await run.pass("bench:cluster");
}
