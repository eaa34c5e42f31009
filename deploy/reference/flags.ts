/**
 * The flags of the subcommands, from the table of subcommands.
 *
 * @module
 */

import type { Flag, Subcommand } from "../../cli/command_line.ts";
import { SUBCOMMANDS } from "../../cli/commands.ts";
import { code, paragraph, sentence, table } from "./markdown.ts";

/** Returns a section for each subcommand that has flags. */
export function flagSections(): string {
  return Object.entries(SUBCOMMANDS).filter(([, { flags }]) => Object.keys(flags).length > 0)
    .map(([name, subcommand]) => section(name, subcommand)).join("\n\n");
}

function section(name: string, { summary, argument, flags, example }: Subcommand): string {
  return [
    `## denolith ${name}`,
    paragraph(sentence(summary)),
    ...(argument === undefined ? [] : [paragraph(`${code(argument.name)}: ${argument.help}.`)]),
    table(["Flag", "Default", "Meaning"], Object.entries(flags).map(([flag, of]) => row(flag, of))),
    ...(example === undefined ? [] : ["```sh\n" + example + "\n```"]),
  ].join("\n\n");
}

function row(name: string, { value, help, default: byDefault }: Flag): string[] {
  return [code(`--${name}${value === undefined ? "" : ` ${value}`}`), defaultText(value, byDefault), sentence(help)];
}

/** Returns the default of a flag. That of this machine is named, not shown. */
function defaultText(value: string | undefined, byDefault: (() => string) | undefined): string {
  if (byDefault === undefined) return value === undefined ? "off" : "";
  const text = byDefault();
  return text === Deno.hostname() ? "the host name" : code(text);
}
