/**
 * `deno task test`: the unit and contract tests, in as many processes at a time as there are processors, two at least.
 *
 * Not by `--parallel`, which runs files as threads of one process: those share file descriptors, and now and then one reads a
 * descriptor that another has just closed.
 *
 * `deno task test -- FILES`: only these files or folders, in one process. Flags of `deno test` may stand among them, such as
 * `--filter`.
 *
 * @module
 */

import { join, relative } from "@std/path";

const ROOT = new URL("..", import.meta.url).pathname;

/** Folders without tests. */
const SKIPPED_FOLDERS = ["node_modules", "dist", ".git"];

/** The files that take longest, so that they are not all in one process. */
const SLOW = [
  "tests/process/main_test.ts",
  "csi/server_test.ts",
  "tests/crash/crash_test.ts",
  "tests/contract/contract_test.ts",
  "tests/process/permissions_test.ts",
  "tests/process/cluster_test.ts",
  "tests/machine_fake/faults_test.ts",
  "tests/crash/interleaving_test.ts",
];

function* testFiles(folder: string): Generator<string> {
  for (const { name, isDirectory } of Deno.readDirSync(folder)) {
    const path = join(folder, name);
    if (isDirectory && !SKIPPED_FOLDERS.includes(name)) yield* testFiles(path);
    else if (name.endsWith("_test.ts")) yield relative(ROOT, path);
  }
}

/** Into how many parts the files are divided for each process that runs at a time, so that all have something to do to the end. */
const PARTS_PER_WORKER = 3;

/** Deals the files out, the slow ones first. */
function distribute(files: readonly string[], parts: number): string[][] {
  const rank = (file: string) => (SLOW.indexOf(file) + SLOW.length + 1) % (SLOW.length + 1);
  const sorted = files.toSorted((a, b) => rank(a) - rank(b) || (a < b ? -1 : 1));
  return Array.from({ length: parts }, (_, part) => sorted.filter((_, index) => index % parts === part));
}

/** Runs `deno test`, and prints what it says line by line; answers whether all went well. */
async function runTests(args: readonly string[]): Promise<boolean> {
  const child = new Deno.Command(Deno.execPath(), {
    args: ["test", "-A", "--quiet", "--no-check", ...args], // types are the task check's, which looks at them once for all
    cwd: ROOT,
    stdin: "null",
    stdout: "piped",
    stderr: "piped",
  }).spawn();
  await Promise.all([print(child.stdout), print(child.stderr)]);
  return (await child.status).success;
}

async function print(stream: ReadableStream<Uint8Array<ArrayBuffer>>): Promise<void> {
  let rest = "";
  for await (const text of stream.pipeThrough(new TextDecoderStream())) {
    const lines = (rest + text).split("\n");
    rest = lines.pop()!;
    for (const line of lines) console.log(line);
  }
  if (rest !== "") console.log(rest);
}

const workers = Math.max(2, navigator.hardwareConcurrency);
// `deno task` passes a "--" on. To deno test it would mean that no file is chosen, and all would run in one process.
const chosen = Deno.args[0] === "--" ? Deno.args.slice(1) : Deno.args;
// Chosen files run in one process.
const parts = chosen.length > 0 ? [chosen] : distribute([...testFiles(ROOT)], workers * PARTS_PER_WORKER);
let passed = true;
const runParts = async () => {
  for (let part = parts.shift(); part !== undefined; part = parts.shift()) passed = await runTests(part) && passed;
};
await Promise.all(Array.from({ length: workers }, runParts));
Deno.exit(passed ? 0 : 1);
