/**
 * Merge patches (RFC 7386).
 *
 * @module
 */

/**
 * Returns the merge patch that turns a value into another one. A field that only the first one has, at any depth, is
 * removed by it; a patch of the second value alone would keep such a field.
 */
export function mergePatchTo(before: unknown, after: unknown): unknown {
  if (!isObject(before) || !isObject(after)) return after;
  const removed = Object.keys(before).filter((key) => after[key] === undefined).map((key) => [key, null]);
  const set = Object.entries(after).filter(([, value]) => value !== undefined)
    .map(([key, value]) => [key, mergePatchTo(before[key], value)]);
  return Object.fromEntries([...removed, ...set]);
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
