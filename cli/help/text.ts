/**
 * The help, as a text for terminals.
 *
 * @module
 */

import {
  type Argument,
  EXIT,
  type Flag,
  type Program,
  STANDARD_FLAGS,
  type SubcommandHelp,
  type Topic,
} from "../command_line.ts";

/** Width of the help, in columns, on a terminal that is not narrower. */
const MAX_COLUMNS = 100;

/** Width below which a narrow terminal breaks the lines itself, in columns. */
const MIN_COLUMNS = 60;

/** Width of the left column of a table in the help, in columns. */
const MAX_LEFT_COLUMNS = 30;

/** A row of a table: what is explained, and the explanation. */
type Row = readonly [left: string, right: string];

/**
 * Returns the help of a subcommand, of a topic, or without one, that of the program.
 *
 * @param columns the maximum width of a line; a word that is longer stands alone
 */
export function helpText(program: Program, topic?: string, columns = MAX_COLUMNS): string {
  if (topic === undefined) return programHelp(program, columns).join("\n");
  const subcommand = Object.hasOwn(program.commands, topic) ? program.commands[topic] : undefined;
  const lines = subcommand === undefined
    ? topicHelp(program.topics[topic]!, columns)
    : subcommandHelp(topic, subcommand, program, columns);
  return lines.join("\n");
}

/**
 * Returns the width of the help on a terminal, in columns.
 *
 * @param consoleColumns the width of the terminal; `undefined` when there is none
 */
export function helpColumns(consoleColumns = columnsOfConsole()): number {
  return Math.min(MAX_COLUMNS, Math.max(MIN_COLUMNS, consoleColumns ?? MAX_COLUMNS));
}

function columnsOfConsole(): number | undefined {
  if (!Deno.stdout.isTerminal()) return undefined;
  try {
    return Deno.consoleSize().columns || undefined;
  } catch {
    return undefined; // a terminal without a size
  }
}

/** Returns what a flag looks like on the command line, such as `-o, --output FORMAT`. */
export function flagSyntax(name: string, { short, value }: Flag): string {
  return `${short === undefined ? "" : `-${short}, `}--${name}${value === undefined ? "" : ` ${value}`}`;
}

/** Returns what documents say of the default of a flag. It is the same on each machine. */
export function defaultText({ default: byDefault, defaultName }: Flag): string | undefined {
  return defaultName ?? byDefault?.();
}

/** Returns the words after `Usage:`. Required flags are named. */
export function usage(program: Program, name: string, { argument, flags }: SubcommandHelp): string[] {
  const required = Object.entries(flags).filter(([, flag]) => flag.required !== undefined);
  return [
    `${program.name} ${name}`,
    ...(argument === undefined ? [] : [argumentSyntax(argument)]),
    ...required.map(([flag, of]) => flagSyntax(flag, of)),
    ...(Object.keys(flags).length > required.length ? ["[flags]"] : []),
  ];
}

function argumentSyntax({ name, isOptional, isList }: Argument): string {
  const words = isList ? `${name}...` : name;
  return isOptional ? `[${words}]` : words;
}

/** Returns the description of a flag, with its default. */
export function flagHelp(flag: Flag): string {
  const text = defaultText(flag);
  return text === undefined ? flag.help : `${flag.help} (default ${text})`;
}

/** Returns the sentence about the exit status of a subcommand. */
export function exitSentence({ exit }: SubcommandHelp): string | undefined {
  if (exit === undefined) return undefined;
  return `The exit status is ${EXIT.success} if ${exit.success}, ${EXIT.failure} if ${exit.failure}, and ` +
    `${EXIT.usage} if the command line is wrong.`;
}

function flagRows(flags: Readonly<Record<string, Flag>>): Row[] {
  return Object.entries(flags).map(([name, flag]) => [`  ${flagSyntax(name, flag)}`, flagHelp(flag)]);
}

function subcommandHelp(name: string, subcommand: SubcommandHelp, program: Program, columns: number): string[] {
  const { about, argument, flags, example } = subcommand;
  const exit = exitSentence(subcommand);
  return [
    ...wrap(`Usage: ${usage(program, name, subcommand).join(" ")}`, columns),
    "",
    ...wrap(about, columns),
    "",
    ...(exit === undefined ? [] : [...wrap(exit, columns), ""]),
    ...(argument === undefined ? [] : [...formatTable([[`  ${argument.name}`, argument.help]], columns), ""]),
    "Flags:",
    ...formatTable([...flagRows(flags), ...flagRows(STANDARD_FLAGS)], columns),
    ...(example === undefined ? [] : ["", "Example:", `  ${example}`]),
  ];
}

function topicHelp({ about, rows = [] }: Topic, columns: number): string[] {
  const table = formatTable(rows.map(([word, meaning]) => [`  ${word}`, meaning]), columns);
  return [...wrap(about, columns), ...(rows.length === 0 ? [] : ["", ...table])];
}

function programHelp({ name, summary, commands, topics }: Program, columns: number): string[] {
  const summaries = (of: Readonly<Record<string, { readonly summary: string }>>): Row[] =>
    Object.entries(of).map(([word, { summary }]) => [`  ${word}`, summary]);
  return [
    ...wrap(summary, columns),
    "",
    `Usage: ${name} COMMAND [flags]`,
    "",
    "Commands:",
    ...formatTable([...summaries(commands), ["  help", "Show the help of a command, or of a topic"]], columns),
    "",
    "Topics:",
    ...formatTable(summaries(topics), columns),
    "",
    "Flags:",
    ...formatTable(flagRows(STANDARD_FLAGS), columns),
    "",
    ...wrap(`Use "${name} COMMAND --help" or "${name} help TOPIC" for more.`, columns),
  ];
}

/** Formats rows in two columns. A left cell that is wider than its column stands on a line of its own. */
function formatTable(rows: readonly Row[], columns: number): string[] {
  const maxLeft = columns < 80 ? 6 : MAX_LEFT_COLUMNS; // on a narrow terminal, the right column would have no room
  const width = Math.min(Math.max(...rows.map(([left]) => left.length)), maxLeft) + 2;
  const indent = " ".repeat(width);
  return rows.flatMap(([left, right]) => {
    const [first = "", ...rest] = wrap(right, columns - width);
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
