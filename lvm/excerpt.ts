/**
 * Excerpts of texts from outside, for messages.
 *
 * @module
 */

/** The maximum length of a quoted text, in characters, with the `…`. */
const MAX_QUOTED_LENGTH = 81;

/**
 * Returns the start of a text, with `…` where it was cut. It never cuts a surrogate pair: gRPC and other encoders fail for half
 * of one.
 *
 * @param maxLength the maximum length of the result, in UTF-16 units
 */
export function truncate(text: string, maxLength: number): string {
  if (text.length <= maxLength) return text;
  return text.slice(0, maxLength - 1).replace(/[\ud800-\udbff]$/, "") + "…";
}

/** Quotes a text from outside for a message, and truncates it to 80 characters. */
export function quote(text: string): string {
  return JSON.stringify(truncate(text, MAX_QUOTED_LENGTH));
}
