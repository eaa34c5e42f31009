/**
 * The command line: parses subcommands and their flags, and formats the help.
 *
 * @module
 */

import { parseArgs } from "@std/cli/parse-args";
import { closestString } from "@std/text/closest-string";
import { StorageError } from "../lvm/error.ts";
import type { AccessScope } from "./permissions.ts";

/** A flag of a subcommand. */
export interface Flag {
  /** Placeholder of its value in the help; absent for a switch. */
  readonly value?: string;
  /** Description for the help. */
  readonly help: string;
  /** Returns the value of a flag that is not given. */
  readonly default?: () => string;
  /** Checks a value, see {@linkcode Check}. Without it, any text is accepted. */
  readonly check?: Check;
  /** One letter that stands for the flag after a single dash. */
  readonly short?: string;
  /** The values that it accepts, where they are few; for the completion of shells. */
  readonly words?: readonly string[];
}

/**
 * Checks a value by parsing it. It reads nothing, so that a wrong value is reported whatever the state of the machine.
 *
 * @param field the flag or argument as the user wrote it, with which the message of an error begins
 * @throws {Error} for a wrong value; the message has the value, and what is accepted
 */
export type Check = (value: string, field: string) => unknown;

/** The positional argument of a subcommand. */
export interface Argument {
  /** Placeholder in the help, in capitals. */
  readonly name: string;
  /** Description for the help. */
  readonly help: string;
  /** Checks its value, see {@linkcode Check}. */
  readonly check?: Check;
  /** The values that it accepts, where they are few; for the completion of shells. */
  readonly words?: readonly string[];
  /** The resource whose names it accepts, as of `kubectl get`; for the completion of shells. */
  readonly resource?: string;
}

/** Values of the flags that are given or have a default, by name, and of the argument, by its placeholder. */
export type Flags = Readonly<Record<string, string>>;

/** A program with subcommands, for its help and its messages. */
export interface Program {
  /** Its name, as users type it. */
  readonly name: string;
  /** Description of one line. */
  readonly summary: string;
}

/** The driver. */
const DENOLITH: Program = { name: "denolith", summary: "denolith: a CSI driver for node-local LVM storage" };

/** What the help says of a subcommand. */
export interface SubcommandHelp {
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
}

/** A subcommand whose body runs in the worker. */
interface WorkingSubcommand extends SubcommandHelp {
  /** Returns what its body may access. The worker is permitted no more. */
  access(flags: Flags): Promise<AccessScope>;
}

/** A subcommand that only prints a text. */
interface PrintingSubcommand extends SubcommandHelp {
  readonly access?: undefined;
  /** Returns the text. */
  text(): string;
}

/** A subcommand. */
export type Subcommand = WorkingSubcommand | PrintingSubcommand;

/** Width of the help, in columns. */
const MAX_COLUMNS = 100;

/** Width of the left column of a table in the help, in columns. */
const MAX_LEFT_COLUMNS = 30;

/** Subcommands by name. */
export type Subcommands<S extends SubcommandHelp = Subcommand> = Readonly<Record<string, S>>;

/** An error in the command line, as opposed to a failure of the subcommand. */
export class UsageError extends Error {}

/** Returns the message of an error, or a thrown value as a string. */
export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/** Runs a function and prints its error, if any, on standard error. @returns the exit status */
export async function exitStatusOf(body: () => Promise<number>, { name }: Program = DENOLITH): Promise<number> {
  try {
    return await body();
  } catch (error) {
    console.error(`${name}: ${messageOf(error)}`);
    if (error instanceof UsageError) return 2;
    return error instanceof StorageError && error.kind === "InvalidArgument" ? 2 : 1;
  }
}

/** A parsed command line: a subcommand with its flags, or the help. */
export type Request =
  | { readonly kind: "run"; readonly name: string; readonly flags: Flags }
  | { readonly kind: "help"; readonly text: string; readonly isRequested: boolean };

/**
 * Parses a command line.
 *
 * @param args the arguments, beginning with the subcommand
 * @returns the request; that for the version is the subcommand `version`
 * @throws {UsageError} for an unknown subcommand or flag, a missing value, or an unexpected argument
 */
export function parseCommandLine(
  subcommands: Subcommands<SubcommandHelp>,
  args: readonly string[],
  program: Program = DENOLITH,
): Request {
  const [name, ...rest] = args;
  if (name === undefined) return { kind: "help", text: commandsHelp(subcommands, program), isRequested: false };
  if (HELP.includes(name)) return { kind: "help", text: helpText(subcommands, rest, program), isRequested: true };
  if (name === "--version" || name === "-V") return VERSION_REQUEST;
  const subcommand = requireSubcommand(subcommands, name);
  const flags = parseFlags(name, subcommand, rest);
  if (flags === "version") return VERSION_REQUEST;
  return flags === "help"
    ? { kind: "help", text: subcommandHelp(name, subcommand, program), isRequested: true }
    : { kind: "run", name, flags };
}

/** The words that ask for help, alone or followed by a subcommand. */
const HELP = ["help", "--help", "-h"];

const VERSION_REQUEST: Request = { kind: "run", name: "version", flags: {} };

/** Returns the help of a subcommand, or that of the program without one. */
function helpText(
  subcommands: Subcommands<SubcommandHelp>,
  [topic, unexpected]: readonly string[],
  program: Program,
): string {
  if (unexpected !== undefined) throw new UsageError(`help: unexpected argument ${JSON.stringify(unexpected)}`);
  if (topic === undefined || HELP.includes(topic)) return commandsHelp(subcommands, program);
  return subcommandHelp(topic, requireSubcommand(subcommands, topic), program);
}

function requireSubcommand<S extends SubcommandHelp>(subcommands: Subcommands<S>, name: string): S {
  if (Object.hasOwn(subcommands, name)) return subcommands[name]!;
  throw new UsageError(
    `unknown command ${JSON.stringify(name)}; did you mean ${closestString(name, Object.keys(subcommands))}?`,
  );
}

/**
 * Checks the values of all flags and of the argument, before anything else is done with them.
 *
 * @param name the name of the subcommand
 * @throws {UsageError} with every wrong value
 */
export async function checkFlags(
  name: string,
  { argument, flags: known }: SubcommandHelp,
  flags: Flags,
): Promise<void> {
  const checks = [
    ...(argument === undefined ? [] : [[argument.name, argument.name, argument.check] as const]),
    ...Object.entries(known).map(([flag, { check }]) => [flag, `--${flag}`, check] as const),
  ];
  const errors = await Promise.all(checks.map(async ([key, field, check]) => {
    const value = flags[key];
    if (value === undefined) return [];
    try {
      await check?.(value, field);
      return [];
    } catch (error) {
      return [messageOf(error)];
    }
  }));
  if (errors.flat().length > 0) throw new UsageError(`${name}: ${errors.flat().join("; ")}`);
}

/** Returns the arguments with the value of a short flag in a word of its own: `-nshop` and `-n=shop` are `-n shop`. */
function separateShortValues({ flags }: SubcommandHelp, args: readonly string[]): string[] {
  const shorts = Object.values(flags).flatMap(({ short, value }) => value === undefined ? [] : short ?? []);
  return args.flatMap((arg) => {
    const [, short, text] = /^-([a-z])=?(.+)$/s.exec(arg) ?? [];
    return short !== undefined && shorts.includes(short) ? [`-${short}`, text!] : [arg];
  });
}

function parseFlags(name: string, subcommand: SubcommandHelp, args: readonly string[]): Flags | "help" | "version" {
  const known = Object.keys(subcommand.flags);
  const flagsWithValue = known.filter((flag) => subcommand.flags[flag]!.value !== undefined);
  const switches = known.filter((flag) => subcommand.flags[flag]!.value === undefined);
  requireSwitchValues(name, switches, args);
  const { argument } = subcommand;
  const parsed = parseArgs(separateShortValues(subcommand, args), {
    string: ["_", ...flagsWithValue],
    collect: flagsWithValue,
    boolean: ["help", "version", ...switches],
    alias: {
      ...{ help: "h", version: "V" },
      ...Object.fromEntries(known.flatMap((flag) => {
        const { short } = subcommand.flags[flag]!;
        return short === undefined ? [] : [[flag, short]];
      })),
    },
    unknown: (arg) => {
      if (!arg.startsWith("-")) return; // positional arguments are counted below
      const flag = arg.replace(/=.*$/s, "");
      throw new UsageError(
        `${name}: unknown flag ${flag}; did you mean --${closestString(flag.replace(/^-+/, ""), [...known, "help"])}?`,
      );
    },
  });
  if (parsed.help === true) return "help";
  if (parsed.version === true) return "version";
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

/** Refuses a switch with a value, of which parseArgs() takes any but `false` for `true`. */
function requireSwitchValues(name: string, switches: readonly string[], args: readonly string[]): void {
  for (const arg of args) {
    const [, flag, value] = /^--([^=]+)=(.*)$/s.exec(arg) ?? [];
    if (flag === undefined || !switches.includes(flag) || value === "true" || value === "false") continue;
    throw new UsageError(`${name}: --${flag} ${JSON.stringify(value)}: is a switch, and takes no value`);
  }
}

function subcommandHelp(name: string, { about, argument, flags, example }: SubcommandHelp, program: Program): string {
  const rows = Object.entries(flags).map(([flag, { value, help, short, default: byDefault }]) =>
    [
      `  ${short === undefined ? "" : `-${short}, `}--${flag}${value === undefined ? "" : " " + value}`,
      `${help}${byDefault === undefined ? "" : ` (default ${byDefault()})`}`,
    ] as const
  );
  return [
    `Usage: ${program.name} ${name}${argument === undefined ? "" : ` ${argument.name}`}${
      rows.length === 0 ? "" : " [flags]"
    }`,
    "",
    ...wrap(about, MAX_COLUMNS),
    "",
    ...(argument === undefined ? [] : [...formatTable([[`  ${argument.name}`, argument.help]]), ""]),
    "Flags:",
    ...formatTable([...rows, ...COMMON_ROWS]),
    ...(example === undefined ? [] : ["", "Example:", `  ${example}`]),
  ].join("\n");
}

/** The flags that every subcommand has, as its help shows them. */
const COMMON_ROWS = [["  -h, --help", "Show this help"], ["  -V, --version", "Print the version"]] as const;

function commandsHelp(subcommands: Subcommands<SubcommandHelp>, { name: program, summary }: Program): string {
  return [
    summary,
    "",
    `Usage: ${program} COMMAND [flags]`,
    "",
    "Commands:",
    ...formatTable([
      ...Object.entries(subcommands).map(([name, { summary }]) => [`  ${name}`, summary] as const),
      ["  help", "Show the help of a command"],
    ]),
    "",
    "Flags:",
    ...formatTable(COMMON_ROWS),
    "",
    `Use "${program} COMMAND --help" or "${program} help COMMAND" for more information about a command.`,
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
