/**
 * Why a VolumeGroupSnapshot is not ready.
 *
 * @module
 */

import { groupSnapshotIdOf } from "../../base/ids.ts";
import { lvmSnapshots } from "../../k8s/api/lvm_objects.ts";
import {
  type VolumeGroupSnapshotContent,
  volumeGroupSnapshotContents,
  volumeGroupSnapshots,
} from "../../k8s/api/snapshot_objects.ts";
import { groupSnapshotNameOf, groupSnapshotRules } from "../../k8s/snapshotter/group_content.ts";
import { type Problem, problem } from "../problem.ts";
import { agentProblems, lastProblem, waitProblems } from "./evidence.ts";
import { SYMPTOM_CHAPTERS } from "./symptoms.ts";
import { snapshotProblems } from "./volumes.ts";
import type { SnapshotEvidence, SnapshotKind } from "./why_snapshot.ts";

/** VolumeGroupSnapshots. */
export const GROUP_SNAPSHOTS: SnapshotKind<VolumeGroupSnapshotContent> = {
  requests: volumeGroupSnapshots,
  contents: volumeGroupSnapshotContents,
  chapter: "groupSnapshot",
  what: "group snapshot",
  label: "Snapshots",
  failures: ["GroupSnapshotCreationFailed", "GroupSnapshotContentCheckandUpdateFailed"],
  reason: "GroupSnapshotFailed",
  untaken: {
    message: "nobody has taken the VolumeGroupSnapshot: it has no content and no events, so no snapshot-controller " +
      "with the feature gate CSIVolumeGroupSnapshot runs",
    remedy: "Start the snapshot-controller with this gate.",
    runbook: "snapshots/group-snapshots",
  },
  remedy: "Wait. If it takes minutes, read the logs of the snapshot-controller and of the controller.",
  contentNameOf: () => undefined,
  refOf: ({ spec }) => spec.volumeGroupSnapshotRef,
  readSnapshots: async (reader, content) => {
    const { uid } = content.spec.volumeGroupSnapshotRef;
    const requested = uid === undefined ? undefined : groupSnapshotIdOf(groupSnapshotNameOf(uid));
    const id = groupSnapshotRules.traits.handleOf(content) ?? requested;
    if (id === undefined) return [];
    return (await reader.list(lvmSnapshots)).filter(({ spec }) => spec.groupSnapshot?.name === id);
  },
  problemsOf: (snapshot) => snapshotProblems(snapshot, `lvmsnapshot/${snapshot.metadata.name}`),
  leftProblems: (state) => {
    const isThere = state.request !== undefined && state.request.metadata.deletionTimestamp === undefined;
    return isThere ? undefined : deletionProblems(state);
  },
};

/** Returns why something is still there of a VolumeGroupSnapshot that was deleted. */
function deletionProblems(state: SnapshotEvidence<VolumeGroupSnapshotContent>): Problem[] {
  const { request, content, events, now } = state;
  if (content === undefined) return [];
  const { name, deletionTimestamp, annotations = {} } = content.metadata;
  const since = deletionTimestamp ?? request?.metadata.deletionTimestamp ?? content.metadata.creationTimestamp;
  const object = `volumegroupsnapshotcontent/${name}`;
  const about = { since, runbook: SYMPTOM_CHAPTERS.groupSnapshot };
  if (deletionTimestamp === undefined && content.spec.deletionPolicy === "Retain" && request === undefined) {
    return [
      problem("info", "Retained", object, {
        message:
          "the VolumeGroupSnapshot is gone, and its content stays with the snapshots, by its deletion policy Retain",
        remedy: "To remove the snapshots, set the policy to Delete, and delete the content.",
        ...about,
      }),
    ];
  }
  const annotation = groupSnapshotRules.traits.beingDeleted;
  if (request === undefined && annotations[annotation] === undefined) {
    return [
      problem("warning", "ContentLeft", object, {
        message:
          "the VolumeGroupSnapshot was deleted before the snapshot-controller had bound it, and its content is left",
        remedy:
          `Set the annotation, and delete it: \`kubectl annotate ${object} ${annotation}=yes\`; \`kubectl delete ${object}\``,
        ...about,
      }),
    ];
  }
  const source = { chapter: "groupSnapshot", object } as const;
  const problems = [
    ...waitProblems(state.snapshotEvents, now, source),
    ...lastProblem(events, ["GroupSnapshotDeleteError"], source),
    ...agentProblems(state),
  ];
  if (problems.length > 0) return problems;
  return [
    problem("info", "Deleting", object, { message: "the group snapshot is being removed", remedy: "Wait.", ...about }),
  ];
}
