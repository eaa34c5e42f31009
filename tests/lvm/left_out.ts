/**
 * Tests that are left out in the guest, by the beginnings of their names, which the variable LEFT_OUT has, separated by `|`.
 *
 * `deno test --filter` cannot do that: it only chooses, and a pattern that it does not understand, as one that looks ahead,
 * chooses nothing without a word.
 *
 * @module
 */

const beginnings = (Deno.env.get("LEFT_OUT") ?? "").split("|").filter((beginning) => beginning !== "");

/** Whether a test is left out. */
export function isLeftOut(name: string): boolean {
  return beginnings.some((beginning) => name.startsWith(beginning));
}
