/**
 * Converts health to the messages of the protocol.
 *
 * @module
 */

import {
  type HealthStatus,
  healthStatus,
  type StorageProblem,
  type StorageStatus,
  type VolumeHealth,
} from "../lvm/health/health.ts";
import { StorageHealthErrorType as StorageType, VolumeHealthErrorType as VolumeType } from "./proto/csi_pb.ts";

const VOLUME_HEALTH_ERRORS = {
  Degraded: VolumeType.DEGRADED,
  Inaccessible: VolumeType.INACCESSIBLE,
  DataLoss: VolumeType.DATA_LOSS,
} as const satisfies Record<HealthStatus, VolumeType>;

const STORAGE_HEALTH_ERRORS = {
  Degraded: StorageType.STORAGE_DEGRADED,
  Unreachable: StorageType.STORAGE_UNREACHABLE,
} as const satisfies Record<StorageStatus, StorageType>;

/** Returns the message for the health of a volume. */
export function volumeHealthMessage({ id, problems }: VolumeHealth) {
  return {
    volumeId: id,
    healthStatuses: problems.map(({ reason, message }) => ({
      status: VOLUME_HEALTH_ERRORS[healthStatus(reason)],
      reason,
      message,
    })),
  };
}

/** Returns the response for the health of the storage of a node. */
export function storageHealthResponse(problems: readonly StorageProblem[]) {
  return {
    backendHealth: problems.map(({ status, ...details }) => ({ status: STORAGE_HEALTH_ERRORS[status], ...details })),
  };
}
