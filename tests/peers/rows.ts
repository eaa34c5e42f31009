/**
 * What the test suites of the official sidecars ask, as rows: each is named by what it asks, in our words.
 *
 * @module
 */

import { assertEquals } from "@std/assert";

/** A row: what is asked, what the driver does, and what is wanted; where that differs on purpose, the decision. */
export type Row = readonly [asks: string, actual: () => unknown, wanted: unknown, differs?: string];

/** The outcome of a row whose input is refused: a part of the message. */
export function refused(words: string): { readonly refused: string } {
  return { refused: words };
}

/** Registers a test for each row of a table. @param suite the suite that asks, such as `csi-provisioner: secrets` */
export function testRows(suite: string, rows: readonly Row[]): void {
  for (const [asks, actual, wanted, differs] of rows) {
    Deno.test(`${suite}: ${asks}${differs === undefined ? "" : ` (differs: ${differs})`}`, () => {
      assertEquals(outcomeOf(actual, wanted), wanted);
    });
  }
}

/** Returns what a row does. A refusal with the wanted words is as it is wanted. */
function outcomeOf(actual: () => unknown, wanted: unknown): unknown {
  try {
    return actual();
  } catch (error) {
    const { message } = error as Error;
    const words = (wanted as { refused?: string } | undefined)?.refused;
    return refused(words !== undefined && message.includes(words) ? words : message);
  }
}
