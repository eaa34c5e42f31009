/**
 * What runs the commands of a process that may be killed.
 *
 * @module
 */

import type { Command, Exec, Output } from "../../../lvm/exec.ts";
import type { FakeMachine } from "./machine.ts";

/** A machine as a process sees it, which may be killed: then its commands answer no more, and their streams end. */
export class KillableExec implements Exec {
  #isKilled = false;
  readonly #killed = Promise.withResolvers<undefined>();

  constructor(readonly machine: FakeMachine) {}

  /** Kills the process. */
  kill(): void {
    this.#isKilled = true;
    this.#killed.resolve(undefined);
  }

  async run(command: Command): Promise<Output> {
    const { input, onOutput } = command;
    if (this.#isKilled) return await new Promise(() => {});
    const output = await this.machine.run({
      ...command,
      ...(input && { input: this.#untilKilled(input) }),
      ...(onOutput && {
        onOutput: async (part) => {
          if (this.#isKilled) throw new Error("SIGPIPE");
          await Promise.race([onOutput(part), this.#killed.promise]);
        },
      }),
    });
    return this.#isKilled ? await new Promise(() => {}) : output;
  }

  async *#untilKilled(input: NonNullable<Command["input"]>) {
    const parts = input[Symbol.asyncIterator]();
    for (;;) {
      const next = await Promise.race([parts.next(), this.#killed.promise]);
      if (next === undefined || next.done) return;
      yield next.value;
    }
  }

  idle(): Promise<void> {
    return Promise.resolve();
  }

  readMountTable(): Promise<string | undefined> {
    return this.machine.readMountTable();
  }
}
