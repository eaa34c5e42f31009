/**
 * The IO limits of a node in a cluster, which LVMVolumes specify.
 *
 * @module
 */

import { getLogger } from "@logtape/logtape";
import type { IoLimiter, IoLimiterSettings } from "../../lvm/staging/io_limiter.ts";
import { hasLimits, type IoLimits } from "../../lvm/settings/io_limits.ts";
import type { Informer } from "../runtime/informer.ts";
import type { LvmVolume } from "../api/lvm_objects.ts";
import type { VolumeReconciler } from "./volume_reconciler.ts";
import { ioLimitsOf } from "../api/volume_mapping.ts";
import { defined } from "../../base/defined.ts";

/** Options of {@linkcode nodeIoLimiterSettings}. */
export interface NodeIoLimiterOptions extends Pick<IoLimiterSettings, "cgroupRoot" | "defaults"> {
  /** The LVMVolumes of this node. */
  readonly objects: Informer<LvmVolume>;
  /** The reconciler that reports the state of limits. */
  readonly reconciler: () => Pick<VolumeReconciler, "reportLimits">;
}

const log = getLogger(["denolith", "limits"]);

/**
 * Returns the settings of the IO limiter of a node, which reads limits from LVMVolumes and reports into their status.
 */
export function nodeIoLimiterSettings(
  { cgroupRoot, defaults, objects, reconciler }: NodeIoLimiterOptions,
): IoLimiterSettings {
  return {
    cgroupRoot,
    ...defined({ defaults }),
    limitsOf: ({ id }) => limitsOfObject(objects.get(id)),
    onLimitsChanged: (id, state) => {
      // the next report shows it as well
      reconciler().reportLimits(id, state).catch((error) =>
        log.warn("reporting of limits failed", { volume: id, error })
      );
    },
  };
}

/**
 * Wakes the IO limiter when the limits of an LVMVolume change. A new volume has no pods, so nothing is applied to it.
 * Pods that exist at the start may have limits that changed meanwhile.
 */
export function watchLimits(
  objects: Informer<LvmVolume>,
  { limiter, defaults = () => ({}) }: { limiter: Pick<IoLimiter, "wake">; defaults?: IoLimiterSettings["defaults"] },
): void {
  const isLimited = (object: LvmVolume) => {
    const group = object.status?.volumeGroup;
    return object.spec.ioLimits !== undefined || (group !== undefined && hasLimits(defaults(group)));
  };
  objects.subscribe((_, now, before) => {
    const wasMade = (before ?? now)?.status?.lvUUID !== undefined;
    if (now === undefined || !wasMade || !isLimited(now)) return;
    if (before === undefined || limitInputs(before) !== limitInputs(now)) limiter.wake();
  });
}

function limitInputs({ spec, status }: LvmVolume): string {
  return JSON.stringify([spec.ioLimits, status?.size]);
}

function limitsOfObject(object: LvmVolume | undefined): IoLimits {
  return object === undefined ? {} : ioLimitsOf(object);
}
