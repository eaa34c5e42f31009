/**
 * What runs the commands of a process that may die.
 *
 * @module
 */

import type { Command, Exec, Output } from "../../lvm/exec.ts";
import type { FakeMachine } from "./machine.ts";

/** A machine as a process sees it, which may die: then its commands answer no more, and their streams end. */
export class MortalExec implements Exec {
  #isDead = false;
  readonly #death = Promise.withResolvers<undefined>();

  constructor(readonly machine: FakeMachine) {}

  /** Ends the process. */
  die(): void {
    this.#isDead = true;
    this.#death.resolve(undefined);
  }

  async run(command: Command): Promise<Output> {
    const { input, onOutput } = command;
    if (this.#isDead) return await new Promise(() => {});
    const output = await this.machine.run({
      ...command,
      ...(input && { input: this.#untilDeath(input) }),
      ...(onOutput && {
        onOutput: async (part) => {
          if (this.#isDead) throw new Error("SIGPIPE");
          await Promise.race([onOutput(part), this.#death.promise]);
        },
      }),
    });
    return this.#isDead ? await new Promise(() => {}) : output;
  }

  async *#untilDeath(input: NonNullable<Command["input"]>) {
    const parts = input[Symbol.asyncIterator]();
    for (;;) {
      const next = await Promise.race([parts.next(), this.#death.promise]);
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
