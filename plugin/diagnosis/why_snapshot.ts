/**
 * Why a VolumeSnapshot is not ready, with what also holds for a VolumeGroupSnapshot: of both, the snapshot-controller makes a
 * content, and the driver's snapshotter takes them.
 *
 * @module
 */

import { snapshotIdOf } from "../../base/ids.ts";
import { type LvmSnapshot, lvmSnapshots } from "../../k8s/api/lvm_objects.ts";
import type { Event, KubeObject, Lease, Resource } from "../../k8s/api/objects.ts";
import {
  snapshotHandleOf,
  type VolumeSnapshot,
  type VolumeSnapshotContent,
  volumeSnapshotContents,
  volumeSnapshots,
} from "../../k8s/api/snapshot_objects.ts";
import { type ApiClient, orAbsent } from "../../k8s/client/client.ts";
import type { Content } from "../../k8s/snapshotter/content.ts";
import { snapshotNameOf } from "../../k8s/snapshotter/snapshot_content.ts";
import { isUnread, type Problem, problem } from "../problem.ts";
import { EvidenceReader } from "./claim_state.ts";
import {
  agentProblems,
  isHeld,
  knownFacts,
  lastEvent,
  lastProblem,
  messageProblem,
  type MessageSource,
  noControllerProblem,
  type NodeEvidence,
  waitProblems,
  withErasedSpace,
} from "./evidence.ts";
import { SYMPTOM_CHAPTERS } from "./symptoms.ts";
import { snapshotProblems, stateOf } from "./volumes.ts";
import type { WhyAnswer } from "./why.ts";

/** A VolumeSnapshot or a VolumeGroupSnapshot, as far as both are the same. */
interface Requested extends KubeObject {
  readonly status?: { readonly readyToUse?: boolean };
}

/** What is known of a VolumeSnapshot or a VolumeGroupSnapshot. */
export interface SnapshotEvidence<C extends Content> extends NodeEvidence {
  /** The driver. */
  readonly driver: string;
  /** Its name as `namespace/name`. */
  readonly key: string;
  /** The object; absent when it is gone. */
  readonly request?: Requested | undefined;
  /** Its content. */
  readonly content?: C | undefined;
  /** Its LVMSnapshots: one at the most, if it is no group. */
  readonly snapshots: readonly LvmSnapshot[];
  /** The events about it and its content. */
  readonly events: readonly Event[];
  /** The events about the first of its LVMSnapshots. */
  readonly snapshotEvents: readonly Event[];
  /** The Lease of the snapshotters. */
  readonly snapshotterLease?: Lease | undefined;
}

/** VolumeSnapshots or VolumeGroupSnapshots, as far as both differ. */
export interface SnapshotKind<C extends Content> {
  /** The objects. */
  readonly requests: Resource<Requested>;
  /** Their contents. */
  readonly contents: Resource<C>;
  /** The chapter of the runbooks about them. */
  readonly chapter: "snapshot" | "groupSnapshot";
  /** What is taken, in words, and the label of its LVMSnapshots. */
  readonly what: string;
  readonly label: string;
  /** The reasons of the events that its creation failed, and that of a problem with the error of its content. */
  readonly failures: readonly string[];
  readonly reason: string;
  /** What the absence of a content and of events proves, and what to do. */
  readonly untaken: Pick<Problem, "message" | "remedy" | "runbook">;
  /** What to do when it takes long. */
  readonly remedy: string;
  /** Returns the name of the content, if the object says it. */
  contentNameOf(request: Requested): string | undefined;
  /** Returns the reference of a content to what it was made for. */
  refOf(content: C): { readonly namespace?: string; readonly name?: string; readonly uid?: string };
  /** Reads the LVMSnapshots of a content. */
  readSnapshots(reader: EvidenceReader, content: C): Promise<readonly LvmSnapshot[]>;
  /** Returns the problems of an LVMSnapshot. */
  problemsOf(snapshot: LvmSnapshot, object: string): Problem[];
  /** Returns why something is still there of an object that was deleted; `undefined` for others. */
  leftProblems(state: SnapshotEvidence<C>, object: string): Problem[] | undefined;
}

/** Which object is explained. */
interface Subject {
  readonly driver: string;
  readonly namespace: string;
  readonly name: string;
  readonly now: Date;
}

/** Explains a VolumeSnapshot or a VolumeGroupSnapshot. @throws {ApiError} */
export async function explainSnapshot<C extends Content>(
  kind: SnapshotKind<C>,
  client: ApiClient,
  subject: Subject,
): Promise<WhyAnswer> {
  return snapshotAnswer(kind, await readEvidence(kind, client, subject));
}

/** Reads everything that has a part in it. */
async function readEvidence<C extends Content>(
  kind: SnapshotKind<C>,
  client: ApiClient,
  { driver, namespace, name, now }: Subject,
): Promise<SnapshotEvidence<C>> {
  const reader = new EvidenceReader(client);
  const request = await orAbsent(client.get(kind.requests, { namespace, name }));
  const bound = request && kind.contentNameOf(request);
  const [contents, ownEvents, snapshotterLease] = await Promise.all([
    bound
      ? reader.get(kind.contents, { name: bound }).then((one) => one === undefined ? [] : [one])
      : reader.list(kind.contents),
    reader.eventsAbout(kind.requests.kind, request),
    reader.leaseOf("csi-snapshotter", driver),
  ]);
  // and not one that an earlier object of the same name has left
  const uid = request?.metadata.uid;
  const content = contents.filter((one) => {
    const ref = kind.refOf(one);
    return ref.namespace === namespace && ref.name === name && (uid === undefined || !ref.uid || ref.uid === uid);
  }).at(-1);
  const [found, contentEvents] = await Promise.all([
    content?.spec.driver === driver ? kind.readSnapshots(reader, content) : [],
    reader.eventsAbout(kind.contents.kind, content),
  ]);
  const snapshots = found.filter(({ spec }) => spec.driverName === driver);
  const [nodeEvidence, snapshotEvents] = await Promise.all([
    reader.nodeEvidence(snapshots[0]?.spec.nodeName, driver),
    reader.eventsAbout("LVMSnapshot", snapshots[0]),
  ]);
  return {
    ...nodeEvidence,
    driver,
    now,
    key: `${namespace}/${name}`,
    request,
    content,
    snapshots,
    events: [...ownEvents, ...contentEvents],
    snapshotEvents,
    snapshotterLease,
    unread: reader.unreadKinds(),
  };
}

/** Explains what is known. */
export function snapshotAnswer<C extends Content>(kind: SnapshotKind<C>, state: SnapshotEvidence<C>): WhyAnswer {
  const { key, request, content, snapshots, nodeName, lvmNode, unread } = state;
  const object = `${kind.requests.kind.toLowerCase()}/${key}`;
  return {
    object,
    state: requestState(request),
    problems: withErasedSpace(problemsOf(kind, state, object), lvmNode === undefined ? [] : [lvmNode]),
    facts: knownFacts([
      [kind.contents.kind, content?.metadata.name],
      [kind.label, snapshots.map((one) => `${one.metadata.name} (${stateOf(one)})`).join(", ")],
      ["Node", nodeName],
    ]),
    unread,
  };
}

function requestState(object: Requested | undefined): string {
  if (object === undefined) return "Deleted";
  if (object.metadata.deletionTimestamp !== undefined) return "Terminating";
  return object.status?.readyToUse === true ? "Ready" : "NotReady";
}

function problemsOf<C extends Content>(kind: SnapshotKind<C>, state: SnapshotEvidence<C>, object: string): Problem[] {
  const { request, content, driver } = state;
  if (content !== undefined && content.spec.driver !== driver) {
    const message = `the ${kind.what} is not of the driver ${driver}, but of ${content.spec.driver}`;
    return [problem("info", "OtherDriver", object, { message })];
  }
  const left = kind.leftProblems(state, object);
  if (left !== undefined) return left;
  const isReady = request?.status?.readyToUse === true;
  const problems = creationProblems(kind, state, { object, isReady });
  return problems.length > 0 || isReady ? problems : [waitingProblem(kind, state, object)];
}

/** Returns what keeps a snapshot from being ready, and the problems of one that is. */
function creationProblems<C extends Content>(
  kind: SnapshotKind<C>,
  state: SnapshotEvidence<C>,
  { object, isReady }: { readonly object: string; readonly isReady: boolean },
): Problem[] {
  const source = { chapter: kind.chapter, object };
  const causes = isReady ? [] : creationCauses(kind, state, source);
  return [
    ...(isReady ? [] : waitProblems(state.snapshotEvents, state.now, source)),
    ...causes,
    ...state.snapshots.flatMap((snapshot) => kind.problemsOf(snapshot, object))
      .filter(({ message }) => !causes.some((cause) => message.includes(cause.message)))
      .map((one) => one.remedy === undefined ? messageProblem(one.message, { ...source, ...one }) : one),
    ...agentProblems(state),
  ];
}

function creationCauses<C extends Content>(
  { failures, reason }: SnapshotKind<C>,
  { events, content }: SnapshotEvidence<C>,
  source: Pick<MessageSource, "chapter" | "object">,
): Problem[] {
  const failed = lastProblem(events, failures, source);
  const { message, time: since } = content?.status?.error ?? {};
  return failed.length > 0 || message === undefined ? failed : [messageProblem(message, { ...source, reason, since })];
}

/** Returns which controller has not done what, where no event says it. */
function waitingProblem<C extends Content>(
  kind: SnapshotKind<C>,
  state: SnapshotEvidence<C>,
  object: string,
): Problem {
  const { request, content, events, snapshotterLease, now } = state;
  const since = request?.metadata.creationTimestamp;
  const lastWords = lastEvent(events, ...new Set(events.map(({ reason = "" }) => reason)));
  const isContentRead = !isUnread(state, kind.contents.plural) && !isUnread(state, "events");
  if (content === undefined && lastWords === undefined && isContentRead) {
    return problem("error", "NoSnapshotController", object, { ...kind.untaken, since });
  }
  if (content !== undefined && !isHeld(snapshotterLease, now) && !isUnread(state, "leases")) {
    return noControllerProblem(object, snapshotterLease, { what: "snapshotter", since });
  }
  return problem("info", "Creating", object, {
    message: lastWords?.message ?? `the ${kind.what} is being created`,
    remedy: kind.remedy,
    since,
    runbook: SYMPTOM_CHAPTERS[kind.chapter],
  });
}

const RUNBOOK = SYMPTOM_CHAPTERS.snapshot;

/** VolumeSnapshots. */
export const VOLUME_SNAPSHOTS: SnapshotKind<VolumeSnapshotContent> = {
  requests: volumeSnapshots,
  contents: volumeSnapshotContents,
  chapter: "snapshot",
  what: "snapshot",
  label: "Snapshot",
  failures: ["SnapshotCreationFailed", "SnapshotContentCheckandUpdateFailed"],
  reason: "SnapshotFailed",
  untaken: {
    message: "nobody has taken the VolumeSnapshot: it has no content and no events, so no snapshot-controller runs",
    remedy: "Install the snapshot-controller.",
    runbook: "snapshots/install-the-snapshot-controller",
  },
  remedy: "Wait. If it takes minutes, read the log of the controller.",
  contentNameOf: (request) => (request as VolumeSnapshot).status?.boundVolumeSnapshotContentName,
  refOf: ({ spec }) => spec.volumeSnapshotRef,
  readSnapshots: async (reader, content) => {
    const { uid } = content.spec.volumeSnapshotRef;
    // before the content has a handle, it is that of the request
    const name = snapshotHandleOf(content) ?? (uid === undefined ? undefined : snapshotIdOf(snapshotNameOf(uid)));
    const snapshot = name === undefined ? undefined : await reader.get(lvmSnapshots, { name });
    return snapshot === undefined ? [] : [snapshot];
  },
  problemsOf: snapshotProblems,
  leftProblems: (state, object) => {
    const { request, content } = state;
    if (content?.metadata.deletionTimestamp !== undefined) return deletionProblems(state, content);
    if (request === undefined) return content === undefined ? [] : [leftContentProblem(content)];
    return request.metadata.deletionTimestamp === undefined ? undefined : [terminatingProblem(request, object)];
  },
};

/** The finalizer of a VolumeSnapshot from which a volume is being created (snapshot-controller). */
const AS_SOURCE_PROTECTION = "snapshot.storage.kubernetes.io/volumesnapshot-as-source-protection";

/** Returns why a VolumeSnapshot that was deleted is still there, while its content was not deleted. */
function terminatingProblem({ metadata }: KubeObject, object: string): Problem {
  const { finalizers = [], deletionTimestamp } = metadata;
  const others = finalizers.filter((name) => !name.startsWith("snapshot.storage.kubernetes.io/"));
  if (others.length > 0) {
    return problem("warning", "KeptByFinalizers", object, {
      message: `the VolumeSnapshot has finalizers that are not the snapshot-controller's: ${others.join(", ")}`,
      remedy: "Whoever added a finalizer removes it: see whether that program runs, and read its log.",
      since: deletionTimestamp,
    });
  }
  const isSource = finalizers.includes(AS_SOURCE_PROTECTION);
  return problem("info", isSource ? "KeptByFinalizers" : "Deleting", object, {
    message: isSource
      ? `the finalizer ${AS_SOURCE_PROTECTION} keeps the VolumeSnapshot: a claim is being created from it`
      : "the snapshot-controller is about to remove the VolumeSnapshot",
    remedy: "Wait. If it takes minutes, see whether the snapshot-controller runs.",
    since: deletionTimestamp,
  });
}

/** Returns why a content is still there whose VolumeSnapshot is gone. */
function leftContentProblem({ metadata: { name }, spec: { deletionPolicy } }: VolumeSnapshotContent): Problem {
  const object = `volumesnapshotcontent/${name}`;
  return deletionPolicy === "Retain"
    ? problem("info", "Retained", object, {
      message: "the VolumeSnapshot is gone, and its content stays with the snapshot, by its deletion policy Retain",
      remedy: "To remove the snapshot, set the policy to Delete, and delete the content.",
      runbook: RUNBOOK,
    })
    : problem("info", "Deleting", object, {
      message: "the VolumeSnapshot is gone, and the snapshot-controller has not deleted its content yet",
      remedy: "Wait. If it takes minutes, see whether the snapshot-controller runs.",
    });
}

/** Returns why a content that was deleted is still there. */
function deletionProblems(
  state: SnapshotEvidence<VolumeSnapshotContent>,
  content: VolumeSnapshotContent,
): Problem[] {
  const object = `volumesnapshotcontent/${content.metadata.name}`;
  const since = content.metadata.deletionTimestamp!;
  if (state.request !== undefined && state.request.metadata.deletionTimestamp === undefined) {
    return [problem("warning", "KeptByVolumeSnapshot", object, {
      message: "the content was deleted, and its VolumeSnapshot still exists",
      remedy: "Delete the VolumeSnapshot.",
      since,
      runbook: RUNBOOK,
    })];
  }
  const source = { chapter: "snapshot", object } as const;
  const problems = [
    ...lastProblem(state.events, ["SnapshotDeleteError"], source),
    ...waitProblems(state.snapshotEvents, state.now, source),
    ...agentProblems(state),
  ];
  if (problems.length > 0) return problems;
  return [problem("info", "Deleting", object, {
    message: "the snapshot is being removed",
    remedy: "Wait.",
    since,
    runbook: RUNBOOK,
  })];
}
