/**
 * Flags that several subcommands of the plugin have, and the checks of their values.
 *
 * @module
 */

import { requireDriverName } from "../csi/driver_options.ts";
import { requireNodeId } from "../csi/topology.ts";
import { messageOf, quote } from "../base/error.ts";
import { type Flag, type Flags, UsageError } from "../cli/command_line.ts";
import { inWords, namespaceName, path } from "../cli/shared_flags.ts";
import { parseColumns, parseTemplate } from "./json_path.ts";

/** Flags that select the cluster; kubectl gets them as they are. */
export const CLUSTER_FLAGS = {
  context: {
    value: "NAME",
    help: "Context of the kubeconfig (default: the current one)",
    check: word,
    candidates: "contexts",
  },
  kubeconfig: {
    value: "PATH",
    help: "Path of the kubeconfig (default: as kubectl has it)",
    check: path,
    candidates: "files",
  },
  as: { value: "USER", help: "User to impersonate", check: word },
  "as-group": { value: "GROUP", help: "Group to impersonate", check: word, needs: "as" },
  "request-timeout": { value: "TIME", help: "Time limit of each request, such as 30s", check: duration },
  "driver-name": {
    value: "NAME",
    help: "Name of the driver",
    default: () => "lvm.denolith.dev",
    check: requireDriverName,
  },
} as const satisfies Record<string, Flag>;

/** A namespace. */
export const NAMESPACE: Flag = {
  value: "NAME",
  short: "n",
  help: "Namespace (default: that of the context)",
  check: namespaceName,
  candidates: { resource: "namespaces" },
};

/** All namespaces, which lists show anyway. */
const ALL_NAMESPACES: Flag = { short: "A", help: "Those of all namespaces, as without it" };

/** Returns the flag of the format of the output. @param words the formats without an argument */
function outputFlag(words: readonly string[], templates: Readonly<Record<string, (text: string) => unknown>>): Flag {
  const known = [...words, ...Object.keys(templates).map((name) => `${name}=...`)];
  return {
    ...{ value: "FORMAT", short: "o", candidates: words },
    help: `Format of the output: ${inWords(known)} (default: a table)`,
    check: (text, field) => {
      const [kind = "", argument] = text.split(/=(.*)/s);
      if (argument === undefined && words.includes(kind)) return;
      const parse = Object.hasOwn(templates, kind) ? templates[kind] : undefined;
      if (!argument || parse === undefined) throw new UsageError(`${field} ${quote(text)}: must be ${inWords(known)}`);
      try {
        parse(argument);
      } catch (error) {
        throw new UsageError(`${field} ${quote(text)}: ${messageOf(error)}`);
      }
    },
  };
}

/** The format of the output. */
export const OUTPUT = outputFlag(["json", "yaml", "wide"], { jsonpath: parseTemplate });

/** The format of the output of a list of objects. */
const LIST_OUTPUT = outputFlag(["json", "yaml", "wide", "name"], {
  jsonpath: parseTemplate,
  "custom-columns": parseColumns,
});

/** Whether it is shown again whenever it changes. */
export const WATCH: Flag = { short: "w", help: "Show it again whenever it changes, until Ctrl-C" };

/** Whether nothing is asked. */
export const YES: Flag = { help: "Do not ask before anything is changed" };

/** Flags of the subcommands that show a list. kubectl takes --all-namespaces also for what is in no namespace. */
export const LIST_FLAGS = { "all-namespaces": ALL_NAMESPACES, output: OUTPUT, watch: WATCH, ...CLUSTER_FLAGS };

/** Returns the flags of a list of objects. @param labelled what has the labels that `--selector` names */
export function objectListFlags(labelled: string) {
  const help = `Only ${labelled} with these labels, such as app=db,tier!=test`;
  const selector: Flag = { value: "LABELS", short: "l", help, check: labelSelector };
  return { selector, ...LIST_FLAGS, output: LIST_OUTPUT };
}

/** A filter by node. */
export const NODE: Flag = {
  value: "NAME",
  help: "Only those of this node",
  check: requireNodeId,
  candidates: { resource: "lvmnodes" },
};

/** The form of the names of LVM. */
const LVM_NAME = /^[A-Za-z0-9+_.][A-Za-z0-9+_.-]{0,126}$/;

/** Returns the name of a volume group if it can be one (lvm(8)). */
export function groupName(text: string, field: string): string {
  if (LVM_NAME.test(text)) return text;
  throw new UsageError(`${field} ${quote(text)}: must be the name of a volume group`);
}

/** Returns the name of a thin pool if it can be one (lvm(8)). */
export function poolName(text: string, field: string): string {
  if (LVM_NAME.test(text)) return text;
  throw new UsageError(`${field} ${quote(text)}: must be the name of a thin pool`);
}

/** Returns the name of a disk in /dev/disk/by-id if it can be one that an agent reports. */
export function diskName(text: string, field: string): string {
  if (/^[A-Za-z0-9][A-Za-z0-9:._+=@-]{0,252}$/.test(text)) return text;
  throw new UsageError(`${field} ${quote(text)}: must be the name of a disk in /dev/disk/by-id`);
}

/** Returns the name of a claim if it can be one. */
export function claimName(text: string, field: string): string {
  if (/^[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?$/.test(text)) return text;
  throw new UsageError(`${field} ${quote(text)}: must be the name of a claim`);
}

/** Returns the names of a list, which may stand after their namespaces. */
function objectNames(text: string, field: string): readonly string[] {
  const names = text.split(",");
  const wrong = names.find((name) => !/^(?:[a-z0-9-]{1,63}\/)?[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?$/.test(name));
  if (wrong === undefined) return names;
  throw new UsageError(`${field} ${quote(wrong)}: must be names of objects`);
}

const LABEL_VALUE = "(?:[A-Za-z0-9](?:[\\w.-]{0,61}[A-Za-z0-9])?)";
const LABEL_KEY = `(?:[a-z0-9.-]{1,253}/)?${LABEL_VALUE}`;
const LABEL_TERM = `(?:!?${LABEL_KEY}|${LABEL_KEY} *(?:==?|!=) *${LABEL_VALUE}?` +
  `|${LABEL_KEY} +(?:in|notin) +\\( *${LABEL_VALUE}?(?: *, *${LABEL_VALUE}?)* *\\))`;

/** Returns a selector of labels if the API server takes it. */
function labelSelector(text: string, field: string): string {
  if (new RegExp(`^ *${LABEL_TERM} *(?:, *${LABEL_TERM} *)*$`).test(text)) return text;
  throw new UsageError(`${field} ${quote(text)}: must be labels such as app=db, tier!=test, !old or zone in (a,b)`);
}

/** Returns a word: anything that kubectl cannot take for a flag. */
function word(text: string, field: string): string {
  if (/^(?!-)\P{Cc}{1,1024}$/u.test(text)) return text;
  throw new UsageError(
    `${field} ${quote(text)}: must not begin with a dash, have control characters, or more than 1024 characters`,
  );
}

/** Returns a time if kubectl takes it: a number of seconds, or what Go writes, such as 1m30s. */
function duration(text: string, field: string): string {
  if (/^(?:\d+|(?:\d+(?:\.\d*)?(?:ns|us|µs|ms|s|m|h))+)$/.test(text)) return text;
  throw new UsageError(`${field} ${quote(text)}: must be a time such as 30s or 1m30s`);
}

/** Parses a number of seconds. */
export function seconds(text: string, field: string): number {
  if (/^[1-9]\d{0,3}$/.test(text)) return Number(text);
  throw new UsageError(`${field} ${quote(text)}: must be a whole number of seconds from 1 to 9999`);
}

/** Parses a TCP port; 0 stands for a free one. */
export function portNumber(text: string, field: string): number {
  if (/^(?:0|[1-9]\d{0,4})$/.test(text) && Number(text) <= 65_535) return Number(text);
  throw new UsageError(`${field} ${quote(text)}: must be a port from 0 to 65535`);
}

/** Returns the argument of a list: names of what is shown of it. */
export function namesArgument(help: string, resource: string) {
  return { name: "NAME", help, check: objectNames, candidates: { resource }, isOptional: true, isList: true } as const;
}

/** The claim of a subcommand. */
export const CLAIM = {
  name: "CLAIM",
  help: "Name of the claim",
  check: claimName,
  candidates: { resource: "persistentvolumeclaims" },
} as const;

/** The claim of a subcommand that can list all of them, too. */
export const CLAIM_OR_ALL = {
  ...CLAIM,
  help: "Name of the claim; without it, --dry-run lists all volumes of others",
  isOptional: true,
} as const;

/** The node of a subcommand. */
export const NODE_ARGUMENT = {
  name: "NODE",
  help: "Name of the node",
  check: requireNodeId,
  candidates: { resource: "lvmnodes" },
} as const;

/** Requires a node, or that all are meant. @throws {Error} */
export function requireNodeOrAll({ NODE, all }: Flags): void {
  if (NODE === undefined && all === undefined) throw new Error("NODE is missing; --all stands for all nodes");
  if (NODE !== undefined && all !== undefined) throw new Error("NODE excludes --all");
}

/** Requires a claim, or that nothing is changed. @throws {Error} */
export function requireClaimOrDryRun({ CLAIM, "dry-run": dryRun }: Flags): void {
  if (CLAIM !== undefined || dryRun !== undefined) return;
  throw new Error("CLAIM is missing; without it, --dry-run lists all volumes of others, and what becomes of each");
}

/** Requires the node that a claim moves to, unless its move is undone. @throws {Error} */
export function requireTargetOrCancel({ to, cancel }: Flags): void {
  if (to === undefined && cancel === undefined) throw new Error("--to is missing: it names the node");
}
