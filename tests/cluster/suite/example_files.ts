/**
 * The files of deploy/examples.
 *
 * @module
 */

import { BUSYBOX_IMAGE } from "../../rig/pod_image.ts";
import { FULL } from "./test_namespace.ts";

/** The folder of the examples. */
export const EXAMPLES = new URL("../../../deploy/examples/", import.meta.url);

/** A file of an example, with the rig's image, and in small: to fill and erase gigabytes takes minutes in the guest. */
export async function example(name: string): Promise<string> {
  const text = await Deno.readTextFile(new URL(name, EXAMPLES));
  const here = text.replaceAll("busybox:1.36", BUSYBOX_IMAGE);
  return FULL ? here : here.replaceAll("storage: 1Gi", "storage: 16Mi");
}
