/** Settings of {@linkcode run}. */
export interface RunOptions {
  /** Working folder; this process's own by default. */
  readonly cwd?: string;
  /** Ends the program when it is aborted. */
  readonly signal?: AbortSignal;
}

/** How a program ended, and what it printed. */
export interface Outcome {
  readonly success: boolean;
  readonly stdout: string;
  readonly stderr: string;
}

/**
 * Runs a program to its end, whatever that is. Its words come without colours.
 *
 * @param action what is being tried, in the words that the error starts with, such as "bundle main.ts"
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
    ...(cwd === undefined ? {} : { cwd }),
    ...(signal === undefined ? {} : { signal }),
  });
  const { success, stdout, stderr } = await command.output().catch((cause) => {
    throw new Error(`${action}: ${program} cannot be started: ${cause.message}`, { cause });
  });
  const decoder = new TextDecoder();
  return { success, stdout: decoder.decode(stdout), stderr: decoder.decode(stderr) };
}

/**
 * Runs a program to its good end and answers what it printed on standard output.
 *
 * @throws {Error} when the program cannot be started or fails; the message ends with what it said
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
 * Checks that a program is installed which Debian has in a package of the same name.
 *
 * @param action what is being tried, in the words that the error starts with
 * @throws {Error} naming the package, when the program cannot be started
 */
export async function requireProgram(action: string, program: string): Promise<void> {
  await outcomeOf(action, program, ["--version"]).catch((cause) => {
    throw new Error(`${action}: ${program} is not installed; run: apt-get install ${program}`, { cause });
  });
}
