/**
 * A node's part in thin pools: it tells when one fills, and when one grew.
 *
 * @module
 */

import { remedyFor } from "../../lvm/pools/pool_status.ts";
import type { VolumeGroup } from "../../lvm/model/report.ts";
import { describePool, fillingOf, isBeingWiped, isOurPool, isUsedPool, poolsOf } from "../../lvm/pools/pool.ts";
import type { EventRecorder } from "../runtime/events.ts";
import type { LvmNode, NewCondition } from "../api/lvm_objects.ts";

/** The condition of an LVMNode that says whether a thin pool fills. */
export const POOLS_CONDITION = "ThinPoolsFilling";

/** What {@linkcode PoolAgent} needs. */
export interface PoolAgentOptions {
  /** Where events go. */
  readonly events: EventRecorder;
  /** The driver's name. */
  readonly driver: string;
}

/** What is told of a pool that fills or is full. */
interface Telling {
  readonly reason: "PoolFilling" | "PoolFull";
  readonly message: string;
}

/** Tells of a node's thin pools. */
export class PoolAgent {
  readonly #options: PoolAgentOptions;
  #tellings: ReadonlyMap<string, Telling> = new Map();
  /** What was told of each pool last, by its UUID. */
  #told = new Map<string, string>();
  /** Growths that were not told yet. */
  #grown: string[] = [];

  /** Knows of none before {@linkcode PoolAgent.look}. */
  constructor(options: PoolAgentOptions) {
    this.#options = options;
  }

  /** To be told in words of each growth. */
  readonly onGrown = (words: string): void => {
    this.#grown.push(words);
  };

  /** Looks at a report; answers the condition that holds. */
  look(groups: readonly VolumeGroup[]): NewCondition[] {
    this.#tellings = fillingPools(groups, this.#options.driver);
    return [poolsCondition([...this.#tellings.values()])];
  }

  /** Tells of what is new: pools that fill, and pools that grew. */
  attend(node: LvmNode): void {
    const { events } = this.#options;
    for (const words of this.#grown.splice(0)) events.record(node, "Normal", "PoolGrown", words);
    for (const [uuid, { reason, message }] of this.#tellings) {
      if (this.#told.get(uuid) !== reason) events.record(node, "Warning", reason, message);
    }
    this.#told = new Map([...this.#tellings].map(([uuid, { reason }]) => [uuid, reason]));
  }
}

/** The pools that fill or are full, by their UUIDs: the driver's, and those of others in which it has something. */
function fillingPools(groups: readonly VolumeGroup[], driver: string): Map<string, Telling> {
  const tellings = groups.flatMap((group) =>
    poolsOf(group).flatMap((pool): [string, Telling][] => {
      const filling = fillingOf(pool);
      if (filling === "Roomy" || isBeingWiped(group, pool) || !isUsedPool(driver, group, pool)) return [];
      const message = `${describePool(group, pool)}; ${remedyFor(group, pool, isOurPool(driver, pool))}`;
      return [[pool.uuid, { reason: `Pool${filling}`, message }]];
    })
  );
  return new Map(tellings);
}

function poolsCondition(tellings: readonly Telling[]): NewCondition {
  const type = POOLS_CONDITION;
  if (tellings.length === 0) {
    return {
      type,
      status: "False",
      reason: "Roomy",
      message: "no thin pool with volumes of the driver is nearly full",
    };
  }
  const reason = tellings.some((telling) => telling.reason === "PoolFull") ? "PoolFull" : "PoolFilling";
  return { type, status: "True", reason, message: tellings.map(({ message }) => message).join("; ").slice(0, 4_096) };
}
