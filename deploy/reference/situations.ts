/**
 * The list of situations that tests show.
 *
 * @module
 */

import { SITUATIONS } from "../../tests/situations/all.ts";
import { listItem } from "./markdown.ts";

/** Returns a section for each subject, with an item for each situation. */
export function situationSections(): string {
  return Object.entries(SITUATIONS).map(([subject, rows]) =>
    [
      `## ${subject}\n`,
      ...rows.map(({ seen, happened, here }) => listItem(`${seen.join(", ")}: ${happened} → ${here}`)),
    ].join("\n")
  ).join("\n\n");
}
