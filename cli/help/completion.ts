/**
 * What shells propose for the last word of a command line. Their scripts ask for it by the hidden subcommand
 * {@linkcode COMPLETE}, in the protocol of cobra, which kubectl has for its plugins, too.
 *
 * @module
 */

import {
  type Candidates,
  type Flag,
  type Flags,
  HELP,
  type Program,
  STANDARD_FLAGS,
  subcommandFirst,
} from "../command_line.ts";
import bash from "./completion.bash" with { type: "text" };
import fish from "./completion.fish" with { type: "text" };
import powershell from "./completion.ps1" with { type: "text" };
import kubectl from "./completion.sh" with { type: "text" };
import zsh from "./completion.zsh" with { type: "text" };

/** The subcommand that shells call. Its arguments are the words of the command line, of which the last is completed. */
export const COMPLETE = "__complete";

/** What a shell may do beside proposing the candidates (cobra, ShellCompDirective). */
const DIRECTIVES = { files: 0, nothing: 4, directories: 16 } as const;

/** Where names come from that are not in the table of subcommands. An error means that there are none. */
export interface NameSource {
  /** Returns the names of the objects of a kind. @param flags the flags of the command line, unchecked */
  names(resource: string, flags: Flags): Promise<readonly string[]>;
  /** Returns the names of the contexts of the kubeconfig. */
  contexts(flags: Flags): Promise<readonly string[]>;
}

const NO_NAMES: NameSource = { names: () => Promise.resolve([]), contexts: () => Promise.resolve([]) };

/** A word that is proposed, with its description. */
type Candidate = readonly [word: string, description?: string];

/** What is proposed: candidates, and what else the shell may do. */
interface Proposal {
  readonly candidates: readonly Candidate[];
  readonly directive: keyof typeof DIRECTIVES;
  /** What the candidates begin with; by default the last word. Of `--flag=value`, they are the value alone. */
  readonly typed?: string;
}

const NOTHING: Proposal = { candidates: [], directive: "nothing" };

/**
 * Returns what a shell reads: a line for each candidate, with its description after a tabulator, and as the last line a
 * colon and a number, which says whether files are meant.
 *
 * @param words the words after the name of the program; the last one is incomplete, and may be empty
 */
export async function completionLines(
  program: Program,
  words: readonly string[],
  source: NameSource = NO_NAMES,
): Promise<string> {
  const { candidates, directive, typed = words.at(-1) ?? "" } = await propose(program, words, source);
  return [
    ...candidates.filter(([word]) => word.startsWith(typed) && isPrintable(word))
      .map(([word, description]) => description === undefined ? word : `${word}\t${description}`),
    `:${DIRECTIVES[directive]}`,
  ].join("\n");
}

/** Reports whether a word can be a line of its own. Who writes a kubeconfig may have named a context in any way. */
function isPrintable(word: string): boolean {
  return /^[^\p{C}]+$/u.test(word);
}

async function propose(program: Program, words: readonly string[], source: NameSource): Promise<Proposal> {
  const [name = "", ...rest] = [...subcommandFirst(program, words.slice(0, -1)), words.at(-1) ?? ""];
  const { commands, topics } = program;
  if (HELP.includes(name)) {
    if (rest.length === 1) return proposeWords([...summaries(commands), ...summaries(topics)], rest[0]!);
    const names = rest.length === 2 ? topics[rest[0]!]?.chapters?.names() ?? [] : [];
    return { ...NOTHING, candidates: names.map((word) => [word]) };
  }
  const subcommand = Object.hasOwn(commands, name) ? commands[name]! : undefined;
  const isBeforeCommand = rest.length === 0 || name.startsWith("-");
  if (subcommand === undefined && !isBeforeCommand) return NOTHING;
  const flags: Readonly<Record<string, Flag>> = isBeforeCommand
    ? Object.assign({}, ...Object.values(commands).map(({ flags }) => flags))
    : { ...subcommand!.flags, ...STANDARD_FLAGS };
  const line = readLine(flags, isBeforeCommand ? words.slice(0, -1) : rest.slice(0, -1));
  const current = rest.at(-1) ?? name;
  const context = { flags: line.given, source };
  if (line.pending !== undefined) return await values(flags[line.pending]!.candidates, current, context);
  const [, assigned, typed = ""] = line.isAfterFlags ? [] : /^--([^=]+)=(.*)$/s.exec(current) ?? [];
  if (assigned !== undefined) return { ...await values(flags[assigned]?.candidates, typed, context), typed };
  if (isBeforeCommand) {
    return proposeWords([...summaries(commands), ["help", "Show the help"], ...flagWords(STANDARD_FLAGS)], current);
  }
  if (current.startsWith("-") && !line.isAfterFlags) {
    return { ...NOTHING, candidates: flagWords(flags).filter(([word]) => line.given[word.slice(2)] === undefined) };
  }
  const argument = subcommand?.argument;
  if (argument === undefined || (line.positionals > 0 && !argument.isList)) return NOTHING;
  return await values(argument.candidates, current, context);
}

/** Proposes words, of which those that begin with a dash only after a dash. */
function proposeWords(candidates: readonly Candidate[], current: string): Proposal {
  return { ...NOTHING, candidates: candidates.filter(([word]) => word.startsWith("-") === current.startsWith("-")) };
}

function summaries(of: Readonly<Record<string, { readonly summary: string }>>): Candidate[] {
  return Object.entries(of).map(([word, { summary }]) => [word, summary]);
}

function flagWords(flags: Readonly<Record<string, Flag>>): Candidate[] {
  return Object.entries(flags).map(([name, { help }]) => [`--${name}`, help]);
}

/** What the words before the last one are. */
interface Line {
  /** The flags that are given. */
  readonly given: Flags;
  /** The flag whose value the last word is. */
  readonly pending: string | undefined;
  /** The number of arguments that are not flags. */
  readonly positionals: number;
  /** True after `--`, which ends the flags. */
  readonly isAfterFlags: boolean;
}

/** Reads a command line that may be wrong. */
function readLine(flags: Readonly<Record<string, Flag>>, words: readonly string[]): Line {
  const given: Record<string, string> = {};
  let [pending, positionals, isAfterFlags]: [string | undefined, number, boolean] = [undefined, 0, false];
  for (const word of words) {
    if (pending !== undefined) {
      given[pending] = word;
      pending = undefined;
    } else if (isAfterFlags || !word.startsWith("-") || word === "-") positionals++;
    else if (word === "--") isAfterFlags = true;
    else {
      const [, name = "", value] = /^--?([^=]*)(?:=(.*))?$/s.exec(word)!;
      const flag = Object.hasOwn(flags, name)
        ? name
        : Object.keys(flags).find((one) => flags[one]!.short === name.slice(0, 1)) ?? name;
      const attached = value ?? (flag !== name && name.length > 1 ? name.slice(1) : undefined); // -nshop
      if (flags[flag]?.value === undefined) given[flag] = "true";
      else if (attached === undefined) pending = flag;
      else given[flag] = attached;
    }
  }
  return { given, pending, positionals, isAfterFlags };
}

/** What values depend on. */
interface Context {
  /** The flags of the line. */
  readonly flags: Flags;
  readonly source: NameSource;
}

async function values(candidates: Candidates | undefined, typed: string, context: Context): Promise<Proposal> {
  if (candidates === undefined) return NOTHING;
  if (candidates === "files" || candidates === "directories") return { candidates: [], directive: candidates };
  return { ...NOTHING, candidates: (await valueWords(candidates, typed, context)).map((word) => [word]) };
}

async function valueWords(
  candidates: Exclude<Candidates, "files" | "directories">,
  typed: string,
  { flags, source }: Context,
): Promise<readonly string[]> {
  if (candidates === "contexts") return await source.contexts(flags).catch(() => []);
  if ("resource" in candidates) {
    const [before = "", kind = ""] = /^([a-z]+)\//.exec(typed) ?? [];
    const resource = before === "" ? candidates.resource : candidates.kinds?.get(kind);
    const names = resource === undefined ? [] : await source.names(resource, flags).catch(() => []);
    return names.map((name) => before + name);
  }
  if (!("list" in candidates)) return candidates;
  const before = typed.replace(/[^,]*$/, "");
  return candidates.list.filter((word) => !before.split(",").includes(word)).map((word) => before + word);
}

const SCRIPTS = { bash, zsh, fish, powershell, kubectl };

/** A shell that has a script; `kubectl` stands for the completion of a plugin by kubectl. */
export type Shell = keyof typeof SCRIPTS;

/** Returns the completion script of a program for a shell. */
export function completionScript({ executable }: Pick<Program, "executable">, shell: Shell): string {
  return SCRIPTS[shell].replaceAll("@PROGRAM@", executable).replaceAll("@COMPLETE@", COMPLETE)
    .replaceAll("@NAME@", executable.replaceAll("-", "_")).trimEnd();
}
