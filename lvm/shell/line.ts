/**
 * The lines that the shell of lvm(8) takes: one command each.
 *
 * The rules come from LVM's source (`lvm_split` and `lvm_shell`, the same in 2.03.16 and 2.03.31) and from libedit:
 *
 * - A line has at most 63 words. A word that begins with a quote ends at the next quote of this kind; a quote elsewhere is
 *   a character like others. A word that begins with `#` ends the line.
 * - A carriage return ends a line, too. What is not ASCII is lost, since the locale is C.
 * - The end of the input ends a line. So a line that is cut short runs as it is.
 *
 * A line is written by one write of at most `PIPE_BUF` bytes, which POSIX makes all or nothing (write(2), pipe(7)). Besides,
 * its words stand in an order in which a line that is cut short does no harm: it names nothing but what the whole line
 * names. A size may be cut, and is then another one.
 *
 * What cannot be said on such a line, or what LVM may ask about, is refused; a process of its own runs it.
 *
 * @module
 */

import { REPORT_CONFIG } from "../model/report_command.ts";

/** A line for the shell. */
export interface ShellLine {
  /** The line, with its newline. */
  readonly text: string;
  /** The name of the command, by which the answer is known. */
  readonly name: string;
  /** The shell that runs it. */
  readonly shell: ShellName;
}

/**
 * The shells: one for reports, and one for changes. LVM forgets some of what a command sets only when its process ends. A
 * report, for example, lets what comes after it read active groups of other hosts (`include_active_foreign_vgs`), and takes
 * LVM's locks as a reader (`lockd_vg_default_sh`).
 */
export type ShellName = "reports" | "changes";

/** The order of the words after the name of a command. */
type Order =
  /** In the given order. Only for commands that change nothing. */
  | "as given"
  /** What is changed comes first, alone it is refused; what lets LVM accept the command comes last. */
  | "operands first";

/**
 * The commands that the shells run, and the order of their words. `lvremove` is left to processes: it may ask, and with
 * `--select` its answer has no status in 2.03.31.
 */
const COMMANDS: Readonly<Record<string, Order>> = {
  fullreport: "as given",
  lvchange: "operands first",
  lvcreate: "operands first",
  lvextend: "operands first",
  vgchange: "operands first",
};

/** The options without a value. */
const FLAGS: readonly string[] = ["--binary", "--nosuffix", "--snapshot", "--yes"];

/**
 * The options with a value. Others are left to a process, among them `--devices`, and those of `lvchange` that activate: they
 * let all later commands see sub LVs (`process_component_lvs`), groups of other hosts and wrong names of devices.
 */
const VALUE_OPTIONS: readonly string[] = [
  "--addtag",
  "--config",
  "--configreport",
  "--deltag",
  "--mirrors",
  "--name",
  "--options",
  "--permission",
  "--poolmetadatasize",
  "--reportformat",
  "--setactivationskip",
  "--size",
  "--stripes",
  "--stripesize",
  "--thinpool",
  "--type",
  "--units",
  "--virtualsize",
  "--wipesignatures",
  "--zero",
];

/** The options that LVM needs to create or extend an LV. A line that ends before them is refused. */
const NEEDED_LAST: readonly string[] = ["--snapshot", "--poolmetadatasize", "--virtualsize", "--size"];

/** The number of words at which the shell refuses a line (`MAX_ARGS`). */
const MAX_WORDS = 64;

/** The number of bytes that one write(2) writes to a pipe wholly or not at all (limits.h, `PIPE_BUF`). */
const PIPE_BUF = 4096;

/** An option with its value, if it has one. */
type Option = readonly [name: string, ...value: string[]];

/**
 * Writes a command of lvm as a line of its shell.
 *
 * @param args the arguments of lvm, the command's name first
 * @param lvmConfig settings for the command that override lvm.conf
 * @returns `undefined` for a command that only a process can run
 */
export function shellLine([name = "", ...args]: readonly string[], lvmConfig?: string): ShellLine | undefined {
  const order = Object.hasOwn(COMMANDS, name) ? COMMANDS[name]! : undefined;
  const parsed = order && parseArguments(args);
  if (order === undefined || parsed === undefined) return undefined;
  const { operands, options } = parsed;
  const yes = options.some(([option]) => option === "--yes") ? ["--yes"] : [];
  const config = [...options.filter(([option]) => option === "--config").map(([, value]) => value!), lvmConfig ?? ""]
    // the profile of the shell has it already
    .flatMap((settings) => settings === "" || settings === REPORT_CONFIG ? [] : [settings]);
  const others = options.filter(([option]) => !["--yes", "--config", "--reportformat"].includes(option));
  const rank = ([option]: Option) => NEEDED_LAST.indexOf(option);
  const sorted = order === "operands first" ? others.toSorted((a, b) => rank(a) - rank(b)) : others;
  const words = [
    name,
    ...(order === "operands first" ? operands : []),
    ...(config.length === 0 ? [] : ["--config", config.join(" ")]),
    ...sorted.flat(),
    ...(order === "operands first" ? [] : operands),
    ...yes,
  ];
  const quoted = words.map(quoteWord);
  const text = `${quoted.join(" ")}\n`;
  if (quoted.includes(undefined) || words.length >= MAX_WORDS || text.length > PIPE_BUF) return undefined;
  return { text, name, shell: order === "as given" ? "reports" : "changes" };
}

/** Splits arguments into operands and options; `undefined` for what is not known. */
function parseArguments(args: readonly string[]): { operands: string[]; options: Option[] } | undefined {
  const operands: string[] = [];
  const options: Option[] = [];
  for (let i = 0; i < args.length; i++) {
    const word = args[i]!;
    if (!word.startsWith("-")) operands.push(word);
    else if (FLAGS.includes(word)) options.push([word]);
    else if (VALUE_OPTIONS.includes(word) && i + 1 < args.length) options.push([word, args[++i]!]);
    else return undefined;
  }
  // the shell takes the format of reports only from the configuration
  const isJson = options.every(([option, value]) => option !== "--reportformat" || value === "json");
  const isDistinct = new Set(operands).size === operands.length;
  return isJson && isDistinct ? { operands, options } : undefined;
}

/**
 * Returns a word as the shell reads it. LVM escapes no backslash in its JSON, so words with backslashes or double quotes are
 * refused: a message with such a word could not be read.
 */
function quoteWord(word: string): string | undefined {
  if (!/^[ -~]*$/.test(word) || /["\\]/.test(word)) return undefined;
  if (word !== "" && !/ |^['#]/.test(word)) return word;
  return word.includes("'") ? undefined : `'${word}'`;
}
