/**
 * A ValidatingAdmissionPolicy of the manifests, evaluated as the API server evaluates it.
 *
 * @module
 */

import { Environment } from "@marcbachmann/cel-js";
import { assert } from "@std/assert";
import { readObjects } from "../../../deploy/objects.ts";

/** Values of the variables of an expression, such as `object`. */
export type AdmissionInput = Readonly<Record<string, unknown>>;

interface Expression {
  readonly expression: string;
}

/** The parts of a policy that are evaluated. */
interface PolicySpec {
  readonly matchConditions?: readonly Expression[];
  readonly variables: readonly (Expression & { readonly name: string })[];
  readonly validations: readonly (Expression & { readonly message: string; readonly messageExpression?: string })[];
}

const cel = new Environment({ enableOptionalTypes: true, unlistedVariablesAreDyn: true });

/** Returns a function that returns the messages of the validations that fail; `undefined` when the policy is not about the input. */
export function admissionPolicy(name: string): (input: AdmissionInput) => readonly unknown[] | undefined {
  const policies = readObjects("manifests").filter(({ kind }) => kind === "ValidatingAdmissionPolicy");
  const { matchConditions = [], variables, validations }: PolicySpec =
    policies.find(({ metadata }) => metadata.name === name)!.spec;
  return (input) => {
    if (!matchConditions.every(({ expression }) => cel.evaluate(expression, input))) return undefined;
    const values: Record<string, unknown> = {};
    const evaluate = (expression: string) => cel.evaluate(expression, { ...input, variables: values });
    for (const { name, expression } of variables) values[name] = evaluate(expression);
    const failed = validations.filter(({ expression }) => {
      const isValid = evaluate(expression);
      assert(typeof isValid === "boolean", expression);
      return !isValid;
    });
    return failed.map(({ message, messageExpression }) =>
      messageExpression === undefined ? message : evaluate(messageExpression)
    );
  };
}
