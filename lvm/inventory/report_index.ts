/**
 * What the tags in a report say about each volume and snapshot of a driver.
 *
 * The tags are read once for each report. To read those of all LVs for each volume took a minute for 2000 volumes, in which
 * the driver answered nothing.
 *
 * @module
 */

import { type LocatedLv, lvsOf, type VolumeGroup } from "../model/report.ts";
import type { SnapshotId, VolumeId } from "../../base/ids.ts";
import { ownedSnapshotId, ownedVolumeId, parseUsedTags } from "../model/tags.ts";
import { deletedLvs, incompleteVolumes } from "./leftovers.ts";
import type { VolumeRecord } from "./volume.ts";

/** The LVs and records of one driver in a report. */
export interface ReportIndex {
  /** The LVs that carry the tag of a volume, by volume. */
  readonly volumes: ReadonlyMap<VolumeId, readonly LocatedLv[]>;
  /** The LVs that carry the tag of a snapshot, by snapshot. */
  readonly snapshots: ReadonlyMap<SnapshotId, readonly LocatedLv[]>;
  /** The LVs that an interrupted `lvcreate` left, by volume. */
  readonly incomplete: ReadonlyMap<VolumeId, readonly LocatedLv[]>;
  /** The records of volumes in use in the groups' tags, by volume. */
  readonly records: ReadonlyMap<VolumeId, readonly VolumeRecord[]>;
  /** The UUIDs of the deleted LVs. */
  readonly deletedUuids: ReadonlySet<string>;
}

/** The indexes of each report, by the driver's name. */
const indexes = new WeakMap<readonly VolumeGroup[], Map<string, ReportIndex>>();

/**
 * Returns the index of a report.
 *
 * @param driver the driver's name
 * @param groups a report of LVM, which nobody changes
 */
export function indexReport(driver: string, groups: readonly VolumeGroup[]): ReportIndex {
  const byDriver = indexes.get(groups) ?? new Map<string, ReportIndex>();
  const known = byDriver.get(driver);
  if (known !== undefined) return known;
  const index = buildIndex(driver, groups);
  indexes.set(groups, byDriver.set(driver, index));
  return index;
}

function buildIndex(driver: string, groups: readonly VolumeGroup[]): ReportIndex {
  const all = lvsOf(groups);
  const volumeOf = ({ lv }: LocatedLv) => ownedVolumeId(driver, lv.tags);
  const records = groups.flatMap((group) =>
    parseUsedTags(driver, group.tags).map(({ tag, id, lvUuid }) => ({
      id,
      record: { group, groupName: group.name, lvUuid, usedTag: tag },
    }))
  );
  const byId = groupById(records, ({ id }) => id);
  return {
    volumes: groupById(all, volumeOf),
    snapshots: groupById(all, ({ lv }) => ownedSnapshotId(driver, lv.tags)),
    incomplete: groupById(incompleteVolumes(driver, groups), volumeOf),
    records: new Map([...byId].map(([id, of]) => [id, of.map(({ record }) => record)])),
    deletedUuids: new Set(deletedLvs(driver, groups).map(({ lv }) => lv.uuid)),
  };
}

/** Groups items by their ids, without those that have none. */
function groupById<Item, Id extends string>(
  items: readonly Item[],
  idOf: (item: Item) => Id | undefined,
): Map<Id, Item[]> {
  const byId = new Map<Id, Item[]>();
  for (const item of items) {
    const id = idOf(item);
    if (id === undefined) continue;
    const same = byId.get(id);
    if (same === undefined) byId.set(id, [item]);
    else same.push(item);
  }
  return byId;
}
