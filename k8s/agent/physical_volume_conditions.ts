/**
 * The missing physical volumes of a node: a condition of its LVMNode, and events.
 *
 * @module
 */

import type { GroupMatcher } from "../../lvm/model/groups.ts";
import type { VolumeGroup } from "../../lvm/model/report.ts";
import type { NewCondition } from "../api/conditions.ts";
import type { LvmNode } from "../api/lvm_objects.ts";
import type { EventRecorder } from "../runtime/events.ts";

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
