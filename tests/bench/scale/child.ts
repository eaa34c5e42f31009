/**
 * A process that carries out commands of another one. Each command is a line of JSON on its standard input, and so is each
 * answer on its standard output.
 *
 * @module
 */

import { readLines } from "../../../k8s/client/response.ts";

/** The commands of a process, by name. */
export type Commands = Readonly<Record<string, (argument: never) => unknown>>;

/** Carries out commands until standard input ends. */
export async function serveCommands<C extends Commands>(commands: C): Promise<void> {
  const answer = async ({ id, name, argument }: { id: number; name: string; argument: never }) => {
    const line = `${JSON.stringify({ id, result: await commands[name]!(argument) ?? null })}\n`;
    Deno.stdout.writeSync(new TextEncoder().encode(line));
  };
  for await (const line of readLines(Deno.stdin.readable)) void answer(JSON.parse(line));
}

/** Options of {@linkcode Child.start}. */
export interface ChildOptions {
  /** Its script. */
  readonly script: string;
  /** Its arguments. */
  readonly args: readonly string[];
  /** Flags of V8. */
  readonly v8Flags: string;
  /** Environment variables, as `NAME=VALUE`. */
  readonly env?: readonly string[];
}

/** A process that was started. */
export class Child<C extends Commands> implements AsyncDisposable {
  readonly #process: Deno.ChildProcess;
  readonly #input: WritableStreamDefaultWriter<Uint8Array>;
  readonly #waiting = new Map<number, (result: unknown) => void>();
  readonly #reading: Promise<void>;
  #nextId = 0;

  private constructor({ script, args, v8Flags, env = [] }: ChildOptions) {
    this.#process = new Deno.Command(Deno.execPath(), {
      args: ["run", "-A", "--quiet", "--no-check", `--v8-flags=${v8Flags}`, script, ...args],
      env: { DENO_NO_UPDATE_CHECK: "1", ...Object.fromEntries(env.map((entry) => entry.split("=", 2))) },
      stdin: "piped",
      stdout: "piped",
      stderr: "inherit",
    }).spawn();
    this.#input = this.#process.stdin.getWriter();
    this.#reading = this.#read();
  }

  /** Starts a process. */
  static start<C extends Commands>(options: ChildOptions): Child<C> {
    return new Child(options);
  }

  /** Its id. */
  get pid(): number {
    return this.#process.pid;
  }

  /** Sends a command. @returns the answer */
  async call<N extends keyof C & string>(
    name: N,
    ...[argument]: Parameters<C[N]>
  ): Promise<Awaited<ReturnType<C[N]>>> {
    const id = this.#nextId++;
    const answer = new Promise<unknown>((resolve) => this.#waiting.set(id, resolve));
    await this.#input.write(new TextEncoder().encode(`${JSON.stringify({ id, name, argument })}\n`));
    const ended = this.#process.status.then(({ code }) => {
      throw new Error(`the process ended with ${code} during ${name}`);
    });
    ended.catch(() => {});
    return await Promise.race([answer, ended]) as Awaited<ReturnType<C[N]>>;
  }

  async #read(): Promise<void> {
    for await (const line of readLines(this.#process.stdout)) {
      const { id, result } = JSON.parse(line);
      this.#waiting.get(id)?.(result);
      this.#waiting.delete(id);
    }
  }

  /** Ends the process at once. */
  async [Symbol.asyncDispose](): Promise<void> {
    try {
      this.#process.kill("SIGKILL");
    } catch {
      // it has ended
    }
    await this.#process.status;
    await this.#input.close().catch(() => {});
    await this.#reading;
  }
}
