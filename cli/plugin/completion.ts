/**
 * `kubectl denolith completion`: scripts for shells, made from the table of subcommands.
 *
 * @module
 */

import type { Flag, SubcommandHelp } from "../command_line.ts";
import { PLUGIN_COMMANDS, type SHELLS } from "./commands.ts";

/** The executable. */
const EXECUTABLE = "kubectl-denolith";

/** The flags that every subcommand has. */
const COMMON: readonly (readonly [string, Flag])[] = [
  ["help", { short: "h", help: "Show this help" }],
  ["version", { short: "V", help: "Print the version" }],
];

const COMMANDS: readonly (readonly [string, SubcommandHelp])[] = Object.entries(PLUGIN_COMMANDS);

/** The command that prints the names of a resource, one a line. A placeholder stands for the flag of the namespace. */
const namesCommand = (resource: string) => `kubectl get ${resource} --output name 2>/dev/null`;

/** Returns the completion script of a shell. */
export function completionScript(shell: typeof SHELLS[number]): string {
  switch (shell) {
    case "bash":
      return bashScript();
    case "zsh":
      return zshScript();
    case "fish":
      return fishScript();
    case "kubectl":
      return kubectlScript();
  }
}

/** Returns the flags of a subcommand, with those that every one has. */
function flagsOf({ flags }: SubcommandHelp): (readonly [string, Flag])[] {
  return [...Object.entries(flags), ...COMMON];
}

/** Returns what a flag or an argument may be: words, names of a resource, or nothing that is known. */
function valuesOf({ words, resource }: { words?: readonly string[]; resource?: string }): string | undefined {
  if (words !== undefined) return `printf '%s\\n' ${words.join(" ")}`;
  return resource === undefined ? undefined : `${namesCommand(resource)} | sed 's|.*/||'`;
}

/** Returns the values of flags that have some, by the name of the flag; those of namespaces and contexts, too. */
function flagValues(command: SubcommandHelp): (readonly [string, string])[] {
  return Object.entries(command.flags).flatMap(([name, flag]) => {
    const values = name === "context"
      ? "kubectl config get-contexts --output name 2>/dev/null"
      : valuesOf(name === "namespace" ? { resource: "namespaces" } : name === "node" ? { resource: "lvmnodes" } : flag);
    return values === undefined ? [] : [[name, values] as const];
  });
}

/** The cases of a shell for a subcommand: its flags, the values of its flags, and those of its argument. */
function shellCases(indent: string): string[] {
  return COMMANDS.flatMap(([name, command]) => {
    const flags = flagsOf(command).map(([flag]) => `--${flag}`).join(" ");
    const values = valuesOf(command.argument ?? {});
    return [
      `${indent}${name})`,
      `${indent}  case $previous in`,
      ...flagValues(command).map(([flag, print]) => {
        const { short } = command.flags[flag]!;
        return `${indent}  --${flag}${short === undefined ? "" : ` | -${short}`}) ${print}; return ;;`;
      }),
      `${indent}  esac`,
      `${indent}  case $current in`,
      `${indent}  -*) printf '%s\\n' ${flags} ;;`,
      ...(values === undefined ? [] : [`${indent}  *) ${values} ;;`]),
      `${indent}  esac`,
      `${indent}  ;;`,
    ];
  });
}

/** The function that prints candidates for the last word, in the language of POSIX shells. */
function candidatesFunction(name: string): string[] {
  return [
    `${name}() {`,
    "  local command=$1 previous=$2 current=$3",
    '  case "$command" in',
    ...shellCases("  "),
    `  *) printf '%s\\n' ${[...COMMANDS.map(([command]) => command), "help"].join(" ")} ;;`,
    "  esac",
    "}",
  ];
}

function bashScript(): string {
  return [
    `# bash completion of ${EXECUTABLE}`,
    ...candidatesFunction("_kubectl_denolith_candidates"),
    "_kubectl_denolith() {",
    '  local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]} command=""',
    "  [ $COMP_CWORD -gt 1 ] && command=${COMP_WORDS[1]}",
    '  [ "$command" = help ] && command=""',
    '  COMPREPLY=($(compgen -W "$(_kubectl_denolith_candidates "$command" "$previous" "$current")" -- "$current"))',
    "}",
    `complete -F _kubectl_denolith ${EXECUTABLE}`,
  ].join("\n");
}

function zshScript(): string {
  return [
    `#compdef ${EXECUTABLE}`,
    `# zsh completion of ${EXECUTABLE}`,
    ...candidatesFunction("_kubectl_denolith_candidates"),
    "_kubectl_denolith() {",
    '  local current=${words[CURRENT]} previous=${words[CURRENT - 1]} command=""',
    "  (( CURRENT > 2 )) && command=${words[2]}",
    '  [[ $command = help ]] && command=""',
    '  compadd -- ${(f)"$(_kubectl_denolith_candidates "$command" "$previous" "$current")"}',
    "}",
    "# as a file of $fpath, it is first run when it is to complete something",
    `if [[ \${funcstack[1]} = _${EXECUTABLE} ]]; then _kubectl_denolith; else compdef _kubectl_denolith ${EXECUTABLE}; fi`,
  ].join("\n");
}

function fishScript(): string {
  const quoted = (text: string) => `'${text.replace(/[\\']/g, "\\$&")}'`;
  const rule = (...words: readonly string[]) => ["complete", "--command", EXECUTABLE, ...words].join(" ");
  return [
    `# fish completion of ${EXECUTABLE}`,
    rule("--no-files"),
    ...COMMANDS.map(([name, { summary }]) =>
      rule("--condition", "__fish_use_subcommand", "--arguments", name, "--description", quoted(summary))
    ),
    ...COMMANDS.flatMap(([name, command]) => {
      const condition = ["--condition", quoted(`__fish_seen_subcommand_from ${name}`)];
      const values = new Map(flagValues(command));
      const argument = valuesOf(command.argument ?? {});
      return [
        ...flagsOf(command).map(([flag, { short, value, help }]) =>
          rule(
            ...condition,
            ...["--long-option", flag],
            ...(short === undefined ? [] : ["--short-option", short]),
            ...(value === undefined ? [] : ["--require-parameter"]),
            ...(values.has(flag) ? ["--arguments", quoted(`(${values.get(flag)})`)] : []),
            ...["--description", quoted(help)],
          )
        ),
        ...(argument === undefined ? [] : [rule(...condition, "--arguments", quoted(`(${argument})`))]),
      ];
    }),
  ].join("\n");
}

/** A program for kubectl, which calls it with the words after `kubectl denolith` (kubectl 1.26 and later). */
function kubectlScript(): string {
  return [
    "#!/bin/sh",
    "# Completion of kubectl denolith. Put it into PATH as kubectl_complete-denolith, and make it executable.",
    ...candidatesFunction("candidates"),
    'command="" previous="" current=""',
    '[ $# -gt 1 ] && [ "$1" != help ] && command=$1',
    'for word in "$@"; do previous=$current current=$word; done',
    'candidates "$command" "$previous" "$current" | while read -r word; do',
    '  case $word in "$current"*) printf \'%s\\n\' "$word" ;; esac',
    "done",
    "echo :4 # no names of files",
  ].join("\n");
}
