/**
 * The tags of LVs that become caches of volumes (lvmcache(7)). LVM hides such an LV while it is a cache, and its tags stay.
 *
 * @module
 */

import { parseVolumeId, type SnapshotId, type VolumeId } from "../../base/ids.ts";
import { CACHE, DELETED, OWNER, tagValue } from "../model/tag_text.ts";
import { eraseTags, isOwned, type VolumeTags } from "../model/tags.ts";

/**
 * Returns the tags of a new LV that becomes the cache of a volume. The LUKS header of an encrypted volume may get there, so
 * such a cache is overwritten whatever the volume's policy is.
 */
export function cacheTags(
  driver: string,
  { id, erase, format }: Pick<VolumeTags, "id" | "erase" | "format">,
): string[] {
  return [OWNER + driver, CACHE + id, ...eraseTags(format.luks === undefined ? erase : "zero")];
}

/** Returns the id of the volume for which an LV was made as a cache, unless it is to be removed; `undefined` for another LV. */
export function ownedCacheId(driver: string, tags: readonly string[]): VolumeId | undefined {
  return isOwned(driver, tags) ? parseVolumeId(tagValue(tags, CACHE) ?? "") : undefined;
}

/** Returns arguments of lvchange that mark an LV that was made as a cache as deleted. */
export function markCacheDeleted(id: VolumeId | SnapshotId): string[] {
  return ["--deltag", CACHE + id, "--addtag", DELETED + id];
}
