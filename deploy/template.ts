/**
 * The subset of Helm's template language that the chart uses, to generate the plain manifests and to test the chart without
 * Helm. Anything else is an error. The task test:cluster compares the result with that of Helm.
 *
 * Actions, whitespace and truth values follow Go's text/template, functions follow Helm.
 *
 * @module
 */

import { stringify } from "@std/yaml";

/** Data of a template: `.Values`, `.Chart` and other fields. A function is called with the terms after it. */
export type TemplateData = Readonly<Record<string, unknown>>;

/** A part of a template. */
type Part =
  | { readonly kind: "text"; readonly text: string }
  | { readonly kind: "value"; readonly pipeline: Pipeline }
  | { readonly kind: "define"; readonly name: string; readonly body: readonly Part[] }
  | { readonly kind: Block; readonly pipeline: Pipeline; readonly body: readonly Part[] };

type Block = "if" | "with" | "range";

const INCLUDE = "include";

/** Commands. Each gets the value of the previous one as its last argument. */
type Pipeline = readonly Command[];

/** A function or a field with its arguments, or a single value. */
type Command = readonly Term[];

type Term =
  | { readonly kind: "literal"; readonly value: string | number | boolean }
  | { readonly kind: "field"; readonly root: boolean; readonly path: readonly string[] }
  | { readonly kind: "function"; readonly name: string }
  | { readonly kind: "pipeline"; readonly pipeline: Pipeline };

/** Scope of an action: the values of `.` and `$`, and the templates that `include` renders, by their names. */
interface Scope {
  readonly dot: unknown;
  readonly root: unknown;
  readonly named: NamedTemplates;
}

/** Templates that `define` names. */
export type NamedTemplates = ReadonlyMap<string, readonly Part[]>;

/** Functions that the chart uses, with their arguments in Helm's order. The function include is not one of values alone. */
const FUNCTIONS: Readonly<Record<string, (...args: readonly unknown[]) => unknown>> = {
  and: (...values) => values.slice(0, -1).every(isTrue) ? values.at(-1) : false,
  default: (fallback, value) => isTrue(value) ? value : fallback,
  dig: (key, fallback, map) => (map as Record<string, unknown>)[String(key)] ?? fallback,
  join: (separator, list) => (list as readonly unknown[]).map(formatValue).join(String(separator)),
  or: (...values) => values.find(isTrue) ?? values.at(-1),
  nindent: (spaces, text) => `\n${text}`.replaceAll("\n", `\n${" ".repeat(Number(spaces))}`),
  quote: (value) => JSON.stringify(formatValue(value)),
  replace: (from, to, text) => String(text).replaceAll(String(from), String(to)),
  toYaml: (value) => stringify(value, { lineWidth: -1, quoteStyle: '"' }).trimEnd(),
  trim: (text) => String(text).trim(),
};

/**
 * Renders a template.
 *
 * @throws {Error} when the template has an unsupported action, or reads a field of a missing value
 */
export function renderTemplate(template: string, data: TemplateData, named: NamedTemplates = new Map()): string {
  return render(parse(template), { dot: data, root: data, named });
}

/** Returns the templates that a text defines. What is outside of them is ignored, as Helm does in files that begin with `_`. */
export function namedTemplates(text: string): NamedTemplates {
  return new Map(parse(text).flatMap((part) => part.kind === "define" ? [[part.name, part.body]] : []));
}

function parse(template: string): readonly Part[] {
  const tokens = tokensOf(template);
  const parts = readParts(tokens);
  if (tokens.length > 0) throw new Error(`{{ ${tokens[0]!.text} }}: no block was opened before it`);
  return parts;
}

/** Text between actions, or the content of an action. */
interface Token {
  readonly action: boolean;
  readonly text: string;
}

/** Splits a template into text and actions. `{{-` removes the blanks and line ends before it, `-}}` those after it. */
function tokensOf(template: string): Token[] {
  const tokens: Token[] = [];
  let rest = template;
  for (let found; (found = /\{\{(-\s)?([^]*?)(\s-)?\}\}/.exec(rest)) !== null;) {
    const { 0: whole, 1: trims, 2: action, 3: trimsAfter, index } = found;
    const text = rest.slice(0, index);
    tokens.push({ action: false, text: trims === undefined ? text : text.trimEnd() });
    if (!action!.trim().startsWith("/*")) tokens.push({ action: true, text: action!.trim() });
    rest = rest.slice(index + whole.length);
    if (trimsAfter !== undefined) rest = rest.trimStart();
  }
  return [...tokens, { action: false, text: rest }];
}

/** Removes parts from the tokens, up to the `end` of their block. */
function readParts(tokens: Token[]): Part[] {
  const parts: Part[] = [];
  while (tokens.length > 0 && !(tokens[0]!.action && tokens[0]!.text === "end")) {
    const { action, text } = tokens.shift()!;
    if (!action) parts.push({ kind: "text", text });
    else parts.push(readAction(text, tokens));
  }
  return parts;
}

function readAction(text: string, tokens: Token[]): Part {
  const [, block, rest] = /^(if|with|range|define)\s+([^]*)$/.exec(text) ?? [];
  if (block === undefined) return { kind: "value", pipeline: readPipeline(text) };
  const body = readParts(tokens);
  if (tokens.shift() === undefined) throw new Error(`{{ ${text} }}: it has no end`);
  if (block === "define") return { kind: block, name: JSON.parse(rest!), body };
  return { kind: block as Block, pipeline: readPipeline(rest!), body };
}

function readPipeline(text: string): Pipeline {
  const words = [...text.matchAll(/"(?:[^"\\]|\\.)*"|[()|]|[^\s()|"]+/g)].map(([word]) => word);
  const pipeline = readCommands(words);
  if (words.length > 0) throw new Error(`{{ ${text} }}: too many closing brackets`);
  return pipeline;
}

/** Removes commands from the words, up to a closing bracket. */
function readCommands(words: string[]): Pipeline {
  const commands: Term[][] = [[]];
  while (words.length > 0 && words[0] !== ")") {
    const word = words.shift()!;
    if (word === "|") commands.push([]);
    else if (word === "(") {
      commands.at(-1)!.push({ kind: "pipeline", pipeline: readCommands(words) });
      if (words.shift() !== ")") throw new Error("a bracket is not closed");
    } else commands.at(-1)!.push(termOf(word));
  }
  return commands;
}

function termOf(word: string): Term {
  if (word.startsWith('"')) return { kind: "literal", value: JSON.parse(word) };
  if (/^\d+$/.test(word)) return { kind: "literal", value: Number(word) };
  if (word === "true" || word === "false") return { kind: "literal", value: word === "true" };
  const [, dollar, fields] = /^(\$?)\.((?:\w+(?:\.\w+)*)?)$/.exec(word === "$" ? "$." : word) ?? [];
  if (fields !== undefined) {
    return { kind: "field", root: dollar === "$", path: fields === "" ? [] : fields.split(".") };
  }
  if (Object.hasOwn(FUNCTIONS, word) || word === INCLUDE) return { kind: "function", name: word };
  throw new Error(`${word}: not known here; see deploy/template.ts`);
}

function render(parts: readonly Part[], scope: Scope): string {
  return parts.map((part) => {
    if (part.kind === "text") return part.text;
    if (part.kind === "define") return "";
    const value = evaluatePipeline(part.pipeline, scope);
    if (part.kind === "value") return formatValue(value);
    const { body } = part;
    if (!isTrue(value)) return "";
    if (part.kind === "if") return render(body, scope);
    if (part.kind === "with") return render(body, { ...scope, dot: value });
    return (value as readonly unknown[]).map((dot) => render(body, { ...scope, dot })).join("");
  }).join("");
}

function evaluatePipeline(pipeline: Pipeline, scope: Scope): unknown {
  let value: unknown;
  for (const [index, [first, ...rest]] of pipeline.entries()) {
    if (first === undefined) throw new Error("a pipeline has an empty part");
    const args = [...rest.map((term) => evaluateTerm(term, scope)), ...(index === 0 ? [] : [value])];
    const called = first.kind === "function" ? functionOf(first.name, scope) : evaluateTerm(first, scope);
    if (typeof called !== "function" && args.length > 0) throw new Error("a value is followed by arguments");
    value = typeof called === "function" ? called(...args) : called;
  }
  return value;
}

/** Returns a function. What `include` renders has its argument as `.` and `$`. */
function functionOf(name: string, { named }: Scope): (...args: readonly unknown[]) => unknown {
  if (name !== INCLUDE) return FUNCTIONS[name]!;
  return (template, dot) => {
    const parts = named.get(String(template));
    if (parts === undefined) throw new Error(`include ${template}: there is no such template`);
    return render(parts, { dot, root: dot, named });
  };
}

function evaluateTerm(term: Term, scope: Scope): unknown {
  switch (term.kind) {
    case "literal":
      return term.value;
    case "field":
      return fieldOf(term.root ? scope.root : scope.dot, term.path);
    case "pipeline":
      return evaluatePipeline(term.pipeline, scope);
    case "function":
      throw new Error(`${term.name}: a function with its arguments stands in brackets`);
  }
}

function fieldOf(from: unknown, path: readonly string[]): unknown {
  return path.reduce((value, name) => {
    if (typeof value === "object" && value !== null) return (value as Record<string, unknown>)[name];
    throw new Error(`.${path.join(".")}: there is nothing that could have a field ${name}`);
  }, from);
}

/** Reports whether a value counts as true: neither absent, false, 0 nor empty. */
function isTrue(value: unknown): boolean {
  if (Array.isArray(value)) return value.length > 0;
  if (typeof value === "object" && value !== null) return Object.keys(value).length > 0;
  return Boolean(value);
}

function formatValue(value: unknown): string {
  if (typeof value === "object" && value !== null) {
    throw new Error("an object or a list is printed as it is: use toYaml");
  }
  return String(value ?? "");
}
