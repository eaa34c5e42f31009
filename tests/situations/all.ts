/**
 * All situations, by their subjects.
 *
 * @module
 */

import { NODES } from "./nodes.ts";
import type { Situation } from "./situation.ts";
import { VOLUMES } from "./volumes.ts";

/** The tables, by the headings of docs/reference/situations.md. */
export const SITUATIONS: Readonly<Record<string, readonly Situation[]>> = {
  "Volumes": VOLUMES,
  "Nodes and disks": NODES,
};
