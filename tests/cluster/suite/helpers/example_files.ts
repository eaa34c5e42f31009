/**
 * The files of deploy/examples.
 *
 * @module
 */

import { FULL } from "./test_namespace.ts";

/** The folder of the examples. */
export const EXAMPLES = new URL("../../../../deploy/examples/", import.meta.url);

/** Returns the text of a file of the examples, with small volumes: it takes minutes to fill and erase gigabytes in the guest. */
export async function example(name: string): Promise<string> {
  const text = await Deno.readTextFile(new URL(name, EXAMPLES));
  return FULL ? text : text.replaceAll("storage: 1Gi", "storage: 16Mi");
}
