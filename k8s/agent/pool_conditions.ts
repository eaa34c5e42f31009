/**
 * A node's part in thin pools: it tells when one fills, and when one grew.
 *
 * @module
 */

import { remedyFor } from "../../lvm/pools/pool_status.ts";
import type { VolumeGroup } from "../../lvm/model/report.ts";
import {
  describePool,
  fullnessOf,
  isBeingErased,
  isDriverPool,
  isPoolUsedByDriver,
  poolsOf,
} from "../../lvm/pools/pool.ts";
import type { EventRecorder } from "../runtime/events.ts";
import type { NewCondition } from "../api/conditions.ts";
import type { LvmNode } from "../api/lvm_objects.ts";

/** The condition of an LVMNode that says whether a thin pool fills. */
export const POOLS_CONDITION = "ThinPoolsNearFull";

/** What {@linkcode PoolConditions} needs. */
export interface PoolConditionsOptions {
  /** Where events go. */
  readonly events: EventRecorder;
  /** The driver's name. */
  readonly driver: string;
}

/** What is told of a pool that fills or is full. */
interface PoolAlert {
  readonly reason: "ThinPoolNearFull" | "ThinPoolFull";
  readonly message: string;
}

/** Tells of a node's thin pools. */
export class PoolConditions {
  readonly #options: PoolConditionsOptions;
  #alerts: ReadonlyMap<string, PoolAlert> = new Map();
  /** What was told of each pool last, by its UUID. */
  #reported = new Map<string, string>();
  /** Growths that were not told yet. */
  #extensions: string[] = [];

  /** Knows of none before {@linkcode PoolConditions.observe}. */
  constructor(options: PoolConditionsOptions) {
    this.#options = options;
  }

  /** To be told in words of each growth. */
  readonly onExtended = (message: string): void => {
    this.#extensions.push(message);
  };

  /** Looks at a report; answers the condition that holds. */
  observe(groups: readonly VolumeGroup[]): NewCondition[] {
    this.#alerts = nearFullPools(groups, this.#options.driver);
    return [poolsCondition([...this.#alerts.values()])];
  }

  /** Tells of what is new: pools that fill, and pools that grew. */
  recordEvents(node: LvmNode): void {
    const { events } = this.#options;
    for (const message of this.#extensions.splice(0)) events.record(node, "Normal", "ThinPoolExtended", message);
    for (const [uuid, { reason, message }] of this.#alerts) {
      if (this.#reported.get(uuid) !== reason) events.record(node, "Warning", reason, message);
    }
    this.#reported = new Map([...this.#alerts].map(([uuid, { reason }]) => [uuid, reason]));
  }
}

/** The pools that fill or are full, by their UUIDs: the driver's, and those of others in which it has something. */
function nearFullPools(groups: readonly VolumeGroup[], driver: string): Map<string, PoolAlert> {
  const alerts = groups.flatMap((group) =>
    poolsOf(group).flatMap((pool): [string, PoolAlert][] => {
      const filling = fullnessOf(pool);
      if (filling === "Ok" || isBeingErased(group, pool) || !isPoolUsedByDriver(driver, group, pool)) return [];
      const message = `${describePool(group, pool)}; ${remedyFor(group, pool, isDriverPool(driver, pool))}`;
      return [[pool.uuid, { reason: `${filling === "Full" ? "ThinPoolFull" : "ThinPoolNearFull"}`, message }]];
    })
  );
  return new Map(alerts);
}

function poolsCondition(alerts: readonly PoolAlert[]): NewCondition {
  const type = POOLS_CONDITION;
  if (alerts.length === 0) {
    return {
      type,
      status: "False",
      reason: "Ok",
      message: "no thin pool with volumes of the driver is nearly full",
    };
  }
  const reason = alerts.some((alert) => alert.reason === "ThinPoolFull") ? "ThinPoolFull" : "ThinPoolNearFull";
  return { type, status: "True", reason, message: alerts.map(({ message }) => message).join("; ").slice(0, 4_096) };
}
