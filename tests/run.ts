/**
 * `deno task test`: runs the unit and contract tests, in several processes at a time. See {@linkcode HELP}.
 *
 * It does not use `deno test --parallel`. That runs files as threads of one process, which share file descriptors: now and
 * then a thread reads a descriptor that another one has just closed.
 *
 * @module
 */

import { join, relative } from "@std/path";
import { runTestProcess } from "./rig/test_process.ts";
import { nearestNames, type Selection, selectTests, type TestFile } from "./selection.ts";

const HELP = `Usage: deno task test [-- [FILTER...] [flags]]

Runs the unit and contract tests. They need neither root nor LVM nor a cluster.

  FILTER           Run only some tests. A FILTER is the beginning of a path, such as lvm/pools or
                   csi/server_test.ts, or a part of the name of a file or of a test. A path selects
                   whole files, and so does the name of a file. The name of a test selects this test.
  --filter NAME    Run only the tests whose names contain NAME, in the selected files
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
  "tests/crash/crash_test.ts": 12,
  "tests/contract/contract_test.ts": 12,
  "tests/cluster_fake/snapshot_crash_test.ts": 8,
  "tests/compatibility/cluster_test.ts": 5,
  "tests/fuzz/fuzz_test.ts": 5,
  "csi/server_test.ts": 5,
  "tests/cluster_fake/contract_test.ts": 5,
  "tests/cluster_fake/forget_node_test.ts": 4,
  "tests/compatibility/lvm_test.ts": 4,
  "tests/machine_fake/concurrent_calls_test.ts": 4,
  "tests/crash/interleaving_test.ts": 4,
  "tests/process/main_test.ts": 6,
  "tests/process/cluster_test.ts": 4,
  "tests/process/artifact_test.ts": 3,
  "tests/process/permissions_test.ts": 2,
  "tests/rig/test_process_test.ts": 2,
  "k8s/node_removal/forget_node_test.ts": 2,
  "k8s/snapshotter/snapshotter_races_test.ts": 3,
  "tests/cluster_fake/volume_crash_test.ts": 3,
  "lvm/ids_test.ts": 2,
  "lvm/model/tags_test.ts": 2,
  "lvm/volumes/reaper_test.ts": 3,
  "tests/cluster_fake/orphans_test.ts": 2,
  "tests/cluster_fake/snapshot_faults_test.ts": 2,
  "tests/cluster_fake/snapshots_test.ts": 2,
};

/** The processor time of a file that is not slow, in seconds. */
const USUAL_SECONDS = 0.5;

/** The processor time for which files share a process, in seconds: each process takes some tenths of a second to start. */
const PART_SECONDS = 20;

/** Yields the TypeScript files below a folder. */
function* typescriptFiles(folder: string): Generator<TestFile> {
  for (const { name, isDirectory } of Deno.readDirSync(folder)) {
    const path = join(folder, name);
    if (isDirectory && !SKIPPED_FOLDERS.includes(name)) yield* typescriptFiles(path);
    else if (name.endsWith(".ts")) yield { path: relative(ROOT, path), text: Deno.readTextFileSync(path) };
  }
}

/** Divides files into parts of about {@linkcode PART_SECONDS}, the slowest part first. */
function divide(files: readonly string[]): string[][] {
  const seconds = (file: string) => SLOW_FILES[file] ?? USUAL_SECONDS;
  const parts: { files: string[]; seconds: number }[] = [];
  for (const file of files.toSorted((a, b) => seconds(b) - seconds(a))) {
    const part = parts.find((part) => part.seconds + seconds(file) <= PART_SECONDS);
    if (part === undefined) parts.push({ files: [file], seconds: seconds(file) });
    else [part.files, part.seconds] = [[...part.files, file], part.seconds + seconds(file)];
  }
  return parts.toSorted((a, b) => b.seconds - a.seconds).map(({ files }) => files);
}

/** The arguments of each `deno test`. `task check` checks the types of all files at once. */
const TEST_FLAGS = ["-A", "--quiet", "--no-check"];

/**
 * The time for which a process may print nothing, in milliseconds: the limit of a test. Far longer than any takes, also on a
 * machine with other work.
 */
const SILENCE_MS = 5 * 60_000;

/** Runs tests of a person who waits for them. @returns whether all tests passed */
async function runTests(args: readonly string[]): Promise<boolean> {
  const command = new Deno.Command(Deno.execPath(), {
    args: ["test", ...TEST_FLAGS, ...args],
    cwd: ROOT,
    stdin: "null",
  });
  return (await command.spawn().status).success;
}

/** Runs tests in a process that is killed when one of them hangs, and prints its output as a whole when it ends. */
async function runPart(args: readonly string[]): Promise<boolean> {
  const output: Uint8Array<ArrayBuffer>[] = [];
  const passed = await runTestProcess({
    args: [...TEST_FLAGS, ...args],
    cwd: ROOT,
    silenceMs: SILENCE_MS,
    onOutput: (chunk) => output.push(Uint8Array.from(chunk)),
  });
  await new Blob(output).stream().pipeTo(Deno.stdout.writable, { preventClose: true });
  return passed;
}

/** Runs parts with as many workers as there are processors, and at least two. @returns the files of the parts that failed */
async function runParts(parts: string[][], flags: readonly string[]): Promise<string[]> {
  const failed: string[] = [];
  const work = async () => {
    for (let part = parts.shift(); part !== undefined; part = parts.shift()) {
      if (!await runPart([...part, ...flags])) failed.push(...part);
    }
  };
  await Promise.all(Array.from({ length: Math.max(2, navigator.hardwareConcurrency) }, work));
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
function readArguments(args: readonly string[]): { filters: string[]; flags: string[]; update: boolean } {
  const [filters, flags] = [[] as string[], [] as string[]];
  for (let index = 0; index < args.length; index++) {
    const arg = args[index]!;
    if (arg === "--filter") flags.push(arg, args[++index] ?? "");
    else if (arg.startsWith("-")) flags.push(arg);
    else filters.push(arg);
  }
  const own = ["--", "--update", "-u"];
  return {
    filters,
    flags: flags.filter((flag) => !own.includes(flag)),
    update: flags.some((flag) => own.indexOf(flag) > 0),
  };
}

async function main(): Promise<number> {
  if (Deno.args.some((arg) => arg === "--help" || arg === "-h")) {
    console.log(HELP);
    return 0;
  }
  const { filters, flags, update } = readArguments(Deno.args);
  const sources = [...typescriptFiles(ROOT)];
  const all = sources.map(({ path }) => path).filter((path) => path.endsWith("_test.ts"));
  // What follows "--" is for the tests: assertSnapshot() reads --update.
  const testFlags = update ? [...flags, "--", "--update"] : flags;
  if (filters.length > 0 || flags.length > 0) {
    const selection = filters.length > 0 ? selectTests(sources, filters) : { files: all, byTitle: [], unmatched: [] };
    for (const filter of selection.unmatched) {
      console.error(`No test file or test matches ${JSON.stringify(filter)}. Similar names:`);
      for (const name of nearestNames(sources, filter)) console.error(`  ${name}`);
    }
    return selection.unmatched.length === 0 && await runSelection(selection, testFlags) ? 0 : 1;
  }
  const start = Date.now();
  const failed = await runParts(divide(all), testFlags);
  console.log(`${all.length} test files in ${Math.round((Date.now() - start) / 1000)} s`);
  if (failed.length > 0) console.log(`Tests failed in one or more of: ${failed.join(" ")}`);
  return failed.length > 0 ? 1 : 0;
}

Deno.exit(await main());
