/**
 * The command line: parses subcommands and their flags, and formats the help.
 *
 * @module
 */

import { parseArgs } from "@std/cli/parse-args";
import { closestString } from "@std/text/closest-string";
import type { AccessScope } from "./permissions.ts";

/** A flag of a subcommand. */
export interface Flag {
  /** Placeholder of its value in the help; absent for a switch. */
  readonly value?: string;
  /** Description for the help. */
  readonly help: string;
  /** Returns the value of a flag that is not given. */
  readonly default?: () => string;
}

/** The positional argument of a subcommand. */
export interface Argument {
  /** Placeholder in the help, in capitals. */
  readonly name: string;
  /** Description for the help. */
  readonly help: string;
}

/** Values of the flags that are given or have a default, by name, and of the argument, by its placeholder. */
export type Flags = Readonly<Record<string, string>>;

/** A subcommand. */
export interface Subcommand {
  /** Description of one line, for the list of subcommands. */
  readonly summary: string;
  /** Description for its own help: paragraphs, separated by empty lines. */
  readonly about: string;
  /** Positional argument, which is required. */
  readonly argument?: Argument;
  /** Flags by name. */
  readonly flags: Readonly<Record<string, Flag>>;
  /** Example of a command line. */
  readonly example?: string;
  /**
   * Returns what its body may access. The body runs in a worker that is permitted no more. A subcommand without this
   * method runs in the process itself.
   */
  access?(flags: Flags): Promise<AccessScope>;
  /**
   * Runs its body.
   *
   * @param end aborted when the process is asked to end
   * @returns the exit status
   */
  run(flags: Flags, end: AbortSignal): Promise<number>;
}

/** Width of the help, in columns. */
const MAX_COLUMNS = 100;

/** Width of the left column of a table in the help, in columns. */
const MAX_LEFT_COLUMNS = 30;

/** Subcommands by name. */
export type Subcommands = Readonly<Record<string, Subcommand>>;

/** An error in the command line, as opposed to a failure of the subcommand. */
export class UsageError extends Error {}

/** Returns the message of an error, or a thrown value as a string. */
export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/** A parsed command line: a subcommand with its flags, or the help. */
export type Request =
  | { readonly kind: "run"; readonly name: string; readonly flags: Flags }
  | { readonly kind: "help"; readonly text: string; readonly isRequested: boolean };

/**
 * Parses a command line.
 *
 * @param args the arguments, beginning with the subcommand
 * @throws {UsageError} for an unknown subcommand or flag, a missing value, or an unexpected argument
 */
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
      if (!arg.startsWith("-")) return; // positional arguments are counted below
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
      // parseArgs() reports a switch that is not given as false; here it is absent, like any other flag
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
    ...wrap(about, MAX_COLUMNS),
    "",
    ...(argument === undefined ? [] : [...formatTable([[`  ${argument.name}`, argument.help]]), ""]),
    "Flags:",
    ...formatTable([...rows, ["  -h, --help", "Show this help"]]),
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
    'Use "denolith COMMAND --help" for more information about a command.',
  ].join("\n");
}

/** Formats rows in two columns. A left cell that is wider than its column stands on a line of its own. */
function formatTable(rows: readonly (readonly [string, string])[]): string[] {
  const width = Math.min(Math.max(...rows.map(([left]) => left.length)), MAX_LEFT_COLUMNS) + 2;
  const indent = " ".repeat(width);
  return rows.flatMap(([left, right]) => {
    const [first = "", ...rest] = wrap(right, MAX_COLUMNS - width);
    const firstLines = left.length + 2 > width ? [left, indent + first] : [left.padEnd(width) + first];
    return [...firstLines, ...rest.map((line) => indent + line)];
  });
}

/** Breaks a text into lines of at most so many columns. Line feeds of the text stay. */
function wrap(text: string, columns: number): string[] {
  return text.split("\n").flatMap((paragraph) => {
    const lines: string[] = [];
    for (const word of paragraph.split(" ")) {
      const line = lines.at(-1);
      if (line === undefined || line.length + 1 + word.length > columns) lines.push(word);
      else lines[lines.length - 1] = `${line} ${word}`;
    }
    return lines;
  });
}
