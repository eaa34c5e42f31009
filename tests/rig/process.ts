import type { TempFolder } from "./temp_folder.ts";

/** Settings of {@linkcode run}. */
export interface RunOptions {
  /** Working folder; this process's own by default. */
  cwd?: string;
  /** Variables on top of this process's own. */
  env?: Record<string, string>;
  /** Is given each line of standard output and standard error as it comes. */
  onLine?: (line: string) => void;
  /** The folder that the program works in. The program is killed when this process ends. */
  guardedBy?: TempFolder;
}

/** The number of a failed program's last lines that its error shows. */
const LINES_IN_ERROR = 15;

/** Returns the search path with the system folders, which ordinary users' paths leave out on Debian. */
export function searchPath(): string {
  return [Deno.env.get("PATH"), "/usr/local/sbin", "/usr/sbin", "/sbin"].filter(Boolean).join(":");
}

/** Returns the environment of every program that the rig runs. */
export function toolEnvironment(): Record<string, string> {
  return { LC_ALL: "C", DEBIAN_FRONTEND: "noninteractive", PATH: searchPath() };
}

/**
 * Runs a program to its end.
 *
 * @param action what is being tried, in the words that the error starts with, such as "make the root image" @returns
 * its standard output @throws {Error} when the program cannot be started or fails; the message ends with its last lines
 */
export async function run(
  action: string,
  program: string,
  args: readonly string[],
  options: RunOptions = {},
): Promise<string> {
  const child = spawn(action, program, args, options);
  await options.guardedBy?.guard(child.pid);
  const printed: string[] = [];
  const tail: string[] = [];
  const keepLine = (line: string) => {
    options.onLine?.(line);
    tail.push(line);
    if (tail.length > LINES_IN_ERROR) tail.shift();
  };
  const [status] = await Promise.all([
    child.status,
    eachLine(child.stdout, (line) => {
      printed.push(line);
      keepLine(line);
    }),
    eachLine(child.stderr, keepLine),
  ]);
  await options.guardedBy?.guard(undefined);
  if (!status.success) {
    const failureCause = status.signal ? `was ended by ${status.signal}` : `failed with exit status ${status.code}`;
    throw new Error(
      `${action}: ${program} ${failureCause}${tail.length ? ":\n  " + tail.join("\n  ") : " without a word"}`,
    );
  }
  return printed.join("\n");
}

/** Reports whether a program with this name is on the search path. */
export async function hasProgram(program: string): Promise<boolean> {
  for (const folder of searchPath().split(":")) {
    const found = await Deno.stat(`${folder}/${program}`).catch(() => undefined);
    if (found?.isFile) return true;
  }
  return false;
}

function spawn(action: string, program: string, args: readonly string[], options: RunOptions): Deno.ChildProcess {
  try {
    return new Deno.Command(program, {
      args: [...args],
      ...(options.cwd === undefined ? {} : { cwd: options.cwd }),
      env: { ...toolEnvironment(), ...options.env },
      stdin: "null",
      stdout: "piped",
      stderr: "piped",
    }).spawn();
  } catch (cause) {
    throw new Error(`${action}: ${program} cannot be started: ${(cause as Error).message}`, { cause });
  }
}

async function eachLine(stream: ReadableStream<Uint8Array>, onLine: (line: string) => void): Promise<void> {
  const decoder = new TextDecoder();
  let rest = "";
  for await (const chunk of stream) {
    const lines = (rest + decoder.decode(chunk, { stream: true })).split("\n");
    rest = lines.pop() ?? "";
    lines.forEach(onLine);
  }
  if (rest !== "") onLine(rest);
}
