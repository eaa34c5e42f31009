/**
 * `deno task test:lvm`: runs the suites over real LVM, each in a guest of its own. See {@linkcode HELP}.
 *
 * @module
 */

import { parseArgs } from "@std/cli/parse-args";
import { join } from "@std/path";
import { bundle } from "../../deploy/bundle.ts";
import { settleFigures } from "../bench/figures.ts";
import { ensureArtifact } from "../rig/artifact.ts";
import { ensureCsiSanity } from "../rig/csi_sanity.ts";
import { type DebianRelease, type MachineKind, runGuest } from "../rig/guest.ts";
import { DEBIAN_RELEASES, ensureGuestImage } from "../rig/guest_image.ts";
import { RecordedRun } from "../record/record.ts";
import { draw, sampleSeed } from "../rig/sample.ts";
import { ensureUml } from "../rig/uml.ts";
import { SilenceLimit, SuiteLines } from "../rig/test_output.ts";
import { compilePolicies } from "./helpers/policies.ts";
import script from "./guest.sh" with { type: "text" };
import { skippedByTopic } from "./helpers/sanity_report.ts";
import { SKIPPED_PREFIXES } from "./helpers/skipped_tests.ts";
import { type Suite, SUITES, UNSUPPORTED_PREFIXES } from "./suites.ts";

/** The suites that run by their names, or with `--full`. */
const LONG_SUITES = SUITES.filter(({ onlyFull }) => onlyFull).map(({ name }) => name);

const HELP = `Usage: deno task test:lvm [SUITE...] [flags]

Runs the contract tests, csi-sanity and further suites over real LVM, each suite in a guest of its own.

  SUITE           the beginning of the name of a suite: ${SUITES.map(({ name }) => name).join(", ")};
                  by default all but ${LONG_SUITES.join(", ")}
  --debian NAME   the Debian of the guest: ${DEBIAN_RELEASES.join(" or ")}; the first by default
  --filter TEXT   only the tests with this in their names; csi-sanity runs whole
  --full          all suites, and all tests that mostly repeat others, of which otherwise some run by chance
  --jobs N        the number of guests at a time; by default that of the processors, and at least two
  --update        write the figures that encryption_cost measures, and the page that has them; otherwise it fails when one
                  is beyond its limit in tests/bench/figures.json
  --machine KIND  uml (user-mode Linux, the default) or qemu (a whole machine in software emulation, much slower)
  -h, --help      show this help

Variables:
  SEED          the seed of the random choices of tests
  SAMPLE        the seed of the tests and the power cuts that run by chance; the commit by default
  PLAY_SECONDS  how long the suite differential plays
  STEP          a part of the names of the steps during which the suite power_cuts cuts the power, as in its
                messages; each flush in them, with all reactions`;

/** The time limit of a suite, in milliseconds. */
const TIMEOUT_MS = { uml: 40 * 60_000, qemu: 90 * 60_000 };

/** How many times that limit a suite in full length has. */
const FULL_LENGTH = 4;

/** The time for which tests may print nothing, in milliseconds: the limit of a test. csi-sanity prints only at its end. */
const SILENCE_MS = { uml: 15 * 60_000, qemu: 45 * 60_000 };

/** The files that all suites need, on this machine. */
interface Programs {
  readonly driver: string;
  readonly csiSanity: string;
  /** A folder for temporary files. */
  readonly folder: string;
  /** Prefixes of the tests that are left out, separated by `|`. */
  readonly leftOut: string;
  readonly machine: MachineKind;
  /** The seed of the tests and power cuts that are drawn. */
  readonly sample: string;
  readonly debian: DebianRelease;
  /** A part of the names of the tests that run; empty for all. */
  readonly filter: string;
  /** Whether all tests run, and long ones in full length. */
  readonly full: boolean;
  /** Whether figures that a suite measures are written. */
  readonly update: boolean;
  /** Records the suites that pass. */
  readonly run: RecordedRun;
}

/** Runs a suite in a guest. @returns whether it passed */
async function runSuite(suite: Suite, programs: Programs): Promise<boolean> {
  const { machine, debian, folder } = programs;
  const lines = new SuiteLines(suite.name);
  const start = performance.now();
  const outDir = join(folder, "out", suite.name);
  const tests = suite.module === undefined
    ? { "bin/csi-sanity": { host: programs.csiSanity } }
    : { [`${suite.module}.js`]: { host: join(folder, `${suite.module}_suite.js`) } };
  const silent = new AbortController();
  using silence = new SilenceLimit(
    { silenceMs: suite.module === undefined ? TIMEOUT_MS[machine] : SILENCE_MS[machine] },
    (lastLine) => {
      silent.abort(new Error(`no output for ${SILENCE_MS[machine] / 60_000} minutes after: ${lastLine}`));
    },
  );
  const status = await runGuest({
    machine,
    signal: silent.signal,
    debian: suite.debian ?? debian,
    files: {
      deno: { host: Deno.execPath() },
      denolith: { host: programs.driver },
      ...tests,
      ...await compilePolicies(suite, folder),
    },
    script: "PATH=$PATH:/work/bin\n" + script,
    env: {
      SEED: Deno.env.get("SEED") ?? "",
      PLAY_SECONDS: Deno.env.get("PLAY_SECONDS") ?? "",
      STEP: Deno.env.get("STEP") ?? "",
      FILTER: programs.filter,
      LEFT_OUT: programs.leftOut,
      PART: suite.part ?? "",
      SAMPLE: programs.sample,
      FULL: programs.full ? "1" : "",
      SUITE: suite.module ?? suite.name,
    },
    dataDisksGiB: suite.disksGiB,
    kernelParameters: suite.kernelParameters ?? [],
    memMiB: 2048,
    outDir,
    onOutput: (chunk) => {
      silence.add(chunk);
      lines.add(chunk);
    },
    log: (line) => console.log(line),
    timeoutMs: TIMEOUT_MS[machine] * (programs.full ? FULL_LENGTH : 1),
  }).catch((error) => {
    lines.end();
    lines.print(`FAILED | 0 passed | 1 failed: ${(error as Error).message}`);
    return 1;
  });
  let passed = status === 0;
  if (passed && suite.module === undefined) passed = await requireKnownSkips(suite.name, outDir);
  if (lines.passed === 0 && programs.filter === "") {
    console.log(`${suite.name} | FAILED: it passed no test at all`);
    passed = false;
  }
  if (passed && machine === "uml" && debian === DEBIAN_RELEASES[0]) passed = await settleLeftFigures(outDir, programs);
  const seconds = Math.round((performance.now() - start) / 1000);
  console.log(`${suite.name} | ${passed ? "passed" : "FAILED"} after ${seconds} s`);
  if (passed && machine === "uml" && programs.filter === "") {
    const release = debian === DEBIAN_RELEASES[0] ? "" : ` --debian ${debian}`;
    await programs.run.pass(`test:lvm ${suite.name}${release}`, { start, passed: lines.passed, full: programs.full });
  }
  return passed;
}

/** Compares or writes the figures that a suite left, if any. @returns whether they are within their limits */
async function settleLeftFigures(outDir: string, { run, update }: Programs): Promise<boolean> {
  const text = await Deno.readTextFile(join(outDir, "figures.json")).catch(() => undefined);
  return text === undefined || await settleFigures(JSON.parse(text), { run, update, print: console.log });
}

/** Prints why csi-sanity skipped specs. @returns false when it skipped one for a reason that is not listed */
async function requireKnownSkips(name: string, outDir: string): Promise<boolean> {
  const mode = name.slice("csi-sanity-".length);
  const { topics, unlisted } = skippedByTopic(await Deno.readTextFile(join(outDir, `${mode}.json`)));
  for (const topic of topics) console.log(`${name} | ${topic}`);
  for (const spec of unlisted) console.log(`${name} | FAILED: skipped for no listed reason: ${spec}`);
  return unlisted.length === 0;
}

/** Runs suites, several at a time. @returns the names of those that failed */
async function runSuites(suites: readonly Suite[], programs: Programs, jobs: number): Promise<string[]> {
  const failed: string[] = [];
  const waiting = [...suites];
  const work = async () => {
    for (let suite = waiting.shift(); suite !== undefined; suite = waiting.shift()) {
      if (!await runSuite(suite, programs)) failed.push(suite.name);
    }
  };
  await Promise.all(Array.from({ length: jobs }, work));
  return failed;
}

/**
 * Returns the prefixes of the tests that are left out, and prints those that were drawn.
 *
 * @param unsupported prefixes that are never drawn
 */
function leftOutTests(unsupported: readonly string[], seed: string): string[] {
  const drawn = draw(SKIPPED_PREFIXES.filter((prefix) => !unsupported.includes(prefix)), seed);
  console.log([`tests that run by chance, SAMPLE=${seed}: those whose names begin with:`, ...drawn].join("\n  "));
  return SKIPPED_PREFIXES.filter((prefix) => !drawn.includes(prefix));
}

async function main(): Promise<number> {
  const args = parseArgs(Deno.args.filter((arg) => arg !== "--"), {
    boolean: ["full", "help", "update"],
    string: ["debian", "filter", "jobs", "machine"],
    alias: { h: "help" },
    default: {
      debian: DEBIAN_RELEASES[0],
      filter: "",
      machine: "uml",
      jobs: String(Math.max(2, navigator.hardwareConcurrency)),
    },
  });
  const names = args._.map(String);
  const sample = await sampleSeed();
  const usual = SUITES.filter(({ onlyFull }) => !onlyFull || args.full === true);
  const suites = names.length === 0 ? usual : SUITES.filter(({ name }) => names.some((part) => name.startsWith(part)));
  const known = ["_", "debian", "filter", "full", "help", "h", "jobs", "machine", "update"];
  const machine = args.machine as MachineKind;
  const debian = args.debian as DebianRelease;
  const unknown = names.find((part) => !SUITES.some(({ name }) => name.startsWith(part)));
  if (unknown !== undefined) console.error(`there is no suite ${unknown}`);
  const isUsage = unknown === undefined && Object.keys(args).every((flag) => known.includes(flag)) &&
    suites.length > 0 &&
    ["uml", "qemu"].includes(machine) && DEBIAN_RELEASES.includes(debian) && Number(args.jobs) >= 1;
  if (args.help || !isUsage) {
    (args.help ? console.log : console.error)(HELP);
    return args.help ? 0 : 2;
  }
  const run = await RecordedRun.begin({ needsCommit: args.update === true });
  const folder = await Deno.makeTempDir({ prefix: "denolith-bundles-" });
  try {
    const log = (line: string) => console.log(line);
    // each takes minutes the first time, most of which it waits for a mirror
    const [csiSanity, driver] = await Promise.all([
      ensureCsiSanity(log),
      ensureArtifact(log),
      ensureGuestImage(log, debian),
      ...machine === "uml" ? [ensureUml(log)] : [],
    ]);
    const modules = new Set(suites.flatMap(({ module }) => module === undefined ? [] : [module]));
    for (const module of modules) await bundle(`tests/lvm/${module}_suite.ts`, folder);
    const unsupported = UNSUPPORTED_PREFIXES[machine];
    const leftOut = [...args.full ? [] : leftOutTests(unsupported, sample), ...unsupported];
    const programs = {
      driver,
      csiSanity,
      folder,
      leftOut: leftOut.join("|"),
      machine,
      sample,
      debian,
      filter: String(args.filter),
      full: args.full === true,
      update: args.update === true,
      run,
    };
    // A few tests need no parts.
    const whole = suites.filter(({ part }) => part === undefined || part.startsWith("1/"));
    const chosen = programs.filter === "" ? suites : whole.map((suite) => ({ ...suite, part: "" }));
    const failed = await runSuites(chosen, programs, Number(args.jobs));
    if (leftOut.length > 0) {
      console.log(["left out: tests whose names begin with:", ...leftOut].join("\n  "));
      console.log("--full runs them, but for those that need another machine: " + (unsupported.join(", ") || "none"));
    }
    if (failed.length > 0) console.log(`FAILED: ${failed.join(", ")}`);
    return failed.length > 0 ? 1 : 0;
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}

if (import.meta.main) Deno.exit(await main());
