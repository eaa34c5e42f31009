/**
 * The values of the chart, from values.yaml and its schema.
 *
 * @module
 */

import { join } from "@std/path";
import { CHART, chartValues } from "../chart.ts";
import { code, paragraph, sentence, table } from "./markdown.ts";

/** A part of values.schema.json. */
interface Schema {
  readonly type?: string | readonly string[];
  readonly enum?: readonly string[];
  readonly properties?: Readonly<Record<string, Schema>>;
  readonly items?: Schema;
  readonly $ref?: string;
}

/** Longest default that is shown, in characters. */
const MAX_DEFAULT = 60;

/** Helm's own value, which the schema has to allow. */
const GLOBAL = "global";

/** Returns the tables of all values, in the order of the schema: those at the top, and those below each of the others. */
export function chartValuesTables(): string {
  const schema = JSON.parse(Deno.readTextFileSync(join(CHART, "values.schema.json"))) as Schema & {
    readonly definitions: Readonly<Record<string, Schema>>;
  };
  const comments = valueComments(Deno.readTextFileSync(join(CHART, "values.yaml")));
  const values = [...leaves(schema, chartValues(), "")].filter(([path]) => path !== GLOBAL);
  const parts = Map.groupBy(values, ([path]) => /^\w+(?=[.[])/.exec(path)?.[0] ?? "");
  return [...parts].sort(([left], [right]) => Number(left !== "") - Number(right !== "")).map(([part, below]) => {
    const rows = below.map(([path, schemaPart, value]) => {
      const resolved = schemaPart.$ref === undefined
        ? schemaPart
        : schema.definitions[schemaPart.$ref.split("/").at(-1)!]!;
      return [code(path), typeText(resolved), defaultText(value), comments.get(path) ?? ""];
    });
    const head = part === "" ? [] : [`## ${part}`, paragraph(sentence(comments.get(part) ?? part))];
    return [...head, table(["Value", "Type", "Default", "Meaning"], rows)].join("\n\n");
  }).join("\n\n");
}

/**
 * Returns the comments of a values file, by the path of the key below each, such as `storageClasses[].name`. A comment
 * that a blank line follows is of no key.
 */
export function valueComments(text: string): Map<string, string> {
  const comments = new Map<string, string>();
  const parents: { readonly indent: number; readonly path: string }[] = [];
  let comment: string[] = [];
  for (const line of text.split("\n")) {
    const [, commentText] = /^ *# ?(.*)$/.exec(line) ?? [];
    const [, blanks, dash, key] = /^( *)(- )?([A-Za-z][A-Za-z0-9.]*):/.exec(line) ?? [];
    if (commentText !== undefined) comment.push(commentText);
    else {
      if (key !== undefined) {
        const indent = blanks!.length + (dash?.length ?? 0);
        while (parents.length > 0 && parents.at(-1)!.indent >= indent) parents.pop();
        const parent = parents.at(-1)?.path;
        const isItem = dash !== undefined || parent?.endsWith("[]");
        const path = parent === undefined ? key : `${parent}${isItem && !parent.endsWith("[]") ? "[]" : ""}.${key}`;
        if (comment.length > 0 && !comments.has(path)) comments.set(path, comment.join(" "));
        if (dash !== undefined) parents.push({ indent: indent - 1, path: `${parent}[]` });
        parents.push({ indent, path });
      }
      comment = [];
    }
  }
  return comments;
}

/** Yields the values that have no parts of their own in the schema: path, schema and default. */
function* leaves(schema: Schema, value: unknown, path: string): Generator<readonly [string, Schema, unknown]> {
  const { properties, items } = schema;
  if (items?.properties !== undefined) return yield* leaves(items, (value as readonly unknown[])[0], `${path}[]`);
  if (properties === undefined) return yield [path, schema, value];
  for (const [name, part] of Object.entries(properties)) {
    const of = (value as Readonly<Record<string, unknown>> | undefined)?.[name];
    yield* leaves(part, of, path === "" ? name : `${path}.${name}`);
  }
}

function typeText({ type, enum: words, items }: Schema): string {
  if (words !== undefined) return words.map(code).join(", ");
  if (items?.enum !== undefined) return `array of ${typeText(items)}`;
  return [type ?? ""].flat().join(" or ");
}

function defaultText(value: unknown): string {
  const text = JSON.stringify(value) ?? "";
  return text.length > MAX_DEFAULT ? "see values.yaml" : code(text);
}
