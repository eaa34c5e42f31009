/**
 * The nodes: a bar for each, and below it, when it is open, its volume groups, thin pools and volumes.
 *
 * @module
 */

import { bar } from "./bars.js";
import { age, disclosure, element, usedText, volumeLink } from "./dom.js";
import { formatBytes, formatCount } from "./format.js";

/** @typedef {import("../cluster_page.ts").Sent<import("../cluster_page.ts").NodePage>} NodePage */
/** @typedef {NodePage["groups"][number]} Group */
/** @typedef {Group["pools"][number]} Pool */
/** @typedef {NodePage["volumes"][number]} Volume */

/** Opens a node, if it is in the list. @param {string} name */
export function openNode(name) {
  const node = document.querySelector(`details[data-mark="${CSS.escape(markOf(name))}"]`);
  if (!(node instanceof HTMLDetailsElement)) return;
  node.open = true;
  node.scrollIntoView({ block: "start" });
  node.querySelector("summary")?.focus({ preventScroll: true });
}

/** @param {string} name */
function markOf(name) {
  return `node ${name}`;
}

/** Orders of nodes. @type {Record<string, (a: NodePage, b: NodePage) => number>} */
const ORDERS = {
  worst: (a, b) => rank(a) - rank(b),
  fullest: (a, b) => a.free / (a.size || 1) - b.free / (b.size || 1),
  name: () => 0,
};

/** @param {NodePage} node */
function rank({ problems }) {
  return ["error", "warning", "info"].indexOf(problems[0]?.severity ?? "") >>> 0; // without a problem: last
}

/**
 * Returns the nodes that a search selects, in an order: those whose name, or of which a volume, has the text.
 *
 * @param {Iterable<NodePage>} nodes
 * @param {{ search: string, order: string }} options
 */
export function selectNodes(nodes, { search, order }) {
  const text = search.trim().toLowerCase();
  const has = /** @param {string | undefined} name */ (name) => name?.toLowerCase().includes(text) === true;
  return [...nodes]
    .filter(({ name, volumes }) =>
      has(name) || volumes.some(({ id, claim, persistentVolume }) => has(claim) || has(id) || has(persistentVolume))
    )
    .sort((a, b) => (ORDERS[order] ?? ORDERS["name"])?.(a, b) || (a.name < b.name ? -1 : 1));
}

/** Returns a node. @param {NodePage} node @param {number} scale the bytes of the whole width */
export function nodeItem(node, scale) {
  const { name, size, free, groups, volumes } = node;
  const summary = element(
    "summary",
    {},
    element("h3", {}, name),
    element("span", { class: "badges" }, ...badges(node)),
    element(
      "span",
      { class: "bars" },
      ...groups.map((group) => bar(group.segments, { of: group.size, width: group.size / scale })),
    ),
    element(
      "span",
      { class: "muted amount" },
      `${formatBytes(free)} of ${formatBytes(size)} free, ${formatCount(volumes.length, "volume")}`,
    ),
  );
  return element("li", {}, disclosure(markOf(name), summary, () => [nodeBody(node)]));
}

/** @param {NodePage} node */
function badges({ problems }) {
  return problems.map(({ severity, reason, count }) =>
    element("span", { class: `badge ${severity}` }, count === 1 ? reason : `${reason} ${count}×`)
  );
}

/** @param {NodePage} node */
function nodeBody({ groups, volumes }) {
  return element(
    "div",
    { class: "body" },
    ...groups.map(groupPart),
    groups.length === 0 && element("p", {}, "No volume group is reported."),
    element("h4", {}, "Volumes"),
    volumes.length === 0 ? element("p", {}, "None.") : volumeTable(volumes),
  );
}

/** @param {Group} group */
function groupPart({ name, size, free, usedPercent, physicalVolumes, missing, writeable, segments, pools }) {
  const facts = [
    `${formatBytes(free)} of ${formatBytes(size)} free, ${usedPercent}% used`,
    formatCount(physicalVolumes, "physical volume") + (missing === 0 ? "" : `, ${missing} missing`),
    ...(writeable ? [] : ["LVM can create nothing in it now"]),
  ];
  return element(
    "div",
    { class: "group-part" },
    element("h4", {}, `Volume group ${name}`),
    element("p", { class: "muted" }, facts.join("; ")),
    bar(segments, { of: size, links: true }),
    ...pools.map(poolPart),
  );
}

/** @param {Pool} pool */
function poolPart({ name, size, owned, dataPercent, metadataPercent, availableVirtual, overcommit, segments }) {
  const virtual = segments.reduce((sum, { bytes }) => sum + bytes, 0);
  const facts = [
    formatBytes(size),
    ...(metadataPercent === undefined ? [] : [`metadata ${metadataPercent}% full`]),
    ...(overcommit === undefined ? [] : [`overcommit ratio ${overcommit}`]),
    ...(owned ? [] : ["not created by the driver"]),
  ];
  const used = size * (dataPercent ?? 0) / 100;
  const data = /** @type {const} */ ([
    { kind: "pool", name: "data", bytes: used },
    { kind: "free", name: "free", bytes: size - used },
  ]);
  const scale = Math.max(size, virtual);
  return element(
    "div",
    { class: "pool-part" },
    element("h5", {}, `Thin pool ${name}`),
    element("p", { class: "muted" }, facts.join("; ")),
    element(
      "p",
      { class: "caption" },
      dataPercent === undefined ? "Written data: not known" : `Written data: ${formatBytes(used)}, ${dataPercent}%`,
    ),
    bar(data, { of: scale }),
    element(
      "p",
      { class: "caption" },
      `Virtual sizes: ${formatBytes(virtual)} allocated`,
      availableVirtual !== undefined && `, ${formatBytes(availableVirtual)} available`,
    ),
    bar(segments, { of: scale, links: true }),
  );
}

/** The columns of volumes; those of which phones have no room are also shown with the volume. */
const COLUMNS = /** @type {const} */ ([
  ["Claim", ""],
  ["Size", ""],
  ["Used", ""],
  ["State", ""],
  ["Layout", "wide"],
  ["Filesystem", "wide"],
  ["Group", "wide"],
  ["Age", "wide"],
]);

/** @param {readonly Volume[]} volumes */
function volumeTable(volumes) {
  const titles = COLUMNS.map(([title, kind]) => element("th", { scope: "col", class: kind }, title));
  return element(
    "table",
    {},
    element("thead", {}, element("tr", {}, ...titles)),
    element("tbody", {}, ...volumes.map(volumeRow)),
  );
}

/** @param {Volume} volume */
function volumeRow({ id, claim, size, usedPercent, state, layout, content, group, created, severity }) {
  /** @type {(string | HTMLElement)[]} */
  const cells = [
    volumeLink(id, claim ?? id),
    formatBytes(size),
    usedText(usedPercent),
    element("span", { class: `state ${severity ?? ""}` }, state),
    ...[layout, content, group ?? "", created === undefined ? "" : age(created)],
  ];
  return element("tr", {}, ...cells.map((cell, index) => element("td", { class: COLUMNS[index]?.[1] }, cell)));
}
