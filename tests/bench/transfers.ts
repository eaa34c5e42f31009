/**
 * `deno task bench:transfers`: how fast a snapshot passes between two agents on this machine, beside dd through a plain TCP
 * connection, and how much processor time it costs. Files take the place of devices.
 *
 * @module
 */

import { parseArgs } from "@std/cli/parse-args";
import { V8_FLAGS } from "../../deploy/launch.ts";
import { RecordedRun } from "../record/record.ts";
import { ensureTools } from "../rig/debian.ts";
import { freePorts } from "../rig/free_ports.ts";
import { pollUntil } from "../rig/poll_until.ts";
import { run as runProgram } from "../rig/process.ts";
import { TempFolder } from "../rig/temp_folder.ts";
import { settleFigures } from "./figures.ts";
import { cpuOf } from "./proc.ts";
import { measureMs, median, round } from "./statistics.ts";
import { columns } from "./table.ts";

/** The size and the number of runs by default, and at least in a run that is compared and recorded. */
const USUAL = { mib: 1024, runs: 3 };

const HELP = `Usage: deno task bench:transfers [--mib MIB] [--runs RUNS] [--update]

Measures transfers between two agents, beside dd. Fails when a figure of tests/bench/figures.json is beyond its limit; a
smaller size or fewer runs are not compared.

  --mib MIB    the size of the snapshot, without zeros; ${USUAL.mib} by default
  --runs RUNS  how often each way is measured, in turn; ${USUAL.runs} by default
  --update     write the figures, and the page that has them
`;

const END = new URL("transfer_end.ts", import.meta.url).pathname;
const CONFIGURATION = new URL("../../deno.json", import.meta.url).pathname;

/** What one transfer took. */
interface Measured {
  /** From its beginning until all is on the disk, and read back where that is done, in milliseconds. */
  readonly ms: number;
  /** The processor time of both ends, with their commands, in milliseconds. */
  readonly sourceMs?: number;
  readonly destinationMs?: number;
}

/** The files of the bench. */
interface Files {
  readonly source: string;
  readonly destination: string;
}

/** Runs shell lines that fail when one of their commands does. */
async function shell(what: string, script: string): Promise<void> {
  await runProgram(what, "bash", ["-c", `set -o pipefail; ${script}`]);
}

/** Copies by dd through a connection of netcat, and reads the copy back if asked to. */
async function plain({ source, destination }: Files, { readsBack }: { readsBack: boolean }): Promise<Measured> {
  const [port] = freePorts(1);
  const direct = "bs=4M iflag=direct,fullblock status=none";
  const receive = `nc -l 127.0.0.1 ${port} </dev/null |
    dd of=${destination} bs=4M iflag=fullblock oflag=direct conv=fsync,nocreat,notrunc status=none`;
  const send = `for _ in $(seq 100); do
    dd if=${source} ${direct} | nc -N 127.0.0.1 ${port} && break; sleep .05; done`;
  const ms = await measureMs(async () => {
    await Promise.all([shell("receive", receive), shell("send", send)]);
    if (readsBack) await shell("read back", `dd if=${destination} ${direct} of=/dev/null`);
  });
  return { ms };
}

/** Starts an end as the driver starts its processes. */
function startEnd(args: readonly string[], stdin: "piped" | "null"): Deno.ChildProcess {
  const flags = ["run", "-A", "--quiet", "--no-check", `--config=${CONFIGURATION}`, `--v8-flags=${V8_FLAGS}`];
  return new Deno.Command(Deno.execPath(), {
    args: [...flags, END, ...args],
    env: { MALLOC_ARENA_MAX: "1" },
    ...{ stdin, stdout: "piped", stderr: "inherit" },
  }).spawn();
}

async function processorMs(pid: number): Promise<number> {
  const { own, commands } = cpuOf(await Deno.readTextFile(`/proc/${pid}/stat`));
  return own + commands;
}

/** Copies from one agent to another. */
async function transfer({ source, destination }: Files): Promise<Measured> {
  const [port] = freePorts(1).map(String);
  const sender = startEnd(["source", source, port!], "null");
  const receiver = startEnd(["destination", destination, port!], "piped");
  try {
    const [reader, ready] = [sender.stdout.getReader(), receiver.stdout.getReader()];
    const [{ value }] = await Promise.all([reader.read(), ready.read()]); // both are there
    const writer = receiver.stdin.getWriter();
    const before = await Promise.all([sender, receiver].map(({ pid }) => processorMs(pid)));
    let destinationMs = 0;
    const ms = await measureMs(async () => {
      await writer.write(value!);
      await writer.close();
      const isOver = receiver.status.then(({ success }) => {
        if (!success) throw new Error("receive a transfer: it failed");
        return true;
      });
      const look = async () => {
        destinationMs = await processorMs(receiver.pid).catch(() => destinationMs);
        return await Promise.race([isOver, Promise.resolve(false)]);
      };
      await pollUntil(look, { action: "receive a transfer", timeoutMs: 600_000, intervalMs: 20 });
    });
    await Promise.all([reader.cancel(), ready.cancel()]);
    return { ms, sourceMs: await processorMs(sender.pid) - before[0]!, destinationMs: destinationMs - before[1]! };
  } finally {
    sender.kill("SIGKILL");
    await Promise.all([sender.status, receiver.status]);
  }
}

if (import.meta.main) {
  const args = parseArgs(Deno.args.filter((arg) => arg !== "--"), {
    string: ["mib", "runs"],
    boolean: ["help", "update"],
  });
  if (args.help) {
    console.log(HELP);
    Deno.exit(0);
  }
  const [mib, runs] = [Number(args.mib ?? USUAL.mib), Number(args.runs ?? USUAL.runs)];
  const isUsual = mib >= USUAL.mib && runs >= USUAL.runs;
  const update = args.update === true;
  if (
    args._.length > 0 || ![mib, runs].every((value) => Number.isInteger(value) && value > 0) || (update && !isUsual)
  ) {
    console.error(`bench:transfers: ${Deno.args.join(" ")}: not understood; see --help`);
    Deno.exit(2);
  }
  const run = await RecordedRun.begin({ needsCommit: update });
  await ensureTools([{ program: "nc", packages: ["netcat-openbsd"] }], (line) => console.error(line));
  await using temp = await TempFolder.create("/var/tmp", "denolith-transfers-");
  const files = { source: temp.file("source"), destination: temp.file("destination") };
  await shell("make the source", `head -c ${mib}M /dev/urandom > ${files.source}`);
  await shell("make the destination", `head -c ${mib}M /dev/zero > ${files.destination}; sync`);
  const [readBack, driver] = ["dd through TCP, read back", "transfer"];
  const ways: Record<string, () => Promise<Measured>> = {
    "dd through TCP": () => plain(files, { readsBack: false }),
    [readBack]: () => plain(files, { readsBack: true }),
    [driver]: () => transfer(files),
  };
  const measured = Object.keys(ways).map((name) => [name, [] as Measured[]] as const);
  for (let time = 0; time < runs; time++) {
    for (const [name, results] of measured) {
      results.push(await ways[name]!());
      await shell("compare", `cmp ${files.source} ${files.destination}`);
    }
  }
  const medianMs = (way: string) => median(new Map(measured).get(way)!.map(({ ms }) => ms));
  const ofMiB = (values: readonly (number | undefined)[]) => {
    const known = values.filter((value) => value !== undefined);
    return known.length === 0 ? "" : (median(known) / mib).toFixed(1);
  };
  console.log(
    columns([
      ["Way", "MB/s", "source, CPU ms/MiB", "destination, CPU ms/MiB"],
      ...measured.map(([name, results]) => [
        name,
        String(round(mib * (1 << 20) / 1e3 / medianMs(name))),
        ofMiB(results.map(({ sourceMs }) => sourceMs)),
        ofMiB(results.map(({ destinationMs }) => destinationMs)),
      ]),
    ]).join("\n"),
  );
  const figures = { transfer: medianMs(driver) / medianMs(readBack) };
  const options = { run, command: "bench:transfers", update, print: console.log };
  if (isUsual && !await settleFigures(figures, options)) Deno.exitCode = 1;
}
