/**
 * Volumes of the Controller service, and their health, from their objects.
 *
 * @module
 */

import { defined } from "../../base/defined.ts";
import { ignoreStorageError } from "../../base/error.ts";
import type { VolumeId } from "../../base/ids.ts";
import type { FilesystemType } from "../../lvm/settings/filesystem.ts";
import type { StoredVolume } from "../../lvm/volume_service.ts";
import type { LvmVolume } from "../api/lvm_objects.ts";
import { actualSize, contentSourceOf } from "../api/volume_mapping.ts";
import { isHealthReason, type Problem, problemOf, type VolumeHealth } from "../../lvm/health/health.ts";
import { KEYS_CONDITION, problemsOf, REDUNDANT_CONDITION } from "../agent/volume_status.ts";

/** Reports whether the LV of a volume was created. */
export function isCreated({ status }: LvmVolume): boolean {
  return status?.lvUUID !== undefined && status.size !== undefined;
}

/**
 * Returns a created volume as the Controller service describes it. A source that only a newer version knows is left out,
 * so that the volume can be listed with the others.
 */
export function clusterVolumeOf(object: LvmVolume): StoredVolume {
  const { metadata: { name }, spec } = object;
  const source = ignoreStorageError(() => contentSourceOf(object));
  return {
    id: name as VolumeId, // the API server accepts no other name
    size: actualSize(object) ?? 0n,
    content: contentOf(object),
    ...(spec.encryption === "luks2" && { encrypted: true }),
    nodeId: spec.nodeName,
    ...defined({ source }),
  };
}

/** Returns the filesystem of a volume, or `raw` for a block device. */
export function contentOf({ spec: { volumeMode, fsType } }: LvmVolume): FilesystemType | "raw" {
  return volumeMode === "Block" || fsType === undefined ? "raw" : fsType;
}

/**
 * Returns the health of a volume that was made, as its node wrote it last. What is Lost has no other problem.
 *
 * @param hasAgent whether its node is one of the cluster
 */
export function volumeHealthOf({ metadata: { name: id }, spec, status }: LvmVolume, hasAgent: boolean): VolumeHealth {
  const { state, error, conditions = [] } = status ?? {};
  if (state === "Lost") {
    return { id, problems: [{ reason: "Lost", message: error?.message ?? `volume ${id} is Lost` }] };
  }
  const nodeGone: Problem = {
    reason: "NodeNotFound",
    message: `its node ${spec.nodeName} has no agent of the driver (no LVMNode ${spec.nodeName})`,
  };
  const errorProblem = error && problemOf({ kind: error.code, message: error.message });
  const others = conditions.filter(({ type }) => [REDUNDANT_CONDITION, KEYS_CONDITION].includes(type));
  const reportedProblems = [...problemsOf(status), ...others]
    .flatMap(
      ({ reason, message }): Problem[] => isHealthReason(reason) ? [{ reason, message }] : [],
    );
  return {
    id,
    problems: [...(hasAgent ? [] : [nodeGone]), ...(errorProblem ? [errorProblem] : []), ...reportedProblems],
  };
}
