/**
 * The health of a volume as its object reports it.
 *
 * @module
 */

import { isHealthReason, type Problem, problemOf, type VolumeHealth } from "../../lvm/health/health.ts";
import type { LvmVolume } from "../api/lvm_objects.ts";
import { KEYS_CONDITION, problemsOf, REDUNDANT_CONDITION } from "../agent/volume_status.ts";

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
