/**
 * Why a VolumeGroupSnapshot is not ready.
 *
 * @module
 */

import { groupSnapshotIdOf } from "../../base/ids.ts";
import { type LvmSnapshot, lvmSnapshots } from "../../k8s/api/lvm_objects.ts";
import {
  type VolumeGroupSnapshot,
  type VolumeGroupSnapshotContent,
  volumeGroupSnapshotContents,
  volumeGroupSnapshots,
} from "../../k8s/api/snapshot_objects.ts";
import { type ApiClient, orAbsent } from "../../k8s/client/client.ts";
import { groupSnapshotNameOf, groupSnapshotRules } from "../../k8s/snapshotter/group_content.ts";
import { EvidenceReader } from "./claim_state.ts";
import { agentProblems, eventProblem, lastEvent, waitProblems } from "./evidence.ts";
import type { Problem } from "../problem.ts";
import {
  contentOf,
  creationProblems,
  requestState,
  type SnapshotEvidence,
  type SnapshotWords,
  waitingProblems,
} from "./why_snapshot.ts";
import { SYMPTOM_CHAPTERS } from "./symptoms.ts";
import { snapshotProblems, stateOf } from "./volumes.ts";
import type { WhyAnswer } from "./why.ts";

const CHAPTER = "groupSnapshot";
const RUNBOOK = SYMPTOM_CHAPTERS[CHAPTER];

const WORDS: SnapshotWords = {
  what: "group snapshot",
  contents: "volumegroupsnapshotcontents",
  untaken: {
    message: "nobody has taken the VolumeGroupSnapshot: it has no content and no events, so no snapshot-controller " +
      "with the feature gate CSIVolumeGroupSnapshot runs",
    remedy: "Start the snapshot-controller with this gate.",
    runbook: "../snapshots.md#group-snapshots",
  },
  remedy: "Wait. If it takes minutes, read the logs of the snapshot-controller and of the controller.",
};

/** What is known of a VolumeGroupSnapshot. */
export interface GroupSnapshotEvidence extends SnapshotEvidence {
  /** The VolumeGroupSnapshot; absent when it is gone. */
  readonly groupSnapshot?: VolumeGroupSnapshot | undefined;
  /** Its VolumeGroupSnapshotContent. */
  readonly content?: VolumeGroupSnapshotContent | undefined;
  /** Its LVMSnapshots. */
  readonly snapshots: readonly LvmSnapshot[];
}

/** Reads everything that has a part in a VolumeGroupSnapshot. @throws {ApiError} */
export async function readGroupSnapshotEvidence(
  client: ApiClient,
  { driver, namespace, name, now }: { driver: string; namespace: string; name: string; now: Date },
): Promise<GroupSnapshotEvidence> {
  const reader = new EvidenceReader(client);
  const groupSnapshot = await orAbsent(client.get(volumeGroupSnapshots, { namespace, name }));
  const uid = groupSnapshot?.metadata.uid;
  const [contents, ownEvents, snapshotterLease] = await Promise.all([
    reader.list(volumeGroupSnapshotContents),
    reader.eventsAbout("VolumeGroupSnapshot", groupSnapshot),
    reader.leaseOf("csi-snapshotter", driver),
  ]);
  const content = contentOf(contents, ({ spec }) => spec.volumeGroupSnapshotRef, { namespace, name, uid });
  const id = content?.spec.driver === driver ? groupIdOf(content) : undefined;
  const [all, contentEvents] = await Promise.all([
    id === undefined ? [] : reader.list(lvmSnapshots),
    reader.eventsAbout("VolumeGroupSnapshotContent", content),
  ]);
  const snapshots = all.filter(({ spec }) => spec.driverName === driver && spec.groupSnapshot?.name === id);
  const [nodeEvidence, snapshotEvents] = await Promise.all([
    reader.nodeEvidence(snapshots[0]?.spec.nodeName, driver),
    reader.eventsAbout("LVMSnapshot", snapshots[0]),
  ]);
  return {
    ...{ driver, now, key: `${namespace}/${name}`, groupSnapshot, content, events: [...ownEvents, ...contentEvents] },
    ...{ ...nodeEvidence, snapshots, snapshotEvents, snapshotterLease },
    unread: [...new Set(reader.unread)].sort(),
  };
}

/** Returns the id of the group snapshot of a content, also while it is being created. */
function groupIdOf(content: VolumeGroupSnapshotContent): string | undefined {
  const { uid } = content.spec.volumeGroupSnapshotRef;
  const requested = uid === undefined ? undefined : groupSnapshotIdOf(groupSnapshotNameOf(uid));
  return groupSnapshotRules.traits.handleOf(content) ?? requested;
}

/** Explains a VolumeGroupSnapshot. */
export function explainGroupSnapshot(state: GroupSnapshotEvidence): WhyAnswer {
  const { key, groupSnapshot, content, snapshots, nodeName, unread } = state;
  const object = `volumegroupsnapshot/${key}`;
  const members = snapshots.map((snapshot) => `${snapshot.metadata.name} (${stateOf(snapshot)})`).join(", ");
  const facts: (readonly [string, string | undefined])[] = [
    ["VolumeGroupSnapshotContent", content?.metadata.name],
    ["Snapshots", members],
    ["Node", nodeName],
  ];
  return {
    object,
    state: requestState(groupSnapshot),
    problems: problemsOf(state, object),
    facts: facts.flatMap(([label, text]) => text ? [[label, text] as const] : []),
    unread,
  };
}

function problemsOf(state: GroupSnapshotEvidence, object: string): Problem[] {
  const { groupSnapshot, content, snapshots, driver } = state;
  if (content !== undefined && content.spec.driver !== driver) {
    const message = `the group snapshot is not of the driver ${driver}, but of ${content.spec.driver}`;
    return [{ severity: "info", reason: "OtherDriver", object, message }];
  }
  if (groupSnapshot === undefined || groupSnapshot.metadata.deletionTimestamp !== undefined) {
    return deletionProblems(state);
  }
  const isReady = groupSnapshot.status?.readyToUse === true;
  const source = { chapter: CHAPTER, object } as const;
  const problems = creationProblems(state, {
    ...{ isReady, source },
    failure: {
      events: ["GroupSnapshotCreationFailed", "GroupSnapshotContentCheckandUpdateFailed"],
      ...{ error: content?.status?.error, reason: "GroupSnapshotFailed" },
    },
    reported: snapshots.flatMap((each) => snapshotProblems(each, `lvmsnapshot/${each.metadata.name}`)),
  });
  if (problems.length > 0 || isReady) return problems;
  return waitingProblems(state, { request: groupSnapshot, content, source, words: WORDS });
}

/** Returns why something is still there of a VolumeGroupSnapshot that was deleted. */
function deletionProblems(state: GroupSnapshotEvidence): Problem[] {
  const { groupSnapshot, content, events, now } = state;
  if (content === undefined) return [];
  const { name, deletionTimestamp, annotations = {} } = content.metadata;
  const since = deletionTimestamp ?? groupSnapshot?.metadata.deletionTimestamp ?? content.metadata.creationTimestamp;
  const object = `volumegroupsnapshotcontent/${name}`;
  const problem = { object, ...(since !== undefined && { since }), runbook: RUNBOOK };
  if (deletionTimestamp === undefined && content.spec.deletionPolicy === "Retain" && groupSnapshot === undefined) {
    return [{
      ...{ severity: "info", reason: "Retained", ...problem },
      message:
        "the VolumeGroupSnapshot is gone, and its content stays with the snapshots, by its deletion policy Retain",
      remedy: "To remove the snapshots, set the policy to Delete, and delete the content.",
    }];
  }
  const annotation = groupSnapshotRules.traits.beingDeleted;
  if (groupSnapshot === undefined && annotations[annotation] === undefined) {
    return [{
      ...{ severity: "warning", reason: "ContentLeft", ...problem },
      message:
        "the VolumeGroupSnapshot was deleted before the snapshot-controller had bound it, and its content is left",
      remedy:
        `Set the annotation, and delete it: kubectl annotate ${object} ${annotation}=yes; kubectl delete ${object}`,
    }];
  }
  const failed = lastEvent(events, "GroupSnapshotDeleteError");
  const problems = [
    ...waitProblems(state.snapshotEvents, now, { chapter: CHAPTER, object }),
    ...failed === undefined ? [] : [eventProblem(failed, { chapter: CHAPTER, object })],
    ...agentProblems(state),
  ];
  if (problems.length > 0) return problems;
  return [{
    ...{ severity: "info", reason: "Deleting", ...problem },
    ...{ message: "the group snapshot is being removed", remedy: "Wait." },
  }];
}
