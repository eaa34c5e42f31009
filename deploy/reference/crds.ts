/**
 * The fields of the custom resources, from their definitions.
 *
 * @module
 */

import { readObjects } from "../objects.ts";
import { code, listItem, paragraph, sentence } from "./markdown.ts";

/** A part of a schema (OpenAPI v3). */
interface Schema {
  readonly type: string;
  readonly description: string;
  readonly properties?: Readonly<Record<string, Schema>>;
  readonly required?: readonly string[];
  readonly items?: Schema;
  readonly enum?: readonly string[];
}

/** A printer column. */
interface Column {
  readonly name: string;
  readonly priority?: number;
}

/** Fields that Kubernetes defines. */
const KUBERNETES_FIELDS = ["apiVersion", "kind", "metadata"];

/** Returns a section for each kind. */
export function crdSections(): string {
  return readObjects("crds").map((crd) => {
    const { names, versions: [{ schema: { openAPIV3Schema: schema }, additionalPrinterColumns: columns }] } = crd.spec;
    const fields = Object.entries((schema as Schema).properties!).filter(([name]) => !KUBERNETES_FIELDS.includes(name));
    return [
      `## ${names.kind}`,
      paragraph(schema.description),
      paragraph(`Short name: ${names.shortNames.map(code).join(", ")}. ${columnsSentence(columns)}`),
      fields.flatMap(([name, field]) => items(name, field, schema.required?.includes(name) ?? false)).join("\n"),
    ].join("\n\n");
  }).join("\n\n");
}

function columnsSentence(columns: readonly Column[]): string {
  const names = (isWide: boolean) =>
    columns.filter(({ priority = 0 }) => priority > 0 === isWide).map(({ name }) => name).join(", ");
  return `Columns: ${names(false)}${names(true) === "" ? "" : `; with \`-o wide\` also ${names(true)}`}.`;
}

/** What descriptions say of quantities, and the page says once. */
const QUANTITY = ", as a quantity of bytes";

/** What descriptions of fields say, also where that of their spec says it of all. */
const IMMUTABLE = / Immutable\.(?= |$)/;

/** Fields with the same fields in them in all kinds, which the page names once. */
const SAME_IN_ALL = ["conditions", "error"];

/** Depth of the fields that are described; those in them are listed by their names. */
const MAX_DEPTH = 1;

/** Returns the list items of a field and of the fields in it. */
function items(
  name: string,
  { type, description, enum: words, ...schema }: Schema,
  isRequired: boolean,
  depth = 0,
): string[] {
  const isQuantity = description.includes(QUANTITY);
  const kind = words !== undefined ? words.map(code).join(", ") : isQuantity ? "quantity" : type;
  const notes = [["string", "object"].includes(kind) ? "" : kind, isRequired ? "required" : ""].filter(Boolean);
  const { properties = {}, required = [] } = schema.items ?? schema;
  const isNamed = depth === MAX_DEPTH && Object.keys(properties).length > 0 && !SAME_IN_ALL.includes(name);
  const parts = isNamed ? ` Fields: ${Object.keys(properties).map(code).join(", ")}.` : "";
  const head = `${code(name)}${notes.length === 0 ? "" : ` (${notes.join("; ")})`}`;
  return [
    listItem(`${head}: ${sentence(description.replace(QUANTITY, ""))}${parts}`, depth),
    ...Object.entries(depth === MAX_DEPTH ? {} : properties).flatMap(([child, part]) =>
      items(child, withoutRepeats(part, description), required.includes(child), depth + 1)
    ),
  ];
}

/** Returns a field without what the description of the field around it says of all its fields. */
function withoutRepeats(field: Schema, around: string): Schema {
  return around.includes(" Immutable") ? { ...field, description: field.description.replace(IMMUTABLE, "") } : field;
}
