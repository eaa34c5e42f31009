/**
 * The manual page of a program, in the macros of man(7), and the files that belong into a system beside a program: that page,
 * and the completion scripts of shells.
 *
 * @module
 */

import {
  EXIT_MEANINGS,
  type Flag,
  type Program,
  STANDARD_FLAGS,
  type SubcommandHelp,
  type Topic,
} from "../command_line.ts";
import { completionScript } from "./completion.ts";
import { exitSentence, flagHelp, flagSyntax, usage } from "./text.ts";

/** What a manual page says beside the table of subcommands. */
export interface ManOptions {
  /** The version of the program. */
  readonly version: string;
  /** Other pages, such as `lvm(8)`. */
  readonly seeAlso: readonly string[];
}

/** Returns the manual page of a program, of section 1. The same table makes the same page, on each machine. */
export function manPage(program: Program, { version, seeAlso }: ManOptions): string {
  const { name, executable, summary, commands, topics } = program;
  const { "exit-status": exitStatus, ...others } = topics;
  return [
    `.TH ${executable.toUpperCase().replaceAll("-", "\\-")} 1 "" "denolith ${escape(version)}"`,
    ".SH NAME",
    `${escape(executable)} \\- ${escape(summary.replace(/^[^:]*: /, ""))}`,
    ".SH SYNOPSIS",
    `${bold(name)} ${italic("COMMAND")} [${italic("flags")}]`,
    ".br",
    `${bold(`${name} help`)} [${italic("COMMAND")} | ${italic("TOPIC")}]`,
    ".br",
    `${bold(`${name} --version`)}`,
    ".SH DESCRIPTION",
    "Each command has flags of its own, and these:",
    ...Object.entries(STANDARD_FLAGS).flatMap(flagLines),
    ".SH COMMANDS",
    ...Object.entries(commands).flatMap(([command, help]) => commandLines(program, command, help)),
    ".SH EXIT STATUS",
    ...(exitStatus === undefined ? definitions(EXIT_MEANINGS) : topicLines(exitStatus)),
    ...Object.entries(others).flatMap(([topic, text]) => [
      `.SH ${escape(topic.toUpperCase().replaceAll("-", " "))}`,
      ...topicLines(text),
    ]),
    ".SH SEE ALSO",
    seeAlso.map((page) => page.replace(/^(.*)(\(\d\))$/, (_, title, section) => bold(title) + section)).join(",\n"),
    "",
  ].join("\n");
}

function commandLines(program: Program, name: string, help: SubcommandHelp): string[] {
  const [command = "", ...rest] = usage(program, name, help);
  const exit = exitSentence(help);
  return [
    `.SS ${[command, ...rest].map(escape).join(" ")}`,
    ...paragraphs([help.about, exit].filter((text) => text !== undefined).join("\n\n")),
    ...(help.argument === undefined ? [] : definitions([[help.argument.name, help.argument.help]])),
    ...Object.entries(help.flags).flatMap(flagLines),
    ...(help.example === undefined ? [] : [".PP", "Example:", ".PP", ".RS", ".nf", escape(help.example), ".fi", ".RE"]),
  ];
}

function topicLines({ about, rows = [] }: Topic): string[] {
  return [...paragraphs(about), ...definitions(rows)];
}

function flagLines([name, flag]: readonly [string, Flag]): string[] {
  const { value } = flag;
  const syntax = flagSyntax(name, flag);
  const names = value === undefined ? syntax : syntax.slice(0, -value.length - 1);
  const shown = names.split(", ").map(bold).join(", ");
  return [".TP", value === undefined ? shown : `${shown} ${italic(value)}`, sentence(flagHelp(flag))];
}

function definitions(rows: readonly (readonly [string, string])[]): string[] {
  return rows.flatMap(([word, meaning]) => [".TP", bold(word), sentence(meaning)]);
}

function paragraphs(text: string): string[] {
  return text.split("\n\n").flatMap((paragraph) => [".PP", escape(paragraph.replaceAll("\n", " "))]);
}

function sentence(text: string): string {
  return escape(/[.!?]$/.test(text) ? text : `${text}.`);
}

function bold(text: string): string {
  return `\\fB${escape(text)}\\fR`;
}

function italic(text: string): string {
  return `\\fI${escape(text)}\\fR`;
}

/** Characters that troff takes for others, or sets as typographic ones (groff_char(7)). */
const ESCAPES: Readonly<Record<string, string>> = {
  ...{ "\\": "\\e", "-": "\\-", "'": "\\(aq", '"': "\\(dq", "`": "\\(ga", "^": "\\(ha", "~": "\\(ti" },
};

/** Returns a text as troff prints it. A point at the beginning of a line would make a macro of it. */
function escape(text: string): string {
  return text.replace(/[-\\'"`^~]/g, (character) => ESCAPES[character]!).replace(/^\./gm, "\\&.");
}

/** What the manual pages refer to. */
const SEE_ALSO = ["lvm(8)", "lvmthin(7)", "lvmraid(7)", "kubectl(1)"];

/** Returns the texts of the files of a program, by their paths below a directory such as /usr/local. */
export function installedFiles(program: Program, version: string): ReadonlyMap<string, string> {
  const { executable } = program;
  return new Map([
    [`share/man/man1/${executable}.1`, manPage(program, { version, seeAlso: SEE_ALSO })],
    [`share/bash-completion/completions/${executable}`, `${completionScript(program, "bash")}\n`],
    [`share/zsh/site-functions/_${executable}`, `${completionScript(program, "zsh")}\n`],
    [`share/fish/vendor_completions.d/${executable}.fish`, `${completionScript(program, "fish")}\n`],
  ]);
}
