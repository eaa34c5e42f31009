/**
 * Selectors of labels and fields, as the API server reads them.
 *
 * @module
 */

import { Refusal, type Stored } from "./api_store.ts";

/** Whether an object is of a selection. */
export type Selected = (object: Stored) => boolean;

/** What a request selects by its query. */
export function selectionOf(query: URLSearchParams, namespace: string | undefined): Selected {
  const labels = terms(query.get("labelSelector")).map(labelTerm);
  const fields = terms(query.get("fieldSelector")).map(fieldTerm);
  return (object) =>
    (namespace === undefined || object.metadata.namespace === namespace) &&
    [...labels, ...fields].every((holds) => holds(object));
}

/** Splits at commas outside parentheses. */
function terms(selector: string | null): string[] {
  return selector ? selector.split(/,(?![^()]*\))/).map((term) => term.trim()) : [];
}

function labelTerm(term: string): Selected {
  const set = /^(\S+)\s+(in|notin)\s+\(([^)]*)\)$/.exec(term);
  if (set !== null) {
    const values = set[3]!.split(",").map((value) => value.trim());
    const wanted = set[2] === "in";
    return ({ metadata }) => {
      const value = metadata.labels?.[set[1]!];
      return (value !== undefined && values.includes(value)) === wanted;
    };
  }
  const equality = /^([^=!\s]+)\s*(==|=|!=)\s*(\S*)$/.exec(term);
  if (equality !== null) {
    const wanted = equality[2] !== "!=";
    return ({ metadata }) => (metadata.labels?.[equality[1]!] === equality[3]) === wanted;
  }
  if (/^!\S+$/.test(term)) return ({ metadata }) => metadata.labels?.[term.slice(1)] === undefined;
  if (/^\S+$/.test(term)) return ({ metadata }) => metadata.labels?.[term] !== undefined;
  throw new Refusal(400, "BadRequest", `unable to parse requirement: ${term}`);
}

function fieldTerm(term: string): Selected {
  const equality = /^([^=!]+)(==|=|!=)(.*)$/.exec(term);
  if (equality === null) {
    throw new Refusal(400, "BadRequest", `invalid selector: '${term}'; can't understand '${term}'`);
  }
  const path = equality[1]!.split(".");
  const wanted = equality[2] !== "!=";
  return (object) => {
    const value = path.reduce<unknown>((part, step) => (part as Record<string, unknown> | undefined)?.[step], object);
    return `${value ?? ""}` === equality[3] === wanted;
  };
}
