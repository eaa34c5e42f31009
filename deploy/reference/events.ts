/**
 * The events and conditions, from the tables that the code uses.
 *
 * @module
 */

import {
  NODE_CONDITIONS,
  type ReasonDescription,
  SNAPSHOT_CONDITIONS,
  VOLUME_CONDITIONS,
} from "../../k8s/api/condition_reasons.ts";
import { type EventDescription, EVENTS } from "../../k8s/api/event_reasons.ts";
import { code, table } from "./markdown.ts";

/** The conditions by kind. */
const CONDITIONS = {
  LVMVolume: VOLUME_CONDITIONS,
  LVMSnapshot: SNAPSHOT_CONDITIONS,
  LVMNode: NODE_CONDITIONS,
};

/** Returns a table of events for each kind of object. */
export function eventSections(): string {
  const sections = Object.entries<Readonly<Record<string, EventDescription>>>(EVENTS).map(([kind, reasons]) => {
    const rows = Object.entries(reasons).map(([reason, { type, meaning }]) => [code(reason), type, meaning]);
    return `## Events of ${kind}s\n\n${table(["Reason", "Type", "Meaning, and what to do"], rows)}`;
  });
  return sections.join("\n\n");
}

/** Returns a table of conditions for each kind of object. */
export function conditionSections(): string {
  const sections = Object.entries<Readonly<Record<string, Readonly<Record<string, ReasonDescription>>>>>(CONDITIONS)
    .map(
      ([kind, conditions]) => {
        const rows = Object.entries(conditions).flatMap(([type, reasons]) =>
          Object.entries(reasons).map((
            [reason, { status, meaning, remedy }],
          ) => [code(type), code(status), code(reason), remedy === undefined ? meaning : `${meaning} ${remedy}`])
        );
        return `## Conditions of ${kind}s\n\n${
          table(["Condition", "Status", "Reason", "Meaning, and what to do"], rows)
        }`;
      },
    );
  return sections.join("\n\n");
}
