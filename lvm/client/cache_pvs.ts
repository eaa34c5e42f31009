/**
 * Keeps the physical volumes for caches free of everything else.
 *
 * @module
 */

import { pvArgument } from "../model/commands.ts";
import { isCachePv } from "../model/layout.ts";
import type { VolumeGroup } from "../model/report.ts";

/**
 * Returns the paths of the physical volumes to name to LVM in a command that takes space and names none: those that are not
 * for caches. LVM allocates on any of a group otherwise.
 *
 * @param args the arguments of lvm
 * @returns none where the group has no physical volume for caches
 */
export function pvsToName({ pvs }: Pick<VolumeGroup, "pvs">, args: readonly string[]): string[] {
  const takesSpace = ["lvcreate", "lvextend"].includes(args[0]!) &&
    args.some((arg) => arg === "--size" || arg === "--poolmetadatasize");
  if (!takesSpace || !pvs.some(isCachePv) || pvs.some(({ path }) => args.includes(pvArgument(path)))) return [];
  return pvs.filter((pv) => !isCachePv(pv) && !pv.missing).map(({ path }) => pvArgument(path));
}
