/**
 * A process that runs tests of the instrumented copy.
 *
 * @module
 */

import { join } from "@std/path";
import { defined } from "../../base/defined.ts";
import { TextLineStream } from "./lines.ts";
import { MESSAGE, type Reply, type Request } from "./messages.ts";
import { MUTANT_VARIABLE } from "./switch.ts";

/** The time that a process gets to say that a test hangs, in milliseconds and as a multiple of the limit. */
const GRACE = { plusMs: 5_000, factor: 2 };

/** The programs that tests run, besides Deno. A mutant can run no others. */
const PROGRAMS: readonly string[] = ["dd", "df", "lsblk", "mkfifo", "ln"];

/** Where the driver looks for programs. */
const FOLDERS: readonly string[] = ["/usr/sbin", "/usr/bin", "/sbin", "/bin"];

/** What came of a request: a reply, or the end of a process that hung or crashed in a test. */
export type RunnerResult =
  | Exclude<Reply, { kind: "begin" }>
  | { readonly kind: "hung" | "died"; readonly test: string };

/** One runner. Dispose of it to end it. */
export class RunnerProcess implements AsyncDisposable {
  readonly #child: Deno.ChildProcess;
  readonly #lines: ReadableStreamDefaultReader<string>;
  readonly #writer: WritableStreamDefaultWriter<Uint8Array>;

  /**
   * @param copy the folder of the instrumented copy
   * @param temp the only folder that tests may write to
   * @param mutant the number of a mutant that is active from the start
   */
  constructor(copy: string, temp: string, mutant?: number) {
    const programs = FOLDERS.flatMap((folder) => PROGRAMS.map((program) => join(folder, program)));
    const command = new Deno.Command(Deno.execPath(), {
      args: [
        ...["run", "--quiet", "--no-check", "--no-prompt", "--no-lock", "--v8-flags=--expose-gc"],
        ...["--allow-read", `--allow-write=${temp}`, "--allow-net", "--allow-env", "--allow-sys"],
        `--allow-run=${[Deno.execPath(), ...programs].join()}`,
        join(copy, "tests/mutation/runner.ts"),
      ],
      cwd: copy,
      // each process has to draw the same tests, as their numbers are kept
      env: { TMPDIR: temp, SAMPLE: "mutants", ...defined({ [MUTANT_VARIABLE]: mutant?.toString() }) },
      stdin: "piped",
      stdout: "piped",
      stderr: "null",
    });
    this.#child = command.spawn();
    this.#lines = this.#child.stdout.pipeThrough(new TextDecoderStream()).pipeThrough(new TextLineStream()).getReader();
    this.#writer = this.#child.stdin.getWriter();
  }

  /** Sends a request, and waits for its end. */
  async request(request: Request): Promise<RunnerResult> {
    let [test, limitMs] = ["the start", 60_000];
    await this.#writer.write(new TextEncoder().encode(`${JSON.stringify(request)}\n`)).catch(() => {});
    while (true) {
      const line = await this.#nextLine(GRACE.factor * limitMs + GRACE.plusMs);
      if (line === undefined || line === "hung") return { kind: line === undefined ? "died" : "hung", test };
      if (!line.startsWith(MESSAGE)) continue;
      const reply: Reply = JSON.parse(line.slice(MESSAGE.length));
      if (reply.kind !== "begin") return reply;
      ({ test, limitMs } = reply);
    }
  }

  async #nextLine(limitMs: number): Promise<string | undefined> {
    let timer: ReturnType<typeof setTimeout> | undefined;
    const hung = new Promise<"hung">((resolve) => timer = setTimeout(() => resolve("hung"), limitMs));
    const line = this.#lines.read().then(({ value }) => value, () => undefined);
    try {
      return await Promise.race([line, hung]);
    } finally {
      clearTimeout(timer);
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    try {
      this.#child.kill("SIGKILL");
    } catch {
      // It has ended.
    }
    await this.#writer.abort().catch(() => {});
    await this.#lines.cancel().catch(() => {});
    await this.#child.status;
  }
}
