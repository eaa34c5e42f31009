/**
 * Elements, made from text only: nothing here, or anywhere in the page, makes HTML of a text.
 *
 * @module
 */

import { formatAge } from "./format.js";

/** @typedef {Node | string | undefined | false} Child */

/**
 * Creates an element.
 *
 * @template {keyof HTMLElementTagNameMap} K
 * @param {K} tag
 * @param {Record<string, string | boolean | undefined>} attributes those that are undefined or false are left out
 * @param {...Child} children
 */
export function element(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== undefined && value !== false) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child !== undefined && child !== false));
  return made;
}

/** Returns the element of the page with an id. @param {string} id */
export function byId(id) {
  return /** @type {HTMLElement} */ (document.getElementById(id));
}

/** Returns the link that opens a volume. @param {string} id @param {string} text @param {string} [className] */
export function volumeLink(id, text, className) {
  return element(
    "a",
    { href: `#/volume/${encodeURIComponent(id)}`, class: className, "data-focus": `volume ${id}` },
    text,
  );
}

/** Returns the link that opens a claim. @param {string} claim as `namespace/name` @param {string} [text] */
export function claimLink(claim, text = claim) {
  return element("a", { href: `#/claim/${encodeURIComponent(claim)}`, "data-focus": `claim ${claim}` }, text);
}

/** Returns how full a filesystem is; nothing where that is not known. @param {number | undefined} percent */
export function usedText(percent) {
  if (percent === undefined) return "";
  return element("span", { class: percent >= 90 ? "state error" : "" }, `${percent}%`);
}

/** Returns the time since a moment, which goes on. @param {string} time RFC 3339 */
export function age(time) {
  return element("time", { datetime: time, title: time }, formatAge(time));
}

/** Writes all ages again. */
export function updateAges() {
  for (const time of document.querySelectorAll("time")) time.textContent = formatAge(time.dateTime);
}

/** The marks of what is open. @type {Set<string>} */
const open = new Set();

/**
 * Creates what opens and closes. It stays open when it is made again; its content is made when it is opened first.
 *
 * @param {string} mark
 * @param {HTMLElement} summary
 * @param {() => HTMLElement[]} makeContent
 */
export function disclosure(mark, summary, makeContent) {
  summary.dataset["focus"] = mark;
  const details = element("details", { "data-mark": mark, open: open.has(mark) }, summary);
  const update = () => {
    if (details.open) open.add(mark);
    else open.delete(mark);
    if (details.open && details.children.length === 1) details.append(...makeContent());
  };
  update();
  details.addEventListener("toggle", update);
  return details;
}

/** What the elements of lists were made from. @type {WeakMap<Element, string>} */
const contents = new WeakMap();

/**
 * Makes the children of an element those of the items, in their order. An element whose item is the same stays, with the
 * focus, and what is open in it; the focus in one that is replaced goes to its successor.
 *
 * @template T
 * @param {Element} parent
 * @param {readonly T[]} items
 * @param {{ key: (item: T) => string, make: (item: T) => HTMLElement }} options
 */
export function updateChildren(parent, items, { key, make }) {
  const before = new Map(
    [...parent.children].map((child) => [/** @type {HTMLElement} */ (child).dataset["key"], child]),
  );
  const active = document.activeElement;
  const focused = active instanceof HTMLElement && parent.contains(active) ? active.dataset["focus"] : undefined;
  const after = items.map((item) => {
    const [name, text] = [key(item), JSON.stringify(item)];
    const known = before.get(name);
    if (known !== undefined && contents.get(known) === text) return known;
    const made = make(item);
    made.dataset["key"] = name;
    contents.set(made, text);
    return made;
  });
  const kept = new Set(after);
  for (const child of [...parent.children]) if (!kept.has(child)) child.remove();
  let next = parent.firstElementChild;
  for (const child of after) {
    if (child === next) next = next.nextElementSibling;
    else parent.insertBefore(child, next);
  }
  if (focused !== undefined && !parent.contains(document.activeElement)) focusOn(parent, focused);
}

/** Puts the focus on the element with a mark, `data-focus`. @param {Element} parent @param {string} mark */
export function focusOn(parent, mark) {
  const found = parent.querySelector(`[data-focus="${CSS.escape(mark)}"]`);
  if (found instanceof HTMLElement) found.focus({ preventScroll: true });
}
