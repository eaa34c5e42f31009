/**
 * Validation of objects with the schemas of custom resource definitions, as the API server does it.
 *
 * @module
 */

import { Ajv, type ErrorObject, type ValidateFunction } from "ajv";
import type { KubeObject } from "../../k8s/api/objects.ts";

/** A schema (OpenAPI v3). */
// deno-lint-ignore no-explicit-any
type Schema = Record<string, any>;

/** Returns the errors of an object; none when it is valid, or of a kind without a schema. */
export type Validate = (object: KubeObject) => string[];

/** Returns the validation with the schemas of some kinds. Fields are allowed that the schemas do not have. */
export function validator(schemas: ReadonlyMap<string, Schema>): Validate {
  // formats such as int64 and keys such as x-kubernetes-validations are not of JSON Schema
  const ajv = new Ajv({ strict: false, validateFormats: false, allErrors: true });
  const validators = new Map<string, ValidateFunction>();
  for (const [kind, schema] of schemas) {
    validators.set(kind, ajv.compile(schema));
  }
  return (object) => {
    const validate = validators.get(object.kind ?? "");
    const isValid: boolean = validate?.(object) ?? true;
    return isValid
      ? []
      : validate!.errors!.map((error) => `${object.kind} ${object.metadata.name}: ${describe(error)}`);
  };
}

function describe({ instancePath, message, params }: ErrorObject): string {
  return `${instancePath} ${message} ${JSON.stringify(params)}`;
}
