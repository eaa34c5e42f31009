/**
 * Why a VolumeSnapshot is not ready, with what also holds for a VolumeGroupSnapshot: of both, the snapshot-controller makes a
 * content, and the driver's snapshotter takes them.
 *
 * @module
 */

import { type ApiClient, orAbsent } from "../../k8s/client/client.ts";
import type { Event, KubeObject, Lease } from "../../k8s/api/objects.ts";
import { type LvmSnapshot, lvmSnapshots } from "../../k8s/api/lvm_objects.ts";
import {
  snapshotHandleOf,
  type VolumeSnapshot,
  type VolumeSnapshotContent,
  volumeSnapshotContents,
  volumeSnapshots,
} from "../../k8s/api/snapshot_objects.ts";
import { snapshotIdOf } from "../../base/ids.ts";
import { snapshotNameOf } from "../../k8s/snapshotter/snapshot_content.ts";
import { EvidenceReader } from "./claim_state.ts";
import {
  agentProblems,
  eventProblem,
  isHeld,
  lastEvent,
  messageProblem,
  type MessageSource,
  noControllerProblem,
  type NodeEvidence,
  waitProblems,
} from "./evidence.ts";
import { isUnread, type Problem } from "../problem.ts";
import { SYMPTOM_CHAPTERS } from "./symptoms.ts";
import { snapshotProblems, stateOf } from "./volumes.ts";
import type { WhyAnswer } from "./why.ts";

/** What is known of a VolumeSnapshot or a VolumeGroupSnapshot. */
export interface SnapshotEvidence extends NodeEvidence {
  /** The driver. */
  readonly driver: string;
  /** Its name as `namespace/name`. */
  readonly key: string;
  /** The events about it and its content. */
  readonly events: readonly Event[];
  /** The events about its LVMSnapshot, of a group about the first one. */
  readonly snapshotEvents: readonly Event[];
  /** The Lease of the snapshotters. */
  readonly snapshotterLease?: Lease | undefined;
}

/** A VolumeSnapshot or a VolumeGroupSnapshot, as far as both are the same. */
interface Requested extends KubeObject {
  readonly status?: { readonly readyToUse?: boolean };
}

/** A reference of a content to what it was made for. */
interface ContentRef {
  readonly namespace?: string;
  readonly name?: string;
  readonly uid?: string;
}

/** Which snapshots an answer is about, in its words. */
export interface SnapshotWords {
  /** What is taken, such as `group snapshot`. */
  readonly what: string;
  /** The contents, as the API server names them. */
  readonly contents: string;
  /** What the absence of a content and of events proves, and what to do. */
  readonly untaken: Pick<Problem, "message" | "remedy" | "runbook">;
  /** What to do when it takes long. */
  readonly remedy: string;
}

/** Returns the state of a VolumeSnapshot or a VolumeGroupSnapshot in a word. */
export function requestState(object: Requested | undefined): string {
  if (object === undefined) return "Deleted";
  if (object.metadata.deletionTimestamp !== undefined) return "Terminating";
  return object.status?.readyToUse === true ? "Ready" : "NotReady";
}

/** Returns the content of an object, and not one that an earlier object of the same name has left. */
export function contentOf<T>(
  contents: readonly T[],
  refOf: (content: T) => ContentRef,
  { namespace, name, uid }: { readonly namespace: string; readonly name: string; readonly uid: string | undefined },
): T | undefined {
  return contents.filter((content) => {
    const ref = refOf(content);
    return ref.namespace === namespace && ref.name === name && (uid === undefined || !ref.uid || ref.uid === uid);
  }).at(-1);
}

/** What says that the creation failed. */
export interface CreationFailure {
  /** The reasons of the snapshot-controller's events about it. */
  readonly events: readonly string[];
  /** The error in the content's status. */
  readonly error: { readonly message?: string; readonly time?: string } | undefined;
  /** The reason of a problem with that error. */
  readonly reason: string;
}

/**
 * Returns what keeps a snapshot from being ready, and what is wrong with one that is.
 *
 * @param reported what the LVMSnapshots say of themselves
 */
export function creationProblems(
  state: SnapshotEvidence,
  { isReady, failure, reported, source }: {
    readonly isReady: boolean;
    readonly failure: CreationFailure;
    readonly reported: readonly Problem[];
    readonly source: Pick<MessageSource, "chapter" | "object">;
  },
): Problem[] {
  const causes = isReady ? [] : creationCauses(state, failure, source);
  return [
    ...(isReady ? [] : waitProblems(state.snapshotEvents, state.now, source)),
    ...causes,
    ...reported.filter(({ message }) => !causes.some((cause) => message.includes(cause.message)))
      .map((problem) =>
        problem.remedy === undefined ? messageProblem(problem.message, { ...source, ...problem }) : problem
      ),
    ...agentProblems(state),
  ];
}

function creationCauses(
  { events }: SnapshotEvidence,
  { events: reasons, error, reason }: CreationFailure,
  source: Pick<MessageSource, "chapter" | "object">,
): Problem[] {
  const failed = lastEvent(events, ...reasons);
  if (failed !== undefined) return [eventProblem(failed, source)];
  if (error?.message === undefined) return [];
  return [messageProblem(error.message, { ...source, reason, since: error.time })];
}

/** Returns which controller has not done what, where no event says it. */
export function waitingProblems(
  state: SnapshotEvidence,
  { request, content, source: { chapter, object }, words }: {
    readonly request: KubeObject;
    readonly content: KubeObject | undefined;
    readonly source: Pick<MessageSource, "chapter" | "object">;
    readonly words: SnapshotWords;
  },
): Problem[] {
  const { events, snapshotterLease, now } = state;
  const since = request.metadata.creationTimestamp;
  const problem = { object, ...(since !== undefined && { since }) };
  const lastWords = lastEvent(events, ...new Set(events.map(({ reason = "" }) => reason)));
  const isContentRead = !isUnread(state, words.contents) && !isUnread(state, "events");
  if (content === undefined && lastWords === undefined && isContentRead) {
    return [{ severity: "error", reason: "NoSnapshotController", ...problem, ...words.untaken }];
  }
  if (content !== undefined && !isHeld(snapshotterLease, now) && !isUnread(state, "leases")) {
    return [noControllerProblem(object, snapshotterLease, { what: "snapshotter", since })];
  }
  return [{
    ...{ severity: "info", reason: "Creating", ...problem, runbook: SYMPTOM_CHAPTERS[chapter] },
    message: lastWords?.message ?? `the ${words.what} is being created`,
    remedy: words.remedy,
  }];
}

const RUNBOOK = SYMPTOM_CHAPTERS.snapshot;

const WORDS: SnapshotWords = {
  what: "snapshot",
  contents: "volumesnapshotcontents",
  untaken: {
    message: "nobody has taken the VolumeSnapshot: it has no content and no events, so no snapshot-controller runs",
    remedy: "Install the snapshot-controller.",
    runbook: "../snapshots.md#install-the-snapshot-controller",
  },
  remedy: "Wait. If it takes minutes, read the log of the controller.",
};

/** What is known of a VolumeSnapshot. */
export interface SnapshotState extends SnapshotEvidence {
  /** The VolumeSnapshot; absent when it is gone. */
  readonly volumeSnapshot?: VolumeSnapshot | undefined;
  /** Its VolumeSnapshotContent. */
  readonly content?: VolumeSnapshotContent | undefined;
  /** Its LVMSnapshot. */
  readonly snapshot?: LvmSnapshot | undefined;
}

/** Reads everything that has a part in a VolumeSnapshot. @throws {ApiError} */
export async function readSnapshotState(
  client: ApiClient,
  { driver, namespace, name, now }: { driver: string; namespace: string; name: string; now: Date },
): Promise<SnapshotState> {
  const reader = new EvidenceReader(client);
  const volumeSnapshot = await orAbsent(client.get(volumeSnapshots, { namespace, name }));
  const bound = volumeSnapshot?.status?.boundVolumeSnapshotContentName;
  const [contents, ownEvents, snapshotterLease] = await Promise.all([
    bound
      ? reader.get(volumeSnapshotContents, { name: bound }).then((content) => content === undefined ? [] : [content])
      : reader.list(volumeSnapshotContents),
    reader.eventsAbout("VolumeSnapshot", volumeSnapshot),
    reader.leaseOf("csi-snapshotter", driver),
  ]);
  const uid = volumeSnapshot?.metadata.uid;
  const content = contentOf(contents, ({ spec }) => spec.volumeSnapshotRef, { namespace, name, uid });
  const handle = content?.spec.driver === driver ? snapshotHandleOf(content) ?? requestedHandleOf(content) : undefined;
  const [found, contentEvents] = await Promise.all([
    handle === undefined ? undefined : reader.get(lvmSnapshots, { name: handle }),
    reader.eventsAbout("VolumeSnapshotContent", content),
  ]);
  const snapshot = found?.spec.driverName === driver ? found : undefined;
  const [nodeEvidence, snapshotEvents] = await Promise.all([
    reader.nodeEvidence(snapshot?.spec.nodeName, driver),
    reader.eventsAbout("LVMSnapshot", snapshot),
  ]);
  return {
    ...{ driver, now, key: `${namespace}/${name}`, volumeSnapshot, content, events: [...ownEvents, ...contentEvents] },
    ...{ ...nodeEvidence, snapshotEvents, snapshot, snapshotterLease },
    unread: [...new Set(reader.unread)].sort(),
  };
}

/** Returns the handle of a snapshot that is being created, before its content has it. */
function requestedHandleOf({ spec: { volumeSnapshotRef: { uid } } }: VolumeSnapshotContent): string | undefined {
  return uid === undefined ? undefined : snapshotIdOf(snapshotNameOf(uid));
}

/** Explains a VolumeSnapshot. */
export function explainSnapshot(state: SnapshotState): WhyAnswer {
  const { key, volumeSnapshot, content, snapshot, nodeName, unread } = state;
  const object = `volumesnapshot/${key}`;
  const facts: (readonly [string, string | undefined])[] = [
    ["VolumeSnapshotContent", content?.metadata.name],
    ["Snapshot", snapshot && `${snapshot.metadata.name} (${stateOf(snapshot)})`],
    ["Node", nodeName],
  ];
  return {
    object,
    state: requestState(volumeSnapshot),
    problems: problemsOf(state, object),
    facts: facts.flatMap(([label, text]) => text === undefined ? [] : [[label, text] as const]),
    unread,
  };
}

function problemsOf(state: SnapshotState, object: string): Problem[] {
  const { volumeSnapshot, content, snapshot, driver } = state;
  if (content !== undefined && content.spec.driver !== driver) {
    const message = `the snapshot is not of the driver ${driver}, but of ${content.spec.driver}`;
    return [{ severity: "info", reason: "OtherDriver", object, message }];
  }
  if (content?.metadata.deletionTimestamp !== undefined) return deletionProblems(state, content);
  if (volumeSnapshot === undefined) return content === undefined ? [] : [leftContentProblem(content)];
  if (volumeSnapshot.metadata.deletionTimestamp !== undefined) return [terminatingProblem(volumeSnapshot, object)];
  const isReady = volumeSnapshot.status?.readyToUse === true;
  const source = { chapter: "snapshot", object } as const;
  const problems = creationProblems(state, {
    ...{ isReady, source },
    failure: {
      events: ["SnapshotCreationFailed", "SnapshotContentCheckandUpdateFailed"],
      ...{ error: content?.status?.error, reason: "SnapshotFailed" },
    },
    reported: snapshot === undefined ? [] : snapshotProblems(snapshot, object),
  });
  if (problems.length > 0 || isReady) return problems;
  return waitingProblems(state, { request: volumeSnapshot, content, source, words: WORDS });
}

/** The finalizer of a VolumeSnapshot from which a volume is being created (snapshot-controller). */
const AS_SOURCE_PROTECTION = "snapshot.storage.kubernetes.io/volumesnapshot-as-source-protection";

/** Returns why a VolumeSnapshot that was deleted is still there, while its content was not deleted. */
function terminatingProblem({ metadata }: VolumeSnapshot, object: string): Problem {
  const { finalizers = [], deletionTimestamp } = metadata;
  const others = finalizers.filter((name) => !name.startsWith("snapshot.storage.kubernetes.io/"));
  const problem = { object, ...(deletionTimestamp !== undefined && { since: deletionTimestamp }) };
  if (others.length > 0) {
    return {
      ...{ severity: "warning", reason: "KeptByFinalizers", ...problem },
      message: `the VolumeSnapshot has finalizers that are not the snapshot-controller's: ${others.join(", ")}`,
      remedy: "Whoever added a finalizer removes it: see whether that program runs, and read its log.",
    };
  }
  const isSource = finalizers.includes(AS_SOURCE_PROTECTION);
  return {
    ...{ severity: "info", reason: isSource ? "KeptByFinalizers" : "Deleting", ...problem },
    message: isSource
      ? `the finalizer ${AS_SOURCE_PROTECTION} keeps the VolumeSnapshot: a claim is being created from it`
      : "the snapshot-controller is about to remove the VolumeSnapshot",
    remedy: "Wait. If it takes minutes, see whether the snapshot-controller runs.",
  };
}

/** Returns why a content is still there whose VolumeSnapshot is gone. */
function leftContentProblem({ metadata: { name }, spec: { deletionPolicy } }: VolumeSnapshotContent): Problem {
  const object = `volumesnapshotcontent/${name}`;
  return deletionPolicy === "Retain"
    ? {
      ...{ severity: "info", reason: "Retained", object, runbook: RUNBOOK },
      message: "the VolumeSnapshot is gone, and its content stays with the snapshot, by its deletion policy Retain",
      remedy: "To remove the snapshot, set the policy to Delete, and delete the content.",
    }
    : {
      ...{ severity: "info", reason: "Deleting", object },
      message: "the VolumeSnapshot is gone, and the snapshot-controller has not deleted its content yet",
      remedy: "Wait. If it takes minutes, see whether the snapshot-controller runs.",
    };
}

/** Returns why a content that was deleted is still there. */
function deletionProblems(
  { volumeSnapshot, events, ...state }: SnapshotState,
  content: VolumeSnapshotContent,
): Problem[] {
  const object = `volumesnapshotcontent/${content.metadata.name}`;
  const since = content.metadata.deletionTimestamp!;
  if (volumeSnapshot !== undefined && volumeSnapshot.metadata.deletionTimestamp === undefined) {
    return [{
      ...{ severity: "warning", reason: "KeptByVolumeSnapshot", object, since, runbook: RUNBOOK },
      message: "the content was deleted, and its VolumeSnapshot still exists",
      remedy: "Delete the VolumeSnapshot.",
    }];
  }
  const failed = lastEvent(events, "SnapshotDeleteError");
  const agents = [
    ...waitProblems(state.snapshotEvents, state.now, { chapter: "snapshot", object }),
    ...agentProblems(state),
  ];
  if (failed !== undefined) return [eventProblem(failed, { chapter: "snapshot", object }), ...agents];
  if (agents.length > 0) return agents;
  return [{
    ...{ severity: "info", reason: "Deleting", object, since, runbook: RUNBOOK },
    ...{ message: "the snapshot is being removed", remedy: "Wait." },
  }];
}
