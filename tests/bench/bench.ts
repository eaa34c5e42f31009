/**
 * `deno task bench`: what the driver costs, measured in a guest.
 *
 * @module
 */

import { parseArgs } from "@std/cli/parse-args";
import { join } from "@std/path";
import { bundle } from "../../deploy/bundle.ts";
import { RecordedRun } from "../record/record.ts";
import { ensureArtifact } from "../rig/artifact.ts";
import { type MachineKind, runGuest } from "../rig/guest.ts";
import { TempFolder } from "../rig/temp_folder.ts";
import { settleFigures } from "./figures.ts";
import type { BenchResult } from "./result.ts";
import { benchFigures } from "./result_figures.ts";
import { tables } from "./table.ts";

/** How many times each operation runs by default, and at least in a run that is compared and recorded. */
const RUNS = 20;

const HELP = `Usage: deno task bench [flags]

Measures in a guest what the driver costs: starts, memory, and the time and commands of each operation beside those of the
plain commands that an administrator would type. Takes some minutes; what it does meanwhile goes to standard error. Fails
when a figure of tests/bench/figures.json is beyond its limit; another machine or fewer runs are not compared.

Flags:
  --machine KIND  the guest: uml (user-mode Linux, the default), or qemu, a machine that is emulated in software
  --runs N        how many times each operation runs; ${RUNS} by default
  --update        write the figures, and the page that has them
  --json          print one JSON document instead of tables; its keys are in tests/bench/result.ts
  -h, --help      show this help`;

/**
 * The script of the guest. It removes the udev rule that scans a disk after each change of LVM's metadata: the scan
 * runs in the background and would slow down the next measurement.
 */
const SCRIPT = `
rm /usr/lib/udev/rules.d/69-lvm.rules && udevadm control --reload
exec ./deno run --allow-all --quiet bench.js
`;

/** Runs the bench. @returns the result */
async function measure(
  { machine, runs }: { machine: MachineKind; runs: number },
  log: (line: string) => void,
): Promise<BenchResult> {
  await using temp = await TempFolder.create(Deno.env.get("TMPDIR") ?? "/tmp", "denolith-bench-");
  const driver = await ensureArtifact(log);
  const outDir = temp.file("out");
  const status = await runGuest({
    machine,
    files: {
      deno: { host: Deno.execPath() },
      denolith: { host: driver },
      "bench.js": { host: await bundle("tests/bench/guest_entry.ts", temp.path) },
    },
    env: {
      ...{ DENO_NO_UPDATE_CHECK: "1", NO_COLOR: "1" },
      ...{ RUNS: String(runs) },
    },
    script: SCRIPT,
    outDir,
    timeoutMs: 60 * 60_000,
    onOutput: (chunk) => void Deno.stderr.writeSync(chunk),
    log,
  });
  if (status !== 0) throw new Error(`measure in the guest: exit status ${status}`);
  return JSON.parse(await Deno.readTextFile(join(outDir, "bench.json")));
}

const flags = parseArgs(Deno.args.filter((arg) => arg !== "--"), {
  boolean: ["help", "json", "update"],
  string: ["machine", "runs"],
  alias: { h: "help" },
  default: { machine: "uml", runs: String(RUNS) },
});
const [machine, runs] = [flags.machine as MachineKind, Number(flags.runs)];
const KNOWN = ["_", "help", "h", "json", "machine", "runs", "update"];
const update = flags.update === true;
const isUsual = machine === "uml" && runs >= RUNS;
const isKnown = Object.keys(flags).every((flag) => KNOWN.includes(flag));
if (flags.help) {
  console.log(HELP);
} else if (
  !isKnown || flags._.length > 0 || !["uml", "qemu"].includes(machine) || !(Number.isInteger(runs) && runs > 0) ||
  (update && !isUsual)
) {
  console.error(`bench: ${Deno.args.join(" ")}: not understood; see --help`);
  Deno.exitCode = 2;
} else {
  const run = await RecordedRun.begin({ needsCommit: update });
  const result = await measure({ machine, runs }, (line) => console.error(line));
  console.log(flags.json ? JSON.stringify(result, undefined, 2) : tables(result));
  const print = flags.json ? console.error : console.log;
  if (isUsual && !await settleFigures(benchFigures(result), { run, command: "bench", update, print })) {
    Deno.exitCode = 1;
  }
}
