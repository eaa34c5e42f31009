/**
 * The thin pools of a node: the agent reports when one is nearly full, and when one was extended.
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
const POOLS_CONDITION = "ThinPoolsNearFull";

/** Options of {@linkcode PoolConditions}. */
export interface PoolConditionsOptions {
  /** The recorder of events. */
  readonly events: EventRecorder;
  /** The driver's name. */
  readonly driver: string;
}

/** An alert about a pool that is nearly full or full. */
interface PoolAlert {
  readonly reason: "ThinPoolNearFull" | "ThinPoolFull";
  readonly message: string;
}

/** Reports the thin pools of a node in a condition and in events. */
export class PoolConditions {
  readonly #options: PoolConditionsOptions;
  #alerts: ReadonlyMap<string, PoolAlert> = new Map();
  /** The last alert of each pool, by its UUID. */
  #reported = new Map<string, string>();
  /** Messages of extensions that no event has reported yet. */
  #extensions: string[] = [];

  /** Knows of none before {@linkcode PoolConditions.observe}. */
  constructor(options: PoolConditionsOptions) {
    this.#options = options;
  }

  /** To be called with a message after each extension. */
  readonly onExtended = (message: string): void => {
    this.#extensions.push(message);
  };

  /**
   * Reads a report.
   *
   * @returns the condition about the pools
   */
  observe(groups: readonly VolumeGroup[]): NewCondition[] {
    this.#alerts = nearFullPools(groups, this.#options.driver);
    return [poolsCondition([...this.#alerts.values()])];
  }

  /** Records events about pools that became nearly full, and about pools that were extended. */
  recordEvents(node: LvmNode): void {
    const { events } = this.#options;
    for (const message of this.#extensions.splice(0)) events.record(node, "Normal", "ThinPoolExtended", message);
    for (const [uuid, { reason, message }] of this.#alerts) {
      if (this.#reported.get(uuid) !== reason) events.record(node, "Warning", reason, message);
    }
    this.#reported = new Map([...this.#alerts].map(([uuid, { reason }]) => [uuid, reason]));
  }
}

/**
 * Returns the pools that are nearly full or full, by their UUIDs: the driver's own, and others with volumes of the
 * driver.
 */
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
