/**
 * Bars to scale: what a node, a volume group or a thin pool consists of.
 *
 * @module
 */

import { element } from "./dom.js";
import { formatBytes } from "./format.js";

/** @typedef {import("../cluster_page.ts").Sent<import("../cluster_page.ts").Segment>} Segment */

/** The kinds of parts, in the order of the legend. */
export const KINDS = /** @type {const} */ ({
  volume: "volume",
  snapshot: "snapshot",
  pool: "thin pool",
  erasing: "being erased",
  other: "other",
  free: "free",
});

/**
 * Returns a bar. It is for the eye and the mouse: a list or a text beside it says the same, for everybody else.
 *
 * @param {readonly Segment[]} segments
 * @param {{ of: number, width?: number, links?: boolean }} options `of`: the bytes of its whole width; `width`: which
 * part it takes of the space that there is; `links`: whether its parts have names, and lead to volumes
 */
export function bar(segments, { of, width = 1, links = false }) {
  const made = element("span", { class: links ? "bar large" : "bar", "aria-hidden": "true" });
  made.style.width = `${100 * width}%`;
  made.append(...segments.map((segment) => part(segment, { of, links })));
  return made;
}

/** @param {Segment} segment @param {{ of: number, links: boolean }} options */
function part({ kind, name, bytes, volume, severity }, { of, links }) {
  const text = kind === "free" ? `${formatBytes(bytes)} free` : name;
  const attributes = {
    class: ["part", kind, severity ?? ""].join(" ").trim(),
    title: kind === "free" ? text : `${name}: ${formatBytes(bytes)}`,
  };
  const made = links && volume !== undefined
    ? element("a", { ...attributes, href: `#/volume/${encodeURIComponent(volume)}`, tabindex: "-1" })
    : element("span", attributes);
  if (links) made.append(element("span", {}, text));
  made.style.width = `${100 * bytes / Math.max(of, 1)}%`;
  return made;
}

/** Returns the legend of the bars. */
export function legend() {
  const entries = [...Object.entries(KINDS), ["volume error", "with an error"], ["volume warning", "with a warning"]];
  return entries.map(([kind, text]) => element("li", {}, element("span", { class: `part ${kind}` }), text));
}
