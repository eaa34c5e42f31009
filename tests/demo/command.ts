import { searchPath } from "../rig/process.ts";

/**
 * Runs a program to its end. It gets a process group of its own, so that a Ctrl-C for the demo does not interrupt it.
 *
 * @param action what is being tried, in the words that the error starts with @returns its standard output @throws
 * {Error} when the program cannot be started or fails
 */
export async function run(action: string, program: string, args: readonly string[]): Promise<string> {
  const { code, stdout, stderr } = await output(action, program, args);
  if (code === 0) return stdout;
  throw new Error(`${action}: ${program} failed with exit status ${code}: ${stderr.trim() || stdout.trim()}`);
}

/** Reports whether a program can be started and succeeds. */
export async function succeeds(program: string, args: readonly string[]): Promise<boolean> {
  return await output("try", program, args).then(({ code }) => code === 0, () => false);
}

async function output(action: string, program: string, args: readonly string[]) {
  const command = new Deno.Command(program, {
    args: [...args],
    env: { LC_ALL: "C", PATH: searchPath(), LVM_SUPPRESS_FD_WARNINGS: "1" },
    detached: true,
    stdin: "null",
    stdout: "piped",
    stderr: "piped",
  });
  const { code, stdout, stderr } = await command.output().catch((cause: Error) => {
    throw new Error(`${action}: ${program} cannot be started: ${cause.message}`, { cause });
  });
  const decoder = new TextDecoder();
  return { code, stdout: decoder.decode(stdout), stderr: decoder.decode(stderr) };
}
