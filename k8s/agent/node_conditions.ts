/**
 * The conditions of an LVMNode, and its events, about thin pools that are nearly full or were extended, and about missing
 * physical volumes.
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
import type { GroupMatcher } from "../../lvm/model/groups.ts";

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

/** The condition of an LVMNode that says whether physical volumes are missing. */
const CONDITION = "PhysicalVolumesMissing";

/** Options of {@linkcode PhysicalVolumeConditions}. */
export interface PhysicalVolumeConditionsOptions {
  /** The recorder of events. */
  readonly events: EventRecorder;
  /** The groups that the driver may use. */
  readonly groups: GroupMatcher;
}

/** Reports the missing physical volumes of a node in a condition and in events. */
export class PhysicalVolumeConditions {
  readonly #options: PhysicalVolumeConditionsOptions;
  /** A sentence for each group with missing physical volumes, by the UUID of the group. */
  #problems: ReadonlyMap<string, string> = new Map();
  /** The names of the groups without missing physical volumes, by their UUIDs. */
  #complete: ReadonlyMap<string, string> = new Map();
  /** The problems that events have reported. That of a group that LVM does not find at all is not over. */
  #reported: ReadonlyMap<string, string> = new Map();

  /** Knows of none before {@linkcode PhysicalVolumeConditions.observe}. */
  constructor(options: PhysicalVolumeConditionsOptions) {
    this.#options = options;
  }

  /** Reads a report. @returns the condition */
  observe(groups: readonly VolumeGroup[]): NewCondition[] {
    const ours = groups.filter(({ name }) => this.#options.groups.matches(name));
    this.#problems = new Map(
      ours.filter(({ missingPvs }) => missingPvs > 0).map((group) => [group.uuid, describe(group)]),
    );
    const complete = ours.filter(({ missingPvs, responsive }) => missingPvs === 0 && responsive);
    this.#complete = new Map(complete.map(({ uuid, name }) => [uuid, name]));
    if (this.#problems.size === 0) {
      const message = "LVM finds all physical volumes of the volume groups";
      return [{ type: CONDITION, status: "False", reason: "PhysicalVolumesPresent", message }];
    }
    const message = [...this.#problems.values()].join("; ").slice(0, 4_096);
    return [{ type: CONDITION, status: "True", reason: "PhysicalVolumesMissing", message }];
  }

  /** Records an event for each group whose physical volumes became missing, or were found again. */
  recordEvents(node: LvmNode): void {
    const { events } = this.#options;
    for (const [uuid, message] of this.#problems) {
      if (this.#reported.get(uuid) !== message) events.record(node, "Warning", "PhysicalVolumesMissing", message);
    }
    for (const uuid of this.#reported.keys()) {
      const name = this.#complete.get(uuid);
      if (name === undefined) continue;
      events.record(
        node,
        "Normal",
        "PhysicalVolumesPresent",
        `LVM finds all physical volumes of volume group ${name} again`,
      );
    }
    const unresolved = [...this.#reported].filter(([uuid]) => !this.#complete.has(uuid));
    this.#reported = new Map([...unresolved, ...this.#problems]);
  }
}

function describe({ name, missingPvs, pvs }: VolumeGroup): string {
  const uuids = pvs.filter(({ missing }) => missing).map(({ uuid }) => uuid).join(", ");
  return `volume group ${name} has ${missingPvs} missing physical volumes (${
    uuids || "not listed"
  }): LVM changes nothing ` +
    "in it; attach them again, or replace them";
}
