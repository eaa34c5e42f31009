/**
 * The content of objects: the API server returns the fields of custom ones in another order than they were written in.
 *
 * @module
 */

/** Reports whether two values have the same content, in any order of their fields. */
export function isSameContent(a: unknown, b: unknown): boolean {
  return JSON.stringify(sortKeys(a)) === JSON.stringify(sortKeys(b));
}

/** Returns the value with the keys of all objects sorted, so that equal content gives equal JSON. */
export function sortKeys(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(sortKeys);
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(
    Object.entries(value).sort(([a], [b]) => a < b ? -1 : 1).map(([key, v]) => [key, sortKeys(v)]),
  );
}
