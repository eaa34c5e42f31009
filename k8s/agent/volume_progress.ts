/**
 * What LVMVolumes tell of volumes beside what LVM has there: for people who look at the node.
 *
 * @module
 */

import type { CopyProgress } from "../../lvm/copies/copies.ts";
import { StorageError } from "../../lvm/error.ts";
import type { IoLimits } from "../../lvm/spec/io_limits.ts";
import type { ToldVolume } from "../../lvm/status/volume_details.ts";
import type { LvmVolume, LvmVolumeStatus } from "../api/lvm_objects.ts";
import { bytesOf } from "../api/quantity.ts";
import { LIMITS_CONDITION } from "./volume_status.ts";
import { ioLimitsOf } from "../api/volume_mapping.ts";

/** What LVMVolumes tell of their volumes, by id. */
export function toldBy(volumes: readonly LvmVolume[]): Map<string, ToldVolume> {
  return new Map(volumes.map((object) => [object.metadata.name, told(object)]));
}

/** How much is there of the volumes that are being filled, from 0 to 1, by id. */
export function copiesIn(volumes: readonly LvmVolume[]): [volume: string, done: number][] {
  return volumes.flatMap(({ metadata: { name }, status }) => {
    if (status?.copy === undefined) return [];
    const { copied, total = 0n } = progressOf(status.copy);
    return [[name, total === 0n ? 0 : Number(copied) / Number(total)]];
  });
}

function told(object: LvmVolume): ToldVolume {
  const { conditions, copy } = object.status ?? {};
  const condition = conditions?.find(({ type }) => type === LIMITS_CONDITION);
  const { limits, unreadable } = readLimits(object);
  const unlimited = unreadable ?? (condition?.status === "False" ? condition.message : undefined);
  return {
    limits,
    ...(unlimited === undefined ? {} : { unlimited }),
    ...(copy === undefined ? {} : { copy: progressOf(copy) }),
  };
}

function progressOf({ copied, total, trouble }: NonNullable<LvmVolumeStatus["copy"]>): CopyProgress {
  const bytes = bytesOf(total);
  return {
    copied: bytesOf(copied) ?? 0n,
    ...(bytes === undefined ? {} : { total: bytes }),
    ...(trouble === undefined ? {} : { trouble }),
  };
}

function readLimits(object: LvmVolume): { readonly limits: IoLimits; readonly unreadable?: string } {
  try {
    return { limits: ioLimitsOf(object) };
  } catch (error) {
    if (error instanceof StorageError) return { limits: {}, unreadable: error.message };
    throw error;
  }
}
