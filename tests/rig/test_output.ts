/**
 * The output of test processes: printed after the name of a suite, and watched for the test that hangs.
 *
 * @module
 */

/** Deno's word about a test that takes long, which it repeats. It is no progress. */
const STILL_RUNNING = /'[^\n]*' has been running for over [^\n]*\n?/g;

// deno-lint-ignore no-control-regex
const COLORS = /\x1b\[[0-9;]*m/g;

/** The times for which a test process may print nothing, in milliseconds. */
export interface SilenceLimits {
  /** From one line to the next. */
  readonly silenceMs: number;
  /** Until the first line; the same by default. */
  readonly startMs?: number;
}

/** Calls a function when a test process has printed nothing for some time. `deno test` prints the name of each test first. */
export class SilenceLimit implements Disposable {
  readonly #limits: SilenceLimits;
  readonly #onSilence: (lastLine: string, limitMs: number) => void;
  readonly #decoder = new TextDecoder();
  #lastLines = "";
  #timer: ReturnType<typeof setTimeout>;

  /**
   * @param limits the times
   * @param onSilence receives the last line that is not empty, which names the test that runs, and the time that has passed
   */
  constructor(limits: SilenceLimits, onSilence: (lastLine: string, limitMs: number) => void) {
    this.#limits = limits;
    this.#onSilence = onSilence;
    this.#timer = this.#start(limits.startMs ?? limits.silenceMs);
  }

  #start(limitMs: number): ReturnType<typeof setTimeout> {
    const lastLine = () => this.#lastLines.trimEnd().split("\n").at(-1)!.trim();
    return setTimeout(() => this.#onSilence(lastLine(), limitMs), limitMs);
  }

  /** Takes a part of the output. */
  add(chunk: Uint8Array): void {
    const text = this.#decoder.decode(chunk, { stream: true }).replaceAll(COLORS, "").replaceAll(STILL_RUNNING, "");
    if (text.trim() === "") return;
    this.#lastLines = (this.#lastLines + text).slice(-2_000);
    clearTimeout(this.#timer);
    this.#timer = this.#start(this.#limits.silenceMs);
  }

  [Symbol.dispose](): void {
    clearTimeout(this.#timer);
  }
}

/** Prints the output of a suite line by line, after its name. */
export class SuiteLines {
  readonly #name: string;
  readonly #decoder = new TextDecoder();
  #rest = "";
  #passed = 0;

  constructor(name: string) {
    this.#name = name;
  }

  /** The number of tests that passed, by the summaries of `deno test` and csi-sanity. */
  get passed(): number {
    return this.#passed;
  }

  /** Takes a part of the output, and prints the lines that are complete, without those of ignored tests. */
  add(chunk: Uint8Array): void {
    const lines = (this.#rest + this.#decoder.decode(chunk, { stream: true })).split("\n");
    this.#rest = lines.pop() ?? "";
    for (const line of lines) this.print(line);
  }

  /** Prints what is left: the last line, if the process ended in it. */
  end(): void {
    if (this.#rest !== "") this.print(this.#rest);
    this.#rest = "";
  }

  /** Prints a line after the name. */
  print(line: string): void {
    const text = line.replaceAll(COLORS, "");
    const [, deno, ginkgo] = /^\s*(?:ok|FAILED) \| (\d+) passed|^\s*(?:SUCCESS|FAIL)! -- (\d+) Passed/.exec(text) ?? [];
    this.#passed += Number(deno ?? ginkgo ?? 0);
    if (!line.includes("... ignored")) console.log(`${this.#name} | ${line}`);
  }
}
