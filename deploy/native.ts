import { MODULE, PERMISSION_SET, V8_FLAGS, WORKER_MODULE } from "./launch.ts";
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
}

/**
 * Builds an executable with `deno compile`, which downloads its runtime on first use.
 *
 * @returns whether the runtime could be downloaded
 * @throws {Error} when `deno compile` fails for another reason; the message ends with its output
 */
export async function compileNative({ arch, folder, output }: CompileOptions): Promise<boolean> {
  // The modification times are part of the result, and the result must be reproducible.
  for (const module of [MODULE, WORKER_MODULE]) await Deno.utime(`${folder}/${module}`, 0, 0);
  const signal = AbortSignal.timeout(COMPILE_MS);
  const action = `compile for ${arch}`;
  const { success, stderr } = await outcomeOf(action, Deno.execPath(), [
    "compile",
    "--quiet",
    "--no-check",
    "--no-prompt",
    "--config=deno.json",
    `--permission-set=${PERMISSION_SET}`,
    `--v8-flags=${V8_FLAGS}`,
    `--target=${arch}-unknown-linux-gnu`,
    `--include=${WORKER_MODULE}`,
    `--output=${output}`,
    MODULE,
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
