/**
 * Starts the driver for tests as a process of its own, under the permission set of deno.json.
 *
 * @module
 */

import { V8_FLAGS } from "../../deploy/launch.ts";

/** The flags of `deno run` before the driver's module. They need a configuration file with the permission set. */
export const DRIVER_FLAGS = ["--quiet", "--no-prompt", "-P=denolith", `--v8-flags=${V8_FLAGS}`] as const;

const ROOT = new URL("../../", import.meta.url).pathname;

/** Returns the flags of a subcommand, as its help lists them. @throws {Error} with its output when it prints no help */
export async function subcommandFlags(subcommand: string): Promise<string[]> {
  const args = ["run", ...DRIVER_FLAGS, `${ROOT}main.ts`, subcommand, "--help"];
  const output = await new Deno.Command(Deno.execPath(), { args, env: { NO_COLOR: "1" } }).output();
  const [help, complaint] = [output.stdout, output.stderr].map((bytes) => new TextDecoder().decode(bytes));
  if (!output.success) throw new Error(`ask for the flags of ${subcommand}: ${complaint}`);
  return [...help!.matchAll(/^ {2}--([a-z-]+)/gm)].map(([, flag]) => flag!);
}
