/**
 * The flags of the subcommands, from the table of subcommands.
 *
 * @module
 */

import type { Flag, SubcommandHelp, Subcommands } from "../../cli/command_line.ts";
import { SUBCOMMANDS } from "../../cli/commands.ts";
import { PLUGIN_COMMANDS } from "../../cli/plugin/commands.ts";
import { code, paragraph, sentence, table } from "./markdown.ts";

/** Returns a section for each subcommand of the driver that has flags. */
export function flagSections(): string {
  return sections("denolith", SUBCOMMANDS);
}

/** Returns a section for each subcommand of the kubectl plugin that has flags. */
export function pluginFlagSections(): string {
  return sections("kubectl denolith", PLUGIN_COMMANDS);
}

function sections(program: string, subcommands: Subcommands<SubcommandHelp>): string {
  return Object.entries(subcommands).filter(([, { flags }]) => Object.keys(flags).length > 0)
    .map(([name, subcommand]) => section(`${program} ${name}`, subcommand)).join("\n\n");
}

function section(command: string, { summary, argument, flags, example }: SubcommandHelp): string {
  return [
    `## ${command}`,
    paragraph(sentence(summary)),
    ...(argument === undefined ? [] : [paragraph(`${code(argument.name)}: ${argument.help}.`)]),
    table(["Flag", "Default", "Meaning"], Object.entries(flags).map(([flag, of]) => row(flag, of))),
    ...(example === undefined ? [] : ["```sh\n" + example + "\n```"]),
  ].join("\n\n");
}

function row(name: string, { value, help, short, default: byDefault }: Flag): string[] {
  const flag = `${short === undefined ? "" : `-${short}, `}--${name}${value === undefined ? "" : ` ${value}`}`;
  return [code(flag), defaultText(value, byDefault), sentence(help)];
}

/** Returns the default of a flag. That of this machine is named, not shown. */
function defaultText(value: string | undefined, byDefault: (() => string) | undefined): string {
  if (byDefault === undefined) return value === undefined ? "off" : "";
  const text = byDefault();
  return text === Deno.hostname() ? "the host name" : code(text);
}
