/**
 * Finds the volumes of one driver in a report. It reads nothing else and changes nothing.
 *
 * A volume is the LV that carries its tags. The driver derives the LV's name from the id, but the tags decide: the
 * finder also finds a renamed LV.
 *
 * @module
 */

import { defined } from "../../base/defined.ts";
import { StorageError } from "../../base/error.ts";
import type { VolumeId } from "../../base/ids.ts";
import { requireReadable, requireResponsive } from "../client/client.ts";
import { ANY_GROUP, type GroupMatcher, groupsAllowedBy } from "../model/groups.ts";
import { type LocatedLv, lvPath, type VolumeGroup } from "../model/report.ts";
import { describeSource, parseVolumeTags } from "../model/tags.ts";
import { indexReport } from "./report_index.ts";
import {
  lostVolumeState,
  type RecordedLv,
  type Volume,
  type VolumeRecord,
  type VolumeState,
  withoutClones,
} from "./volume.ts";

/** Options of {@linkcode VolumeFinder}. */
export interface VolumeFinderOptions {
  /** The driver's name: whose LVs these are. */
  readonly driver: string;
  /** The groups in which the driver creates volumes; all by default. */
  readonly groups?: GroupMatcher;
  /**
   * Returns what is recorded outside LVM of a volume that was created. By default there are only the records in LVM's
   * tags.
   */
  readonly recordedLv?: (id: VolumeId) => RecordedLv | undefined;
}

/** A finder of the volumes of one driver. It keeps no state. */
export class VolumeFinder {
  /** The driver's name. */
  readonly driver: string;
  /** The groups in which the driver creates volumes. */
  readonly groups: GroupMatcher;
  readonly #recordedLv: (id: VolumeId) => RecordedLv | undefined;

  /** Creates the finder. */
  constructor({ driver, groups = ANY_GROUP, recordedLv = () => undefined }: VolumeFinderOptions) {
    this.driver = driver;
    this.groups = groups;
    this.#recordedLv = recordedLv;
  }

  /** Returns those of the groups in which the driver creates volumes. */
  managedGroups(groups: readonly VolumeGroup[]): VolumeGroup[] {
    return groupsAllowedBy(groups, this.groups);
  }

  /**
   * Returns the volume according to a report.
   *
   * @throws {StorageError} `NotFound`; `Lost`; `Busy` while the volume is being filled; those of {@linkcode locate}.
   */
  require(groups: readonly VolumeGroup[], id: VolumeId): Volume {
    const found = this.locate(groups, id);
    if (found.state === "lost") throw found.error;
    if (found.state === "absent") {
      throw new StorageError(
        "NotFound",
        `looking for volume ${id}: no logical volume of this node carries its tag; a volume can be used only on the node where it is`,
      );
    }
    const { tags: { copied, source } } = found.volume;
    if (copied !== undefined) {
      throw new StorageError("Busy", `using volume ${id}: it is still being copied from ${describeSource(source)}`);
    }
    return found.volume;
  }

  /**
   * Returns what a report and the records show of a volume id.
   *
   * @param groups a report of LVM
   * @param within the groups that may hold the volume. By default these are all groups: a user may have renamed the
   * volume's group, or the driver may not use that group any more.
   * @throws {StorageError} `ForeignData` when several LVs claim to be the volume, or its tags cannot be read;
   * `Unavailable` when the volume is, or may be, in an unresponsive group.
   */
  locate(groups: readonly VolumeGroup[], id: VolumeId, within: GroupMatcher = ANY_GROUP): VolumeState {
    const incomplete = this.incompleteLvs(groups, id);
    const tagged = (indexReport(this.driver, groups).volumes.get(id) ?? [])
      .filter(({ lv }) => !incomplete.some((each) => each.lv === lv));
    const found = withoutClones(tagged, this.#recordedLv(id));
    if (found.length > 1) {
      const names = found.map(lvPath).join(" and ");
      throw new StorageError(
        "ForeignData",
        `looking for volume ${id}: ${names} both claim to be it; remove the tags of one`,
      );
    }
    const [only] = found;
    const records = this.#usedRecords(groups, id);
    const [other] = records.filter(({ lvUuid }) => lvUuid !== only?.lv.uuid);
    const used = records.some(({ lvUuid, usedTag }) => usedTag !== undefined && lvUuid === only?.lv.uuid);
    const operation = `looking for volume ${id}`;
    if (only !== undefined) {
      requireResponsive(operation, only.group);
      requireReadable(operation, only);
    }
    if (other !== undefined && !records.some(({ lvUuid }) => lvUuid === only?.lv.uuid)) {
      if (other.group !== undefined) requireResponsive(operation, other.group);
      return lostVolumeState(id, other, only?.lv);
    }
    if (only === undefined) {
      for (const group of groups.filter(({ name, showsLvs }) => !showsLvs && within.matches(name))) {
        requireResponsive(operation, group);
      }
      return { state: "absent" };
    }
    const tags = parseVolumeTags(this.driver, only.lv.tags)!;
    return { state: "present", volume: { id, size: only.lv.size, tags, ...only, used } };
  }

  /**
   * Returns all volumes of the driver, in the order of their ids. It leaves out volumes whose tags cannot be read, and
   * volumes that are being filled. It returns the volumes of an unresponsive group as they were last seen.
   */
  list(report: readonly VolumeGroup[]): Volume[] {
    const groups = report.map((group) => ({ ...group, responsive: true }));
    return [...indexReport(this.driver, groups).volumes.keys()].sort().flatMap((id) => {
      try {
        const found = this.locate(groups, id);
        return found.state === "present" && found.volume.tags.copied === undefined ? [found.volume] : [];
      } catch {
        return [];
      }
    });
  }

  /** Returns the LVs that an `lvcreate` for the volume left when it died. No data was ever on them. */
  incompleteLvs(groups: readonly VolumeGroup[], id: VolumeId): LocatedLv[] {
    const incomplete = indexReport(this.driver, groups).incomplete.get(id) ?? [];
    return incomplete.filter(({ lv }) => this.#recordedLv(id)?.lvUuid !== lv.uuid);
  }

  /** Returns the records of the volume, without those of deleted LVs that are still there. */
  #usedRecords(groups: readonly VolumeGroup[], id: VolumeId): VolumeRecord[] {
    const { records, deletedUuids } = indexReport(this.driver, groups);
    const tagged = records.get(id) ?? [];
    const recordedLv = this.#recordedLv(id);
    const group = groups.find(({ name }) => name === recordedLv?.groupName);
    const all = recordedLv === undefined ? tagged : [...tagged, { ...recordedLv, ...defined({ group }) }];
    return all.filter(({ lvUuid }) => !deletedUuids.has(lvUuid));
  }
}
