import { MODULE, PERMISSION_SET, V8_FLAGS } from "./launch.ts";
import { outcomeOf } from "./process.ts";
import type { Architecture } from "./runtime.ts";

/** How long `deno compile` may take, in milliseconds: it is done in a second or two, but for the fetching of its runtime. */
const COMPILE_MS = 60_000;

/** What `deno compile` is given. */
export interface CompileOptions {
  readonly arch: Architecture;
  /** The folder with the driver's module and its configuration, deno.json. */
  readonly folder: string;
  /** The file to make. */
  readonly output: string;
}

/**
 * Makes an executable by `deno compile`, and answers whether its runtime, which it fetches on first use, was to be had.
 *
 * @throws {Error} when `deno compile` fails for another reason; the message ends with what it said
 */
export async function compileNative({ arch, folder, output }: CompileOptions): Promise<boolean> {
  // The file's time goes into the result, which is to be the same each time.
  await Deno.utime(`${folder}/${MODULE}`, 0, 0);
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
    `--output=${output}`,
    MODULE,
  ], { cwd: folder, signal });
  if (success) return true;
  if (signal.aborted || isMissingRuntime(stderr)) return false;
  throw new Error(`${action}: deno compile failed:\n${stderr.trimEnd()}`);
}

/**
 * Whether `deno compile` failed because it could not fetch its runtime. Its error is a list of causes; that it could not store
 * what it had fetched is a failure of this machine, and no reason to do without.
 */
export function isMissingRuntime(stderr: string): boolean {
  return /^\s+(?:\d+: )?Setting up base binary\.$/m.test(stderr) && !/^\s+\d+: (?:Creating|Writing) /m.test(stderr);
}
