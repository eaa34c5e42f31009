import { pause } from "./data.ts";

/**
 * The time limit of the driver's start in milliseconds: it may have to unpack itself, which is slow on an emulated
 * machine.
 */
const START_TIMEOUT_MS = 120_000;

/** The time limit of the driver's stop in milliseconds: it waits for the command in progress. */
const STOP_TIMEOUT_MS = 30_000;

/** The number of its last log lines to keep. */
const KEPT_LOG_LINES = 200;

/** Options of the driver. */
export interface DriverOptions {
  /** The program and its arguments. */
  readonly command: readonly string[];
  /** The folder that the artifact unpacks itself into; by default it chooses one. */
  readonly cache?: string;
  /** The path of the socket in these arguments. */
  readonly socket: string;
}

/** The driver as a process of its own. */
export class DriverProcess implements AsyncDisposable {
  readonly #child: Deno.ChildProcess;
  readonly #log: string[] = [];
  readonly #logCollected: Promise<void>;
  #ended = false;
  #stopping: Promise<number> | undefined;

  private constructor(child: Deno.ChildProcess) {
    this.#child = child;
    this.#logCollected = this.#collectLog();
    child.status.then(() => this.#ended = true);
  }

  /**
   * Starts the driver and resolves when its socket answers.
   *
   * @throws {Error} when it ends or does not answer in time, with the end of its log; it is gone then
   */
  static async start(options: DriverOptions): Promise<DriverProcess> {
    const [program = "", ...args] = options.command;
    const child = new Deno.Command(program, {
      args,
      env: options.cache === undefined ? {} : { DENOLITH_CACHE: options.cache },
      detached: true, // of its own process group: a Ctrl-C is for the demo, which stops the driver in its turn
      stdin: "null",
      stdout: "null",
      stderr: "piped",
    }).spawn();
    const driver = new DriverProcess(child);
    try {
      await driver.#waitForSocket(options.socket);
    } catch (error) {
      await driver.stop();
      throw new Error([(error as Error).message, ...driver.log()].join("\n  "), { cause: error });
    }
    return driver;
  }

  /** Its process id. */
  get pid(): number {
    return this.#child.pid;
  }

  /** Returns the end of its log. */
  log(): string[] {
    return [...this.#log];
  }

  /** Asks it to end, as service managers do, and answers its exit status. It is killed if it does not within half a minute. */
  stop(): Promise<number> {
    this.#stopping ??= this.#stop();
    return this.#stopping;
  }

  /** Stops it, if that has not been done. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop();
  }

  async #stop(): Promise<number> {
    this.#kill("SIGTERM");
    const timer = setTimeout(() => this.#kill("SIGKILL"), STOP_TIMEOUT_MS);
    const { code } = await this.#child.status;
    clearTimeout(timer);
    await this.#logCollected;
    return code;
  }

  async #waitForSocket(socket: string): Promise<void> {
    const deadline = performance.now() + START_TIMEOUT_MS;
    for (;;) {
      const answered = await Deno.connect({ transport: "unix", path: socket }).then(
        (c) => (c.close(), true),
        () => false,
      );
      if (answered) return;
      if (this.#ended) throw new Error("start the driver: it ended at once");
      if (performance.now() > deadline) {
        throw new Error(`start the driver: no answer within ${START_TIMEOUT_MS / 1000} s`);
      }
      await pause(50);
    }
  }

  #kill(signal: Deno.Signal): void {
    try {
      this.#child.kill(signal);
    } catch {
      // it has ended
    }
  }

  async #collectLog(): Promise<void> {
    let rest = "";
    for await (const chunk of this.#child.stderr.pipeThrough(new TextDecoderStream())) {
      const lines = (rest + chunk).split("\n");
      rest = lines.pop() ?? "";
      this.#log.push(...lines);
      this.#log.splice(0, this.#log.length - KEPT_LOG_LINES);
    }
    if (rest !== "") this.#log.push(rest);
  }
}
