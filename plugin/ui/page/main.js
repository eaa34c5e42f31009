/**
 * The page of `denolith ui`: reads streams of the cluster and of the open volume, and shows them.
 *
 * @module
 */

import { legend } from "./bars.js";
import { byId, element, focusOn, updateAges, updateChildren } from "./dom.js";
import { formatBytes, formatCount } from "./format.js";
import { nodeItem, openNode, selectNodes } from "./nodes.js";
import { showLists } from "./lists.js";
import { problemCounts, problemGroups, showProblemGroups } from "./problems.js";
import { showClaim, showNoVolume, showVolume } from "./volume.js";
import { showNamespaces, showVolumes } from "./volumes.js";

/** @typedef {import("../cluster_page.ts").Sent<import("../cluster_page.ts").ClusterMessage>} ClusterMessage */
/** @typedef {import("../cluster_page.ts").Sent<import("../volume_page.ts").VolumeMessage>} VolumeMessage */
/** @typedef {import("../cluster_page.ts").Sent<import("../claim_page.ts").ClaimMessage>} ClaimMessage */
/** @typedef {NonNullable<ClusterMessage["cluster"]>} Cluster */

/** The number of kinds of problems that are shown at first. */
const FIRST_PROBLEMS = 4;

/** The time between two writings of the ages, in milliseconds. */
const AGES_MS = 10_000;

/** What the page knows. */
const known = {
  /** @type {Cluster | undefined} */
  cluster: undefined,
  /** @type {Map<string, NonNullable<ClusterMessage["nodes"][string]>>} */
  nodes: new Map(),
  showsAllProblems: false,
};

const search = /** @type {HTMLInputElement} */ (byId("search"));
const order = /** @type {HTMLSelectElement} */ (byId("order"));
const dialog = /** @type {HTMLDialogElement} */ (byId("volume"));

/** Takes what has changed in the cluster. @param {ClusterMessage} message */
function takeCluster({ whole, cluster, nodes }) {
  if (whole) known.nodes.clear();
  known.cluster = cluster ?? known.cluster;
  for (const [name, node] of Object.entries(nodes)) {
    if (node === null) known.nodes.delete(name);
    else known.nodes.set(name, node);
  }
  showCluster();
}

function showCluster() {
  const { cluster } = known;
  if (cluster === undefined) return;
  const { context, driver, problems, unread } = cluster;
  byId("context").textContent = context === "" ? driver : `context ${context}, driver ${driver}`;
  const groups = problemGroups(problems);
  const shown = known.showsAllProblems ? groups : groups.slice(0, FIRST_PROBLEMS);
  setText("problems-summary", problemCounts(problems));
  showProblemGroups(byId("problems"), shown);
  const more = byId("all-problems");
  more.hidden = shown.length === groups.length;
  more.textContent = `Show all ${groups.length} kinds`;
  showSpace(cluster);
  showLists(cluster);
  showNodes(cluster);
  showVolumes(known.nodes.values());
  showNamespaces(cluster.namespaces);
  document.title = problems.length === 0 ? "denolith" : `(${problems.length}) denolith`;
  byId("space").classList.toggle("partial", unread.length > 0);
}

/** @param {Cluster} cluster */
function showSpace({ size, free, erasing, usedPercent, nodes, volumes, snapshots, orphans, unread }) {
  const tiles = [
    [
      "Free",
      `${formatBytes(free)} of ${formatBytes(size)}`,
      `${usedPercent}% used` + (erasing === 0 ? "" : `, ${formatBytes(erasing)} of it being erased`),
    ],
    ["Nodes", `${nodes}`, ""],
    ["Volumes", ...countTexts(volumes)],
    ["Snapshots", ...countTexts(snapshots)],
    ["Orphans", `${orphans}`, orphans === 0 ? "" : "kubectl denolith orphans"],
    ...(unread.length === 0 ? [] : [["Not read", `${unread.length}`, unread.join("; ")]]),
  ];
  updateChildren(byId("space"), tiles, {
    key: ([title = ""]) => title,
    make: ([title = "", value = "", note = ""]) =>
      element("div", {}, element("dt", {}, title), element("dd", {}, value, element("small", {}, note))),
  });
}

/** @param {Readonly<Record<string, number>>} counts */
function countTexts(counts) {
  const entries = Object.entries(counts);
  const total = entries.reduce((sum, [, count]) => sum + count, 0);
  return [`${total}`, entries.map(([state, count]) => `${count} ${state}`).join(", ")];
}

/** @param {Cluster} cluster */
function showNodes({ largestNode }) {
  const selected = selectNodes(known.nodes.values(), { search: search.value, order: order.value });
  const total = formatCount(known.nodes.size, "node");
  setText(
    "found",
    search.value === "" ? `${total}; the whole width is ${formatBytes(largestNode)}` : `${selected.length} of ${total}`,
  );
  updateChildren(byId("nodes"), selected.map((node) => ({ node, scale: largestNode })), {
    key: ({ node }) => node.name,
    make: ({ node, scale }) => nodeItem(node, scale),
  });
}

/** Writes a text, if it is another one: screen readers say what changes. @param {string} id @param {string} text */
function setText(id, text) {
  const found = byId(id);
  if (found.textContent !== text) found.textContent = text;
}

/** The streams that are read, by their paths. @type {Map<string, { options: StreamOptions, stream?: EventSource }>} */
const streams = new Map();

/** @typedef {{ take: (message: any) => void, say: (state: "live" | "failed", text: string) => void }} StreamOptions */

/** Reads a stream while the page is visible. @param {string} path @param {StreamOptions} options */
function openStream(path, options) {
  streams.set(path, { options });
  updateStreams();
}

/** Ends a stream. @param {string} path */
function closeStream(path) {
  streams.get(path)?.stream?.close();
  streams.delete(path);
}

/** Ends the streams of a page that is hidden: a browser has six connections to a host, for all of its tabs. */
function updateStreams() {
  if (document.hidden) document.title = "denolith"; // without a number that nobody keeps true
  for (const [path, { options, stream }] of streams) {
    if (document.hidden) {
      stream?.close();
      streams.set(path, { options });
    } else if (stream === undefined) {
      streams.set(path, { options, stream: connect(path, options) });
    }
  }
}

/** Connects to a stream. The browser does so again when it breaks off. @param {string} path @param {StreamOptions} options */
function connect(path, { take, say }) {
  const stream = new EventSource(path);
  stream.addEventListener("message", ({ data }) => {
    const message = JSON.parse(data);
    if (message.error !== undefined) return say("failed", message.error);
    say("live", "Live");
    take(message);
  });
  stream.addEventListener("error", () => {
    const isOver = stream.readyState === EventSource.CLOSED;
    say("failed", isOver ? "Ended: start denolith ui again, and open its new address." : "No answer from denolith ui.");
  });
  return stream;
}

/** The path of the stream of the volume or claim that is open; empty when none is. */
let openPath = "";

/** Opens what the address names after its `#`. */
function followHash() {
  const [, kind, encoded = ""] = /^#\/(volume|claim|node)\/(.+)$/.exec(location.hash) ?? [];
  const name = decodeURIComponent(encoded);
  closeStream(openPath);
  const isShown = kind === "volume" || kind === "claim";
  if (!isShown) dialog.close();
  if (kind === "node") {
    search.value = known.nodes.has(name) ? "" : search.value;
    showCluster();
    openNode(name);
    history.replaceState(null, "", "/"); // so that the same link leads there again
  }
  if (!isShown) return;
  showNoVolume(name, "Reading …");
  if (!dialog.open) openDialog();
  byId("volume-title").focus();
  dialog.scrollTop = 0;
  openPath = `/live/${kind}s/${name.split("/").map(encodeURIComponent).join("/")}`;
  openStream(openPath, {
    take: (/** @type {VolumeMessage & ClaimMessage} */ { volume, claim }) => {
      if (volume !== undefined) showVolume(volume);
      else if (claim !== undefined) showClaim(name, claim);
      else showNoVolume(name, `There is no such ${kind} any more.`);
    },
    say: (state, text) => {
      if (state === "failed") setText("volume-state", text);
    },
  });
}

/** Opens the dialog. When it is closed, the focus goes back, also to an element that was replaced meanwhile. */
function openDialog() {
  const opener = document.activeElement;
  const focus = opener instanceof HTMLElement ? opener.dataset["focus"] : undefined;
  dialog.showModal();
  dialog.addEventListener("close", () => {
    if (opener?.isConnected !== true && focus !== undefined) focusOn(document.body, focus);
  }, { once: true });
}

search.addEventListener("input", showCluster);
order.addEventListener("change", showCluster);
byId("all-problems").addEventListener("click", () => {
  known.showsAllProblems = true;
  showCluster();
});
byId("close").addEventListener("click", () => dialog.close());
dialog.addEventListener("click", (event) => {
  if (event.target === dialog) dialog.close(); // beside it
});
dialog.addEventListener("close", () => {
  if (/^#\/(?:volume|claim)\//.test(location.hash)) history.replaceState(null, "", "/");
  closeStream(openPath);
});
addEventListener("hashchange", followHash);
document.addEventListener("visibilitychange", updateStreams);
setInterval(updateAges, AGES_MS);
byId("legend").append(...legend());
openStream("/live/cluster", {
  take: takeCluster,
  say: (state, text) => {
    byId("connection").className = state;
    setText("connection", text);
  },
});
followHash();
