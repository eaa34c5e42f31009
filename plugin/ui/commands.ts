/**
 * Commands as they can be copied and run: for the cluster of the page, with the names of what they are about.
 *
 * @module
 */

import type { Problem } from "../problem.ts";

/** What commands are about. */
export interface CommandSubject {
  /** The context of the kubeconfig; empty in a pod. */
  readonly context: string;
  /** The node, where it is known. */
  readonly node?: string | undefined;
}

/** The kinds of objects in a namespace, and of others, that `why` explains, as problems name them. */
const NAMESPACED = ["claim", "pod", "volumesnapshot", "volumegroupsnapshot"];
const OTHERS = ["node", "lvmvolume", "lvmsnapshot"];

/** Returns the commands for a problem: those of its remedy, and the one that explains what it is about. */
export function commandsFor(
  { object, commands = [] }: Pick<Problem, "object" | "commands">,
  { context, node }: CommandSubject,
): string[] {
  const [kind = "", ...names] = object.split("/");
  const claim = kind === "claim" ? inNamespace(names) : undefined;
  const about = kind === "node" ? names[0] : node;
  const filled = commands.map((command) => fill(command, { NODE: about, CLAIM: claim }))
    .filter((command) => !/\b[A-Z]{2,}\b/.test(command)); // of what is not known
  const explained = NAMESPACED.includes(kind)
    ? [`kubectl denolith why ${kind === "claim" ? "" : `${kind}/`}${inNamespace(names)}`]
    : OTHERS.includes(kind)
    ? [`kubectl denolith why ${kind}/${names[0]}`]
    : [];
  return [...new Set([...filled, ...explained])].map((command) => inContext(command, context));
}

/** Returns the arguments that name an object in its namespace. */
function inNamespace([namespace = "", name = ""]: readonly string[]): string {
  return `${name} --namespace ${namespace}`;
}

/** Returns a command with names in place of words. */
function fill(command: string, names: Readonly<Record<string, string | undefined>>): string {
  return command.replace(/\b[A-Z]{2,}\b/g, (word) => names[word] ?? word);
}

/** Returns a command for the cluster of a context: another one may be the current one when it is run. */
export function inContext(command: string, context: string): string {
  return context === "" ? command : `${command} --context ${quoted(context)}`;
}

/** Returns a word for a shell. */
function quoted(word: string): string {
  return /^[\w.:/@=+-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`;
}
