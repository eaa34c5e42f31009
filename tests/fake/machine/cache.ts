/**
 * Caches of the fake machine's LVs, after LVM 2.03: an LV that is the cache of another one is hidden (lvmcache(7)).
 *
 * @module
 */

import type { Output } from "../../../lvm/exec.ts";
import { failure, type FakeGroup, type FakeLv, ok } from "./machine.ts";
import { dataPvSegmentsOf, type FakePvSegment } from "./pvs.ts";

/** Returns the LV that becomes the cache of a new one, or LVM's refusal; `undefined` for an LV without a cache. */
export function cacheOfOptions(
  group: FakeGroup,
  name: string,
  options: ReadonlyMap<string, string[]>,
): FakeLv | Output | undefined {
  const [cacheName] = options.get("--cachevol") ?? [];
  if (cacheName === undefined) return undefined;
  const type = options.get("--type")?.[0];
  const [config] = options.get("--config") ?? [];
  if (type === "cache" && config !== 'allocation/cache_mode="writethrough"') {
    throw new Error(`lvcreate: lvm.conf may make ${name} a volume that loses data with its cache`);
  }
  const cache = group.lvs.find((lv) => lv.name === cacheName);
  if (cache === undefined) {
    return failure(5, `  LV ${cacheName} not found.\n  Removing new LV after failing to add ${type}.`);
  }
  if (group.lvs.some((lv) => lv.cache?.name === cacheName)) {
    return failure(5, `  Logical Volume "${cacheName}_cvol" already exists in volume group "${group.name}"`);
  }
  if (cache.size < 2n * group.extentSize) return failure(5, "  The minimum cache size is two extents.");
  return cache;
}

/** Hides an LV as the cache of another one. */
export function attachCache(group: FakeGroup, lv: FakeLv, cache: FakeLv): void {
  group.lvs = group.lvs.filter((other) => other !== cache);
  Object.assign(cache.content, { zeroHead: true, signatures: [] });
  lv.cache = cache;
}

/** Notes that what an LV has may be in its cache, too, where no write to the LV overwrites it. */
export function fillCache({ cache, content }: FakeLv): void {
  if (cache !== undefined) cache.content.data = cache.content.data.union(content.data);
}

/** Separates the cache of an LV. */
export function splitCache(group: FakeGroup, lv: FakeLv): Output {
  const { cache } = lv;
  const path = `${group.name}/${lv.name}`;
  if (cache === undefined) {
    return failure(
      5,
      `  Command on LV ${path} does not accept LV type linear.\n  Command not permitted on LV ${path}.`,
    );
  }
  fillCache(lv);
  delete lv.cache;
  delete lv.segment;
  cache.active = false;
  cache.zeroedTo = 0n;
  group.lvs.push(cache);
  return ok(`  Logical volume ${path} is not cached and ${group.name}/${cache.name} is unused.\n`);
}

/** Returns the segments of a cached LV, with the parts that they belong to; of others, as they are. */
export function withCacheSegments(
  group: FakeGroup,
  { cache, segment }: FakeLv,
  data: readonly FakePvSegment[],
): FakePvSegment[] {
  if (cache === undefined) return [...data];
  const subLv = segment?.type === "cache" ? "corig" : "wcorig";
  const ofCache = dataPvSegmentsOf(group, cache);
  return [...data.map((each) => ({ ...each, subLv })), ...ofCache.map((each) => ({ ...each, ofCache: cache.name }))];
}

/** Returns the names of a cached LV's parts in a report. */
export function cacheFields({ name, cache, segment }: FakeLv): Record<string, string> {
  if (cache === undefined) return {};
  const type = segment!.type;
  const origin = type === "cache" ? "corig" : "wcorig";
  return { lv_layout: type, pool_lv: `[${cache.name}_cvol]`, origin: `[${name}_${origin}]` };
}
