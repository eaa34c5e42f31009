/**
 * Tests that are left out in the guest, by the beginnings of their names, which the variable LEFT_OUT has, separated by `|`.
 *
 * `deno test --filter` cannot do that: it only chooses, and a pattern that it does not understand, as one that looks ahead,
 * chooses nothing without a word.
 *
 * @module
 */

const prefixes = (Deno.env.get("LEFT_OUT") ?? "").split("|").filter((prefix) => prefix !== "");

/** Reports whether a test is skipped. */
export function isSkipped(name: string): boolean {
  return prefixes.some((prefix) => name.startsWith(prefix));
}
