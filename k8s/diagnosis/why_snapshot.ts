/**
 * Why a VolumeSnapshot is not ready.
 *
 * @module
 */

import { type ApiClient, orAbsent } from "../client/client.ts";
import { type LvmNode, lvmNodes, type LvmSnapshot, lvmSnapshots } from "../api/lvm_objects.ts";
import { type Event, type Lease, type Node, nodes } from "../api/objects.ts";
import {
  snapshotHandleOf,
  type VolumeSnapshot,
  type VolumeSnapshotContent,
  volumeSnapshotContents,
  volumeSnapshots,
} from "../api/snapshot_objects.ts";
import { snapshotIdOf } from "../../lvm/ids.ts";
import { snapshotNameOf } from "../snapshotter/snapshot_content.ts";
import { EvidenceReader } from "./claim_state.ts";
import {
  agentProblems,
  eventProblem,
  isHeld,
  lastEvent,
  messageProblem,
  noControllerProblem,
  waitProblems,
} from "./evidence.ts";
import { isUnread, type Problem } from "./problem.ts";
import { SYMPTOM_CHAPTERS } from "./symptoms.ts";
import { snapshotProblems, stateOf } from "./volumes.ts";
import type { WhyAnswer } from "./why.ts";

const RUNBOOK = SYMPTOM_CHAPTERS.snapshot;

/** What is known of a VolumeSnapshot. */
export interface SnapshotState {
  /** The driver. */
  readonly driver: string;
  /** The time at which it was read. */
  readonly now: Date;
  /** Its name as `namespace/name`. */
  readonly key: string;
  /** The VolumeSnapshot; absent when it is gone. */
  readonly volumeSnapshot?: VolumeSnapshot | undefined;
  /** Its VolumeSnapshotContent. */
  readonly content?: VolumeSnapshotContent | undefined;
  /** The events about both. */
  readonly events: readonly Event[];
  /** The events about its LVMSnapshot. */
  readonly snapshotEvents: readonly Event[];
  /** Its LVMSnapshot. */
  readonly snapshot?: LvmSnapshot | undefined;
  /** The name of its node. */
  readonly nodeName?: string | undefined;
  /** Its Node. */
  readonly node?: Node | undefined;
  /** Its LVMNode. */
  readonly lvmNode?: LvmNode | undefined;
  /** The Lease of the agent of its node. */
  readonly agentLeases: readonly Lease[];
  /** The Lease of the snapshotter. */
  readonly snapshotterLease?: Lease | undefined;
  /** Kinds that could not be read, with the cause. */
  readonly unread: readonly string[];
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
  const content = findContent(contents, volumeSnapshot, { namespace, name });
  const handle = content?.spec.driver === driver ? snapshotHandleOf(content) ?? requestedHandleOf(content) : undefined;
  const [found, contentEvents] = await Promise.all([
    handle === undefined ? undefined : reader.get(lvmSnapshots, { name: handle }),
    reader.eventsAbout("VolumeSnapshotContent", content),
  ]);
  const snapshot = found?.spec.driverName === driver ? found : undefined;
  const nodeName = snapshot?.spec.nodeName;
  const [node, lvmNode, agentLeases, snapshotEvents] = await Promise.all([
    nodeName === undefined ? undefined : reader.get(nodes, { name: nodeName }),
    nodeName === undefined ? undefined : reader.get(lvmNodes, { name: nodeName }),
    reader.agentLeasesOf(nodeName, driver),
    reader.eventsAbout("LVMSnapshot", snapshot),
  ]);
  return {
    ...{ driver, now, key: `${namespace}/${name}`, volumeSnapshot, content, events: [...ownEvents, ...contentEvents] },
    ...{ snapshotEvents, snapshot, nodeName, node, lvmNode, agentLeases, snapshotterLease },
    unread: [...new Set(reader.unread)].sort(),
  };
}

/** Returns the handle of a snapshot that is being created, before its content has it. */
function requestedHandleOf({ spec: { volumeSnapshotRef: { uid } } }: VolumeSnapshotContent): string | undefined {
  return uid === undefined ? undefined : snapshotIdOf(snapshotNameOf(uid));
}

/** Returns the content of a VolumeSnapshot, and not one that an earlier VolumeSnapshot of the same name has left. */
function findContent(
  contents: readonly VolumeSnapshotContent[],
  volumeSnapshot: VolumeSnapshot | undefined,
  { namespace, name }: { namespace: string; name: string },
): VolumeSnapshotContent | undefined {
  const uid = volumeSnapshot?.metadata.uid;
  const ofName = contents.filter(({ spec: { volumeSnapshotRef: ref } }) =>
    ref.namespace === namespace && ref.name === name && (uid === undefined || !ref.uid || ref.uid === uid)
  );
  return ofName.at(-1);
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
    state: volumeSnapshot === undefined
      ? "Deleted"
      : volumeSnapshot.metadata.deletionTimestamp !== undefined
      ? "Terminating"
      : volumeSnapshot.status?.readyToUse === true
      ? "Ready"
      : "NotReady",
    problems: problemsOf(state, object),
    facts: facts.flatMap(([label, text]) => text === undefined ? [] : [[label, text] as const]),
    unread,
  };
}

function problemsOf(state: SnapshotState, object: string): Problem[] {
  const { volumeSnapshot, content, events, snapshot, driver } = state;
  if (content !== undefined && content.spec.driver !== driver) {
    const message = `the snapshot is not of the driver ${driver}, but of ${content.spec.driver}`;
    return [{ severity: "info", reason: "OtherDriver", object, message }];
  }
  if (content?.metadata.deletionTimestamp !== undefined) return deletionProblems(state, content);
  if (volumeSnapshot === undefined) return content === undefined ? [] : [leftContentProblem(content)];
  if (volumeSnapshot.metadata.deletionTimestamp !== undefined) return [terminatingProblem(volumeSnapshot, object)];
  const isReady = volumeSnapshot.status?.readyToUse === true;
  const failed = lastEvent(events, "SnapshotCreationFailed", "SnapshotContentCheckandUpdateFailed");
  const error = content?.status?.error?.message;
  const causes = isReady
    ? []
    : failed !== undefined
    ? [eventProblem(failed, { chapter: "snapshot", object })]
    : error !== undefined
    ? [
      messageProblem(error, {
        chapter: "snapshot",
        object,
        reason: "SnapshotFailed",
        since: content?.status?.error?.time,
      }),
    ]
    : [];
  const reported = snapshot === undefined ? [] : snapshotProblems(snapshot, object);
  const problems = [
    ...(isReady ? [] : waitProblems(state.snapshotEvents, state.now, { chapter: "snapshot", object })),
    ...causes,
    ...reported.filter(({ message }) => !causes.some((one) => message.includes(one.message))),
    ...agentProblems(state),
  ];
  return problems.length > 0 || isReady ? problems : waitingProblems(state, object);
}

/** Returns who has not done what, while nobody says anything. */
function waitingProblems(state: SnapshotState, object: string): Problem[] {
  const { volumeSnapshot, content, events, snapshotterLease, now } = state;
  const since = volumeSnapshot?.metadata.creationTimestamp;
  const problem = { object, ...(since !== undefined && { since }), runbook: RUNBOOK };
  const lastWords = lastEvent(events, ...new Set(events.map(({ reason = "" }) => reason)));
  const isContentRead = !isUnread(state, "volumesnapshotcontents") && !isUnread(state, "events");
  if (content === undefined && lastWords === undefined && isContentRead) {
    return [{
      ...{ severity: "error", reason: "NoSnapshotController", ...problem },
      message: "nobody has taken the VolumeSnapshot: it has no content and no events, so no snapshot-controller runs",
      ...{ remedy: "Install the snapshot-controller.", runbook: "../snapshots.md#install-the-snapshot-controller" },
    }];
  }
  if (content !== undefined && !isHeld(snapshotterLease, now) && !isUnread(state, "leases")) {
    return [noControllerProblem(object, snapshotterLease, { what: "snapshotter", since })];
  }
  return [{
    ...{ severity: "info", reason: "Creating", ...problem },
    message: lastWords?.message ?? "the snapshot is being created",
    remedy: "Wait. If it takes minutes, read the log of the controller.",
  }];
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
