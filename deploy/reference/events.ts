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
import { code, listItem } from "./markdown.ts";

/** The conditions by kind. */
const CONDITIONS = {
  LVMVolume: VOLUME_CONDITIONS,
  LVMSnapshot: SNAPSHOT_CONDITIONS,
  LVMNode: NODE_CONDITIONS,
};

/** Returns a list of events for each kind of object, without those that report a condition. */
export function eventSections(): string {
  const described = new Map<unknown, string>();
  const sections = Object.entries<Readonly<Record<string, EventDescription>>>(EVENTS).map(([kind, reasons]) => {
    const { fresh, asBefore } = split(kind, withoutConditions(kind, reasons), described);
    const items = fresh.map(([reason, { type, meaning }]) =>
      listItem(`${code(reason)}${type === "Warning" ? " (warning)" : ""}: ${meaning}`)
    );
    return `## Events of ${kind}s\n\n${[...items, ...asBefore.map((text) => listItem(text))].join("\n")}`;
  });
  return sections.join("\n\n");
}

/** Returns the reasons of events that are not those of conditions, which say the same. */
function withoutConditions(
  kind: string,
  reasons: Readonly<Record<string, EventDescription>>,
): Record<string, EventDescription> {
  const conditions: Readonly<Record<string, Readonly<Record<string, unknown>>>> =
    CONDITIONS[kind as keyof typeof CONDITIONS] ?? {};
  const known = new Set(Object.values(conditions).flatMap((of) => Object.keys(of)));
  return Object.fromEntries(Object.entries(reasons).filter(([reason]) => !known.has(reason)));
}

/** Returns a list of conditions for each kind of object. */
export function conditionSections(): string {
  const described = new Map<unknown, string>();
  const sections = Object.entries<Readonly<Record<string, Readonly<Record<string, ReasonDescription>>>>>(CONDITIONS)
    .map(([kind, conditions]) => {
      const items = Object.entries(conditions).flatMap(([type, reasons]) => {
        const { fresh, asBefore } = split(kind, reasons, described);
        const shared = sharedRunbook(fresh.map(([, { meaning }]) => meaning));
        return [
          listItem(`${code(type)}${shared}`),
          ...fresh.map(([reason, description]) =>
            listItem(`${code(reason)} (${description.status}): ${meaningText(description, shared)}`, 1)
          ),
          ...asBefore.map((text) => listItem(text, 1)),
        ];
      });
      return `## Conditions of ${kind}s\n\n${items.join("\n")}`;
    });
  return sections.join("\n\n");
}

/** A link at the end of a meaning to a chapter of the runbooks, as `runbook()` makes it. */
const RUNBOOK = /: \[runbook\]\([^)]*\)/;

/** Returns the link to the chapter that several meanings lead to, if none leads to another; otherwise nothing. */
function sharedRunbook(meanings: readonly string[]): string {
  const links = meanings.flatMap((meaning) => RUNBOOK.exec(meaning) ?? []);
  return links.length > 1 && new Set(links).size === 1 ? links[0]! : "";
}

/** Returns what a reason means, with the remedy where no runbook has it. @param shared the link that stands above it */
function meaningText({ meaning, remedy }: ReasonDescription, shared: string): string {
  const text = shared === "" ? meaning : meaning.replace(shared, "");
  return remedy === undefined || RUNBOOK.test(meaning) ? text : `${text} ${remedy}`;
}

/**
 * Splits reasons into those that are described for the first time, and the names of those that an earlier kind has with
 * the same description.
 *
 * @param described the kind for which each description was given first; it gets those of this kind
 */
function split<Description>(
  kind: string,
  reasons: Readonly<Record<string, Description>>,
  described: Map<unknown, string>,
): { fresh: [string, Description][]; asBefore: string[] } {
  const fresh = Object.entries(reasons).filter(([, description]) => !described.has(description));
  const others = Object.entries(reasons).filter(([, description]) => described.has(description));
  for (const [, description] of fresh) described.set(description, kind);
  const asBefore = [...Map.groupBy(others, ([, description]) => described.get(description)!)].map(([earlier, named]) =>
    `${named.map(([reason]) => code(reason)).join(", ")}: as for ${earlier}s.`
  );
  return { fresh, asBefore };
}
