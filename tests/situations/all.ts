/**
 * All situations, by their subjects.
 *
 * @module
 */

import { CLUSTER } from "./cluster.ts";
import { ENCRYPTION } from "./encryption.ts";
import { FILESYSTEMS } from "./filesystems.ts";
import { NODES } from "./nodes.ts";
import type { Situation } from "./situation.ts";
import { VOLUMES } from "./volumes.ts";

/** The tables, by the headings of docs/reference/situations.md. */
export const SITUATIONS: Readonly<Record<string, readonly Situation[]>> = {
  "Volumes": VOLUMES,
  "Filesystems and mounts": FILESYSTEMS,
  "Encryption": ENCRYPTION,
  "Nodes and disks": NODES,
  "Claims, snapshots, and other programs": CLUSTER,
};
