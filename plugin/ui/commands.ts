/**
 * Commands as they can be copied and run: for the cluster of the page, with the names of what they are about.
 *
 * @module
 */

import { shellWord } from "../../base/text_table.ts";
import type { Problem } from "../problem.ts";

/** The cluster and the driver that commands are for. */
export interface CommandTarget {
  /** The context of the kubeconfig; empty in a pod. */
  readonly context: string;
  /** The path of the kubeconfig; absent where kubectl finds it by itself. */
  readonly kubeconfig?: string | undefined;
  /** The driver; absent for the one that the plugin has by default. */
  readonly driver?: string | undefined;
}

/** What commands are about. */
export interface CommandSubject extends CommandTarget {
  /** The node, where it is known. */
  readonly node?: string | undefined;
}

/** The kinds of objects in a namespace, and of others, that `why` explains, as problems name them. */
const NAMESPACED = ["claim", "pod", "volumesnapshot", "volumegroupsnapshot"];
const OTHERS = ["node", "lvmvolume", "lvmsnapshot"];

/** The words that stand for what a problem is about. A disk may have capitals within its name. */
const PLACEHOLDERS = /(?<= )[A-Z]{2,}(?= |$)/g;

/** Returns the commands for a problem: those of its remedy, and the one that explains what it is about. */
export function commandsFor(
  { object, commands = [] }: Pick<Problem, "object" | "commands">,
  { node, ...target }: CommandSubject,
): string[] {
  const [kind = "", ...names] = object.split("/");
  const claim = kind === "claim" ? inNamespace(names) : undefined;
  const about = kind === "node" ? names[0] : node;
  const filled = commands.map((command) => fill(command, { NODE: about && shellWord(about), CLAIM: claim }))
    .filter((command) => command.search(PLACEHOLDERS) < 0); // of what is not known
  const explained = NAMESPACED.includes(kind)
    ? [`kubectl denolith why ${kind === "claim" ? "" : `${kind}/`}${inNamespace(names)}`]
    : OTHERS.includes(kind)
    ? [`kubectl denolith why ${kind}/${shellWord(names[0] ?? "")}`]
    : [];
  return [...new Set([...filled, ...explained])].map((command) => inCluster(command, target));
}

/** Returns the arguments that name an object in its namespace. */
function inNamespace([namespace = "", name = ""]: readonly string[]): string {
  return `${shellWord(name)} --namespace ${shellWord(namespace)}`;
}

/** Returns a command with names in place of words. */
function fill(command: string, names: Readonly<Record<string, string | undefined>>): string {
  return command.replace(PLACEHOLDERS, (word) => names[word] ?? word);
}

/** Returns a command for a cluster and a driver: others may be those that the plugin finds by itself when it is run. */
export function inCluster(command: string, { context, kubeconfig, driver }: CommandTarget): string {
  const isOwn = command.startsWith("kubectl denolith ");
  const flags = { context: context || undefined, kubeconfig, "driver-name": isOwn ? driver : undefined };
  const words = Object.entries(flags).flatMap(([name, value]) => value ? [`--${name} ${shellWord(value)}`] : []);
  return [command, ...words].join(" ");
}
