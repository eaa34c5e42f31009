/**
 * `deno task record`: shows the record of proof, or draws what CI runs. See {@linkcode HELP}.
 *
 * @module
 */

import { parseArgs } from "@std/cli/parse-args";
import { type Column, formatTable } from "../../base/text_table.ts";
import { sampleSeed } from "../rig/sample.ts";
import { seededRandom, seedOf } from "../rig/seeded_random.ts";
import { type Candidate, drawRows, MAX_COMMITS } from "./draw.ts";
import { changeSince, mergePasses, readPasses } from "./record.ts";
import { ROWS } from "./rows.ts";

const HELP = `Usage: deno task record [flags]

Shows what was run to show that the driver works, and when it passed last. Tasks write tests/record/README.md when they
pass on a commit; commit that file.

  --check           Fail when a row never passed, or its last pass is older than ${MAX_COMMITS} commits of the product
  --draw MINUTES    Print what CI runs in that time, a command a line, drawn by the commit, or by the variable SAMPLE
  --merge           Take lines of the record from standard input, such as those that CI printed: the later pass of each stays
  -h, --help        Show this help`;

/** The time that the start of a cluster takes, in seconds. */
const CLUSTER_SECONDS = 120;

/** How many suites of a task run at a time, on two processors. */
const SIDE_BY_SIDE: Readonly<Record<string, number>> = { "test:lvm": 2, "test:cluster": 2 };

const COLUMNS: readonly Column[] = [
  ["COMMAND", "left"],
  ["CI", "left"],
  ["COMMITS SINCE", "right"],
  ["COMMIT", "left"],
  ["DATE", "left"],
  ["SECONDS", "right"],
  ["TESTS", "right"],
  ["MACHINE", "left"],
];

async function candidates(): Promise<Candidate[]> {
  const passes = await readPasses();
  return await Promise.all(ROWS.map(async (row) => {
    const pass = passes[row.command];
    const task = row.command.split(" ")[0]!;
    const seconds = (pass?.seconds ?? row.seconds ?? 0) / (SIDE_BY_SIDE[task] ?? 1);
    return { row, seconds, change: await changeSince(pass, row.covers) };
  }));
}

async function main(): Promise<number> {
  const args = parseArgs(Deno.args, {
    boolean: ["check", "help", "merge"],
    string: ["draw"],
    alias: { h: "help" },
  });
  if (args.help) {
    console.log(HELP);
    return 0;
  }
  if (args.merge) {
    console.log(`taken: ${(await mergePasses(await new Response(Deno.stdin.readable).text())).join(", ") || "none"}`);
    return 0;
  }
  const all = await candidates();
  const overdue = all.filter(({ change }) => change.commits > MAX_COMMITS);
  if (args.draw !== undefined) {
    const random = seededRandom(await seedOf(await sampleSeed()));
    const drawn = drawRows(all, Number(args.draw) * 60 - CLUSTER_SECONDS, random);
    for (const { row } of drawn) console.log(row.command);
    const missed = overdue.filter((candidate) => !drawn.includes(candidate));
    console.error(`overdue, and not drawn: ${missed.map(({ row }) => row.command).join(", ") || "none"}`);
    return 0;
  }
  const passes = await readPasses();
  const rows = all.map(({ row, change }) => {
    const pass = passes[row.command];
    const since = pass === undefined ? "not run" : String(change.commits);
    const { commit = "", date = "", seconds = "", passed = "", machine = "" } = pass ?? {};
    return { cells: [row.command, row.ci, since, commit, date, String(seconds), String(passed), machine], notes: [] };
  });
  for (const line of formatTable(COLUMNS, rows)) console.log(line);
  for (const { row } of args.check ? overdue : []) {
    console.error(`task ${row.command}: it has not passed within the last ${MAX_COMMITS} commits of the product`);
  }
  return args.check && overdue.length > 0 ? 1 : 0;
}

if (import.meta.main) Deno.exit(await main());
