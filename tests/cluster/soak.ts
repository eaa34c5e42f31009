/**
 * `deno task soak`: volumes live and die in a cluster for a given time, while components die. See {@linkcode HELP}.
 *
 * @module
 */

import { parseArgs } from "@std/cli/parse-args";
import { defined } from "../../base/defined.ts";
import { columns } from "../bench/table.ts";
import { RecordedRun } from "../record/record.ts";
import { Cluster } from "../rig/cluster.ts";
import { ensureSnapshotController } from "../rig/kubernetes.ts";
import { pollUntil } from "../rig/poll_until.ts";
import { RunFolder } from "../rig/run_folder.ts";
import { clusterPath } from "./cluster_status.ts";
import { startWithDriver } from "./deploy.ts";
import { terminationSignals } from "./signals.ts";
import { Kills } from "./soak/kills.ts";
import { findings } from "./soak/findings.ts";
import { createClasses, Lives, THIN_POOL } from "./soak/lives.ts";
import { isRunningCommands, type Phase, type Sample, Sampler } from "./soak/sample.ts";
import { listDriverLvs } from "./suite/helpers/driver_lvs.ts";
import { WAIT_MS } from "./suite/helpers/object_watcher.ts";
import { runRandom } from "../rig/seeded_random.ts";
import { SnapshotTestNamespace } from "./suite/helpers/snapshot_test_namespace.ts";
import { CLUSTER_VARIABLE } from "./suite/helpers/test_namespace.ts";

/** How long it runs by default, and at least in a run that the record has, in minutes. */
const MINUTES = 60;

const HELP = `Usage: deno task soak [--minutes N] [--use] [--json FILE]

Runs volumes in a cluster for a given time: claims, pods, growth, snapshots, copies, deletions. Each cycle of some 20
minutes begins with kills: the agent, the controller, kubelet, the API server, the snapshot-controller, the node's
power. Then it is calm, and memory is compared. At its end everything is deleted, and nothing may be left.

  --minutes N  how long it runs; ${MINUTES} by default, beside the start of the cluster
  --use        run in the cluster that "deno task cluster up" started
  --json FILE  write all samples to a file

SEED=NUMBER repeats the random choices of a run. The exit status is 1 if something was not flat.
`;

/** The longest cycle, in milliseconds. */
const CYCLE_MS = 20 * 60_000;

/** The share of a cycle in which components die. */
const KILLS_SHARE = 0.35;

/** Lives that go on at a time: the node has one processor. */
const WORKERS = 3;

/** The time between two samples, in milliseconds. */
const SAMPLE_MS = 20_000;

const log = (line: string) => console.error(line);

/** The parts of a soak. */
interface Parts {
  readonly sampler: Sampler;
  readonly lives: Lives;
  readonly kills: Kills;
  readonly snapshots: SnapshotTestNamespace;
}

/** Runs cycles in a cluster. @returns all samples @throws {Error} when a life or a component failed */
async function soak(cluster: Cluster, milliseconds: number): Promise<{ samples: Sample[]; kills: Kills["counts"] }> {
  Deno.env.set(CLUSTER_VARIABLE, cluster.folder.path);
  const random = runRandom();
  await using snapshots = await SnapshotTestNamespace.open("soak");
  await using kills = await Kills.open(cluster, snapshots, random);
  const lives = new Lives(snapshots, await createClasses(snapshots), random);
  const parts = { sampler: new Sampler(cluster), lives, kills, snapshots };
  await lives.warmUp();
  const samples = [await rest(parts, 0)];
  const count = Math.max(1, Math.round(milliseconds / CYCLE_MS));
  for (let cycle = 1; cycle <= count; cycle++) {
    samples.push(...await runCycle(parts, cycle, milliseconds / count), await rest(parts, cycle));
  }
  return { samples, kills: kills.counts };
}

/** Runs a cycle. @returns the samples of its phases */
async function runCycle({ sampler, lives, kills }: Parts, cycle: number, milliseconds: number): Promise<Sample[]> {
  const startedAt = performance.now();
  const isAfter = (share: number) => performance.now() - startedAt > milliseconds * share;
  const samples: Sample[] = [];
  let phase: Phase = "kills";
  let failed = false;
  const isOver = () => failed || isAfter(1);
  const fail = (error: Error) => {
    failed = true;
    throw error;
  };
  const kill = async () => {
    await kills.run(() => failed || isAfter(KILLS_SHARE), (line) => log(`${sampler.seconds} s: ${line}`));
    phase = "calm";
  };
  const takeSamples = async () => {
    while (!isOver()) {
      await new Promise((resolve) => setTimeout(resolve, SAMPLE_MS));
      // While components die, one of them does not answer now and then.
      const sample = sampler.take({ cycle, phase, lives: lives.ended });
      const taken = phase === "kills" ? await sample.catch(() => undefined) : await sample;
      if (taken !== undefined) samples.push(taken);
      if (taken !== undefined && samples.length % 6 === 0) log(row(taken).join("  "));
    }
  };
  const work = [...Array.from({ length: WORKERS }, () => lives.run(isOver)), kill(), takeSamples()];
  await Promise.all(work.map((task) => task.catch(fail)));
  return samples;
}

/** Waits until everything that was created is deleted. @returns the sample of that moment @throws {Error} if something stays */
async function rest({ sampler, lives, snapshots }: Parts, cycle: number): Promise<Sample> {
  const { ns } = snapshots;
  await ns.waitForCleanup();
  // Deleted volumes are erased before they are removed. The thin pool stays.
  const isErased = async () => (await listDriverLvs(ns.node)).every(({ name }) => name === THIN_POOL);
  await pollUntil(isErased, { action: "wait for the end of erasures", timeoutMs: WAIT_MS, intervalMs: 2_000 });
  let sample = await sampler.take({ cycle, phase: "rest", lives: lives.ended });
  // Also at rest, the agent runs a command now and then, which has descriptors while it runs.
  for (let attempt = 0; attempt < 5 && isRunningCommands(sample); attempt++) {
    await new Promise((resolve) => setTimeout(resolve, 5_000));
    sample = await sampler.take({ cycle, phase: "rest", lives: lives.ended });
  }
  log(row(sample).join("  "));
  return sample;
}

const HEAD = ["seconds", "cycle", "phase", "lives", "agent: MiB", "fds", "controller: MiB", "fds", "queued", "LVs"];

/** Returns the cells of a sample in the table of {@linkcode HEAD}. */
function row({ seconds, cycle, phase, lives, processes: { node, controller }, lvs }: Sample): string[] {
  const queued = (node?.queued ?? 0) + (controller?.queued ?? 0);
  const memory = (process: typeof node) => process === undefined ? "-" : `${process.rssMiB} (${process.anonMiB})`;
  const descriptors = (process: typeof node) => String(process?.descriptors ?? "-");
  return [
    ...[String(seconds), String(cycle), phase, String(lives), memory(node), descriptors(node)],
    ...[memory(controller), descriptors(controller), String(queued), String(lvs)],
  ];
}

/** Prints the table, the kills, and what was not flat. @returns the exit status */
function report({ samples, kills }: Awaited<ReturnType<typeof soak>>): number {
  const shown = samples.filter(({ phase }, index) => phase === "rest" || index % 6 === 0);
  console.log(columns([HEAD, ...shown.map(row)], [2]).join("\n"));
  for (const [kind, count] of kills) console.log(`${count} times: ${kind}`);
  const found = findings(samples);
  for (const finding of found) console.log(`NOT FLAT: ${finding}`);
  if (found.length === 0) console.log(`all flat: ${samples.at(-1)?.lives} lives of volumes`);
  return found.length === 0 ? 0 : 1;
}

async function main(args: { minutes: number; use: boolean; json: string | undefined }): Promise<number> {
  await ensureSnapshotController(log);
  await using folder = args.use ? undefined : await RunFolder.createTemp("denolith-soak-");
  const cluster = folder === undefined ? await Cluster.open(clusterPath()) : await startWithDriver(folder, log);
  const run = await RecordedRun.begin();
  const result = await soak(cluster, args.minutes * 60_000);
  if (args.json !== undefined) await Deno.writeTextFile(args.json, JSON.stringify(result.samples));
  const status = report(result);
  if (status === 0 && args.minutes >= MINUTES) {
    await run.pass("soak", defined({ passed: result.samples.at(-1)?.lives }));
  }
  return status;
}

if (import.meta.main) {
  const args = parseArgs(Deno.args.filter((arg) => arg !== "--"), {
    boolean: ["use", "help"],
    string: ["minutes", "json"],
    default: { minutes: String(MINUTES) },
    alias: { h: "help" },
  });
  const minutes = Number(args.minutes);
  if (args.help || args._.length > 0 || !(minutes >= 1)) {
    (args.help ? console.log : console.error)(HELP);
    Deno.exit(args.help ? 0 : 2);
  }
  using stopped = terminationSignals();
  const status = main({ minutes, use: args.use === true, json: args.json ? String(args.json) : undefined }).catch(
    (error) => {
      log(`error: ${(error as Error).message}`);
      return 1;
    },
  );
  const ended = await Promise.race([status, stopped.signal]);
  // What ends this process ends the folder and its processes, too.
  Deno.exit(ended === false ? 130 : ended);
}
