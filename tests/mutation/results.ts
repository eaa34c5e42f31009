/**
 * The results of all runs: a file of lines of JSON, to which runs only append, so that a run can be stopped at any time.
 *
 * @module
 */

import { dirname } from "@std/path";
import type { Mutant } from "./instrument.ts";

/** What became of a mutant. `uncovered` is one that no test reaches. */
export type Status = "killed" | "timeout" | "survived" | "uncovered";

/** A line of the file. */
export interface Result extends Mutant {
  readonly status: Status;
  /** The test that killed it. */
  readonly by?: string;
  /** What the test said. */
  readonly failure?: string;
}

/** The results by the key of the mutant. A key changes with the code around the mutant, so old results are not found. */
export class Results {
  readonly #byKey = new Map<string, Result>();
  readonly #first = new Map<string, Status>();

  private constructor(readonly path: string) {}

  /** Reads the results. @param path the file, which need not exist */
  static async read(path: string): Promise<Results> {
    const results = new Results(path);
    const text = await Deno.readTextFile(path).catch((error) => {
      if (error instanceof Deno.errors.NotFound) return "";
      throw error;
    });
    for (const line of text.split("\n")) {
      if (line === "") continue;
      try {
        const result: Result = JSON.parse(line);
        results.#remember(result);
      } catch {
        // The line of a run that was stopped while it wrote.
      }
    }
    return results;
  }

  /** Returns the result of a mutant. */
  of({ key }: Mutant): Result | undefined {
    return this.#byKey.get(key);
  }

  /** Returns what became of a mutant when it was tried first. */
  firstOf({ key }: Mutant): Status | undefined {
    return this.#first.get(key);
  }

  /** Adds a result. */
  async add(result: Result): Promise<void> {
    this.#remember(result);
    await Deno.mkdir(dirname(this.path), { recursive: true });
    await Deno.writeTextFile(this.path, `${JSON.stringify(result)}\n`, { append: true });
  }

  #remember(result: Result): void {
    this.#byKey.set(result.key, result);
    if (!this.#first.has(result.key)) this.#first.set(result.key, result.status);
  }
}

/** Reports whether a status means that a test noticed the mutant. */
export function isKilled(status: Status): boolean {
  return status === "killed" || status === "timeout";
}
