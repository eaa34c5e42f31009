/**
 * The templates of `-o jsonpath=` and the paths of `-o custom-columns=`: what people use of those of kubectl. What is not
 * known here is refused by its name. No library has kubectl's templates.
 *
 * @module
 */

import { quote } from "../base/error.ts";

/** A step of a path: from values to those in them. */
type Step = (value: unknown) => readonly unknown[];

/** A path in JSON. */
export type Path = readonly Step[];

/** A part of a template: a text, the values at a path, or a template for each of them. */
type Part = { readonly text: string } | { readonly path: Path; readonly each?: readonly Part[] };

/** A template. */
export type Template = readonly Part[];

function fieldsOf(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? value : value instanceof Object ? Object.values(value) : [];
}

function fieldOf(name: string): Step {
  return (value) =>
    value instanceof Object && !Array.isArray(value) && Object.hasOwn(value, name)
      ? [(value as Record<string, unknown>)[name]]
      : [];
}

/** What a filter compares with. Numbers, as sizes are, also have an order. */
const COMPARISONS: Readonly<Record<string, (a: never, b: never) => boolean>> = {
  "==": (a, b) => a === b,
  "!=": (a, b) => a !== b,
  "<": (a, b) => a < b,
  "<=": (a, b) => a <= b,
  ">": (a, b) => a > b,
  ">=": (a, b) => a >= b,
};

function filterBy([, path, comparison, text]: readonly (string | undefined)[]): Step {
  const steps = parsePath(path!);
  const wanted = text === undefined ? undefined : literal(text);
  const matches = (one: unknown) => {
    const [value] = valuesAt(steps, one);
    return comparison === undefined ? value !== undefined : COMPARISONS[comparison]!(value as never, wanted as never);
  };
  return (value) => fieldsOf(value).filter(matches);
}

/** Returns the value of a quoted text, a number, or a truth value. @throws {Error} */
function literal(text: string): unknown {
  const [, single] = /^'(.*)'$/s.exec(text) ?? [];
  return single === undefined ? JSON.parse(text) : single.replace(/\\(.)/g, "$1");
}

/** Returns the item of a list at an index, from the end for one below zero; none where the list has none. */
function itemAt(list: readonly unknown[], index: number): readonly unknown[] {
  return list.slice(index, index + 1 || undefined);
}

/** The steps that are known, by how they are written. */
const STEPS: readonly (readonly [written: RegExp, step: (match: readonly (string | undefined)[]) => Step])[] = [
  [/\.\*|\[\*\]/y, () => fieldsOf],
  [/\.((?:[\w/-]|\\.)+)/y, ([, name]) => fieldOf(name!.replace(/\\(.)/g, "$1"))],
  [/\['([^']*)'\]/y, ([, name]) => fieldOf(name!)],
  [/\[(-?\d+)\]/y, ([, index]) => (value) => Array.isArray(value) ? itemAt(value, Number(index)) : []],
  [
    /\[(-?\d*):(-?\d*)\]/y,
    ([, from, to]) => (value) => fieldsOf(value).slice(Number(from), to ? Number(to) : undefined),
  ],
  [
    /\[\?\(\s*@((?:\.[\w-]+|\[-?\d+\])+)\s*(?:(==|!=|<=?|>=?)\s*("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|-?[\d.]+|true|false)\s*)?\)\]/y,
    filterBy,
  ],
];

/** What kubectl knows beside it, by how it is written. */
const REFUSED: readonly (readonly [written: RegExp, name: string])[] = [
  [/\.\./y, "a search at any depth (..)"],
  [/\[[^\]?]*,/y, "a union ([a,b])"],
  [/\[\?/y, "a filter of this form"],
];

/** Parses a path. Its first point may be missing, and it may begin with $ or @. @throws {Error} */
export function parsePath(text: string): Path {
  const steps: Step[] = [];
  let at = 0;
  const rest = text.trim().replace(/^[$@]/, "").replace(/^(?=[^.[])/, ".").replace(/^\.(?=\[|$)/, "");
  while (at < rest.length) {
    const found = STEPS.map(([written, step]) => ({ match: matchAt(written, rest, at), step }))
      .find(({ match }) => match !== null);
    if (found === undefined) {
      const [, name = "it"] = REFUSED.find(([written]) => matchAt(written, rest, at) !== null) ?? [];
      throw new Error(`${name} is not known at ${quote(rest.slice(at))}`);
    }
    steps.push(found.step(found.match!));
    at += found.match![0]!.length;
  }
  return steps;
}

function matchAt(written: RegExp, text: string, at: number): RegExpExecArray | null {
  written.lastIndex = at;
  return written.exec(text);
}

/** Returns the values at a path. */
export function valuesAt(path: Path, value: unknown): readonly unknown[] {
  return path.reduce<readonly unknown[]>((values, step) => values.flatMap(step), [value]);
}

/** Parses a template. One without braces is a path. @throws {Error} */
export function parseTemplate(text: string): Template {
  if (!text.includes("{")) return [{ path: parsePath(text) }];
  const open: { path: Path; each: Part[] }[] = [{ path: [], each: [] }];
  let at = 0;
  while (at < text.length) {
    const match = matchAt(/([^{]+)|\{\s*((?:"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[^{}"'])*)\}/y, text, at);
    if (match === null) throw new Error(`a brace is not closed at ${quote(text.slice(at))}`);
    at += match[0].length;
    const [, outside, inside = ""] = match;
    const [, ranged] = /^range\s+(.*)$/s.exec(inside) ?? [];
    const { each } = open.at(-1)!;
    if (outside !== undefined) each.push({ text: outside });
    else if (/^["']/.test(inside)) each.push({ text: String(literal(inside.trim())) });
    else if (ranged !== undefined) {
      const range = { path: parsePath(ranged), each: [] };
      each.push(range);
      open.push(range);
    } else if (inside.trim() === "end") {
      open.pop();
      if (open.length === 0) throw new Error("an {end} has no {range}");
    } else each.push({ path: parsePath(inside) });
  }
  if (open.length > 1) throw new Error("a {range} has no {end}");
  return open[0]!.each;
}

/** Fills a template in. @param format returns the text of a value */
export function fillTemplate(template: Template, value: unknown, format: (value: unknown) => string): string {
  return template.map((part) => {
    if ("text" in part) return part.text;
    const values = valuesAt(part.path, value);
    return part.each === undefined
      ? values.map(format).join(" ")
      : values.map((one) => fillTemplate(part.each!, one, format)).join("");
  }).join("");
}

/** Parses columns, `TITLE:PATH` with commas between them. @throws {Error} */
export function parseColumns(text: string): readonly { readonly title: string; readonly path: Path }[] {
  return text.split(",").map((column) => {
    const [, title, path] = /^([^:]+):(.+)$/s.exec(column.trim()) ?? [];
    if (title === undefined) throw new Error(`${quote(column)} is no TITLE:PATH`);
    return { title, path: parsePath(path!) };
  });
}
