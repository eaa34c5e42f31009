/**
 * What waits or is under way, and what may be done: claims, moves, imports and copies, and disks.
 *
 * @module
 */

import { byId, claimLink, element, updateChildren, volumeLink } from "./dom.js";
import { formatBytes } from "./format.js";
import { chapterLink, commandLines, durationOf, listItem } from "./problems.js";

/** @typedef {import("../cluster_page.ts").Sent<import("../cluster_page.ts").ClusterSummary>} Cluster */
/** @typedef {Cluster["waiting"][number]} Claim */
/** @typedef {Cluster["underWay"][number]} Work */
/** @typedef {Cluster["disks"][number]} Disk */

/** The number of items of a list that are shown at first: the nodes are not to be far below. */
const FIRST_ITEMS = 5;

/** The lists of which all is shown. @type {Set<string>} */
const whole = new Set();

/** The words for kinds of work. */
const KINDS = { move: "Move", import: "Import", copy: "Copy", transfer: "Copy from another node" };

/** Shows the lists; those of nothing are hidden. @param {Cluster} cluster */
export function showLists({ waiting, underWay, disks }) {
  show("waiting", waiting, ({ claim }) => claim, waitingItem);
  show("under-way", underWay, ({ kind, volume }) => `${kind} ${volume}`, workItem);
  show("disks", disks, ({ node, name }) => `${node} ${name}`, diskItem);
}

/**
 * @template T
 * @param {string} id
 * @param {readonly T[]} items
 * @param {(item: T) => string} key
 * @param {(item: T) => HTMLElement} make
 */
function show(id, items, key, make) {
  byId(`${id}-section`).hidden = items.length === 0;
  byId(`${id}-count`).textContent = `${items.length}`;
  const first = whole.has(id) ? items : items.slice(0, FIRST_ITEMS);
  updateChildren(byId(id), first, { key, make });
  const more = byId(`${id}-all`);
  more.hidden = first.length === items.length;
  more.textContent = `Show all ${items.length}`;
  more.onclick = () => {
    whole.add(id);
    show(id, items, key, make);
  };
}

/** @param {Claim} claim */
function waitingItem({ claim, storageClass, size, since, severity, reason, message }) {
  return listItem(
    severity,
    [
      element("strong", {}, reason),
      " ",
      claimLink(claim),
      element("span", { class: "muted" }, ` ${formatBytes(size)} of class ${storageClass || "(none)"}`),
      ...durationOf(since),
    ],
    element("p", {}, message),
  );
}

/** @param {Work} work */
function workItem({ kind, volume, claim, from, to, state, percent, message, since, commands, runbook }) {
  const fill = element("span", { class: "part volume" });
  fill.style.width = `${percent ?? 0}%`;
  return listItem(
    state === "Failed" ? "warning" : "info",
    [
      element("strong", {}, KINDS[kind]),
      " ",
      volumeLink(volume, claim ?? volume),
      element("span", { class: "muted" }, ` from ${from} to ${to}`),
      ...durationOf(since),
    ],
    percent !== undefined && element("div", { class: "bar gauge", "aria-hidden": "true" }, fill),
    element("p", {}, percent === undefined || message.includes("%") ? message : `${percent}%: ${message}`),
    ...commandLines(commands),
    runbook !== undefined && element("p", { class: "muted" }, "Runbook: ", chapterLink(runbook)),
  );
}

/** @param {Disk} disk */
function diskItem({ node, name, path, size, volumeGroup, state, reason, commands }) {
  const facts = [size === undefined ? undefined : formatBytes(size), path, `for volume group ${volumeGroup}`];
  return listItem(
    state === "Lost" || state === "Refused" ? "warning" : "info",
    [
      element("strong", {}, state),
      ` ${name} `,
      element("a", { href: `#/node/${encodeURIComponent(node)}`, "data-focus": `disk ${node} ${name}` }, node),
      element("span", { class: "muted" }, ` ${facts.filter((fact) => fact !== undefined).join(", ")}`),
    ],
    reason !== undefined && element("p", {}, reason),
    ...commandLines(commands),
  );
}
