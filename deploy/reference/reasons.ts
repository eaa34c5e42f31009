/**
 * The reasons of failures, from the table that `kubectl denolith why` uses.
 *
 * @module
 */

import { SYMPTOM_CHAPTERS, SYMPTOMS } from "../../plugin/diagnosis/symptoms.ts";
import { code, listItem } from "./markdown.ts";

/** Returns a list of the chapters of the runbooks, with the reasons that each describes. */
export function reasonsList(): string {
  return Object.entries(SYMPTOM_CHAPTERS).map(([name, link]) => {
    const reasons = Object.entries(SYMPTOMS).filter(([, { chapters }]) => chapters.includes(name as never));
    const title = link.replace(/^.*#/, "").replaceAll("-", " ");
    return listItem(`[${title}](../guides/runbooks/${link}): ${reasons.map(([reason]) => code(reason)).join(", ")}`);
  }).join("\n");
}
