import { join } from "@std/path";
import { MODULE, PERMISSION_SET, PLUGIN_MODULE, PLUGIN_PERMISSION_SET, V8_FLAGS, WORKER_MODULE } from "./launch.ts";
import { type Outcome, outcomeOf, type RunOptions } from "./process.ts";
import { isProgram, nameOf, type Target } from "./runtime.ts";

/** Time limit of `deno compile` with a runtime that is on this machine, in milliseconds. It takes a second or two. */
const COMPILE_MS = 30_000;

/** Time limit of the download of the runtime, some 40 MB, in milliseconds. */
const DOWNLOAD_MS = 600_000;

/** Time limit of the request that asks whether the runtime can be downloaded, in milliseconds. */
const PROBE_MS = 5_000;

/** Options of {@linkcode compileNative}. */
export interface CompileOptions extends Target {
  /** Folder with the driver's modules and its configuration, deno.json. */
  readonly folder: string;
  /** Path of the file to write. */
  readonly output: string;
  /** What is compiled; the driver by default. A program of `deno compile` has one permission set. */
  readonly program?: NativeProgram;
}

/** A program that is compiled: its module, those that it loads while it runs, and its permission set. */
interface NativeProgram {
  readonly module: string;
  readonly includes: readonly string[];
  readonly permissionSet: string;
}

const DRIVER: NativeProgram = { module: MODULE, includes: [WORKER_MODULE], permissionSet: PERMISSION_SET };

/** The kubectl plugin. */
export const NATIVE_PLUGIN: NativeProgram = {
  module: PLUGIN_MODULE,
  includes: [],
  permissionSet: PLUGIN_PERMISSION_SET,
};

/**
 * Returns why `deno compile` cannot have its runtime for a target, or `undefined` if it can: from DENORT_BIN, from Deno's
 * cache, or by a download, which is made then.
 *
 * @throws {Error} when DENORT_BIN cannot be read, or `deno compile` fails for another reason
 */
export async function runtimeMissing(target: Target): Promise<string | undefined> {
  const reason = await missingReason(target);
  return reason && `the runtime of deno compile ${Deno.version.deno} for ${nameOf(target)} is missing: ${reason}`;
}

async function missingReason(target: Target): Promise<string | undefined> {
  const given = Deno.env.get("DENORT_BIN");
  if (given !== undefined) {
    return isProgram(await Deno.readFile(given), target) ? undefined : "DENORT_BIN is no program for it";
  }
  const folder = await Deno.makeTempDir();
  try {
    await Deno.writeTextFile(join(folder, MODULE), "");
    const signal = AbortSignal.timeout(await canDownload(target) ? DOWNLOAD_MS : COMPILE_MS);
    const { success, stderr } = await denoCompile(target, ["--output=program", MODULE], { cwd: folder, signal });
    if (success) return undefined;
    if (signal.aborted) return "it could not be downloaded in time";
    if (isMissingRuntime(stderr)) return lastCause(stderr);
    throw new Error(`compile for ${nameOf(target)}: deno compile failed:\n${stderr.trimEnd()}`);
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}

/** Returns the last cause of an error of Deno. */
function lastCause(stderr: string): string {
  const causes = stderr.split("\n\nStack backtrace")[0]!.trimEnd().split("\n");
  return causes.at(-1)!.replace(/^ +(?:\d+: )?/, "");
}

/** Reports whether the server with the runtimes answers. */
async function canDownload(target: Target): Promise<boolean> {
  const url = `https://dl.deno.land/release/v${Deno.version.deno}/denort-${triple(target)}.zip`;
  try {
    return (await fetch(url, { method: "HEAD", signal: AbortSignal.timeout(PROBE_MS) })).ok;
  } catch {
    return false;
  }
}

/** What Rust adds to an architecture, by system. */
const TRIPLES = { linux: "unknown-linux-gnu", darwin: "apple-darwin", windows: "pc-windows-msvc" } as const;

/** Returns what Deno calls a target. */
function triple({ system = "linux", arch }: Target): string {
  return `${arch}-${TRIPLES[system]}`;
}

function denoCompile(target: Target, args: readonly string[], options: RunOptions): Promise<Outcome> {
  const flags = ["--quiet", "--no-check", "--no-prompt", `--target=${triple(target)}`];
  return outcomeOf(`compile for ${nameOf(target)}`, Deno.execPath(), ["compile", ...flags, ...args], options);
}

/**
 * Builds an executable with `deno compile`, for which no {@linkcode runtimeMissing}.
 *
 * @throws {Error} when `deno compile` fails; the message ends with its output
 */
export async function compileNative({ folder, output, program = DRIVER, ...target }: CompileOptions): Promise<void> {
  const { module, includes, permissionSet } = program;
  // The modification times are part of the result, and the result must be reproducible.
  for (const file of [module, ...includes]) await Deno.utime(`${folder}/${file}`, 0, 0);
  const { success, stderr } = await denoCompile(target, [
    "--config=deno.json",
    `--permission-set=${permissionSet}`,
    `--v8-flags=${V8_FLAGS}`,
    ...includes.map((file) => `--include=${file}`),
    `--output=${output}`,
    module,
  ], { cwd: folder, signal: AbortSignal.timeout(COMPILE_MS) });
  if (!success) throw new Error(`compile for ${nameOf(target)}: deno compile failed:\n${stderr.trimEnd()}`);
}

/**
 * Reports whether `deno compile` failed because it could not download its runtime. Its error is a list of causes. A failure
 * to store the download is a problem of this machine, and does not count.
 */
export function isMissingRuntime(stderr: string): boolean {
  return /^\s+(?:\d+: )?Setting up base binary\.$/m.test(stderr) && !/^\s+\d+: (?:Creating|Writing) /m.test(stderr);
}
