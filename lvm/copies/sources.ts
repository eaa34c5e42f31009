/**
 * Finds the sources of copies in a report.
 *
 * @module
 */

import { type LocatedLv, lvsOf, type VolumeGroup } from "../model/report.ts";
import { copiesInProgress } from "../inventory/copying.ts";
import type { SourceProperties } from "./rules.ts";
import type { CopyState } from "./plan.ts";
import { isWithoutDifference } from "./fetch.ts";
import type { CopyWork } from "./work.ts";
import { StorageError } from "../../base/error.ts";
import { layoutOf, LINEAR, sizeStep } from "../model/layout.ts";
import type { SnapshotFinder } from "../inventory/snapshot_finder.ts";
import {
  type ContentSource,
  copyBaseOf,
  copySnapshotOf,
  describeSource,
  ENCRYPTED,
  sourceNodeOf,
} from "../model/tags.ts";
import type { FormatState } from "../settings/format.ts";
import type { VolumeFinder } from "../inventory/volume_finder.ts";
import { defined } from "../../base/defined.ts";

/** Options of {@linkcode CopySources}. */
export interface CopySourcesOptions {
  /** The driver's name: whose LVs these are. */
  readonly driver: string;
  /** Finds volumes. */
  readonly volumeFinder: VolumeFinder;
  /** Finds snapshots. */
  readonly snapshotFinder: SnapshotFinder;
}

/** A source that exists. */
export interface FoundSource {
  /** Its LV. */
  readonly original: LocatedLv;
  /** Its properties. */
  readonly properties: SourceProperties;
}

/** The sources of one driver on this machine. */
export class CopySources {
  readonly #options: CopySourcesOptions;

  /** Creates the service. It reads nothing yet. */
  constructor(options: CopySourcesOptions) {
    this.#options = options;
  }

  /**
   * Returns the copies according to a report. It leaves out volumes that several LVs claim to be, and volumes whose own
   * group or whose source's group is unresponsive.
   *
   * @param workOf returns what this process has copied to an LV
   * @param onError called with each error but `Unavailable`
   */
  copies(
    groups: readonly VolumeGroup[],
    workOf: (lvUuid: string) => CopyWork,
    onError: (error: unknown) => void,
  ): CopyState[] {
    const { driver, volumeFinder } = this.#options;
    return copiesInProgress(driver, groups).flatMap(({ id }) => {
      try {
        const found = volumeFinder.locate(groups, id);
        if (found.state !== "present") return [];
        const { lv, group, tags } = found.volume;
        const { source, copied, format } = tags;
        if (source === undefined || copied === undefined) return [];
        const original = this.#find(groups, source)?.original;
        const copySnapshot = lvsOf(groups).find(({ lv }) => copySnapshotOf(driver, lv.tags) === id);
        const work = workOf(lv.uuid);
        const { offset, total, goal, differenceOffset } = work;
        const sourceNode = sourceNodeOf(lv.tags);
        const base = copyBaseOf(lv.tags);
        return [{
          id,
          tags: { source, copied, format: format },
          destination: { lv, group },
          ...defined({ original, copySnapshot, offset, total, sourceNode }),
          ...defined({ base, goal, differenceOffset }),
          isWithoutDifference: isWithoutDifference(work),
        }];
      } catch (error) {
        if (!(error instanceof StorageError && error.kind === "Unavailable")) onError(error);
        return [];
      }
    });
  }

  /**
   * Returns the source of a new volume.
   *
   * @throws {StorageError} `NotFound`; `Busy` while the source itself is being filled; `FailedPrecondition` when the
   * snapshot overflowed; those of {@linkcode VolumeFinder.require} and {@linkcode SnapshotFinder.locate}.
   */
  require(groups: readonly VolumeGroup[], source: ContentSource): FoundSource {
    const { volumeFinder } = this.#options;
    if (source.kind === "volume") volumeFinder.require(groups, source.id); // Its error names the problem.
    const found = this.#find(groups, source);
    if (found === undefined) {
      throw new StorageError("NotFound", `looking for ${describeSource(source)}: no logical volume carries its tag`);
    }
    if (!found.original.lv.invalidSnapshot) return found;
    throw new StorageError(
      "FailedPrecondition",
      `using ${describeSource(source)}: its COW space overflowed, and its content is lost`,
    );
  }

  #find(groups: readonly VolumeGroup[], source: ContentSource): FoundSource | undefined {
    const { volumeFinder, snapshotFinder } = this.#options;
    if (source.kind === "volume") {
      const found = volumeFinder.locate(groups, source.id);
      if (found.state !== "present") return undefined;
      const { lv, group, tags: { format }, size } = found.volume;
      return {
        original: { lv, group },
        properties: {
          size,
          step: stepOf({ lv, group }),
          content: contentOf(format),
          encrypted: format.luks !== undefined,
        },
      };
    }
    const found = snapshotFinder.locate(groups, source.id);
    if (found === undefined || found.incomplete) return undefined;
    const { lv, group, snapshot } = found;
    const volume = volumeFinder.locate(groups, snapshot.source);
    const ofVolume = volume.state === "present" ? { content: contentOf(volume.volume.tags.format) } : {};
    const step = volume.state === "present" ? stepOf(volume.volume) : group.extentSize;
    return {
      original: { lv, group },
      properties: { size: snapshot.size, step, encrypted: lv.tags.includes(ENCRYPTED), ...ofVolume },
    };
  }
}

/** Returns the bytes that the size of an LV is a multiple of, by its layout. */
function stepOf({ lv, group }: LocatedLv): bigint {
  return sizeStep(layoutOf(lv) ?? LINEAR, group.extentSize);
}

function contentOf(content: FormatState): SourceProperties["content"] & string {
  return content.state === "raw" ? "raw" : content.type;
}
