import { SilenceLimit } from "./test_output.ts";

/** A run of `deno test`. */
export interface TestProcess {
  /** The arguments after `deno test`. */
  readonly args: readonly string[];
  /** Variables on top of this process's own. */
  readonly env?: Record<string, string>;
  /** The working folder; this process's own by default. */
  readonly cwd?: string;
  /**
   * The time for which it may print nothing, in milliseconds: the limit of a test, since the name of each is printed. With
   * `--parallel` the names come too late for that.
   */
  readonly silenceMs: number;
  /** The same until it prints something, while it loads the modules; `silenceMs` by default. */
  readonly startMs?: number;
  /** Receives what it prints, standard output and error in one. */
  readonly onOutput: (chunk: Uint8Array) => void;
}

/**
 * Runs `deno test` in a process that ends with this one. When it prints nothing for too long, it is killed, and a line names
 * the test that hangs.
 *
 * @returns whether all tests passed
 */
export async function runTestProcess({ silenceMs, startMs = silenceMs, ...options }: TestProcess): Promise<boolean> {
  const { args, env, cwd, onOutput } = options;
  const command = new Deno.Command(Deno.execPath(), {
    args: ["test", ...args],
    ...(env && { env }),
    ...(cwd === undefined ? {} : { cwd }),
    stdin: "null",
    stdout: "piped",
    stderr: "piped",
  });
  const child = command.spawn();
  let isRunning = true;
  const kill = () => isRunning && child.kill("SIGKILL");
  let isSilent = false;
  const stopped = new AbortController();
  using silence = new SilenceLimit({ silenceMs, startMs }, (lastLine, limitMs) => {
    isSilent = true;
    kill();
    // Processes that its tests started may hold the pipes open.
    stopped.abort();
    const seconds = limitMs / 1000;
    const line =
      `\nFAILED | 0 passed | 1 failed: no output for ${seconds} s, killed process ${child.pid} after: ${lastLine}\n`;
    onOutput(new TextEncoder().encode(line));
  });
  globalThis.addEventListener("unload", kill);
  const read = (stream: ReadableStream<Uint8Array>) => {
    const sink = new WritableStream<Uint8Array>({
      write: (chunk) => {
        silence.add(chunk);
        onOutput(chunk);
      },
    });
    return stream.pipeTo(sink, { signal: stopped.signal }).catch((error) => {
      if (!stopped.signal.aborted) throw error;
    });
  };
  try {
    await Promise.all([read(child.stdout), read(child.stderr)]);
    const { success } = await child.status;
    return success && !isSilent;
  } finally {
    isRunning = false;
    globalThis.removeEventListener("unload", kill);
  }
}
