/**
 * What an answer rests on: events, Leases, and messages whose reasons the runbooks describe.
 *
 * @module
 */

import { backoffOf } from "../../k8s/runtime/backoffs.ts";
import { lastSignOfLife } from "../../k8s/api/agent_leases.ts";
import type { LvmNode } from "../../k8s/api/lvm_objects.ts";
import type { Event, Lease, Node, Pod } from "../../k8s/api/objects.ts";
import { isNodeReady } from "../../k8s/api/pods.ts";
import type { AgentEvidence } from "./cluster_state.ts";
import { agentStateOf, silenceProblem } from "./nodes.ts";
import { isUnread, listText, type Problem, problem, remedyOf, type Severity } from "../problem.ts";
import { adviceFor, reasonOf, SYMPTOM_CHAPTERS, type SymptomChapter, withoutReason } from "./symptoms.ts";
import { defined } from "../../base/defined.ts";
import { formatBytes } from "../../base/size.ts";
import { quantityToBytes } from "../../k8s/api/quantity.ts";

/** Returns the time of an event's last occurrence (RFC 3339). */
export function timeOfEvent({ lastTimestamp, series, eventTime, firstTimestamp, metadata }: Event): string {
  return lastTimestamp ?? series?.lastObservedTime ?? eventTime ?? firstTimestamp ?? metadata.creationTimestamp ?? "";
}

/** Returns the last event with one of these reasons; `undefined` when there is none. */
export function lastEvent(events: readonly Event[], ...reasons: readonly string[]): Event | undefined {
  return events.filter(({ reason }) => reasons.includes(reason ?? ""))
    .sort((a, b) => Date.parse(timeOfEvent(a)) - Date.parse(timeOfEvent(b))).at(-1);
}

/**
 * Returns the last event about a failure, unless the same work succeeded later: events live for an hour.
 *
 * @param ended the reasons of events that say that the work is over
 */
export function lastFailure(
  events: readonly Event[],
  failed: string,
  ...ended: readonly string[]
): Event | undefined {
  const last = lastEvent(events, failed, ...ended);
  return last?.reason === failed ? last : undefined;
}

/** Where a message comes from, for a problem. */
export interface MessageSource {
  /** The chapter of the runbooks that describes such problems. */
  readonly chapter: SymptomChapter;
  /** The object that has the problem, as `kind/name`. */
  readonly object: string;
  /** The reason of a message that names none. */
  readonly reason: string;
  /** The time since when it is so. */
  readonly since?: string | undefined;
  /** How bad it is; an error by default. */
  readonly severity?: Severity;
  /** What to do when the runbooks do not describe the reason. */
  readonly remedy?: string;
}

/** What to do of a reason that the runbooks do not describe. */
const DEFAULT_REMEDY =
  "The message says what was tried. It is tried again; the logs of the controller and of the node's agent " +
  "say more.";

/** Returns the problem that a message reports, with what the runbooks say of it. */
export function messageProblem(message: string, source: MessageSource): Problem {
  const { chapter, object, since, severity = "error", remedy = DEFAULT_REMEDY } = source;
  const reason = reasonOf(message) ?? source.reason;
  const advice = adviceFor(reason, chapter);
  return {
    ...{ severity, reason, object, message: withoutReason(message) },
    ...(since !== undefined && since !== "" && { since }),
    ...(advice.remedy === undefined && { ...remedyOf(remedy), runbook: SYMPTOM_CHAPTERS[chapter] }),
    ...advice,
  };
}

/** Returns the problem that an event reports. Its time is that of the first occurrence. */
export function eventProblem(event: Event, source: Omit<MessageSource, "reason" | "since">): Problem {
  const since = event.firstTimestamp ?? event.eventTime ?? timeOfEvent(event);
  return messageProblem(event.message ?? "", { ...source, reason: event.reason ?? "Event", since });
}

/** What is known of an object, each with a label. */
export type Facts = readonly (readonly [label: string, text: string])[];

/** Returns the facts that are known. */
export function knownFacts(facts: readonly (readonly [label: string, text: string | undefined])[]): Facts {
  return facts.flatMap(([label, text]) => text === undefined || text === "" ? [] : [[label, text] as const]);
}

/** Returns the problem that the last event of some reasons reports, if there is one. */
export function lastProblem(
  events: readonly Event[],
  reasons: readonly string[],
  source: Omit<MessageSource, "reason" | "since">,
): Problem[] {
  const last = lastEvent(events, ...reasons);
  return last === undefined ? [] : [eventProblem(last, source)];
}

/** The time after which a Lease that is not renewed has no holder, in milliseconds, when it does not say. */
const LEASE_MS = 15_000;

/** The allowance for clocks that differ, in milliseconds. */
const CLOCK_SKEW_MS = 60_000;

/** Reports whether the holder of a Lease renews it. */
export function isHeld(lease: Lease | undefined, now: Date): boolean {
  const { holderIdentity, renewTime, leaseDurationSeconds } = lease?.spec ?? {};
  if (!holderIdentity) return false;
  const durationMs = leaseDurationSeconds === undefined ? LEASE_MS : leaseDurationSeconds * 1_000;
  return now.getTime() - Date.parse(renewTime ?? "") < durationMs + CLOCK_SKEW_MS;
}

/** The time within which a component says again what it waits for, or why it fails, in milliseconds. */
export const MAX_RETRY_MS = backoffOf("provisioner").capMs + CLOCK_SKEW_MS;

/**
 * Returns for what the agent waits, while LVM does not respond: it says so in an event of the LVMVolume or LVMSnapshot, again at
 * each attempt.
 */
export function waitProblems(
  events: readonly Event[],
  now: Date,
  source: Omit<MessageSource, "reason" | "since">,
): Problem[] {
  const last = lastEvent(events, "Waiting");
  if (last === undefined || now.getTime() - Date.parse(timeOfEvent(last)) > MAX_RETRY_MS) return [];
  return [
    eventProblem(last, { ...source, remedy: "LVM does not answer the agent. See `kubectl denolith doctor NODE`." }),
  ];
}

/**
 * Returns the problem that no controller holds the Lease of what should do the work.
 *
 * @param since since when it is to be done (RFC 3339), where the Lease does not tell
 */
export function noControllerProblem(
  object: string,
  lease: Lease | undefined,
  { what, since }: { readonly what: string; readonly since?: string | undefined },
): Problem {
  const { holderIdentity, renewTime = since } = lease?.spec ?? {};
  return problem("error", "NoController", object, {
    message: holderIdentity
      ? `no ${what} is active: ${holderIdentity} held its Lease, and does not renew it`
      : `no ${what} is active: nobody holds its Lease`,
    ...defined({ since: renewTime }),
    remedy: "Look at the pods of the controller and its log: `kubectl --namespace denolith-system get pods,leases`",
    runbook: "no-active-controller",
  });
}

/** Reasons that are over when space becomes free. */
const SPACE_REASONS: readonly string[] = ["NoSpace", "NoCapacity"];

/** The number of volume groups that are named. */
const MAX_GROUPS = 5;

/** Returns problems, those of space with what becomes free by itself: the data of deleted volumes is being erased. */
export function withErasedSpace(problems: readonly Problem[], lvmNodes: readonly LvmNode[]): Problem[] {
  const texts = lvmNodes.flatMap(({ metadata, status }) =>
    (status?.volumeGroups ?? []).flatMap(({ name, erasing }) => {
      const bytes = quantityToBytes(erasing?.space) ?? 0n;
      return bytes === 0n ? [] : [`${formatBytes(bytes)} in ${name} on ${metadata.name}`];
    })
  );
  const text = listText(texts, MAX_GROUPS, " volume groups");
  return problems.map((problem) =>
    text === undefined || !SPACE_REASONS.includes(problem.reason) ? problem : {
      ...problem,
      message: `${problem.message}; space that becomes free when deleted volumes are erased: ${text}`,
    }
  );
}

/** Reports whether a pod has not ended. */
export function isLive({ status }: Pod): boolean {
  return status?.phase !== "Succeeded" && status?.phase !== "Failed";
}

/** Returns what the scheduler says of a pod that has no node; an empty message when it says nothing. */
export function schedulingOf(
  { metadata, status }: Pod,
  podEvents: readonly Event[],
): { readonly message: string; readonly reason: string; readonly since?: string | undefined } {
  const condition = status?.conditions?.find(({ type, status }) => type === "PodScheduled" && status === "False");
  const about = lastEvent(
    podEvents.filter(({ involvedObject }) => involvedObject?.name === metadata.name),
    "FailedScheduling",
  );
  return {
    message: condition?.message ?? about?.message ?? "",
    reason: condition?.reason ?? "Unschedulable",
    since: condition?.lastTransitionTime ?? about?.firstTimestamp ?? metadata.creationTimestamp,
  };
}

/** What is known of the node of a claim or a snapshot. */
export interface NodeEvidence extends AgentEvidence {
  /** The name of the node; absent while none was chosen. */
  readonly nodeName?: string | undefined;
  /** Its Node. */
  readonly node?: Node | undefined;
  /** Its LVMNode. */
  readonly lvmNode?: LvmNode | undefined;
}

/** Returns what is wrong with the node of a claim or a snapshot. */
export function agentProblems({ nodeName, lvmNode, node, agentLeases, now, unread }: NodeEvidence): Problem[] {
  if (nodeName === undefined || isUnread({ unread }, "lvmnodes")) return [];
  const object = `node/${nodeName}`;
  if (lvmNode === undefined) {
    const isGone = node === undefined && !isUnread({ unread }, "nodes");
    return [problem("error", isGone ? "NodeGone" : "NodeWithoutAgent", object, {
      message: isGone
        ? "the Node does not exist, nor its LVMNode"
        : "the node has no LVMNode: no agent of the driver has reported on it",
      remedy: isGone
        ? `If the node is gone for good: \`kubectl denolith forget-node ${nodeName}\``
        : "Find the pod of the node's agent in the driver's namespace, and read its log.",
      runbook: "node-does-not-come-back",
    })];
  }
  if (agentStateOf(lvmNode, { agentLeases, now, unread }) !== "Silent") return [];
  const seenMs = lastSignOfLife(lvmNode, agentLeases)!;
  return [silenceProblem(nodeName, node && isNodeReady(node), new Date(seenMs).toISOString())];
}
