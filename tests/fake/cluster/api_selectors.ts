/**
 * Selectors of labels and fields, as the API server reads them.
 *
 * @module
 */

import { StatusError, type StoredObject } from "./api_store.ts";

/** Reports whether an object is in a selection. */
export type SelectorPredicate = (object: StoredObject) => boolean;

/** Returns the predicate of the selectors in a request's query. */
export function parseSelectors(query: URLSearchParams, namespace: string | undefined): SelectorPredicate {
  const labels = splitTerms(query.get("labelSelector")).map(parseLabelTerm);
  const fields = splitTerms(query.get("fieldSelector")).map(parseFieldTerm);
  return (object) =>
    (namespace === undefined || object.metadata.namespace === namespace) &&
    [...labels, ...fields].every((matches) => matches(object));
}

/** Splits at commas outside parentheses. */
function splitTerms(selector: string | null): string[] {
  return selector ? selector.split(/,(?![^()]*\))/).map((term) => term.trim()) : [];
}

function parseLabelTerm(term: string): SelectorPredicate {
  const set = /^(\S+)\s+(in|notin)\s+\(([^)]*)\)$/.exec(term);
  if (set !== null) {
    const values = set[3]!.split(",").map((value) => value.trim());
    const isPositive = set[2] === "in";
    return ({ metadata }) => {
      const value = metadata.labels?.[set[1]!];
      return (value !== undefined && values.includes(value)) === isPositive;
    };
  }
  const equality = /^([^=!\s]+)\s*(==|=|!=)\s*(\S*)$/.exec(term);
  if (equality !== null) {
    const isPositive = equality[2] !== "!=";
    return ({ metadata }) => (metadata.labels?.[equality[1]!] === equality[3]) === isPositive;
  }
  if (/^!\S+$/.test(term)) return ({ metadata }) => metadata.labels?.[term.slice(1)] === undefined;
  if (/^\S+$/.test(term)) return ({ metadata }) => metadata.labels?.[term] !== undefined;
  throw new StatusError(400, "BadRequest", `unable to parse requirement: ${term}`);
}

function parseFieldTerm(term: string): SelectorPredicate {
  const equality = /^([^=!]+)(==|=|!=)(.*)$/.exec(term);
  if (equality === null) {
    throw new StatusError(400, "BadRequest", `invalid selector: '${term}'; can't understand '${term}'`);
  }
  const path = equality[1]!.split(".");
  const isPositive = equality[2] !== "!=";
  return (object) => {
    const value = path.reduce<unknown>((part, step) => (part as Record<string, unknown> | undefined)?.[step], object);
    return `${value ?? ""}` === equality[3] === isPositive;
  };
}
