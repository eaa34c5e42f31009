/**
 * Why a claim that was deleted, or its volume, is still there.
 *
 * @module
 */

import type { Event } from "../../k8s/api/objects.ts";
import type { ClaimState } from "./claim_state.ts";
import {
  agentProblems,
  eventProblem,
  isLive,
  lastEvent,
  messageProblem,
  timeOfEvent,
  waitProblems,
} from "./evidence.ts";
import { isUnread, type Problem } from "../problem.ts";
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
  const since = deletionTimestamp === undefined ? {} : { since: deletionTimestamp };
  const users = pods.filter(isLive).map(({ metadata }) => metadata.name);
  if (finalizers.includes(CLAIM_PROTECTION) && users.length > 0) {
    return [{
      ...{ severity: "warning", reason: "UsedByPods", object, ...since, runbook: RUNBOOK },
      message: `pods use the claim: ${users.join(", ")}`,
      remedy: "Delete the pods. The claim then goes by itself.",
    }];
  }
  if (finalizers.includes(CLAIM_PROTECTION) && isUnread(state, "pods")) {
    return [{
      ...{ severity: "info", reason: "KeptByFinalizers", object, ...since, runbook: RUNBOOK },
      message: `the finalizer ${CLAIM_PROTECTION} keeps the claim: pods may use it, and pods are not read`,
      remedy: "Delete the pods that use the claim, if there are any. The claim then goes by itself.",
    }];
  }
  const sources = finalizers.filter((name) => SOURCE_PROTECTIONS.includes(name));
  const others = finalizers.filter((name) => name !== CLAIM_PROTECTION && !SOURCE_PROTECTIONS.includes(name));
  if (others.length > 0) {
    return [{
      ...{ severity: "warning", reason: "KeptByFinalizers", object, ...since, runbook: RUNBOOK },
      message: `the claim has finalizers that are neither the driver's nor Kubernetes' own: ${others.join(", ")}`,
      remedy: "Whoever added a finalizer removes it: see whether that program runs, and read its log.",
    }];
  }
  return [{
    ...{ severity: "info", reason: sources.length === 0 ? "Deleting" : "KeptByFinalizers", object, ...since },
    message: sources.length === 0
      ? "no pod uses the claim, and Kubernetes is about to remove it"
      : `the finalizers ${sources.join(", ")} keep the claim: a snapshot or a clone of it is being created`,
    ...{ remedy: "Wait.", runbook: RUNBOOK },
  }];
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
    return [{
      ...{ severity: "info", reason: "Retained", object, runbook: RUNBOOK },
      message:
        `the claim is gone, and PersistentVolume ${persistentVolume.metadata.name} stays with its data, by its ` +
        "reclaim policy Retain",
      remedy: "To remove the volume and its data, set the policy to Delete.",
    }];
  }
  const { error, conditions = [] } = volume?.status ?? {};
  const failed = lastEvent(volumeEvents, "VolumeFailedDelete");
  const reported = lastEvent(
    volumeEvents.filter((event) => isSince(event, volume?.metadata.deletionTimestamp)),
    "Failed",
  );
  const waits = waitProblems(volumeEvents, state.now, { chapter: "terminating", object });
  const problems = [
    ...waits,
    ...(failed === undefined ? [] : [eventProblem(failed, { chapter: "terminating", object })]),
    ...(error === undefined ? [] : [
      messageProblem(error.message, {
        ...{ chapter: "terminating", object, reason: error.reason ?? error.code },
        since: conditions.find(({ type }) => type === "Ready")?.lastTransitionTime,
      }),
    ]),
    ...(reported === undefined ? [] : [eventProblem(reported, { chapter: "terminating", object })]),
  ];
  // several report the same failure: one that the runbooks describe is enough
  const described = problems.filter(({ reason }) => adviceFor(reason).remedy !== undefined);
  const causes = described.length > 0 ? described.slice(0, 1) : problems.slice(0, 1);
  const agents = agentProblems(state);
  if (causes.length + agents.length > 0) return [...causes, ...agents];
  return [{
    ...{ severity: "info", reason: "Deleting", object },
    message: "the claim is gone, and its volume is being deleted: its data is erased first",
    ...{ remedy: "Wait: the space is free when the volume is erased.", runbook: RUNBOOK },
  }];
}
