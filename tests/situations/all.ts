/**
 * All situations, by their subjects.
 *
 * @module
 */

import { CLAIMS } from "./claims.ts";
import { CONTROL_PLANE } from "./control_plane.ts";
import { DISKS } from "./disks.ts";
import { ENCRYPTION } from "./encryption.ts";
import { FILESYSTEMS } from "./filesystems.ts";
import { HOSTS } from "./hosts.ts";
import { LVM } from "./lvm.ts";
import { MOUNTS } from "./mounts.ts";
import { NODES } from "./nodes.ts";
import { REBOOTS } from "./reboots.ts";
import type { Situation } from "./situation.ts";
import { SIZES } from "./sizes.ts";
import { SNAPSHOTS } from "./snapshots.ts";
import { THIN } from "./thin.ts";
import { VOLUMES } from "./volumes.ts";

/** The tables, by the headings of docs/reference/situations.md. */
export const SITUATIONS: Readonly<Record<string, readonly Situation[]>> = {
  "Volumes": VOLUMES,
  "Sizes and expansion": SIZES,
  "Filesystems": FILESYSTEMS,
  "Mounts and kubelet": MOUNTS,
  "Encryption": ENCRYPTION,
  "Reboots and upgrades": REBOOTS,
  "Disks": DISKS,
  "LVM": LVM,
  "Thin pools": THIN,
  "Snapshots, clones and backups": SNAPSHOTS,
  "Claims and the scheduler": CLAIMS,
  "Nodes and autoscalers": NODES,
  "API server and controllers": CONTROL_PLANE,
  "Hosts": HOSTS,
};
