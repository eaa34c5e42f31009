/**
 * The fields of the custom resources, from their definitions.
 *
 * @module
 */

import { readObjects } from "../objects.ts";
import { code, listItem, paragraph, sentence, table } from "./markdown.ts";

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
  readonly description: string;
  readonly priority?: number;
}

/** Fields that Kubernetes defines. */
const KUBERNETES_FIELDS = ["apiVersion", "kind", "metadata"];

/** The kinds that ask for something that is done once. They have a page of their own. */
const REQUESTS = ["LVMImport", "LVMMove"];

/** Returns a section for each kind of what there is. */
export function crdSections(): string {
  return sections((kind) => !REQUESTS.includes(kind));
}

/** Returns a section for each kind of requests. */
export function requestCrdSections(): string {
  return sections((kind) => REQUESTS.includes(kind));
}

function sections(isWanted: (kind: string) => boolean): string {
  return readObjects("chart/crds").filter(({ spec }) => isWanted(spec.names.kind)).map((crd) => {
    const { names, versions: [{ schema: { openAPIV3Schema: schema }, additionalPrinterColumns: columns }] } = crd.spec;
    const fields = Object.entries((schema as Schema).properties!).filter(([name]) => !KUBERNETES_FIELDS.includes(name));
    return [
      `## ${names.kind}`,
      paragraph(schema.description),
      paragraph(`Short name: ${names.shortNames.map(code).join(", ")}.`),
      "### Columns of " + names.plural,
      columnsTable(columns),
      "### Fields of " + names.kind,
      fields.flatMap(([name, field]) => items(name, field, schema.required?.includes(name) ?? false)).join("\n"),
    ].join("\n\n");
  }).join("\n\n");
}

function columnsTable(columns: readonly Column[]): string {
  const rows = columns.map(({ name, description, priority = 0 }) => [
    name,
    priority === 0 ? "" : "yes",
    sentence(description),
  ]);
  return table(["Column", "Only with `-o wide`", "Meaning"], rows);
}

/** What descriptions say of quantities, and the page says once. */
const QUANTITY = ", as a quantity of bytes";

/** Returns the list items of a field and of the fields in it. */
function items(path: string, { type, description, enum: words, ...schema }: Schema, isRequired: boolean): string[] {
  const isQuantity = description.includes(QUANTITY);
  const kind = words !== undefined ? words.map(code).join(", ") : isQuantity ? "quantity" : type;
  const parts = schema.items ?? schema;
  const prefix = schema.items === undefined ? path : `${path}[]`;
  return [
    listItem(
      `${code(path)} (${kind}${isRequired ? ", required" : ""}): ${sentence(description.replace(QUANTITY, ""))}`,
    ),
    ...Object.entries(parts.properties ?? {}).flatMap(([name, part]) =>
      items(`${prefix}.${name}`, part, parts.required?.includes(name) ?? false)
    ),
  ];
}
