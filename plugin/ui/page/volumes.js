/**
 * All volumes as a table: filtered, and sorted by a column.
 *
 * @module
 */

import { age, byId, element, updateChildren, usedText, volumeLink } from "./dom.js";
import { formatBytes, formatCount } from "./format.js";

/** @typedef {import("../cluster_page.ts").Sent<import("../cluster_page.ts").NodePage>} NodePage */
/** @typedef {NodePage["volumes"][number]} Volume */
/** @typedef {{ text: string, namespace: string, storageClass: string, state: string }} Filter */
/** @typedef {{ column: string, descending: boolean }} Order */

/** The number of rows that are shown at first, and that each click adds: a cluster may have many thousands. */
const ROWS = 100;

/** The columns: what they sort by, and their kind; phones have no room for wide ones. */
const COLUMNS = /** @type {const} */ ([
  { title: "Claim", kind: "", of: (/** @type {Volume} */ volume) => volume.claim ?? "~" },
  { title: "Size", kind: "", of: (/** @type {Volume} */ volume) => volume.size },
  { title: "Used", kind: "", of: (/** @type {Volume} */ volume) => volume.usedPercent ?? -1 },
  { title: "State", kind: "", of: (/** @type {Volume} */ volume) => volume.state },
  { title: "Class", kind: "wide", of: (/** @type {Volume} */ volume) => volume.storageClass ?? "" },
  { title: "Node", kind: "wide", of: (/** @type {Volume} */ volume) => volume.node },
  { title: "Layout", kind: "wide", of: (/** @type {Volume} */ volume) => volume.layout },
  { title: "Age", kind: "wide", of: (/** @type {Volume} */ volume) => -Date.parse(volume.created ?? "") || 0 },
]);

/** Returns the namespace of the claim of a volume; empty without one. @param {Volume} volume */
export function namespaceOf({ claim = "" }) {
  return claim.split("/")[0] ?? "";
}

/** What each list selects by. @type {Record<"namespace" | "storageClass" | "state", (volume: Volume) => string>} */
const FILTERS = {
  namespace: namespaceOf,
  storageClass: ({ storageClass = "" }) => storageClass,
  state: ({ state }) => state,
};

/**
 * Returns the volumes that a filter selects, in an order. An empty value selects all.
 *
 * @param {readonly Volume[]} volumes
 * @param {Filter} filter
 * @param {Order} order
 */
export function selectVolumes(volumes, { text, ...filter }, { column, descending }) {
  const words = text.trim().toLowerCase();
  const names = (/** @type {Volume} */ { id, claim = "", persistentVolume = "", node }) =>
    [id, claim, persistentVolume, node].join("\n").toLowerCase();
  const by = (COLUMNS.find(({ title }) => title === column) ?? COLUMNS[0]).of;
  return volumes
    .filter((volume) =>
      names(volume).includes(words) &&
      Object.entries(FILTERS).every(([name, of]) => {
        const wanted = filter[/** @type {keyof typeof FILTERS} */ (name)];
        return wanted === "" || of(volume) === wanted;
      })
    )
    .sort((a, b) => {
      const [left, right] = [by(a), by(b)];
      if (left !== right) return (left < right ? -1 : 1) * (descending ? -1 : 1);
      return a.id < b.id ? -1 : 1;
    });
}

/** What is shown. @type {{ volumes: readonly Volume[], order: Order, rows: number }} */
const shown = { volumes: [], order: { column: "Claim", descending: false }, rows: ROWS };

const text = /** @type {HTMLInputElement} */ (byId("volume-search"));
const lists = {
  namespace: /** @type {HTMLSelectElement} */ (byId("namespace")),
  storageClass: /** @type {HTMLSelectElement} */ (byId("class")),
  state: /** @type {HTMLSelectElement} */ (byId("state")),
};

/** Shows the volumes of all nodes. @param {Iterable<NodePage>} nodes */
export function showVolumes(nodes) {
  shown.volumes = [...nodes].flatMap(({ volumes }) => volumes);
  for (const [name, list] of Object.entries(lists)) {
    const of = FILTERS[/** @type {keyof typeof FILTERS} */ (name)];
    const values = [...new Set(shown.volumes.map(of).filter((value) => value !== ""))].sort();
    updateChildren(list, ["", ...values], {
      key: (value) => value,
      make: (value) => element("option", { value }, value === "" ? "all" : value),
    });
  }
  update();
}

/** Shows those of a namespace alone. @param {string} namespace */
export function showNamespace(namespace) {
  lists.namespace.value = namespace;
  update();
  byId("volumes-title").focus();
}

function update() {
  const filter = {
    text: text.value,
    namespace: lists.namespace.value,
    storageClass: lists.storageClass.value,
    state: lists.state.value,
  };
  const selected = selectVolumes(shown.volumes, filter, shown.order);
  const rows = selected.slice(0, shown.rows);
  const of = selected.length === shown.volumes.length ? "" : ` of ${shown.volumes.length}`;
  const found = `${selected.length}${of} ${selected.length === 1 && of === "" ? "volume" : "volumes"}`;
  if (byId("volumes-found").textContent !== found) byId("volumes-found").textContent = found;
  updateChildren(byId("volume-head"), COLUMNS.map((column) => ({ ...column, order: shown.order })), {
    key: ({ title }) => title,
    make: ({ title, kind }) => heading(title, kind),
  });
  updateChildren(byId("volume-rows"), rows, { key: ({ id }) => id, make: row });
  const more = byId("more-volumes");
  more.hidden = rows.length === selected.length;
  more.textContent = `Show ${Math.min(ROWS, selected.length - rows.length)} more`;
}

/** @param {string} title @param {string} kind */
function heading(title, kind) {
  const { column, descending } = shown.order;
  const isSorted = column === title;
  const sort = isSorted ? (descending ? "descending" : "ascending") : undefined;
  const button = element("button", { type: "button", "data-focus": `sort ${title}` }, title);
  button.addEventListener("click", () => {
    shown.order = { column: title, descending: isSorted && !descending };
    update();
  });
  return element("th", { scope: "col", class: kind, "aria-sort": sort }, button);
}

/** @param {Volume} volume */
function row({ id, claim, size, usedPercent, state, storageClass, node, layout, created, severity }) {
  /** @type {(string | HTMLElement)[]} */
  const cells = [
    volumeLink(id, claim ?? id),
    formatBytes(size),
    usedText(usedPercent),
    element("span", { class: `state ${severity ?? ""}` }, state),
    ...[storageClass ?? "", node, layout, created === undefined ? "" : age(created)],
  ];
  return element("tr", {}, ...cells.map((cell, index) => element("td", { class: COLUMNS[index]?.kind }, cell)));
}

text.addEventListener("input", update);
for (const list of Object.values(lists)) list.addEventListener("change", update);
byId("more-volumes").addEventListener("click", () => {
  shown.rows += ROWS;
  update();
});

/** Returns the rows of the namespaces. @param {readonly { namespace: string, volumes: number, size: number }[]} namespaces */
export function showNamespaces(namespaces) {
  byId("namespaces-section").hidden = namespaces.length === 0;
  updateChildren(byId("namespace-rows"), namespaces, {
    key: ({ namespace }) => namespace,
    make: ({ namespace, volumes, size }) =>
      element(
        "tr",
        {},
        namespaceCell(namespace),
        ...[formatCount(volumes, "volume"), formatBytes(size)].map((cell) => element("td", {}, cell)),
      ),
  });
}

/** @param {string} namespace */
function namespaceCell(namespace) {
  if (namespace === "") return element("td", {}, "without a claim");
  const button = element(
    "button",
    { type: "button", class: "link", "data-focus": `namespace ${namespace}` },
    namespace,
  );
  button.addEventListener("click", () => showNamespace(namespace));
  return element("td", {}, button);
}
