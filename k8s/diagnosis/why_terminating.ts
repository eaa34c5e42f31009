/**
 * Why a claim that was deleted, or its volume, is still there.
 *
 * @module
 */

import type { ClaimState } from "./claim_state.ts";
import { agentProblems, eventProblem, isLive, lastEvent, messageProblem } from "./evidence.ts";
import type { Problem } from "./problem.ts";
import { SYMPTOM_CHAPTERS, symptomOf } from "./symptoms.ts";

const RUNBOOK = SYMPTOM_CHAPTERS.terminating;

/** The finalizer by which Kubernetes keeps a claim that pods use. */
const CLAIM_PROTECTION = "kubernetes.io/pvc-protection";

/** Returns why a claim, or its volume, is still there, the cause first. */
export function terminatingProblems(state: ClaimState, object: string): Problem[] {
  const { claim } = state;
  return claim === undefined ? volumeProblems(state) : claimProblems(state, object);
}

function claimProblems({ claim, pods }: ClaimState, object: string): Problem[] {
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
  const others = finalizers.filter((name) => name !== CLAIM_PROTECTION);
  return [{
    ...{ severity: "info", reason: others.length === 0 ? "Deleting" : "KeptByFinalizers", object, ...since },
    message: others.length === 0
      ? "no pod uses the claim, and Kubernetes is about to remove it"
      : `the finalizers ${others.join(", ")} keep the claim: a snapshot or a clone of it is being created`,
    ...{ remedy: "Wait.", runbook: RUNBOOK },
  }];
}

/** Returns why the volume of a claim that is gone is still there. */
function volumeProblems(state: ClaimState): Problem[] {
  const { persistentVolume, volume, volumeEvents } = state;
  const object = volume === undefined
    ? `persistentvolume/${persistentVolume?.metadata.name}`
    : `lvmvolume/${volume.metadata.name}`;
  if (persistentVolume?.spec?.persistentVolumeReclaimPolicy === "Retain") {
    return [{
      ...{ severity: "info", reason: "Retained", object },
      message:
        `the claim is gone, and PersistentVolume ${persistentVolume.metadata.name} stays with its data, by its ` +
        "reclaim policy Retain",
      remedy: "To remove the volume and its data, set the policy to Delete.",
    }];
  }
  const { error, conditions = [] } = volume?.status ?? {};
  const failed = lastEvent(volumeEvents, "VolumeFailedDelete");
  const reported = lastEvent(volumeEvents, "Failed");
  const problems = [
    ...(failed === undefined ? [] : [eventProblem(failed, { chapter: "terminating", object })]),
    ...(error === undefined ? [] : [
      messageProblem(error.message, {
        ...{ chapter: "terminating", object, reason: error.code },
        since: conditions.find(({ type }) => type === "Ready")?.lastTransitionTime,
      }),
    ]),
    ...(reported === undefined ? [] : [eventProblem(reported, { chapter: "terminating", object })]),
  ];
  // several report the same failure: one that the runbooks describe is enough
  const described = problems.filter(({ message }) => symptomOf("terminating", message) !== undefined);
  const causes = described.length > 0 ? described.slice(0, 1) : problems.slice(0, 1);
  const agents = agentProblems(state);
  if (causes.length + agents.length > 0) return [...causes, ...agents];
  return [{
    ...{ severity: "info", reason: "Deleting", object },
    message: "the claim is gone, and its volume is being deleted: its data is erased first",
    ...{ remedy: "Wait: the space is free when the volume is erased.", runbook: RUNBOOK },
  }];
}
