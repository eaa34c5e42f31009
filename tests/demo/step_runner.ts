import { type ServiceError, status } from "@grpc/grpc-js";
import { type Reporter, seconds } from "./reporter.ts";

/** The time limit of a call in milliseconds: that of the kubelet and the sidecars. */
const CALL_TIMEOUT_MS = 120_000;

/** A step that was shown. */
interface Step {
  readonly number: number;
  readonly title: string;
  calls: number;
  ms: number;
}

/** Tells the demo step by step: does the calls, notes their times, and stops at whatever is not as it should be. */
export class StepRunner {
  readonly #reporter: Reporter;
  readonly #signal: AbortSignal;
  readonly #steps: Step[] = [];
  #call: string | undefined;
  #checksums = 0;

  /** Makes a story that ends when the signal is aborted. */
  constructor(reporter: Reporter, signal: AbortSignal) {
    this.#reporter = reporter;
    this.#signal = signal;
  }

  /**
   * Runs a step of the demo.
   *
   * @throws {Error} the error of its body, with the step's title and the call before the message
   */
  async step<T>(title: string, body: () => Promise<T>): Promise<T> {
    this.#signal.throwIfAborted();
    const step: Step = { number: this.#steps.length + 1, title, calls: 0, ms: 0 };
    this.#steps.push(step);
    this.#reporter.title(heading(step));
    const start = performance.now();
    try {
      return await body();
    } catch (error) {
      if (this.#signal.aborted) throw this.#signal.reason;
      const call = this.#call === undefined ? "" : `, ${this.#call}`;
      throw new Error(`step ${step.number} (${title})${call}: ${describeError(error)}`, { cause: error });
    } finally {
      step.ms = performance.now() - start;
    }
  }

  /** Makes a call of the driver that must succeed. @returns its response */
  async call<T>(name: string, description: string, call: () => Promise<T>): Promise<T> {
    const { response, ms } = await this.#timed(name, call);
    this.#reporter.call(name, description, ms);
    this.#call = undefined;
    return response;
  }

  /** Makes a call of the driver that must be refused with the code. Prints the reason. */
  async expectRefused(name: string, description: string, code: status, call: () => Promise<unknown>): Promise<void> {
    const { response: error, ms } = await this.#timed(name, () => call().then(() => undefined, (error) => error));
    if (error?.code !== code) {
      throw error ?? new Error(`it succeeded, and should have been refused with ${status[code]}`);
    }
    this.#reporter.call(name, description, ms);
    this.#reporter.verified(`refused: ${describeError(error)}`);
    this.#call = undefined;
  }

  /** Runs work beside the calls, and announces it while it lasts. */
  async during<T>(description: string, body: () => Promise<T>): Promise<T> {
    this.#signal.throwIfAborted();
    this.#reporter.pending(description);
    return await body();
  }

  /** Says something. */
  say(text: string): void {
    this.#signal.throwIfAborted();
    this.#reporter.say(text);
  }

  /** Shows a line as it is. */
  show(text: string): void {
    this.#signal.throwIfAborted();
    this.#reporter.show(text);
  }

  /** Says what holds. @throws {Error} with what was found when it does not hold. */
  verify(claim: string, holds: boolean, found: string): void {
    this.#signal.throwIfAborted();
    if (!holds) throw new Error(`not true: ${claim}; found: ${found}`);
    this.#reporter.verified(claim);
  }

  /** Says that a checksum is the one that it should be. @throws {Error} when it is not. */
  sameChecksum(claim: string, actual: string, expected: string): void {
    this.verify(`${claim}: sha256 ${actual.slice(0, 16)}…`, actual === expected, `${actual}, should be ${expected}`);
    this.#checksums++;
  }

  /** Prints the closing table. */
  printSummary(): void {
    const rows = this.#steps.map((step) => [heading(step), String(step.calls), seconds(step.ms)]);
    const sum = (of: (step: Step) => number) => this.#steps.reduce((total, step) => total + of(step), 0);
    const total = ["    total", String(sum(({ calls }) => calls)), seconds(sum(({ ms }) => ms))];
    this.#reporter.title("What it took");
    this.#reporter.table([["    step", "calls", "time"], ...rows, total]);
    this.#reporter.title(`All checksums matched (${this.#checksums} comparisons).`);
  }

  async #timed<T>(name: string, call: () => Promise<T>): Promise<{ response: T; ms: number }> {
    this.#call = name;
    this.#signal.throwIfAborted();
    this.#reporter.pending(name);
    const start = performance.now();
    const response = await this.#withTimeout(call());
    const step = this.#steps.at(-1);
    if (step !== undefined) step.calls++;
    return { response, ms: performance.now() - start };
  }

  /** Waits for an answer, until it has taken too long or the story is ended. */
  async #withTimeout<T>(answer: Promise<T>): Promise<T> {
    using stack = new DisposableStack();
    const end = new Promise<never>((_, reject) => {
      const timer = setTimeout(
        () => reject(new Error(`no answer within ${CALL_TIMEOUT_MS / 1000} s`)),
        CALL_TIMEOUT_MS,
      );
      stack.defer(() => clearTimeout(timer));
      const onAbort = () => reject(this.#signal.reason);
      this.#signal.addEventListener("abort", onAbort);
      stack.defer(() => this.#signal.removeEventListener("abort", onAbort));
    });
    return await Promise.race([answer, end]);
  }
}

function heading({ number, title }: Step): string {
  return `${String(number).padStart(2)}  ${title}`;
}

/** Describes an error: of a refused call, its code and message. */
function describeError(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  const { code, details } = error as Partial<ServiceError>;
  return typeof code === "number" ? `${status[code]}: ${details}` : error.message;
}
