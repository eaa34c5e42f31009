/**
 * `deno task bench:scale`: what the controller costs in a large cluster, over the fake API server.
 *
 * @module
 */

import { parseArgs } from "@std/cli/parse-args";
import manifest from "../../../deno.json" with { type: "json" };
import { RecordedRun } from "../../record/record.ts";
import { TempFolder } from "../../rig/temp_folder.ts";
import { settleFigures } from "../figures.ts";
import { nodeFigures, scaleFigures } from "../result_figures.ts";
import { measureScale } from "./measure.ts";
import { measureNode, nodeTable } from "./node_cost.ts";
import type { ScaleReport, ScaleResult } from "./result.ts";
import { scaleTable } from "./table.ts";

const HELP = `Usage: deno task bench:scale [flags]

Measures what the controller costs in a large cluster: memory, CPU time, stalls of the event loop, requests, and how long
claims take. The cluster is the fake API server of the tests with thin agents, in a process of its own.
With --real it is a real API server with etcd and kube-controller-manager, which are built first.
Fails when a figure of tests/bench/figures.json is beyond its limit; other clusters than those of 5000 nodes with 20 volumes
each, with --real or --v8-flags, are not compared.

Flags:
  --nodes N      the number of nodes; 5000 by default
  --volumes N    the number of volumes, each with its claim and PersistentVolume; 20 for each node by default
  --real         use a real API server; with 1000 nodes by default
  --curve        measure clusters of 10 to 5000 nodes
  --node         what operations cost a node with 10 to 1000 volumes, and nothing else
  --v8-flags F   flags of V8, in place of those of the deployment
  --update       write the figures, and the page that has them
  --json         print one JSON document instead of tables; its keys are in tests/bench/scale/result.ts
  -h, --help     show this help`;

const CURVE = [10, 100, 1000, 2500, 5000];

const flags = parseArgs(Deno.args.filter((arg) => arg !== "--"), {
  boolean: ["help", "json", "real", "curve", "node", "update"],
  string: ["nodes", "volumes", "v8-flags"],
  alias: { h: "help" },
});

/** Measures clusters of some numbers of nodes. */
async function measure(sizes: readonly number[]): Promise<ScaleReport> {
  await using temp = await TempFolder.create(Deno.env.get("TMPDIR") ?? "/tmp", "denolith-scale-");
  const results: ScaleResult[] = [];
  const v8Flags = flags["v8-flags"] as string | undefined;
  const loadBefore = Deno.loadavg()[0]!;
  for (const nodes of sizes) {
    const work = {
      ...{ burst: 1_000, steady: 300, perSecond: 20, immediate: 200 },
      ...{ reboot: Math.min(500, Math.ceil(nodes / 10)), rebootMs: 20_000 },
    };
    const size = { nodes, volumes: Number(flags.volumes ?? nodes * 20) };
    const log = (line: string) => console.error(line);
    results.push(
      await measureScale(size, work, { folder: temp.path, isReal: flags.real === true, v8Flags, log }),
    );
  }
  const load = [loadBefore, Deno.loadavg()[0]!].map((value) => Number(value.toFixed(1)));
  return { version: manifest.version, cpus: navigator.hardwareConcurrency, load, results };
}

const update = flags.update === true;
const isUsual = !flags.real && [flags.nodes, flags.volumes, flags["v8-flags"]].every((flag) => flag === undefined);
const print = flags.json ? console.error : console.log;

if (flags.help) console.log(HELP);
else if (update && !isUsual) {
  console.error(`bench:scale: ${Deno.args.join(" ")}: not understood; see --help`);
  Deno.exitCode = 2;
} else if (flags.node) {
  const run = await RecordedRun.begin({ needsCommit: update });
  const costs = [];
  for (const volumes of [10, 100, 1_000]) costs.push(...await measureNode(volumes));
  console.log(nodeTable(costs));
  if (!await settleFigures(nodeFigures(costs), { run, update, print })) Deno.exitCode = 1;
} else {
  const run = await RecordedRun.begin({ needsCommit: update });
  const report = await measure(flags.curve ? CURVE : [Number(flags.nodes ?? (flags.real ? 1_000 : 5_000))]);
  console.log(flags.json ? JSON.stringify(report, undefined, 2) : scaleTable(report));
  if (isUsual && !await settleFigures(scaleFigures(report), { run, command: "bench:scale", update, print })) {
    Deno.exitCode = 1;
  }
}
