/**
 * The scripts that a developer starts: how they end, and what they have in common.
 *
 * @module
 */

/** A mistake in the command line. */
export class UsageError extends Error {}

/** Refuses an argument that is not known. @throws {UsageError} */
export function refuseArgument(arg: string): never {
  throw new UsageError(`${arg} is not understood; see --help`);
}

/** Runs a script with the arguments of this process. A failure is one line, and ends it with 1, or 2 for a mistake. */
export async function runTool(name: string, main: (args: readonly string[]) => Promise<void>): Promise<void> {
  try {
    await main(Deno.args);
  } catch (error) {
    console.error(`${name}: ${error instanceof Error ? error.message : String(error)}`);
    Deno.exit(error instanceof UsageError ? 2 : 1);
  }
}

/** Passes over a failure whose cause is that something does not exist. @throws {unknown} any other one */
export function ignoreNotFound(error: unknown): void {
  if (!(error instanceof Deno.errors.NotFound)) throw error;
}
