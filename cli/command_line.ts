/**
 * The command line: what a table of subcommands consists of, and the parser of subcommands and their flags. The help, the man
 * page and the completion of shells in `help/` come from the same table.
 *
 * @module
 */

import { parseArgs } from "@std/cli/parse-args";
import { closestString } from "@std/text/closest-string";
import { levenshteinDistance } from "@std/text/levenshtein-distance";
import { messageOf, quote } from "../base/error.ts";
import type { AccessScope } from "./permissions.ts";

/** A flag of a subcommand. */
export interface Flag {
  /** Placeholder of its value in the help; absent for a switch. */
  readonly value?: string;
  /** Description for the help. */
  readonly help: string;
  /** Returns the value of a flag that is not given. */
  readonly default?: () => string;
  /** What the help says of a default that depends on the machine or the environment. */
  readonly defaultName?: string;
  /** Environment variable that changes the default. */
  readonly variable?: string;
  /** What a user can do who does not know a value; makes the flag required. */
  readonly required?: string;
  /** Flag without which this one has no effect, so that it is refused. */
  readonly needs?: string;
  /** Flag that cannot be given together with this one. */
  readonly excludes?: string;
  /** Checks a value, see {@linkcode Check}. A flag with a value has one. */
  readonly check?: Check;
  /** One letter that stands for the flag after a single dash. */
  readonly short?: string;
  /** The values that shells propose. */
  readonly candidates?: Candidates;
}

/**
 * Checks a value by parsing it. It reads nothing, so that a wrong value is reported whatever the state of the machine.
 *
 * @param field the flag or argument as the user wrote it, with which the message of an error begins
 * @throws {Error} for a wrong value; the message has the value, and what is accepted
 */
export type Check = (value: string, field: string) => unknown;

/** Values that shells propose: words, files, directories, contexts of the kubeconfig, or names of objects. */
export type Candidates =
  | readonly string[]
  | { readonly list: readonly string[] }
  | NamesInCluster
  | "files"
  | "directories"
  | "contexts";

/** Names of objects that shells propose. */
export interface NamesInCluster {
  /** Their resource, in the plural. */
  readonly resource: string;
  /** The resources of other words, by what stands before the slash. */
  readonly kinds?: ReadonlyMap<string, string>;
}

/** The positional argument of a subcommand. */
export interface Argument {
  /** Placeholder in the help, in capitals. */
  readonly name: string;
  /** Description for the help. */
  readonly help: string;
  /** Checks its value, see {@linkcode Check}. */
  readonly check?: Check;
  /** The values that shells propose. */
  readonly candidates?: Candidates;
  /** Whether it may be left out. */
  readonly isOptional?: boolean;
  /** Whether several may be given, which are one value with commas. */
  readonly isList?: boolean;
}

/** Values of the flags that are given or have a default, by name, and of the argument, by its placeholder. */
export type Flags = Readonly<Record<string, string>>;

/** What the help says of a subcommand. */
export interface SubcommandHelp {
  /** Description of one line, for the list of subcommands. */
  readonly summary: string;
  /** Description for its own help: paragraphs, separated by empty lines. */
  readonly about: string;
  /** When the exit status is 0 and when 1, as ends of a sentence; absent if it only prints a text. */
  readonly exit?: { readonly success: string; readonly failure: string };
  /** Positional argument. */
  readonly argument?: Argument;
  /** Flags by name. */
  readonly flags: Readonly<Record<string, Flag>>;
  /** Example of a command line. */
  readonly example?: string;
}

/** What the help says of a subcommand, and the check of its flags. */
export type CheckedHelp = SubcommandHelp & Pick<Subcommand, "check">;

/** A subcommand. */
export interface Subcommand extends SubcommandHelp {
  /** Returns what its body may access, and the worker is permitted no more. Without it, the subcommand prints a text. */
  access?(flags: Flags): Promise<AccessScope>;
  /** Checks flags together. It reads nothing. @throws {Error} for values that do not fit each other */
  check?(flags: Flags): unknown;
}

/** Subcommands by name. */
export type Subcommands<S extends SubcommandHelp = Subcommand> = Readonly<Record<string, S>>;

/** A subject of the help. */
export interface Topic {
  /** Description of one line, for the list of topics. */
  readonly summary: string;
  /** Paragraphs, separated by empty lines. */
  readonly about: string;
  /** Words with their meanings, after the paragraphs. */
  readonly rows?: readonly (readonly [word: string, meaning: string])[];
  /** Texts that `help TOPIC NAME` prints. */
  readonly chapters?: Chapters;
}

/** Texts by their names. */
export interface Chapters {
  /** Returns the names. */
  names(): readonly string[];
  /** Returns a text for terminals; `undefined` if there is none of this name. */
  text(name: string): string | undefined;
}

/** A program with subcommands. */
export interface Program {
  /** Its name, as users type it. */
  readonly name: string;
  /** Its file. */
  readonly executable: string;
  /** Description of one line. */
  readonly summary: string;
  /** Its subcommands by name, in the order of the help. */
  readonly commands: Subcommands<SubcommandHelp & Pick<Subcommand, "check">>;
  /** Further subjects of the help, by name. */
  readonly topics: Readonly<Record<string, Topic>>;
}

/** The exit statuses. All that names or explains one has it from here. */
export const EXIT = { success: 0, failure: 1, usage: 2 } as const;

/** The meanings of the exit statuses, for documents. Those of signals are the shell's. */
export const EXIT_MEANINGS: readonly (readonly [status: string, meaning: string])[] = [
  [`${EXIT.success}`, "The command did what it was asked to do. What that is, the help of the command says."],
  [`${EXIT.failure}`, "It did not. Standard error says why, unless the output itself does."],
  [
    `${EXIT.usage}`,
    "The command line is wrong. No file, socket, API server or other program was reached for. Standard error names " +
    "each wrong flag, its value, and what is accepted.",
  ],
  [
    "128 + N",
    "Signal N ended it at once, such as 2, by a second Ctrl-C: 130. Processes that serve wait for their calls.",
  ],
];

/** The flags that every subcommand has. */
export const STANDARD_FLAGS: Readonly<Record<"help" | "version", Flag>> = {
  help: { short: "h", help: "Show this help" },
  version: { short: "V", help: "Print the version" },
};

/** An error in the command line, as opposed to a failure of the subcommand. */
export class UsageError extends Error {}

/**
 * Runs a function and prints its error, if any, on standard error.
 *
 * @param program its name, with which the message begins
 * @returns the exit status
 */
export async function exitStatusOf(body: () => Promise<number>, program = "denolith"): Promise<number> {
  try {
    return await body();
  } catch (error) {
    console.error(`${program}: ${messageOf(error)}`);
    return error instanceof UsageError ? EXIT.usage : EXIT.failure;
  }
}

/** A parsed command line: a subcommand with its flags, or the help of a subcommand, a topic, or the program. */
export type Request =
  | { readonly kind: "run"; readonly name: string; readonly flags: Flags }
  | { readonly kind: "help"; readonly topic?: string; readonly text?: string; readonly isRequested: boolean };

/**
 * Parses a command line.
 *
 * @param given the arguments: the subcommand, with its flags behind it or, as kubectl takes them, before it
 * @returns the request; that for the version is the subcommand `version`
 * @throws {UsageError} for an unknown subcommand or flag, a missing value, or an unexpected argument
 */
export function parseCommandLine(program: Program, given: readonly string[]): Request {
  const [name, ...rest] = subcommandFirst(program, given);
  if (name === undefined) return { kind: "help", isRequested: false };
  if (HELP.includes(name)) return parseHelp(program, rest);
  if (name === "--version" || name === "-V") return parseCommandLine(program, ["version", ...rest]);
  if (name.startsWith("-")) {
    throw new UsageError(
      `unknown flag ${quote(name)} in the place of a command: ${program.name} COMMAND [flags]`,
    );
  }
  const { commands } = program;
  if (!Object.hasOwn(commands, name)) throw unknownCommand(program, name, [...Object.keys(commands), "help"]);
  const flags = parseFlags(program, name, rest);
  if (flags === "help") return { kind: "help", topic: name, isRequested: true };
  return flags === "version" ? { kind: "run", name: "version", flags: {} } : { kind: "run", name, flags };
}

/** Returns the arguments with the flags that stand before the subcommand behind it, if subcommands have such flags. */
export function subcommandFirst({ commands }: Program, args: readonly string[]): readonly string[] {
  const flags = Object.values(commands).flatMap(({ flags }) => Object.entries<Flag>(flags));
  let count = 0;
  while (args[count]?.startsWith("-")) {
    const word = args[count]!;
    const flag = flags.find(([name, { short }]) => word === `--${name}` || word === `-${short}`)?.[1];
    const hasItsValue = flags.some(([name, { short, value }]) =>
      value !== undefined && (word.startsWith(`--${name}=`) || (short !== undefined && word.startsWith(`-${short}`)))
    );
    if (flag === undefined && !hasItsValue) return args;
    count += flag?.value === undefined ? 1 : 2;
  }
  const name = args[count];
  return name === undefined ? args : [name, ...args.slice(0, count), ...args.slice(count + 1)];
}

/** The words that ask for help, alone or followed by a subcommand or a topic. */
export const HELP: readonly string[] = ["help", "--help", "-h"];

function parseHelp(program: Program, [topic, ...more]: readonly string[]): Request {
  const chapters = topic === undefined ? undefined : program.topics[topic]?.chapters;
  const chapter = chapters === undefined ? undefined : more[0];
  const unexpected = more[chapters === undefined ? 0 : 1];
  if (unexpected !== undefined) throw new UsageError(`help: unexpected argument ${quote(unexpected)}`);
  if (topic === undefined || HELP.includes(topic)) return { kind: "help", isRequested: true };
  const known = [...Object.keys(program.commands), ...Object.keys(program.topics)];
  if (!known.includes(topic)) throw unknownCommand(program, topic, known);
  if (chapter === undefined) return { kind: "help", topic, isRequested: true };
  const text = chapters?.text(chapter);
  if (text !== undefined) return { kind: "help", topic, text, isRequested: true };
  const names = program.topics[topic]?.rows?.map(([name]) => name).join(", ");
  throw new UsageError(`help ${topic}: unknown chapter ${quote(chapter)}: must be one of ${names}`);
}

function unknownCommand({ name }: Program, word: string, known: readonly string[]): UsageError {
  return new UsageError(
    `unknown command ${quote(word)}; ${didYouMean(word, known) ?? `see "${name} help"`}`,
  );
}

/** Returns a question about the nearest of several words, if one is near. */
function didYouMean(word: string, known: readonly string[], prefix = ""): string | undefined {
  const longer = known.find((one) => word.length >= 3 && one.startsWith(word));
  const near = longer ?? closestString(word, [...known]);
  const maxDistance = word.length < 4 ? 1 : Math.max(2, Math.floor(word.length / 3)); // two letters that are swapped are 2
  const isNear = longer !== undefined || levenshteinDistance(word, near) <= maxDistance;
  return word !== "" && isNear ? `did you mean ${prefix}${near}?` : undefined;
}

/**
 * Checks the values of all flags and of the argument, before anything else is done with them.
 *
 * @param name the name of the subcommand
 * @throws {UsageError} with everything that is wrong
 */
export async function checkFlags(
  name: string,
  subcommand: CheckedHelp,
  flags: Flags,
): Promise<void> {
  const { argument, flags: known, check } = subcommand;
  const checks = [
    ...(argument === undefined ? [] : [[argument.name, argument.name, argument] as const]),
    ...Object.entries(known).map(([key, flag]) => [key, `--${key}`, flag] as const),
  ];
  const wrong = (await Promise.all(checks.map(async ([key, field, flag]) => {
    const value = flags[key];
    const together = wrongTogether(field, flag, flags, value !== undefined);
    if (value === undefined) return together;
    const message = await messageOfFailure(() => flag.check?.(value, field));
    return message === undefined ? together : [message + originOf(flag, value), ...together];
  }))).flat();
  const all = wrong.length > 0 ? wrong : [await messageOfFailure(() => check?.(flags)) ?? []].flat();
  if (all.length > 0) throw new UsageError(`${name}: ${all.join("; ")}`);
}

/** Returns what is wrong about a flag beside its value: whether it, and which other ones, are given. */
function wrongTogether(field: string, flag: Partial<Flag>, flags: Flags, isGiven: boolean): string[] {
  const { required, needs, excludes } = flag;
  if (!isGiven) return required === undefined ? [] : [`${field} is required; ${required}`];
  return [
    ...(needs === undefined || flags[needs] !== undefined ? [] : [`${field} has no effect without --${needs}`]),
    ...(excludes === undefined || flags[excludes] === undefined ? [] : [`${field} excludes --${excludes}`]),
  ];
}

/** Returns where a value comes from that the user did not give as a flag. */
function originOf({ variable }: Partial<Flag>, value: string): string {
  return variable !== undefined && Deno.env.get(variable) === value ? ` (from the environment: ${variable})` : "";
}

async function messageOfFailure(run: () => unknown): Promise<string | undefined> {
  try {
    await run();
    return undefined;
  } catch (error) {
    return messageOf(error);
  }
}

/** Returns the arguments with the value of a short flag in a word of its own: `-nshop` and `-n=shop` are `-n shop`. */
function separateShortValues({ flags }: SubcommandHelp, args: readonly string[]): string[] {
  const shorts = Object.values(flags).flatMap(({ short, value }) => value === undefined ? [] : short ?? []);
  return args.flatMap((arg) => {
    const [, short, text] = /^-([a-z])=?(.+)$/s.exec(arg) ?? [];
    return short !== undefined && shorts.includes(short) ? [`-${short}`, text!] : [arg];
  });
}

function parseFlags(program: Program, name: string, args: readonly string[]): Flags | "help" | "version" {
  const subcommand = program.commands[name]!;
  const known = Object.keys(subcommand.flags);
  const flagsWithValue = known.filter((flag) => subcommand.flags[flag]!.value !== undefined);
  const switches = known.filter((flag) => subcommand.flags[flag]!.value === undefined);
  requireSwitchValues(name, switches, args);
  requireValues(name, subcommand, args);
  const { argument } = subcommand;
  const parsed = parseArgs(separateShortValues(subcommand, args), {
    string: ["_", ...flagsWithValue],
    collect: flagsWithValue,
    boolean: ["help", "version", ...switches],
    alias: {
      help: "h",
      version: "V",
      ...Object.fromEntries(known.flatMap((flag) => {
        const { short } = subcommand.flags[flag]!;
        return short === undefined ? [] : [[flag, short]];
      })),
    },
    unknown: (arg) => {
      if (!arg.startsWith("-")) return; // positional arguments are counted below
      const flag = arg.replace(/=.*$/s, "");
      const near = didYouMean(flag.replace(/^-+/, ""), [...known, "help"], "--");
      throw new UsageError(`${name}: unknown flag ${quote(flag)}; ${near ?? `see "${program.name} help ${name}"`}`);
    },
  });
  if (parsed.help === true) return "help";
  if (parsed.version === true) return "version";
  const positionals = parsed._.map(String);
  if (argument !== undefined && !argument.isOptional && positionals.length === 0) {
    throw new UsageError(`${name}: ${argument.name} is missing`);
  }
  const unexpected = argument?.isList ? undefined : positionals[argument === undefined ? 0 : 1];
  if (unexpected !== undefined) throw new UsageError(`${name}: unexpected argument ${quote(unexpected)}`);
  const given = positionals.join(",");
  const argumentEntries = argument === undefined || positionals.length === 0 ? [] : [[argument.name, given]];
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

/** Refuses a flag with an empty value in a word of its own, which parseArgs() takes for an argument. */
function requireValues(name: string, { flags }: SubcommandHelp, args: readonly string[]): void {
  for (const [flag, { short, value }] of Object.entries(flags)) {
    const isFlag = (arg: string) => arg === `--${flag}` || (short !== undefined && arg === `-${short}`);
    if (value !== undefined && args.some((arg, index) => isFlag(arg) && args[index + 1] === "")) {
      throw new UsageError(`${name}: --${flag} needs a value`);
    }
  }
}

/** Refuses a switch with a value, of which parseArgs() takes any but `false` for `true`. */
function requireSwitchValues(name: string, switches: readonly string[], args: readonly string[]): void {
  for (const arg of args) {
    const [, flag, value] = /^--([^=]+)=(.*)$/s.exec(arg) ?? [];
    if (flag === undefined || !switches.includes(flag) || value === "true" || value === "false") continue;
    throw new UsageError(`${name}: --${flag} ${quote(value ?? "")}: is a switch, and takes no value`);
  }
}

/** The exit statuses, which are the same for both programs. */
export const EXIT_STATUS_TOPIC: Topic = {
  summary: "What the exit status means",
  about: "A command ends with one of these exit statuses.",
  rows: EXIT_MEANINGS,
};

/** The variables that the file reads which unpacks itself, whatever its name. */
export const CACHE_VARIABLES: readonly (readonly [name: string, meaning: string])[] = [
  [
    "DENOLITH_CACHE",
    "Directory into which the executable unpacks itself at its first start, if it is one that does. Without it, the " +
    "first of CACHE_DIRECTORY (systemd's), /var/cache/denolith, XDG_CACHE_HOME/denolith and HOME/.cache/denolith.",
  ],
];
