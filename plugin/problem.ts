/**
 * Problems of a cluster, as people read them: what is wrong, since when, and what to do.
 *
 * @module
 */

import { defined } from "../base/defined.ts";
import { type AnyCondition, conditionsOf } from "../k8s/api/conditions.ts";
import type { ReasonDescription } from "../k8s/api/condition_reasons.ts";
import { chapterName } from "./runbooks.ts";

/** How bad a problem is. */
export type Severity = "error" | "warning" | "info";

/** A problem. */
export interface Problem {
  /** How bad it is: of a `warning` work goes on, and of an `info` nothing is to be done but waiting. */
  readonly severity: Severity;
  /** The kind of problem, in one CamelCase word. */
  readonly reason: string;
  /** The object that has it, as `kind/name`. */
  readonly object: string;
  /** What is wrong, in a sentence. */
  readonly message: string;
  /** The time since when it is so (RFC 3339), where that is known. */
  readonly since?: string;
  /** What to do, in a sentence. */
  readonly remedy?: string;
  /** The commands in that sentence. Words in capitals, such as NODE, stand for what the problem is about. */
  readonly commands?: readonly string[];
  /** The chapter of the runbooks or of a guide, by its name. */
  readonly runbook?: string;
}

/** What is said of a problem; an undefined field is left out. */
type ProblemText = { [K in "message" | "since" | "remedy" | "runbook"]?: string | undefined } & { message: string };

/** Makes a problem of an object. @param text what is said of it; its remedy has commands between backticks */
export function problem(
  severity: Severity,
  reason: string,
  object: string,
  { remedy, ...text }: ProblemText,
): Problem {
  return { severity, reason, object, ...defined(text), ...remedyOf(remedy) };
}

/** Returns what is to be done, as people read it, with the commands, which the text has between backticks. */
export function remedyOf(text: string | undefined): Pick<Problem, "remedy" | "commands"> {
  if (text === undefined) return {};
  const commands = [...text.matchAll(/`(kubectl [^`]+)`/g)].map(([, command]) => command!);
  return { remedy: text.replaceAll("`", ""), ...(commands.length > 0 && { commands }) };
}

/** A condition with a reason and a message, as our own kinds and Kubernetes' have it. */
export interface ToldCondition extends AnyCondition {
  readonly reason?: string;
  readonly message?: string;
}

/** Returns the condition of a type, if an object has it. */
export function conditionOf<C extends ToldCondition>(
  object: { status?: { conditions?: C[] } } | undefined,
  type: string,
): C | undefined {
  return object === undefined ? undefined : conditionsOf(object).find((condition) => condition.type === type);
}

/** The problem that a condition reports. */
export function conditionProblem(
  { reason = "", message = "", lastTransitionTime, type }: ToldCondition,
  about: { readonly object: string; readonly severity: Severity },
  reasons: Readonly<Record<string, ReasonDescription>> = {},
): Problem {
  const { meaning, remedy = meaning && plainText(meaning) } = reasons[reason] ?? {};
  return {
    ...about,
    reason: reason || type,
    message,
    ...defined({ since: lastTransitionTime }),
    ...remedyOf(remedy),
    ...(meaning !== undefined && linkOf(meaning)),
  };
}

/** Returns a text in Markdown without links and code. */
function plainText(markdown: string): string {
  return markdown.replace(/:? \[runbook\]\([^)]*\)/g, "").replace(/\[([^\]]*)\]\([^)]*\)/g, "$1").replaceAll("`", "");
}

/** Returns the chapter that a text in Markdown links to. */
function linkOf(markdown: string): { runbook: string } | undefined {
  const [, path] = /\]\(\.\.\/(guides\/[^)]+)\)/.exec(markdown) ?? [];
  return path === undefined ? undefined : { runbook: chapterName(path) };
}

const SEVERITIES: readonly Severity[] = ["error", "warning", "info"];

/** Compares problems: the worst first, and among equals the oldest. */
export function compareProblems(a: Problem, b: Problem): number {
  return SEVERITIES.indexOf(a.severity) - SEVERITIES.indexOf(b.severity) ||
    compareText(a.since ?? "9", b.since ?? "9") || compareText(a.object, b.object);
}

/** Lists texts, as many as fit; `undefined` when there are none. @param what the kind of the others, after a blank */
export function listText(texts: readonly string[], max: number, what = ""): string | undefined {
  const more = texts.length > max ? `, and ${texts.length - max} more${what}` : "";
  return texts.length === 0 ? undefined : texts.slice(0, max).join(", ") + more;
}

/** Reports whether this person may not read some objects of a kind, by what could not be read. */
export function isUnread({ unread }: { readonly unread: readonly string[] }, plural: string): boolean {
  return unread.some((what) => what.startsWith(`${plural}:`));
}

/** Compares texts by their code units. */
export function compareText(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0;
}
