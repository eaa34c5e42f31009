/**
 * One volume: what is wrong with it, how full it is, what it is made of, and what happened to it.
 *
 * @module
 */

import { age, byId, element, updateChildren, volumeLink } from "./dom.js";
import { formatBytes } from "./format.js";
import { showProblems } from "./problems.js";

/** @typedef {import("../cluster_page.ts").Sent<import("../volume_page.ts").VolumePage>} Volume */
/** @typedef {import("../cluster_page.ts").Sent<import("../claim_page.ts").ClaimPage>} Claim */
/** @typedef {Volume["tree"]} TreeNode */
/** @typedef {Volume["events"][number]} Event */
/** @typedef {{ title: string, content: unknown, make: () => (Node | string)[] }} Part */

/** Shows a volume. @param {Volume} volume */
export function showVolume(volume) {
  byId("volume-title").textContent = volume.claim ?? volume.id;
  byId("volume-state").textContent = `${volume.state}, ${formatBytes(volume.size)} on ${volume.node}`;
  showParts(partsOf(volume));
}

/** Shows a claim, which may have no volume. @param {string} name as `namespace/name` @param {Claim} claim */
export function showClaim(name, { state, problems, facts, events, unread }) {
  byId("volume-title").textContent = name;
  byId("volume-state").textContent = state;
  showParts([
    { title: "What is wrong", content: problems, make: () => problemList(problems) },
    { title: "Claim", content: facts, make: () => [factList(facts)] },
    { title: "Events", content: events, make: () => eventList(events) },
    ...(unread.length === 0 ? [] : [{ title: "Not read", content: unread, make: () => [unread.join("; ")] }]),
  ]);
}

/** @param {readonly Part[]} parts */
function showParts(parts) {
  updateChildren(byId("volume-parts"), parts.map(({ title, content }) => ({ title, content })), {
    key: ({ title }) => title,
    make: ({ title }) => {
      const part = parts.find((one) => one.title === title);
      return element("section", {}, element("h3", {}, title), ...part?.make() ?? []);
    },
  });
}

/** Shows that a volume is read, or why it is not shown. @param {string} id @param {string} text */
export function showNoVolume(id, text) {
  byId("volume-title").textContent = id;
  byId("volume-state").textContent = text;
  byId("volume-parts").replaceChildren();
}

/** @param {Volume} volume @returns {Part[]} */
function partsOf({ id, problems, usage, facts, limits, tree, events, unread }) {
  return [
    { title: "What is wrong", content: problems, make: () => problemList(problems) },
    { title: "How full", content: usage, make: () => usageBar(usage) },
    { title: "Volume", content: facts, make: () => [factList(facts)] },
    { title: "IO limits", content: limits, make: () => limitList(limits) },
    { title: "Snapshots and copies", content: tree, make: () => [treeList([tree], id)] },
    { title: "Events", content: events, make: () => eventList(events) },
    ...(unread.length === 0 ? [] : [{ title: "Not read", content: unread, make: () => [unread.join("; ")] }]),
  ];
}

/** @param {Volume["problems"]} problems */
function problemList(problems) {
  if (problems.length === 0) return ["Nothing."];
  const list = element("ul", { class: "plain" });
  showProblems(list, problems);
  return [list];
}

/** @param {Volume["usage"]} usage */
function usageBar(usage) {
  if (typeof usage === "string") return [element("p", { class: "muted" }, usage)];
  const { used, capacity, inodes, inodesUsed } = usage;
  const percent = Math.round(100 * used / (capacity || 1));
  const text = `${formatBytes(used)} of ${formatBytes(capacity)}, ${percent}%`;
  const fill = element("span", { class: percent >= 90 ? "part volume error" : "part volume" });
  fill.style.width = `${percent}%`;
  const files = inodes === undefined
    ? ""
    : `; ${inodesUsed?.toLocaleString("en")} of ${inodes.toLocaleString("en")} inodes`;
  return [element("div", { class: "bar gauge", "aria-hidden": "true" }, fill), element("p", {}, text + files)];
}

/** @param {readonly (readonly [string, string])[]} facts */
function factList(facts) {
  return element(
    "dl",
    { class: "facts" },
    ...facts.flatMap(([label, text]) => [element("dt", {}, label), element("dd", {}, text)]),
  );
}

/** @param {Volume["limits"]} limits */
function limitList(limits) {
  const entries = Object.entries(limits);
  return [entries.length === 0 ? "None of its own; a node may have limits for its volume groups." : factList(entries)];
}

/** @param {readonly TreeNode[]} nodes @param {string} current the id of the volume that is shown */
function treeList(nodes, current) {
  /** @type {HTMLElement} */
  const list = element("ul", { class: "tree" }, ...nodes.map((node) => treeItem(node, current)));
  return list;
}

/** @param {TreeNode} node @param {string} current @returns {HTMLElement} */
function treeItem({ kind, id, name, state, size, cowPercent, created, children }, current) {
  const isCurrent = id === current;
  const title = isCurrent || kind === "snapshot"
    ? element("strong", { "aria-current": isCurrent && "true" }, name)
    : volumeLink(id, name);
  const facts = [
    state,
    ...(size === undefined ? [] : [kind === "snapshot" ? `${formatBytes(size)} of COW space` : formatBytes(size)]),
    ...(cowPercent === undefined ? [] : [`${cowPercent}% of it used`]),
  ];
  return element(
    "li",
    {},
    element("span", { class: "muted" }, `${kind} `),
    title,
    element(
      "span",
      { class: "muted" },
      ` ${facts.join(", ")}`,
      ...(created === undefined ? [] : [", ", age(created), " old"]),
    ),
    children.length > 0 && treeList(children, current),
  );
}

/** @param {readonly Event[]} events */
function eventList(events) {
  if (events.length === 0) return ["None."];
  return [element("ul", { class: "plain events" }, ...events.map(eventItem))];
}

/** @param {Event} event */
function eventItem({ time, type, reason, object, message, count }) {
  return element(
    "li",
    { class: type === "Warning" ? "warning" : undefined },
    element(
      "p",
      { class: "head" },
      type === "Warning" && element("strong", { class: "badge warning" }, type),
      type === "Warning" && " ",
      element("strong", {}, reason),
      " ",
      element("span", { class: "subject" }, object),
      element("span", { class: "muted" }, " ", age(time), " ago", count > 1 ? `, ${count} times` : ""),
    ),
    element("p", {}, message),
  );
}
