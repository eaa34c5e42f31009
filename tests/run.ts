/**
 * `deno task test`: runs the unit and contract tests, in several processes at a time. See {@linkcode HELP}.
 *
 * It does not use `deno test --parallel`. That runs files as threads of one process, which share file descriptors: now and
 * then a thread reads a descriptor that another one has just closed.
 *
 * @module
 */

import { join, relative } from "@std/path";
import { divide, failedFiles, importAll, type Part } from "./parts.ts";
import { RecordedRun } from "./record/record.ts";
import { runTestProcess } from "./rig/test_process.ts";
import { nearestNames, type Selection, selectTests, type TestFile } from "./selection.ts";

const HELP = `Usage: deno task test [-- [FILTER...] [flags]]

Runs the unit and contract tests. They need neither root nor LVM nor a cluster. Tests that start
whole processes are run by deno task test:processes, or by their names.

  FILTER           Run only some tests. A FILTER is the beginning of a path, such as lvm/pools or
                   csi/server_test.ts, or a part of the name of a file or of a test. A path selects
                   whole files, and so does the name of a file. The name of a test selects this test.
  --filter NAME    Run only the tests whose names contain NAME, in the selected files
  --tier NAME      Run only the files of a tier: processes (those that start whole processes, which
                   are left out otherwise), or crashes (those of which a sample is run otherwise)
  --update         Write the snapshots of the selected tests again. They are the expected texts in
                   __snapshots__ beside the tests: review the difference before you commit it
  -h, --help       Show this help

Other flags are passed to deno test.

Examples:
  deno task test
  deno task test -- lvm/pools
  deno task test -- "a volume in use is not deleted"
  deno task test -- cli/help --update`;

const ROOT = new URL("..", import.meta.url).pathname;

/** Folders without tests. */
const SKIPPED_FOLDERS = ["node_modules", "dist", ".git"];

/**
 * The files that take longest, with their processor time in seconds. The longest ones start first, so that all workers finish
 * at about the same time. When a file becomes slow, add it: `time deno test -A --no-check FILE` measures it.
 */
const SLOW_FILES: Readonly<Record<string, number>> = {
  "tests/contract/contract_test.ts": 18,
  "tests/crash/interleaving_test.ts": 9,
  "tests/cluster_fake/move_stalls_test.ts": 9,
  "tests/process/release_test.ts": 9,
  "tests/process/artifact_test.ts": 9,
  "tests/cluster_fake/move_test.ts": 8,
  "tests/cluster_fake/move_kill_test.ts": 6,
  "lvm/transfers/transfer_test.ts": 6,
  "tests/process/main_test.ts": 6,
  "tests/process/plugin_test.ts": 6,
  "tests/process/memory_test.ts": 6,
  "tests/crash/crash_test.ts": 5,
  "tests/cluster_fake/troubleshooting/troubleshooting_test.ts": 5,
  "tests/cluster_fake/move_forget_test.ts": 5,
  "tests/cluster_fake/move_imported_test.ts": 5,
  "tests/cluster_fake/import_return_test.ts": 5,
  "tests/cluster_fake/plugin_move_test.ts": 5,
  "tests/fuzz/fuzz_test.ts": 5,
  "tests/peers/claims_test.ts": 4,
  "tests/process/cluster_test.ts": 4,
  "csi/server_test.ts": 3,
  "tests/cluster_fake/transfers_test.ts": 3,
  "tests/cluster_fake/import_kill_test.ts": 3,
  "tests/cluster_fake/snapshot_crash_test.ts": 3,
  "tests/cluster_fake/forgotten_steps_test.ts": 3,
  "tests/cluster_fake/contract_test.ts": 2,
  "tests/machine_fake/late_failures_test.ts": 2,
  "tests/cluster_fake/import_test.ts": 2,
  "tests/cluster_fake/why_under_way_test.ts": 2,
  "tests/cluster_fake/move_changes_test.ts": 2,
  "tests/cluster_fake/move_events_test.ts": 2,
  "lvm/group_snapshots/group_snapshots_test.ts": 2,
  "tests/peers/snapshotter_test.ts": 2,
  "base/ids_test.ts": 2,
  "k8s/client/http_client_test.ts": 2,
  "deploy/chart_test.ts": 2,
  "tests/cluster_fake/plugin_rights_test.ts": 2,
  "tests/cluster_fake/plugin_import_test.ts": 2,
};

/** The files of tasks of their own. */
const TIERS: Readonly<Record<string, (file: TestFile) => boolean>> = {
  processes: ({ path }) => path.startsWith("tests/process/"),
  crashes: ({ text }) => text.includes('/rig/sample.ts"'),
};

/** The processor time of a file that is not slow, in seconds. */
const USUAL_SECONDS = 0.2;

/** Yields the TypeScript files below a folder. */
function* typescriptFiles(folder: string): Generator<TestFile> {
  for (const { name, isDirectory } of Deno.readDirSync(folder)) {
    const path = join(folder, name);
    if (isDirectory && !SKIPPED_FOLDERS.includes(name)) yield* typescriptFiles(path);
    else if (name.endsWith(".ts")) yield { path: relative(ROOT, path), text: Deno.readTextFileSync(path) };
  }
}

/** The arguments of each `deno test`. `task check` checks the types of all files at once. */
const TEST_FLAGS = ["-A", "--quiet", "--no-check", "--v8-flags=--always-sparkplug"];

/**
 * The time for which a process may print nothing, in milliseconds: the limit of a test. Far longer than any takes, also on a
 * machine with other work; those of a tier take longer, and so does the first start of a process, which compiles modules.
 */
const SILENCE_MS = { test: 60_000, tier: 15 * 60_000, start: 5 * 60_000 };

/** Runs tests of a person who waits for them. @returns whether all tests passed */
async function runTests(args: readonly string[]): Promise<boolean> {
  const command = new Deno.Command(Deno.execPath(), {
    args: ["test", ...TEST_FLAGS, ...args],
    cwd: ROOT,
    stdin: "null",
  });
  return (await command.spawn().status).success;
}

/** Writes what a part printed. */
function print(chunk: Uint8Array): void {
  for (let written = 0; written < chunk.length;) written += Deno.stdout.writeSync(chunk.subarray(written));
}

/**
 * Runs a part in a process that is killed when one of its tests hangs, and prints its output as a whole when it ends.
 *
 * @param module The path of the module that the part's shared files are imported by; it is written.
 * @param silenceMs for how long it may print nothing between two tests, in milliseconds
 * @returns the files whose tests failed
 */
async function runPart(part: Part, module: string, silenceMs: number): Promise<string[]> {
  await Deno.writeTextFile(module, importAll(part.shared, new URL("..", import.meta.url)));
  const output: Uint8Array<ArrayBuffer>[] = [];
  const passed = await runTestProcess({
    args: [...TEST_FLAGS, ...(part.shared.length > 0 ? [module] : []), ...part.alone],
    cwd: ROOT,
    silenceMs,
    startMs: SILENCE_MS.start,
    onOutput: (chunk) => output.push(Uint8Array.from(chunk)),
  });
  output.forEach(print); // not by Deno.stdout.writable, which a part that ends now may have locked
  return passed ? [] : failedFiles(await new Blob(output).text(), part);
}

/** Runs all files in parts. @returns the files whose tests failed */
async function runAll(files: readonly TestFile[], silenceMs: number): Promise<string[]> {
  const workers = navigator.hardwareConcurrency + 1; // tests also wait for timers and processes
  const parts = [...divide(files, 2 * workers, (path) => SLOW_FILES[path] ?? USUAL_SECONDS).entries()];
  const folder = await Deno.makeTempDir({ prefix: "denolith-tests-" });
  const failed: string[] = [];
  const work = async () => {
    for (let next = parts.shift(); next !== undefined; next = parts.shift()) {
      const [index, part] = next;
      failed.push(...await runPart(part, join(folder, `part_${index + 1}_test.ts`), silenceMs));
    }
  };
  try {
    await Promise.all(Array.from({ length: workers }, work));
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
  return failed;
}

/** Runs the selected files: one process for each test name, and one for all files that were selected as a whole. */
async function runSelection({ files, byTitle }: Selection, flags: readonly string[]): Promise<boolean> {
  let passed = true;
  if (files.length > 0) passed = await runTests([...files, ...flags]);
  for (const { title, files } of byTitle) {
    passed = await runTests([...files, "--filter", title, ...flags]) && passed;
  }
  return passed;
}

/** Splits the command line into filters and flags of `deno test`. */
function readArguments(
  args: readonly string[],
): { filters: string[]; flags: string[]; update: boolean; tier: string | undefined } {
  const filters: string[] = [];
  const flags: string[] = [];
  let tier: string | undefined;
  for (let index = 0; index < args.length; index++) {
    const arg = args[index]!;
    if (arg === "--filter") flags.push(arg, args[++index] ?? "");
    else if (arg === "--tier") tier = args[++index] ?? "";
    else if (arg.startsWith("-")) flags.push(arg);
    else filters.push(arg);
  }
  const own = ["--", "--update", "-u"];
  return {
    filters,
    flags: flags.filter((flag) => !own.includes(flag)),
    update: flags.some((flag) => flag === "--update" || flag === "-u"),
    tier,
  };
}

async function main(): Promise<number> {
  if (Deno.args.some((arg) => arg === "--help" || arg === "-h")) {
    console.log(HELP);
    return 0;
  }
  const { filters, flags, update, tier } = readArguments(Deno.args);
  const isInTier = tier === undefined ? (file: TestFile) => !TIERS["processes"]!(file) : TIERS[tier];
  if (isInTier === undefined) {
    console.error(`--tier ${JSON.stringify(tier)}: must be ${Object.keys(TIERS).join(" or ")}`);
    return 2;
  }
  const sources = [...typescriptFiles(ROOT)];
  const tests = sources.filter(({ path }) => path.endsWith("_test.ts"));
  // What follows "--" is for the tests: assertSnapshot() reads --update.
  const testFlags = update ? [...flags, "--", "--update"] : flags;
  if (filters.length > 0 || flags.length > 0) {
    const selection = filters.length > 0
      ? selectTests(sources, filters)
      : { files: tests.map(({ path }) => path), byTitle: [], unmatched: [] };
    for (const filter of selection.unmatched) {
      console.error(`No test file or test matches ${JSON.stringify(filter)}. Similar names:`);
      for (const name of nearestNames(sources, filter)) console.error(`  ${name}`);
    }
    return selection.unmatched.length === 0 && await runSelection(selection, testFlags) ? 0 : 1;
  }
  if (tier === "crashes") Deno.env.set("CRASHES", "all"); // for tests/rig/sample.ts
  const run = await RecordedRun.begin();
  const start = Date.now();
  const chosen = tests.filter(isInTier);
  const failed = await runAll(chosen, tier === undefined ? SILENCE_MS.test : SILENCE_MS.tier);
  console.log(`${chosen.length} test files in ${Math.round((Date.now() - start) / 1000)} s`);
  if (failed.length > 0) console.log(`Tests failed in: ${failed.join(" ")}`);
  if (failed.length === 0) await run.pass(tier === undefined ? "test" : `test:${tier}`);
  return failed.length > 0 ? 1 : 0;
}

Deno.exit(await main());
