/**
 * What moves and imports have in common. Both are handovers: objects by which somebody requests that the PersistentVolume of a claim
 * is replaced by one of the same name, for another node or driver.
 *
 * A handover proceeds in steps. Each is decided from the objects as they are, may be repeated, and changes an object only as it was
 * read, so that a handover continues after the end of any process, and two controllers do no harm.
 *
 * @module
 */

import { defined } from "../../base/defined.ts";
import { reasonIn, truncate } from "../../base/error.ts";
import { LVM_VOLUME_FINALIZER, type LvmNode, type LvmVolume, type StatusError } from "../api/lvm_objects.ts";
import type { KubeObject, PersistentVolume, PersistentVolumeClaim } from "../api/objects.ts";

/** The longest message of a status, in characters. */
export const MAX_MESSAGE_LENGTH = 4_096;

/** The desired state of a handover. */
export interface HandoverSpec {
  /** The driver's name. */
  driverName: string;
  /** The name of the PersistentVolume. */
  persistentVolume: string;
  /** The claim that it is bound to. */
  claim: { namespace: string; name: string; uid: string };
}

/** The actual state of a handover. */
export interface HandoverStatus {
  /** The state; `Complete` and `Failed` are the last ones. */
  state?: string;
  /** What happens, or what it waits for. */
  message?: string;
  /** Why it failed. */
  error?: StatusError;
  /** The PersistentVolume as it was, recorded before it is changed. */
  persistentVolume?: RecordedPersistentVolume;
}

/** A PersistentVolume, as far as it is created again. */
export interface RecordedPersistentVolume {
  /** Its metadata. */
  metadata: { uid: string; labels?: Record<string, string>; annotations?: Record<string, string> };
  /** Its spec. */
  spec: NonNullable<PersistentVolume["spec"]>;
}

/** A handover. */
export interface Handover extends KubeObject {
  spec: HandoverSpec;
  status?: HandoverStatus;
}

/** The objects that a handover is about, as the API server has them. */
export interface HandoverObjects<H extends Handover = Handover> {
  /** The handover. */
  readonly self: H;
  /** The LVMVolume of its name. */
  readonly volume: LvmVolume | undefined;
  /** The PersistentVolume of the name. */
  readonly persistentVolume: PersistentVolume | undefined;
  /** The claim of the name. */
  readonly claim: PersistentVolumeClaim | undefined;
}

/**
 * A wait for a change of the objects, which agents have to bring about, or, if `isBlocked`, somebody else. What it waits for is
 * named: a wait for an agent that is away says so.
 */
export interface Wait {
  readonly do: "wait";
  /** What it waits for. */
  readonly message: string;
  /** The nodes whose agents end it. */
  readonly agents: readonly string[];
  readonly isBlocked?: true;
  /** The state that it belongs to, where that does not follow from anything else. */
  readonly state?: "Copying";
}

/** The step that records why a handover fails. What it changed is undone then. */
export interface Failure {
  readonly do: "fail";
  /** Why it fails. */
  readonly error: StatusError;
}

/** A step that all handovers have. */
export type CommonStep =
  | {
    /** Remove the finalizer of one that is undone; set the policy of the PersistentVolume, delete it, and restore its policy. */
    readonly do: "remove finalizer" | "retain" | "delete persistent volume" | "restore policy";
  }
  | Failure
  | Wait;

/** Reports whether nothing is left to do for a handover. */
export function isFinished({ status }: Handover): boolean {
  return status?.state === "Complete" || status?.state === "Failed";
}

/** Returns what is done with the finalizer of a handover that has not begun, or is finished; `undefined` for another one. */
export function lifecycleStep(
  self: Handover,
  finalizer: string,
): "nothing" | "add finalizer" | "remove finalizer" | undefined {
  const { finalizers = [], deletionTimestamp } = self.metadata;
  const isDeleting = deletionTimestamp !== undefined;
  if (!finalizers.includes(finalizer)) return isDeleting || isFinished(self) ? "nothing" : "add finalizer";
  if (isFinished(self)) return isDeleting ? "remove finalizer" : "nothing";
  return undefined;
}

/** Returns the message of the status before a step. @param failure why the last attempt of the step failed */
export function messageBefore({ status }: Handover, step: { readonly do: string }, failure?: string): string {
  const message = step.do === "wait" ? (step as Wait).message : failure ?? status?.error?.message ?? "";
  return truncate(message, MAX_MESSAGE_LENGTH);
}

/** Returns why the claim does not have the PersistentVolume that a handover is to replace; `undefined` when it has. */
export function claimRefusal({ self: { spec }, persistentVolume, claim }: HandoverObjects): string | undefined {
  const { claim: { namespace, name, uid }, persistentVolume: volumeName } = spec;
  const claimText = `claim ${namespace}/${name}`;
  if (claim?.metadata.uid !== uid) return `${claimText} does not exist any more`;
  if (claim.metadata.deletionTimestamp !== undefined) return `${claimText} is being deleted`;
  const isBound = claim.spec?.volumeName === volumeName && persistentVolume?.spec?.claimRef?.uid === uid &&
    persistentVolume.status?.phase === "Bound" && persistentVolume.metadata.deletionTimestamp === undefined;
  return isBound ? undefined : `${claimText} is not bound to PersistentVolume ${volumeName}`;
}

/** Returns the failure of a handover that cannot go on. */
export function refused(message: string): Failure {
  return { do: "fail", error: { code: "FailedPrecondition", ...defined({ reason: reasonIn(message) }), message } };
}

/** Returns the wait for the agent of a node. */
export function waitForAgent(node: string, message = `waits for the agent of node ${node}`): Wait {
  return { do: "wait", message, agents: [node] };
}

/** Returns the wait for others whose finalizers keep an object that is being deleted; `undefined` where none do. */
export function waitForFinalizers(
  what: string,
  { metadata }: KubeObject,
  foreign: readonly string[],
): Wait | undefined {
  if (metadata.deletionTimestamp === undefined || foreign.length === 0) return undefined;
  const message = `waits for others to remove the finalizers ${foreign.join(", ")} of ${what}`;
  return { do: "wait", message, agents: [], isBlocked: true };
}

/** Returns the wait until an LVMVolume is deleted that others alone keep; `undefined` while its own finalizer does, too. */
export function waitUntilGone(volume: LvmVolume): Wait | undefined {
  const { name, finalizers = [] } = volume.metadata;
  return waitForFinalizers(`LVMVolume ${name}`, volume, finalizers.includes(LVM_VOLUME_FINALIZER) ? [] : finalizers);
}

/** Returns how the agent of a node is away; `undefined` when it is there. */
export function agentAbsence(
  name: string,
  node: LvmNode | undefined,
  isSilent: (node: string) => boolean,
): string | undefined {
  if (node === undefined) return `node ${name} has no agent of the driver`;
  return isSilent(name) ? `the agent of node ${name} has not reported for minutes` : undefined;
}
