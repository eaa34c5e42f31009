/**
 * Why a claim is as it is: one answer from events, conditions, capacities, the scheduler's choice and the agent's words.
 *
 * @module
 */

import { type LvmNode, lvmNodes } from "../../k8s/api/lvm_objects.ts";
import { quantityToBytes } from "../../k8s/api/quantity.ts";
import { classNameOf, provisionerOf } from "../../k8s/provisioner/claim.ts";
import { formatBytes } from "../../base/size.ts";
import { capacityTexts, type ClaimState, MAX_CAPACITIES, MAX_PODS, requestedBytes } from "./claim_state.ts";
import { agentStateOf } from "./nodes.ts";
import { isUnread, listText, type Problem, problem } from "../problem.ts";
import { boundProblems } from "./why_bound.ts";
import { failedMove, importInProgress, lostProblems, moveFact, moveInProgress } from "./why_handover.ts";
import { NO_PROVISIONER, pendingProblems } from "./why_pending.ts";
import { terminatingProblems } from "./why_terminating.ts";
import { stateOf } from "./volumes.ts";
import { type Facts, knownFacts, withErasedSpace } from "./evidence.ts";

/** An answer. */
export interface WhyAnswer {
  /** What it is about, as `kind/namespace/name`. */
  readonly object: string;
  /** Its state, in one word. */
  readonly state: string;
  /** What is wrong, the cause first; empty when nothing is. */
  readonly problems: readonly Problem[];
  /** What the answer rests on: labels and texts. */
  readonly facts: Facts;
  /** Kinds that could not be read, with the cause. */
  readonly unread: readonly string[];
}

/** Explains a claim. */
export function explainClaim(state: ClaimState): WhyAnswer {
  const object = `claim/${state.key}`;
  return {
    object,
    state: stateOfClaim(state),
    problems: withErasedSpace(problemsOf(state, object), placesOf(state)),
    facts: factsOf(state),
    unread: state.unread,
  };
}

/** Returns the nodes where the volume of a claim is, or may be created. */
function placesOf({ nodeName, lvmNode, lvmNodes }: ClaimState): readonly LvmNode[] {
  return nodeName === undefined ? lvmNodes : lvmNode === undefined ? [] : [lvmNode];
}

function stateOfClaim({ claim }: ClaimState): string {
  if (claim === undefined) return "Deleted";
  return claim.metadata.deletionTimestamp === undefined ? claim.status?.phase ?? "Pending" : "Terminating";
}

/** Reasons that a move explains: the volume is held, and there is nothing more to say. */
const OF_MOVES: readonly string[] = ["InUse", "ExpansionNotAllowed"];

/** Returns what is wrong. What is missing while its volume is being moved comes again. */
function problemsOf(state: ClaimState, object: string): Problem[] {
  const moving = moveInProgress(state, object);
  const failed = failedMove(state, object);
  if (moving === undefined) {
    const problems = claimProblems(state, object);
    return failed === undefined ? problems : [...problems.filter(({ reason }) => !OF_MOVES.includes(reason)), failed];
  }
  const { claim, persistentVolume, volume } = state;
  if (claim?.metadata.deletionTimestamp !== undefined) return [...claimProblems(state, object), moving];
  if (claim?.status?.phase !== "Bound" || persistentVolume === undefined || volume === undefined) return [moving];
  return [moving, ...claimProblems(state, object).filter(({ reason }) => !OF_MOVES.includes(reason))];
}

function claimProblems(state: ClaimState, object: string): Problem[] {
  const { claim, driver } = state;
  if (claim === undefined || claim.metadata.deletionTimestamp !== undefined) return terminatingProblems(state, object);
  const importing = importInProgress(state, object);
  if (importing !== undefined) return [importing];
  const provisioner = otherProvisioner(state);
  if (provisioner !== undefined) {
    return [problem("info", "OtherDriver", object, {
      message: `the claim is not of the driver ${driver}, but of ${provisioner}`,
    })];
  }
  switch (claim.status?.phase) {
    case "Bound":
      return boundProblems(state, object);
    case "Lost":
      return lostProblems(state, claim, object);
    default:
      return pendingProblems(state, claim, object);
  }
}

/** Returns who serves the claim when it is not the driver. */
function otherProvisioner({ claim, persistentVolume, storageClass, driver }: ClaimState): string | undefined {
  if (persistentVolume !== undefined) {
    const { csi } = persistentVolume.spec ?? {};
    return csi?.driver === driver ? undefined : csi?.driver ?? "another kind of volume";
  }
  const provisioner = storageClass?.provisioner ?? (claim && provisionerOf(claim));
  // of a class without a provisioner, somebody creates the PersistentVolumes, maybe with volumes of the driver
  return provisioner === driver || provisioner === NO_PROVISIONER ? undefined : provisioner;
}

function factsOf(state: ClaimState): Facts {
  const { claim, storageClass, persistentVolume, volume, nodeName, pods } = state;
  const className = claim && classNameOf(claim);
  const capacities = capacityTexts(state);
  const bytes = claim && requestedBytes(claim);
  const actual = quantityToBytes(claim?.status?.capacity?.["storage"]);
  const binding = storageClass?.volumeBindingMode ?? "Immediate";
  return knownFacts([
    ["Class", className && (storageClass ? `${className} (${binding})` : className)],
    ["Size", bytes === undefined ? undefined : sizeText(bytes, actual)],
    ["Pods", listText(pods.map((pod) => pod.metadata.name), MAX_PODS)],
    ["Node", nodeName && `${nodeName} (${agentText(state)})`],
    [
      "PersistentVolume",
      persistentVolume && `${persistentVolume.metadata.name} (${persistentVolume.status?.phase ?? "Pending"})`,
    ],
    ["Move", moveFact(state)],
    ["Volume", volume && `${volume.metadata.name} (${stateOf(volume)})`],
    [
      "Capacities",
      claim?.status?.phase === "Pending" ? listText(capacities, MAX_CAPACITIES, " nodes") : undefined,
    ],
  ]);
}

function sizeText(requested: bigint, actual: bigint | undefined): string {
  if (actual === undefined) return `${formatBytes(requested)} requested`;
  return actual >= requested ? formatBytes(actual) : `${formatBytes(actual)}, ${formatBytes(requested)} requested`;
}

function agentText(state: ClaimState): string {
  if (state.lvmNode === undefined) return isUnread(state, lvmNodes.plural) ? "its LVMNode is not read" : "no LVMNode";
  const agent = agentStateOf(state.lvmNode, state);
  return agent === "NotReported" ? "its agent has not reported" : `agent ${agent}`;
}
