/**
 * Why a claim stays Pending.
 *
 * @module
 */

import { formatBytes } from "../../base/size.ts";
import type { PersistentVolumeClaim, Pod } from "../../k8s/api/objects.ts";
import { classNameOf, selectedNodeOf, waitsForConsumer } from "../../k8s/provisioner/claim.ts";
import { capacityTexts, type ClaimState, MAX_CAPACITIES, MAX_PODS, requestedBytes } from "./claim_state.ts";
import {
  agentProblems,
  eventProblem,
  isHeld,
  isLive,
  lastEvent,
  lastProblem,
  MAX_RETRY_MS,
  messageProblem,
  noControllerProblem,
  schedulingOf,
  timeOfEvent,
  waitProblems,
} from "./evidence.ts";
import { isUnread, listText, type Problem, problem } from "../problem.ts";
import { reasonOf, SYMPTOM_CHAPTERS } from "./symptoms.ts";
import { defined } from "../../base/defined.ts";

const RUNBOOK = SYMPTOM_CHAPTERS.pending;

/** The provisioner of classes for PersistentVolumes that somebody creates (Kubernetes docs, storage classes, local). */
export const NO_PROVISIONER = "kubernetes.io/no-provisioner";

/** Returns why a claim stays Pending, the cause first. */
export function pendingProblems(state: ClaimState, claim: PersistentVolumeClaim, object: string): Problem[] {
  const { storageClass } = state;
  const since = claim.metadata.creationTimestamp;
  if (claim.spec?.volumeName) return [namedVolumeProblem(state, claim, object)];
  if (storageClass === undefined && !isUnread(state, "storageclasses")) return [classProblem(claim, object)];
  if (isWaitingForConsumer(state, claim)) return consumerProblems(state, claim, object);
  if (storageClass?.provisioner === NO_PROVISIONER) return [staticProblem(claim, object)];
  const failed = lastEvent(state.claimEvents, "ProvisioningFailed");
  const problems = [
    ...waitProblems(state.volumeEvents, state.now, { chapter: "pending", object }),
    ...(failed === undefined ? [] : [eventProblem(failed, { chapter: "pending", object })]),
    ...volumeProblems(state, object, failed?.message),
    ...agentProblems(state),
    ...(isProvisionerActive(state)
      ? []
      : [noControllerProblem(object, state.provisionerLease, { what: "provisioner", since })]),
  ];
  if (problems.length > 0) return problems;
  const announced = lastEvent(state.claimEvents, "Provisioning");
  return [problem("info", "Provisioning", object, {
    message: announced?.message ?? "the controller has not said anything of the claim yet",
    ...defined({ since }),
    remedy: "Wait. If it takes minutes, read the log of the controller.",
    runbook: RUNBOOK,
  })];
}

/** Reports whether a claim waits for a pod. Who may not read the class may read what Kubernetes says of the claim. */
function isWaitingForConsumer({ storageClass, claimEvents }: ClaimState, claim: PersistentVolumeClaim): boolean {
  if (storageClass !== undefined) return waitsForConsumer(claim, storageClass);
  return selectedNodeOf(claim) === undefined &&
    lastEvent(claimEvents, "WaitForFirstConsumer", "WaitForPodScheduled") !== undefined;
}

/** Returns why a claim is not bound to the PersistentVolume that it names. */
function namedVolumeProblem(state: ClaimState, claim: PersistentVolumeClaim, object: string): Problem {
  const { persistentVolume, claimEvents } = state;
  const name = claim.spec!.volumeName!;
  const since = claim.metadata.creationTimestamp;
  const about = { since, runbook: RUNBOOK };
  const refused = lastEvent(claimEvents, "FailedBinding", "VolumeMismatch");
  if (persistentVolume === undefined && !isUnread(state, "persistentvolumes")) {
    return problem("error", "NoSuchPersistentVolume", object, {
      message: `the claim names PersistentVolume ${name}, which does not exist`,
      remedy: "Create the PersistentVolume, or a claim that names none.",
      ...about,
    });
  }
  if (refused !== undefined) {
    const remedy = "Create the claim again, as the PersistentVolume is: its class, access modes, size, and claimRef.";
    return eventProblem(refused, { chapter: "pending", object, remedy });
  }
  return problem("info", "Binding", object, {
    message: `the claim names PersistentVolume ${name}, and Kubernetes has not bound them yet`,
    remedy: "Wait. If it takes minutes, compare their classes, access modes and sizes, and the volume's claimRef.",
    ...about,
  });
}

/** Returns that nobody creates a volume for the claim. */
function staticProblem({ metadata: { creationTimestamp: since } }: PersistentVolumeClaim, object: string): Problem {
  return problem("error", "NoProvisioner", object, {
    message: "the class of the claim has no provisioner, so it waits for a PersistentVolume that somebody creates",
    remedy: "Create the PersistentVolume, or a claim with a class of the driver.",
    since,
    runbook: RUNBOOK,
  });
}

/** Reports whether a provisioner works, as far as that is known. An official sidecar may work without a Lease. */
function isProvisionerActive({ claimEvents, provisionerLease, now, unread }: ClaimState): boolean {
  if (isHeld(provisionerLease, now) || isUnread({ unread }, "leases")) return true;
  const last = lastEvent(claimEvents, "Provisioning", "ProvisioningFailed");
  return last !== undefined && now.getTime() - Date.parse(timeOfEvent(last)) < MAX_RETRY_MS;
}

function classProblem(claim: PersistentVolumeClaim, object: string): Problem {
  const name = classNameOf(claim);
  const since = claim.metadata.creationTimestamp;
  const problem = { severity: "error", object, ...(since !== undefined && { since }), runbook: RUNBOOK } as const;
  if (name !== "") {
    const message = `storageClassName ${JSON.stringify(name)}: there is no such class`;
    return messageProblem(message, { chapter: "pending", object, reason: "NoSuchClass", since });
  }
  return claim.spec?.storageClassName === ""
    ? {
      ...{ ...problem, reason: "NoClass" },
      message: "the claim has no class, so it waits for a PersistentVolume that somebody creates",
      remedy: "Create the PersistentVolume, or a claim with a class.",
    }
    : {
      ...{ ...problem, reason: "NoDefaultClass" },
      message: "the claim names no class, and the cluster has no default class",
      remedy: "Create a claim with a class, or make a class the default.",
    };
}

/** Returns why the scheduler has not chosen a node. */
function consumerProblems(state: ClaimState, claim: PersistentVolumeClaim, object: string): Problem[] {
  const pods = state.pods.filter(isLive).slice(0, MAX_PODS);
  const since = claim.metadata.creationTimestamp;
  // the controller refused the node that the scheduler chose, and lets it choose again
  const refused = lastProblem(state.claimEvents, ["ProvisioningFailed"], { chapter: "pending", object });
  if (pods.length === 0) {
    const areRead = !isUnread(state, "pods");
    const none = problem("info", areRead ? "NoConsumer" : "WaitsForConsumer", object, {
      message: areRead
        ? "no pod uses the claim yet, and its class waits for the first one"
        : "the class of the claim waits until the first pod that uses the claim has a node; pods are not read",
      remedy: areRead ? "Start a pod that uses the claim." : "Start a pod that uses the claim, or read its events.",
      runbook: RUNBOOK,
      since,
    });
    return [none, ...refused];
  }
  const waiting = pods.map((pod) => podProblem(pod, state, claim));
  return waiting.some(({ severity }) => severity === "error") ? [...waiting, ...refused] : [...refused, ...waiting];
}

function podProblem(pod: Pod, state: ClaimState, claim: PersistentVolumeClaim): Problem {
  const object = `pod/${pod.metadata.namespace}/${pod.metadata.name}`;
  const { message, reason, since } = schedulingOf(pod, state.podEvents);
  const about = { since, runbook: RUNBOOK };
  if (reasonOf(message) === "NoCapacity") {
    const capacities = listText(capacityTexts(state), MAX_CAPACITIES, " nodes");
    const known = capacities === undefined
      ? "no node has a capacity for the class"
      : `the largest volume that each node can take: ${capacities}`;
    return problem("error", "NoCapacity", object, {
      message: `the scheduler finds no node with ${
        formatBytes(requestedBytes(claim))
      } free for the class: ${message}; ${known}`,
      remedy:
        "Free space, accept a disk that `kubectl denolith disks` proposes, or correct the class, if it names the wrong volume group. " +
        "The pod is then scheduled by itself.",
      ...about,
    });
  }
  if (message !== "") {
    return problem("error", reason, object, {
      message: `the pod cannot be scheduled: ${message}`,
      remedy:
        "The scheduler's message names the obstacle. If it is about volumes, look at the other claims of the pod, too.",
      ...about,
    });
  }
  if (pod.spec?.nodeName) {
    return problem("error", "SchedulerSkipped", object, {
      message: `the pod names its node, ${pod.spec.nodeName}, so the scheduler did not choose one for the claim`,
      remedy: "Use a node selector in place of nodeName, or a class with Immediate.",
      ...about,
    });
  }
  return problem("info", "NotScheduledYet", object, {
    message: "the scheduler has not said anything of the pod yet",
    remedy: "Wait. If it takes minutes, see whether the scheduler runs.",
    ...about,
  });
}

/** Returns what the agent says of the volume that is being created. @param known what an event says already */
function volumeProblems({ volume }: ClaimState, object: string, known = ""): Problem[] {
  const { copy, error, conditions = [] } = volume?.status ?? {};
  const since = conditions.find(({ type }) => type === "Ready")?.lastTransitionTime;
  if (error !== undefined && !known.includes(error.message)) {
    return [messageProblem(error.message, { chapter: "pending", object, reason: error.reason ?? error.code, since })];
  }
  if (copy === undefined) return [];
  const percent = copy.percent === undefined ? "" : `, ${copy.percent} %`;
  const total = copy.total === undefined ? "" : ` of ${copy.total}`;
  const failure = copy.lastError === undefined ? "" : `; the last attempt failed: ${copy.lastError}`;
  return [problem(copy.lastError === undefined ? "info" : "warning", "Copying", object, {
    message: `its data is being copied: ${copy.copied}${total}${percent}${failure}`,
    remedy: "Wait: the claim is bound when the copy is complete.",
  })];
}
