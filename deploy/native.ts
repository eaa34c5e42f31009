import { MODULE, PERMISSION_SET, PLUGIN_MODULE, PLUGIN_PERMISSION_SET, V8_FLAGS, WORKER_MODULE } from "./launch.ts";
import { outcomeOf } from "./process.ts";
import type { Architecture } from "./runtime.ts";

/** Time limit of `deno compile`, in milliseconds. It takes one or two seconds, and longer to download its runtime. */
const COMPILE_MS = 60_000;

/** Options of {@linkcode compileNative}. */
export interface CompileOptions {
  readonly arch: Architecture;
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
 * Builds an executable with `deno compile`, which downloads its runtime on first use.
 *
 * @returns whether the runtime could be downloaded
 * @throws {Error} when `deno compile` fails for another reason; the message ends with its output
 */
export async function compileNative({ arch, folder, output, program = DRIVER }: CompileOptions): Promise<boolean> {
  const { module, includes, permissionSet } = program;
  // The modification times are part of the result, and the result must be reproducible.
  for (const file of [module, ...includes]) await Deno.utime(`${folder}/${file}`, 0, 0);
  const signal = AbortSignal.timeout(COMPILE_MS);
  const action = `compile for ${arch}`;
  const { success, stderr } = await outcomeOf(action, Deno.execPath(), [
    "compile",
    "--quiet",
    "--no-check",
    "--no-prompt",
    "--config=deno.json",
    `--permission-set=${permissionSet}`,
    `--v8-flags=${V8_FLAGS}`,
    `--target=${arch}-unknown-linux-gnu`,
    ...includes.map((file) => `--include=${file}`),
    `--output=${output}`,
    module,
  ], { cwd: folder, signal });
  if (success) return true;
  if (signal.aborted || isMissingRuntime(stderr)) return false;
  throw new Error(`${action}: deno compile failed:\n${stderr.trimEnd()}`);
}

/**
 * Reports whether `deno compile` failed because it could not download its runtime. Its error is a list of causes. A failure
 * to store the download is a problem of this machine, and does not count.
 */
export function isMissingRuntime(stderr: string): boolean {
  return /^\s+(?:\d+: )?Setting up base binary\.$/m.test(stderr) && !/^\s+\d+: (?:Creating|Writing) /m.test(stderr);
}
