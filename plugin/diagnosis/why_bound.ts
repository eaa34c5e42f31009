/**
 * What is wrong with a claim that is Bound: it does not grow, its limits do not apply, its pods cannot mount it, or its
 * volume is Lost or not healthy.
 *
 * @module
 */

import { formatBytes } from "../../base/size.ts";
import type { Event, PersistentVolumeClaim, Pod } from "../../k8s/api/objects.ts";
import { quantityToBytes } from "../../k8s/api/quantity.ts";
import { type ClaimState, isUnscheduled, MAX_PODS, requestedBytes } from "./claim_state.ts";
import {
  agentProblems,
  eventProblem,
  isHeld,
  isLive,
  lastEvent,
  lastFailure,
  lastProblem,
  messageProblem,
  noControllerProblem,
  schedulingOf,
  timeOfEvent,
  waitProblems,
} from "./evidence.ts";
import { conditionOf, isUnread, type Problem, problem } from "../problem.ts";
import { SYMPTOM_CHAPTERS, withoutReason } from "./symptoms.ts";
import { volumeProblems } from "./volumes.ts";
import { defined } from "../../base/defined.ts";

/** Returns what is wrong with a Bound claim, the cause first. */
export function boundProblems(state: ClaimState, object: string): Problem[] {
  const { volume } = state;
  const claim = state.claim!;
  const isGrowing = requestedBytes(claim) > (quantityToBytes(claim.status?.capacity?.["storage"]) ?? 0n);
  const expansion = isGrowing ? expansionProblems(state, claim, object) : [];
  const modification = modificationProblems(state, claim, object);
  if (volume === undefined) {
    return [...missingVolume(state, object), ...expansion, ...modification, ...podProblems(state)];
  }
  const reported = volumeProblems(volume, object).map((problem) => datedProblem(problem, state));
  const ofPods = podProblems(state);
  const isKnown = ({ reason, message }: Problem) =>
    (message === volume.status?.error?.message && expansion.some((one) => one.message.includes(message))) ||
    // what keeps a pod from its volume has a remedy of its own
    (reason === "KeyChangeFailed" && ofPods.some((one) => one.message.includes(message)));
  const isLost = reported.some(({ reason }) => reason === "Lost" || reason === "NodeForgotten");
  const problems = [
    ...reported.filter((problem) => isLost || !isKnown(problem)),
    ...(isLost ? [] : agentProblems(state)),
    ...expansion,
    ...modification,
    ...ofPods,
  ].filter(({ message }, index, all) => all.findIndex((one) => one.message === message) === index);
  return problems.length > 0 ? problems : fixedSizeNote(state, object);
}

/** Returns that the claim cannot grow: kubectl refuses a larger size, and leaves no trace of that. */
function fixedSizeNote({ storageClass }: ClaimState, object: string): Problem[] {
  if (storageClass === undefined || storageClass.allowVolumeExpansion === true) return [];
  const { name } = storageClass.metadata;
  return [problem("info", "ExpansionNotAllowed", object, {
    message: `nothing is wrong; its class ${name} does not allow expansion, so that kubectl refuses a larger size`,
    remedy: `To allow it: \`kubectl patch storageclass ${name} --patch '{"allowVolumeExpansion":true}'\``,
    runbook: SYMPTOM_CHAPTERS.expansion,
  })];
}

function missingVolume(state: ClaimState, object: string): Problem[] {
  const { persistentVolume } = state;
  if (persistentVolume === undefined || isUnread(state, "lvmvolumes")) return [];
  return [problem("error", "NoLVMVolume", object, {
    message: `PersistentVolume ${persistentVolume.metadata.name} names the volume ` +
      `${persistentVolume.spec?.csi?.volumeHandle}, and there is no LVMVolume of this name`,
    remedy: "Its logical volume may still be there, as an orphan.",
    runbook: "volume-repair/orphans",
  })];
}

/** Adds since when a problem is there, by the event that reported it. */
function datedProblem(problem: Problem, { volumeEvents }: ClaimState): Problem {
  const isOf = ({ message = "" }: Event) => withoutReason(message) === problem.message;
  const reported = lastEvent(volumeEvents.filter(isOf), "Failed");
  const since = problem.since ?? reported?.firstTimestamp ?? (reported && timeOfEvent(reported));
  return { ...problem, ...(since !== undefined && { since }) };
}

/** A condition of a claim. */
interface ClaimCondition {
  readonly type: string;
  readonly status: string;
  readonly message?: string;
  readonly lastTransitionTime?: string;
}

/** Returns why a claim does not have the size that it requests. */
function expansionProblems(state: ClaimState, claim: PersistentVolumeClaim, object: string): Problem[] {
  const { resizerLease, now, pods } = state;
  const runbook = SYMPTOM_CHAPTERS.expansion;
  const conditions = (claim.status?.conditions ?? []) as ClaimCondition[];
  const condition = (type: string) => conditions.find((one) => one.type === type && one.status === "True");
  const pending = condition("FileSystemResizePending");
  const failed = lastFailure(
    state.claimEvents,
    "VolumeResizeFailed",
    ...["VolumeResizeSuccessful", "FileSystemResizeRequired", "FileSystemResizeSuccessful"],
  );
  const onNode = condition("NodeResizeError");
  const onNodeEvent = lastFailure(state.podEvents, "VolumeResizeFailed", "FileSystemResizeSuccessful");
  const said = onNode?.message ?? onNodeEvent?.message;
  if (said !== undefined) {
    const since = onNode?.lastTransitionTime ?? onNodeEvent?.firstTimestamp ??
      (onNodeEvent && timeOfEvent(onNodeEvent));
    return [problem("error", "NodeResizeFailed", object, {
      message: `resizing the filesystem failed on the node: ${withoutReason(said)}`,
      remedy: "Read the message and the log of the node's agent. The filesystem is unchanged.",
      runbook,
      since,
    })];
  }
  if (pending !== undefined) {
    const isUsed = pods.some(isLive);
    return [problem("info", "FileSystemResizePending", object, {
      message: "the volume was expanded, and its filesystem was not" + (isUsed ? " yet" : ", because no pod uses it"),
      remedy: isUsed ? "Wait: kubelet resizes it within minutes." : "Start a pod that uses the claim.",
      runbook,
    })];
  }
  const waits = waitProblems(state.volumeEvents, now, { chapter: "expansion", object });
  const message = failed?.message ?? condition("ControllerResizeError")?.message;
  if (message !== undefined) {
    const since = failed?.firstTimestamp ?? (failed && timeOfEvent(failed));
    const reason = "VolumeResizeFailed";
    return [...waits, messageProblem(message, { chapter: "expansion", object, reason, since })];
  }
  if (waits.length > 0) return waits;
  if (!isHeld(resizerLease, now) && !isUnread(state, "leases")) {
    return [noControllerProblem(object, resizerLease, { what: "resizer" })];
  }
  return [problem("info", "Resizing", object, {
    message: `the volume is being expanded to ${formatBytes(requestedBytes(claim))}`,
    remedy: "Wait. If it takes minutes, read the log of the controller.",
    runbook,
  })];
}

/** Returns why a claim does not have the VolumeAttributesClass that it names. */
function modificationProblems(state: ClaimState, claim: PersistentVolumeClaim, object: string): Problem[] {
  const wanted = claim.spec?.volumeAttributesClassName;
  const current = claim.status?.currentVolumeAttributesClassName;
  const failed = lastFailure(
    state.claimEvents,
    "VolumeModifyFailed",
    ...["VolumeModifySuccessful", "VolumeModifyCanceled"],
  );
  if (!wanted || wanted === current) return [];
  if (failed !== undefined) return [eventProblem(failed, { chapter: "limits", object })];
  return [problem("info", "Modifying", object, {
    message: `the volume is being changed to the VolumeAttributesClass ${wanted}`,
    remedy: "Wait. If it takes minutes, see whether the class exists, and read the log of the controller.",
    runbook: SYMPTOM_CHAPTERS.limits,
  })];
}

/** Returns why pods do not start with the volume. */
function podProblems(state: ClaimState): Problem[] {
  return [...schedulingProblems(state), ...mountProblems(state)];
}

/** Returns why pods have no node: the volume is on one node, and all of its pods run there. */
function schedulingProblems({ key, pods, podEvents, nodeName, node, otherClaims }: ClaimState): Problem[] {
  const waiting = pods.filter(isUnscheduled).slice(0, MAX_PODS);
  const isCordoned = node?.spec?.unschedulable === true;
  return waiting.flatMap((pod): Problem[] => {
    const { message, reason, since } = schedulingOf(pod, podEvents);
    if (message === "") return [];
    const elsewhere = otherClaims.find((other) => other.pod === pod.metadata.name && other.nodeName !== nodeName);
    return [problem("error", reason, `pod/${pod.metadata.namespace}/${pod.metadata.name}`, {
      message: `the pod cannot be scheduled: ${message}`,
      ...defined({ since }),
      remedy: nodeName === undefined
        ? "The volume is on one node, and the pod can only run there."
        : elsewhere !== undefined
        ? `The volume is on node ${nodeName}, and that of claim ${elsewhere.claim} of the pod on node ` +
          `${elsewhere.nodeName}. Move one of them: \`kubectl denolith move ${elsewhere.claim} --namespace ${
            key.split("/")[0]
          } --to ${nodeName}\``
        : isCordoned
        ? `The volume is on node ${nodeName}, which is cordoned: \`kubectl uncordon ${nodeName}\``
        : `The volume is on node ${nodeName}, and the pod can only run there. See what keeps it from there: taints, ` +
          `node selectors, or too little CPU or memory.`,
      runbook: SYMPTOM_CHAPTERS.mount,
    })];
  });
}

/** The reasons of kubelet's events about volumes that a pod waits for. */
const MOUNT_EVENTS = ["FailedMount", "FailedAttachVolume", "FailedMapVolume"];

/** Returns why pods wait for the volume. */
function mountProblems({ pods, podEvents }: ClaimState): Problem[] {
  return pods.filter(isWaiting).flatMap((pod) => {
    const { name, namespace } = pod.metadata;
    const own = podEvents.filter(({ involvedObject }) => involvedObject?.name === name);
    return lastProblem(own, MOUNT_EVENTS, { chapter: "mount", object: `pod/${namespace}/${name}` });
  });
}

/** Reports whether a pod has a node, and does not run there yet. */
function isWaiting(pod: Pod): boolean {
  const isInitialized = conditionOf<{ type: string; status: string }>(
    pod as { status?: { conditions?: { type: string; status: string }[] } },
    "PodReadyToStartContainers",
  )?.status === "True";
  return pod.status?.phase === "Pending" && !!pod.spec?.nodeName && !isInitialized;
}
