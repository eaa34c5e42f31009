import { defined } from "../base/defined.ts";

/** Settings of {@linkcode run}. */
export interface RunOptions {
  /** Working folder; this process's own by default. */
  readonly cwd?: string;
  /** Ends the program when it is aborted. */
  readonly signal?: AbortSignal;
}

/** The result of a program. */
export interface Outcome {
  readonly success: boolean;
  readonly stdout: string;
  readonly stderr: string;
}

/**
 * Runs a program and waits until it ends. Its output has no colours.
 *
 * @param action start of the error message, such as "bundle main.ts"
 * @returns its output and whether it succeeded
 * @throws {Error} when the program cannot be started
 */
export async function outcomeOf(
  action: string,
  program: string,
  args: readonly string[],
  { cwd, signal }: RunOptions = {},
): Promise<Outcome> {
  const command = new Deno.Command(program, {
    args: [...args],
    env: { NO_COLOR: "1", DENO_NO_UPDATE_CHECK: "1" },
    stdin: "null",
    ...defined({ cwd, signal }),
  });
  const { success, stdout, stderr } = await command.output().catch((cause) => {
    throw new Error(`${action}: ${program} cannot be started: ${cause.message}`, { cause });
  });
  const decoder = new TextDecoder();
  return { success, stdout: decoder.decode(stdout), stderr: decoder.decode(stderr) };
}

/**
 * Runs a program that must succeed.
 *
 * @returns its standard output
 * @throws {Error} when the program cannot be started or fails; the message ends with its output
 */
export async function run(
  action: string,
  program: string,
  args: readonly string[],
  options: RunOptions = {},
): Promise<string> {
  const { success, stdout, stderr } = await outcomeOf(action, program, args, options);
  if (!success) throw new Error(`${action}: ${program} failed:\n${stderr.trimEnd() || stdout.trimEnd()}`);
  return stdout;
}

/**
 * Checks that a program is installed. Its Debian package must have the same name.
 *
 * @param action start of the error message
 * @throws {Error} when the program cannot be started; the message names the package
 */
export async function requireProgram(action: string, program: string): Promise<void> {
  await outcomeOf(action, program, ["--version"]).catch((cause) => {
    throw new Error(`${action}: ${program} is not installed; run: apt-get install ${program}`, { cause });
  });
}

/** Settings of {@linkcode makeTar}. */
export interface TarOptions {
  /** The entries of the folder to add, in this order; all of them by default. */
  readonly names?: readonly string[];
  /** Further options of tar. */
  readonly options?: readonly string[];
}

/**
 * Makes a tar file of a folder that depends on its content only: no times, no users of this machine, sorted names.
 *
 * @throws {Error} when tar fails
 */
export async function makeTar(
  folder: string,
  output: string,
  { names = ["."], options = [] }: TarOptions = {},
): Promise<void> {
  const reproducible = ["--format=ustar", "--sort=name", "--mtime=@0", "--owner=0", "--group=0", "--numeric-owner"];
  await run(`make ${output}`, "tar", [...reproducible, ...options, "-C", folder, "-cf", output, ...names]);
}
