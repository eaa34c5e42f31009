/**
 * The state of volumes that LVMVolumes show and LVM does not, for `denolith status` on the node.
 *
 * @module
 */

import type { CopyProgress } from "../../lvm/inventory/copying.ts";
import { StorageError } from "../../base/error.ts";
import type { IoLimits } from "../../lvm/settings/io_limits.ts";
import type { ReportedVolume } from "../../lvm/status/volume_details.ts";
import type { LvmVolume, LvmVolumeStatus } from "../api/lvm_objects.ts";
import { quantityToBytes } from "../api/quantity.ts";
import { KEYS_CONDITION, LIMITS_CONDITION } from "./volume_status.ts";
import { ioLimitsOf } from "../api/volume_mapping.ts";
import { defined } from "../../base/defined.ts";

/** Returns what LVMVolumes report about their volumes, by id. */
export function reportedVolumes(volumes: readonly LvmVolume[]): Map<string, ReportedVolume> {
  return new Map(volumes.map((object) => [object.metadata.name, reportedVolume(object)]));
}

/** Returns the progress of the copy of a volume, from 0 to 1; `undefined` while it is not being copied. */
export function copyProgressOf({ status }: LvmVolume): number | undefined {
  if (status?.copy === undefined) return undefined;
  const { copied, total = 0n } = parseProgress(status.copy);
  return total === 0n ? 0 : Number(copied) / Number(total);
}

function reportedVolume(object: LvmVolume): ReportedVolume {
  const { conditions, copy } = object.status ?? {};
  const [condition, keys] = [LIMITS_CONDITION, KEYS_CONDITION].map((name) =>
    conditions?.find(({ type }) => type === name)
  );
  const { limits, unreadable } = readLimits(object);
  const limitsProblem = unreadable ?? (condition?.status === "False" ? condition.message : undefined);
  return {
    limits,
    ...defined({ limitsProblem, keysProblem: keys?.status === "False" ? keys.message : undefined }),
    ...(copy === undefined ? {} : { copy: parseProgress(copy) }),
  };
}

function parseProgress({ copied, total, lastError }: NonNullable<LvmVolumeStatus["copy"]>): CopyProgress {
  const bytes = quantityToBytes(total);
  return {
    copied: quantityToBytes(copied) ?? 0n,
    ...defined({ total: bytes, lastError }),
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
