/**
 * The flags of the subcommands, from the table of subcommands.
 *
 * @module
 */

import type { Flag, Program, SubcommandHelp } from "../../cli/command_line.ts";
import { defaultText, flagSyntax } from "../../cli/help/text.ts";
import { code, listItem, paragraph, sentence, termList } from "./markdown.ts";

/** A flag with its name. */
interface NamedFlag {
  readonly name: string;
  readonly flag: Flag;
}

/** Whether several commands have a flag, and whether all do that have flags of their own. */
interface FlagKinds {
  readonly isShared: (name: string, flag: Flag) => boolean;
  readonly isEverywhere: (name: string, flag: Flag) => boolean;
}

/** Number of commands above which the flags of all of them are named once. */
const MANY = 8;

/** Returns a list of what a topic of a program explains, such as its exit statuses. */
export function topicList({ topics }: Program, topic: string): string {
  return termList(topics[topic]!.rows!.map(([name, meaning]) => [code(name), [], meaning]));
}

/** Returns a section for the flags that several subcommands of a program share, and one for each that has flags. */
export function flagSections({ name: program, commands }: Program): string {
  const withFlags = Object.entries(commands).filter(([, { flags }]) => Object.keys(flags).length > 0);
  const all = withFlags.flatMap(([, { flags }]) => Object.entries(flags).map(([name, flag]) => ({ name, flag })));
  const uses = [...Map.groupBy(all, ({ name, flag }) => term(name, flag).join()).values()];
  const shared = uses.filter(({ length }) => length > 1).map(([first]) => first!);
  const most = Math.max(...uses.map(({ length }) => length));
  const everywhere = uses.filter(({ length }) => most > MANY && length === most).map(([first]) => first!);
  const without = withFlags.filter(([, { flags }]) => everywhere.some(({ name }) => !Object.hasOwn(flags, name)));
  const isIn = (flags: readonly NamedFlag[], name: string, flag: Flag) =>
    flags.some((other) => other.name === name && term(name, flag).join() === term(name, other.flag).join());
  const kinds = {
    isShared: (name: string, flag: Flag) => isIn(shared, name, flag),
    isEverywhere: (name: string, flag: Flag) => isIn(everywhere, name, flag),
  };
  return [
    "## Flags of several commands",
    ...(everywhere.length === 0 ? [] : [
      paragraph(
        `All commands${without.length === 0 ? "" : ` but ${without.map(([name]) => code(name)).join(", ")}`} have ` +
          `${everywhere.map(({ name }) => code(`--${name}`)).join(", ")}.`,
      ),
    ]),
    termList(shared.map(({ name, flag }) => term(name, flag))),
    ...withFlags.map(([name, subcommand]) => section(`${program} ${name}`, subcommand, kinds)),
  ].join("\n\n");
}

function section(command: string, subcommand: SubcommandHelp, { isShared, isEverywhere }: FlagKinds): string {
  const { summary, argument, flags, exit } = subcommand;
  const own = Object.entries(flags).filter(([name, flag]) => !isShared(name, flag));
  const others = Object.entries(flags).filter(([name, flag]) => isShared(name, flag) && !isEverywhere(name, flag));
  const items = [
    ...(argument === undefined ? [] : [termList([[code(argument.name), [], sentence(argument.help)]])]),
    ...(own.length === 0 ? [] : [termList(own.map(([name, flag]) => term(name, flag)))]),
    ...(others.length === 0 ? [] : [listItem(`As above: ${others.map(([name]) => code(`--${name}`)).join(", ")}.`)]),
    ...(exit === undefined ? [] : [listItem(`Exit status: 0 if ${exit.success}, 1 if ${exit.failure}.`)]),
  ];
  return [`## ${command}`, paragraph(sentence(summary)), items.join("\n")].join("\n\n");
}

function term(name: string, flag: Flag): [string, string[], string] {
  const text = defaultText(flag);
  return [code(flagSyntax(name, flag)), text === undefined ? [] : [`default ${text}`], sentence(flag.help)];
}
