/**
 * Limits of IO on a node of a cluster: the LVMVolumes say them.
 *
 * @module
 */

import { getLogger } from "@logtape/logtape";
import type { IoLimiter, LimitingOptions } from "../../lvm/staging/io_limiter.ts";
import { type IoLimits, isLimited } from "../../lvm/spec/io_limits.ts";
import type { Informer } from "../runtime/informer.ts";
import type { LvmVolume } from "../api/lvm_objects.ts";
import type { VolumeAgent } from "./volume_reconciler.ts";
import { ioLimitsOf } from "../api/volume_mapping.ts";

/** What {@linkcode nodeLimiting} needs. */
export interface NodeLimitingOptions extends Pick<LimitingOptions, "cgroupRoot" | "defaults"> {
  /** The LVMVolumes of this node. */
  readonly objects: Informer<LvmVolume>;
  /** Writes what has become of limits. */
  readonly agent: () => Pick<VolumeAgent, "tellLimits">;
}

const log = getLogger(["denolith", "limits"]);

/** How limits are applied on a node: by what LVMVolumes say, and told in their status. */
export function nodeLimiting({ cgroupRoot, defaults, objects, agent }: NodeLimitingOptions): LimitingOptions {
  return {
    cgroupRoot,
    ...(defaults && { defaults }),
    limitsOf: ({ id }) => saidOf(objects.get(id)),
    onChange: (id, state) => {
      // the next report shows it as well
      agent().tellLimits(id, state).catch((error) => log.warn("telling of limits failed", { volume: id, error }));
    },
  };
}

/**
 * Has pods held to limits as LVMVolumes change. A volume that was just made has no pods, so nothing is looked at; of those that
 * are there at the start, pods may have been given limits that nobody has seen to since.
 */
export function followLimits(
  objects: Informer<LvmVolume>,
  { limiter, defaults = () => ({}) }: { limiter: Pick<IoLimiter, "look">; defaults?: LimitingOptions["defaults"] },
): void {
  const isConcerned = (object: LvmVolume) => {
    const group = object.status?.volumeGroup;
    return object.spec.ioLimits !== undefined || (group !== undefined && isLimited(defaults(group)));
  };
  objects.subscribe((_, now, before) => {
    const wasMade = (before ?? now)?.status?.lvUUID !== undefined;
    if (now === undefined || !wasMade || !isConcerned(now)) return;
    if (before === undefined || factsOf(before) !== factsOf(now)) limiter.look();
  });
}

function factsOf({ spec, status }: LvmVolume): string {
  return JSON.stringify([spec.ioLimits, status?.size]);
}

function saidOf(object: LvmVolume | undefined): IoLimits {
  return object === undefined ? {} : ioLimitsOf(object);
}
