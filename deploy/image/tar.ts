import { run } from "../process.ts";

/** Settings of {@linkcode makeTar}. */
export interface TarOptions {
  /** The entries of the folder to add, in this order; all of them by default. */
  readonly names?: readonly string[];
  /** Further options of tar. */
  readonly options?: readonly string[];
}

/**
 * Makes a tar file of a folder that depends on its content only: no times, no users of this machine, sorted names.
 *
 * @throws {Error} when tar fails
 */
export async function makeTar(
  folder: string,
  output: string,
  { names = ["."], options = [] }: TarOptions = {},
): Promise<void> {
  const reproducible = ["--format=ustar", "--sort=name", "--mtime=@0", "--owner=0", "--group=0", "--numeric-owner"];
  await run(`make ${output}`, "tar", [...reproducible, ...options, "-C", folder, "-cf", output, ...names]);
}
