/**
 * The health of a volume as its object tells it.
 *
 * @module
 */

import { isHealthReason, type Problem, problemOf, type VolumeHealth } from "../../lvm/health/health.ts";
import type { LvmVolume } from "../api/lvm_objects.ts";
import { HEALTHY, REDUNDANT } from "../agent/volume_status.ts";

/**
 * The health of a volume that was made, as its node wrote it last. What is Lost has no other problem.
 *
 * @param hasNode whether its node is one of the cluster
 */
export function volumeHealthOf({ metadata: { name: id }, spec, status }: LvmVolume, hasNode: boolean): VolumeHealth {
  const { state, error, conditions = [] } = status ?? {};
  if (state === "Lost") {
    return { id, problems: [{ reason: "Lost", message: error?.message ?? `volume ${id} is Lost` }] };
  }
  const gone: Problem = {
    reason: "NodeGone",
    message: `node ${spec.nodeName}, which it is on, has no agent of the driver (no LVMNode ${spec.nodeName})`,
  };
  const refused = error && problemOf({ kind: error.code, message: error.message });
  const found = conditions.filter(({ type }) => type === HEALTHY || type === REDUNDANT).flatMap(
    ({ reason, message }): Problem[] => isHealthReason(reason) ? [{ reason, message }] : [],
  );
  return { id, problems: [...(hasNode ? [] : [gone]), ...(refused ? [refused] : []), ...found] };
}
