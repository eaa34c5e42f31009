/**
 * The README of a release: that of the repository, with commands for what was published instead of those for a checkout.
 *
 * @module
 */

import { fillPlaceholders } from "../self_extracting.ts";
import type { Addresses } from "./addresses.ts";
import install from "./install.md" with { type: "text" };

/** Chapters that are about a checkout. */
const OF_CHECKOUT = ["Try it", "Install it"];

/** Sentences that are true before the first release alone, and what is said instead. */
const BEFORE: readonly (readonly [string, string])[] = [
  [", and nothing is released yet.**", ".**"],
  ["0.1.0, no release, no image", "0.1.0"],
];

/** Returns the text. @throws {Error} when README.md has no longer the form that is known here */
export function releasedReadme(readme: string, addresses: Required<Addresses>, version: string): string {
  const { registry, downloads, docsUrl } = addresses;
  const values = { REGISTRY: registry, DOWNLOADS: downloads, VERSION: version };
  let text = readme;
  for (const [before, after] of BEFORE) text = replaced(text, before, after);
  const [first, ...chapters] = text.split(/^(?=## )/m);
  const kept = chapters.filter((chapter) => !OF_CHECKOUT.some((title) => chapter.startsWith(`## ${title}\n`)));
  if (kept.length !== chapters.length - OF_CHECKOUT.length) {
    throw new Error(`write the README: README.md must have the chapters ${OF_CHECKOUT.join(", ")}`);
  }
  const last = kept.findIndex((chapter) => chapter.startsWith("## Documentation"));
  const whole = [
    first,
    ...kept.slice(0, last),
    `${fillPlaceholders("install.md", install, values)}\n`,
    ...kept.slice(last),
  ];
  const root = docsUrl.replace(/\/docs$/, "");
  return whole.join("").replace(/(\]\(|src(?:set)?=")(?!https?:|#)/g, `$1${root}/`);
}

/** Replaces what must be there. */
function replaced(text: string, before: string, after: string): string {
  if (!text.includes(before)) throw new Error(`write the README: README.md must have: ${before}`);
  return text.replace(before, after);
}
