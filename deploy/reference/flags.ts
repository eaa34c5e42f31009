/**
 * The flags of the subcommands, from the table of subcommands.
 *
 * @module
 */

import type { Flag, Program, SubcommandHelp } from "../../cli/command_line.ts";
import { DENOLITH } from "../../cli/help/denolith.ts";
import { defaultText, exitSentence, flagSyntax } from "../../cli/help/text.ts";
import { PLUGIN } from "../../plugin/commands.ts";
import { code, paragraph, sentence, table } from "./markdown.ts";

/** Returns a section for each subcommand of the driver that has flags. */
export function flagSections(): string {
  return sections(DENOLITH);
}

/** Returns a section for each subcommand of the kubectl plugin that has flags. */
export function pluginFlagSections(): string {
  return sections(PLUGIN);
}

/** Returns the exit statuses. */
export function exitStatusTable(): string {
  return topicTable(DENOLITH, "exit-status", "Exit status");
}

/** Returns the environment variables of the driver. */
export function environmentTable(): string {
  return topicTable(DENOLITH, "environment", "Variable");
}

/** Returns the environment variables of the kubectl plugin. */
export function pluginEnvironmentTable(): string {
  return topicTable(PLUGIN, "environment", "Variable");
}

function topicTable({ topics }: Program, topic: string, word: string): string {
  return table([word, "Meaning"], topics[topic]!.rows!.map(([name, meaning]) => [code(name), meaning]));
}

function sections({ name: program, commands }: Program): string {
  return Object.entries(commands).filter(([, { flags }]) => Object.keys(flags).length > 0)
    .map(([name, subcommand]) => section(`${program} ${name}`, subcommand)).join("\n\n");
}

function section(command: string, subcommand: SubcommandHelp): string {
  const { summary, argument, flags, example } = subcommand;
  const exit = exitSentence(subcommand);
  return [
    `## ${command}`,
    paragraph([sentence(summary), exit ?? ""].join(" ").trim()),
    ...(argument === undefined ? [] : [paragraph(`${code(argument.name)}: ${argument.help}.`)]),
    table(["Flag", "Default", "Meaning"], Object.entries(flags).map(([flag, of]) => row(flag, of))),
    ...(example === undefined ? [] : ["```sh\n" + example + "\n```"]),
  ].join("\n\n");
}

function row(name: string, flag: Flag): string[] {
  const text = defaultText(flag) ?? (flag.value === undefined ? "off" : "");
  const isValue = flag.value !== undefined && text !== "" && !text.includes(" ");
  return [code(flagSyntax(name, flag)), isValue ? code(text) : text, sentence(flag.help)];
}
