/**
 * The command line: subcommands, their flags, and the help.
 *
 * @module
 */

import { parseArgs } from "@std/cli/parse-args";
import { closestString } from "@std/text/closest-string";
import type { AccessScope } from "./permissions.ts";

/** A flag of a subcommand. */
export interface Flag {
  /** What stands for its value in the help; none for a switch. */
  readonly value?: string;
  /** What it is for. */
  readonly help: string;
  /** Its value when it is not given. */
  readonly default?: () => string;
}

/** What a subcommand is about, without a flag's name. */
export interface Argument {
  /** What stands for it in the help, in capitals. */
  readonly name: string;
  /** What it is. */
  readonly help: string;
}

/** The flags that were given or have a default, by name; and the argument, by its own. */
export type Flags = Readonly<Record<string, string>>;

/** A subcommand. */
export interface Subcommand {
  /** What it does, for the list of all of them. */
  readonly summary: string;
  /** What it does, for its own help. */
  readonly about: string;
  /** What has to be named beside flags. */
  readonly argument?: Argument;
  /** Its flags by name. */
  readonly flags: Readonly<Record<string, Flag>>;
  /** A command line with it. */
  readonly example?: string;
  /**
   * What its body touches on the machine. With this the body runs in a worker that is permitted no more; without it the
   * body runs in the process itself.
   */
  access?(flags: Flags): Promise<AccessScope>;
  /** The body: answers the exit status. `end` is aborted when the process is asked to end. */
  run(flags: Flags, end: AbortSignal): Promise<number>;
}

/** The subcommands by name. */
export type Subcommands = Readonly<Record<string, Subcommand>>;

/** A mistake in the command line, as opposed to a failure. */
export class UsageError extends Error {}

/** An error in words. */
export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/** What a command line asks for: a subcommand with its flags, or words on how to use it. */
export type Request =
  | { readonly kind: "run"; readonly name: string; readonly flags: Flags }
  | { readonly kind: "help"; readonly text: string; readonly isRequested: boolean };

/** Reads a command line. @throws {UsageError} when it is not understood. */
export function parseCommandLine(subcommands: Subcommands, args: readonly string[]): Request {
  const [name, ...rest] = args;
  if (name === undefined || name === "help" || name === "--help" || name === "-h") {
    return { kind: "help", text: commandsHelp(subcommands), isRequested: name !== undefined };
  }
  const subcommand = Object.hasOwn(subcommands, name) ? subcommands[name] : undefined;
  if (subcommand === undefined) {
    throw new UsageError(
      `unknown command ${JSON.stringify(name)}; did you mean ${closestString(name, Object.keys(subcommands))}?`,
    );
  }
  const flags = parseFlags(name, subcommand, rest);
  return flags === "help"
    ? { kind: "help", text: subcommandHelp(name, subcommand), isRequested: true }
    : { kind: "run", name, flags };
}

function parseFlags(name: string, subcommand: Subcommand, args: readonly string[]): Flags | "help" {
  const known = Object.keys(subcommand.flags);
  const flagsWithValue = known.filter((flag) => subcommand.flags[flag]!.value !== undefined);
  const { argument } = subcommand;
  const parsed = parseArgs(args, {
    string: ["_", ...flagsWithValue],
    collect: flagsWithValue,
    boolean: ["help", ...known.filter((flag) => subcommand.flags[flag]!.value === undefined)],
    alias: { help: "h" },
    unknown: (arg) => {
      if (!arg.startsWith("-")) return; // an argument: they are counted below
      const flag = arg.replace(/=.*$/s, "");
      throw new UsageError(
        `${name}: unknown flag ${flag}; did you mean --${closestString(flag.replace(/^-+/, ""), [...known, "help"])}?`,
      );
    },
  });
  if (parsed.help === true) return "help";
  const positionals = parsed._.map(String);
  if (argument !== undefined && positionals.length === 0) throw new UsageError(`${name}: ${argument.name} is missing`);
  const unexpected = positionals[argument === undefined ? 0 : 1];
  if (unexpected !== undefined) throw new UsageError(`${name}: unexpected argument ${JSON.stringify(unexpected)}`);
  const argumentEntries = argument === undefined ? [] : [[argument.name, positionals[0]!]];
  return Object.fromEntries([
    ...argumentEntries,
    ...known.flatMap((flag) => {
      const values = [parsed[flag] ?? []].flat();
      if (values.length > 1) throw new UsageError(`${name}: --${flag} is given more than once`);
      const [value] = values;
      if (value === "") throw new UsageError(`${name}: --${flag} needs a value`);
      // a switch that is not given is absent, as a flag with a value is
      const text = (value === false ? undefined : value) ?? subcommand.flags[flag]!.default?.();
      return text === undefined ? [] : [[flag, String(text)]];
    }),
  ]);
}

function subcommandHelp(name: string, { about, argument, flags, example }: Subcommand): string {
  const rows = Object.entries(flags).map(([flag, { value, help, default: byDefault }]) =>
    [
      `  --${flag}${value === undefined ? "" : " " + value}`,
      `${help}${byDefault === undefined ? "" : ` (default ${byDefault()})`}`,
    ] as const
  );
  return [
    `Usage: denolith ${name}${argument === undefined ? "" : ` ${argument.name}`}${rows.length === 0 ? "" : " [flags]"}`,
    "",
    about,
    "",
    ...(argument === undefined ? [] : [...formatTable([[`  ${argument.name}`, argument.help]]), ""]),
    "Flags:",
    ...formatTable([...rows, ["  -h, --help", "show this help"]]),
    ...(example === undefined ? [] : ["", "Example:", `  ${example}`]),
  ].join("\n");
}

function commandsHelp(subcommands: Subcommands): string {
  return [
    "denolith: a CSI driver for node-local LVM storage",
    "",
    "Usage: denolith COMMAND [flags]",
    "",
    "Commands:",
    ...formatTable(Object.entries(subcommands).map(([name, { summary }]) => [`  ${name}`, summary] as const)),
    "",
    "denolith COMMAND --help tells more about each.",
  ].join("\n");
}

function formatTable(rows: readonly (readonly [string, string])[]): string[] {
  const width = Math.max(...rows.map(([left]) => left.length)) + 2;
  return rows.map(([left, right]) => left.padEnd(width) + right);
}
