/**
 * Why a claim that was deleted, or its volume, is still there.
 *
 * @module
 */

import type { Event } from "../../k8s/api/objects.ts";
import type { ClaimState } from "./claim_state.ts";
import { agentProblems, isLive, lastProblem, messageProblem, timeOfEvent, waitProblems } from "./evidence.ts";
import { isUnread, type Problem, problem } from "../problem.ts";
import { adviceFor, SYMPTOM_CHAPTERS } from "./symptoms.ts";

const RUNBOOK = SYMPTOM_CHAPTERS.terminating;

/** The finalizer by which Kubernetes keeps a claim that pods use. */
const CLAIM_PROTECTION = "kubernetes.io/pvc-protection";

/** Those by which the snapshot-controller and provisioners keep a claim that is the source of something. */
const SOURCE_PROTECTIONS: readonly string[] = [
  "snapshot.storage.kubernetes.io/pvc-as-source-protection",
  "provisioner.storage.kubernetes.io/cloning-protection",
];

/** Returns why a claim, or its volume, is still there, the cause first. */
export function terminatingProblems(state: ClaimState, object: string): Problem[] {
  const { claim } = state;
  return claim === undefined ? volumeProblems(state) : claimProblems(state, object);
}

function claimProblems(state: ClaimState, object: string): Problem[] {
  const { claim, pods } = state;
  const { finalizers = [], deletionTimestamp } = claim!.metadata;
  const about = { since: deletionTimestamp, runbook: RUNBOOK };
  const users = pods.filter(isLive).map(({ metadata }) => metadata.name);
  if (finalizers.includes(CLAIM_PROTECTION) && users.length > 0) {
    return [problem("warning", "UsedByPods", object, {
      message: `pods use the claim: ${users.join(", ")}`,
      remedy: "Delete the pods. The claim then goes by itself.",
      ...about,
    })];
  }
  if (finalizers.includes(CLAIM_PROTECTION) && isUnread(state, "pods")) {
    return [problem("info", "KeptByFinalizers", object, {
      message: `the finalizer ${CLAIM_PROTECTION} keeps the claim: pods may use it, and pods are not read`,
      remedy: "Delete the pods that use the claim, if there are any. The claim then goes by itself.",
      ...about,
    })];
  }
  const sources = finalizers.filter((name) => SOURCE_PROTECTIONS.includes(name));
  const others = finalizers.filter((name) => name !== CLAIM_PROTECTION && !SOURCE_PROTECTIONS.includes(name));
  if (others.length > 0) {
    return [problem("warning", "KeptByFinalizers", object, {
      message: `the claim has finalizers that are neither the driver's nor Kubernetes' own: ${others.join(", ")}`,
      remedy: "Whoever added a finalizer removes it: see whether that program runs, and read its log.",
      ...about,
    })];
  }
  return [problem("info", sources.length === 0 ? "Deleting" : "KeptByFinalizers", object, {
    message: sources.length === 0
      ? "no pod uses the claim, and Kubernetes is about to remove it"
      : `the finalizers ${sources.join(", ")} keep the claim: a snapshot or a clone of it is being created`,
    remedy: "Wait.",
    ...about,
  })];
}

/** Reports whether an event is of a time or later; one from before a deletion is about something else. */
function isSince(event: Event, time: string | undefined): boolean {
  return time === undefined || Date.parse(timeOfEvent(event)) >= Date.parse(time);
}

/** Returns why the volume of a claim that is gone is still there. */
function volumeProblems(state: ClaimState): Problem[] {
  const { persistentVolume, volume, volumeEvents } = state;
  const object = volume === undefined
    ? `persistentvolume/${persistentVolume?.metadata.name}`
    : `lvmvolume/${volume.metadata.name}`;
  if (persistentVolume?.spec?.persistentVolumeReclaimPolicy === "Retain") {
    return [problem("info", "Retained", object, {
      message:
        `the claim is gone, and PersistentVolume ${persistentVolume.metadata.name} stays with its data, by its ` +
        "reclaim policy Retain",
      remedy: "To remove the volume and its data, set the policy to Delete.",
      runbook: RUNBOOK,
    })];
  }
  const { error, conditions = [] } = volume?.status ?? {};
  const source = { chapter: "terminating", object } as const;
  const sinceDeletion = volumeEvents.filter((event) => isSince(event, volume?.metadata.deletionTimestamp));
  const problems = [
    ...waitProblems(volumeEvents, state.now, source),
    ...lastProblem(volumeEvents, ["VolumeFailedDelete"], source),
    ...(error === undefined ? [] : [
      messageProblem(error.message, {
        ...source,
        reason: error.reason ?? error.code,
        since: conditions.find(({ type }) => type === "Ready")?.lastTransitionTime,
      }),
    ]),
    ...lastProblem(sinceDeletion, ["Failed"], source),
  ];
  // several report the same failure: one that the runbooks describe is enough
  const described = problems.filter(({ reason }) => adviceFor(reason).remedy !== undefined);
  const causes = described.length > 0 ? described.slice(0, 1) : problems.slice(0, 1);
  const agents = agentProblems(state);
  if (causes.length + agents.length > 0) return [...causes, ...agents];
  return [problem("info", "Deleting", object, {
    message: "the claim is gone, and its volume is being deleted: its data is erased first",
    remedy: "Wait: the space is free when the volume is erased.",
    runbook: RUNBOOK,
  })];
}
