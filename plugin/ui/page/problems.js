/**
 * Problems: what is wrong, since when, and what to do.
 *
 * @module
 */

import { age, claimLink, disclosure, element, updateChildren, volumeLink } from "./dom.js";

/** @typedef {import("../cluster_page.ts").Sent<import("../cluster_page.ts").ProblemEntry>} Problem */

/** @typedef {import("./dom.js").Child} Child */

/** The words for what a problem is. */
const SEVERITIES = { error: "Error", warning: "Warning", info: "Note" };

/** The number of objects that are named of a kind of problem. */
const MAX_NAMES = 3;

/** Shows problems in a list, each with what to do. @param {Element} list @param {readonly Problem[]} problems */
export function showProblems(list, problems) {
  updateChildren(list, problems, { key: keyOf, make: (problem) => problemItem(problem, remedyOf(problem)) });
}

/** @param {Problem} problem */
function keyOf({ severity, reason, object, message }) {
  return [severity, reason, object, message].join("\n");
}

/** Problems of one kind. @typedef {{ severity: Problem["severity"], reason: string, problems: Problem[] }} Group */

/** Returns the kinds of problems, in the order of the worst of each. @param {readonly Problem[]} problems */
export function problemGroups(problems) {
  const groups = Map.groupBy(problems, ({ severity, reason }) => `${severity} ${reason}`);
  return [...groups.values()].flatMap((same) =>
    same[0] === undefined ? [] : [{ severity: same[0].severity, reason: same[0].reason, problems: same }]
  );
}

/** Shows kinds of problems in a list. @param {Element} list @param {readonly Group[]} groups */
export function showProblemGroups(list, groups) {
  updateChildren(list, groups, { key: ({ severity, reason }) => `${severity} ${reason}`, make: groupItem });
}

/** @param {Group} group */
function groupItem({ severity, reason, problems }) {
  const mark = `problem ${severity} ${reason}`;
  const [problem] = problems;
  if (problem !== undefined && problems.length === 1) {
    const remedy = remedyOf(problem);
    const summary = element("summary", {}, "What to do");
    return problemItem(problem, remedy.length === 0 ? [] : [disclosure(mark, summary, () => remedy)]);
  }
  const summary = element("summary", {}, "Show ", element("span", { class: "hidden" }, `${reason} `), "each");
  const names = problems.slice(0, MAX_NAMES).map(({ object }) => object).join(", ");
  return listItem(
    severity,
    [...titleOf(severity, reason), element("span", { class: "muted" }, ` ${problems.length} times`)],
    element("p", {}, names, problems.length > MAX_NAMES && " …"),
    disclosure(mark, summary, () => {
      const list = element("ul", { class: "plain" });
      showProblems(list, problems);
      return [list];
    }),
  );
}

/** @param {Problem["severity"]} severity @param {string} reason */
function titleOf(severity, reason) {
  return [
    element("strong", { class: `badge ${severity}` }, SEVERITIES[severity]),
    " ",
    element("strong", {}, reason),
    " ",
  ];
}

/** @param {Problem} problem @param {readonly HTMLElement[]} more what follows the message */
function problemItem({ severity, reason, object, message, since, node, volume }, more) {
  const claim = /^claim\/(.+)$/.exec(object)?.[1];
  const subject = volume !== undefined
    ? volumeLink(volume, object)
    : claim !== undefined
    ? claimLink(claim, object)
    : node !== undefined
    ? element("a", { href: `#/node/${encodeURIComponent(node)}`, "data-focus": `problem ${reason} ${object}` }, object)
    : object;
  const head = [...titleOf(severity, reason), subject, ...durationOf(since)];
  return listItem(severity, head, element("p", {}, message), ...more);
}

/**
 * Returns an item of a list of problems, or of what waits or is under way.
 *
 * @param {Problem["severity"]} severity
 * @param {readonly Child[]} head
 * @param {...Child} more what follows the head
 */
export function listItem(severity, head, ...more) {
  return element("li", { class: `problem ${severity}` }, element("p", { class: "head" }, ...head), ...more);
}

/** Returns the time since a moment, for the head of an item; nothing while it is not known. @param {string | undefined} since */
export function durationOf(since) {
  return since === undefined ? [] : [element("span", { class: "muted" }, " for ", age(since))];
}

/** @param {Problem} problem */
function remedyOf({ remedy, commands, runbook }) {
  return [
    ...(remedy === undefined ? [] : [element("p", { class: "muted" }, remedy)]),
    ...commandLines(commands),
    ...(runbook === undefined ? [] : [element("p", { class: "muted" }, "Runbook: ", chapterLink(runbook))]),
  ];
}

/** Returns commands, each with a button that copies it. @param {readonly string[]} commands */
export function commandLines(commands) {
  return commands.map((command) => {
    const button = element("button", { type: "button", "data-focus": `copy ${command}` }, "Copy");
    button.addEventListener("click", () => {
      navigator.clipboard.writeText(command).then(
        () => (button.textContent = "Copied"),
        () => (button.textContent = "Copying is not allowed"),
      );
    });
    return element("p", { class: "command" }, element("code", {}, command), button);
  });
}

/** Returns a link to a chapter, which the server of the page has, in a tab of its own. @param {string} name */
export function chapterLink(name) {
  return element("a", { href: `/runbooks/${name}`, target: "_blank" }, name);
}

/** Returns how many problems there are of each kind. @param {readonly Problem[]} problems */
export function problemCounts(problems) {
  const counts = Object.entries(SEVERITIES).map(([severity, word]) => {
    const count = problems.filter((problem) => problem.severity === severity).length;
    return count === 0 ? [] : [`${count} ${word.toLowerCase()}${count === 1 ? "" : "s"}`];
  });
  return counts.flat().join(", ") || "Nothing is wrong.";
}
