/**
 * What volumes are made from: found on this machine, by a report.
 *
 * @module
 */

import { copiesInProgress } from "../inventory/copying.ts";
import type { SourceProperties } from "./rules.ts";
import type { CopyState } from "./plan.ts";
import { StorageError } from "../error.ts";
import type { LocatedLv, VolumeGroup } from "../model/report.ts";
import type { SnapshotFinder } from "../inventory/snapshot_finder.ts";
import { type ContentSource, copySnapshotOf, describeSource, type FormatState } from "../model/tags.ts";
import type { VolumeFinder } from "../inventory/volume_finder.ts";
import { defined } from "../defined.ts";

/** Where {@linkcode CopySources} looks. */
export interface CopySourcesOptions {
  /** The driver's name: whose LVs these are. */
  readonly driver: string;
  /** Where volumes are found. */
  readonly volumeFinder: VolumeFinder;
  /** Where snapshots are found. */
  readonly snapshotFinder: SnapshotFinder;
}

/** A source that is there. */
export interface FoundSource {
  /** Its LV. */
  readonly original: LocatedLv;
  /** What is known of it. */
  readonly properties: SourceProperties;
}

/** The sources of one driver on this machine. */
export class CopySources {
  readonly #options: CopySourcesOptions;

  /** Looks for nothing yet. */
  constructor(options: CopySourcesOptions) {
    this.#options = options;
  }

  /**
   * The copies according to a report; those that several LVs claim to be, or whose source does not answer, are left alone.
   *
   * @param offsetOf how many bytes of an LV this process has copied, if it has begun
   */
  copies(
    groups: readonly VolumeGroup[],
    offsetOf: (lvUuid: string) => bigint | undefined,
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
        const copySnapshot = groups.flatMap((group) => group.lvs.map((lv) => ({ lv, group })))
          .find(({ lv }) => copySnapshotOf(driver, lv.tags) === id);
        const offset = offsetOf(lv.uuid);
        return [{
          id,
          tags: { source, copied, format: format },
          destination: { lv, group },
          ...defined({ original, copySnapshot, offset }),
        }];
      } catch (error) {
        if (!(error instanceof StorageError && error.kind === "Unavailable")) onError(error);
        return [];
      }
    });
  }

  /** What a volume is to be made from. @throws {StorageError} */
  require(groups: readonly VolumeGroup[], source: ContentSource): FoundSource {
    const { volumeFinder } = this.#options;
    if (source.kind === "volume") volumeFinder.require(groups, source.id); // which says what is wrong with it
    const found = this.#find(groups, source);
    if (found === undefined) {
      throw new StorageError("NotFound", `looking for ${describeSource(source)}: no logical volume carries its tag`);
    }
    if (!found.original.lv.invalidSnapshot) return found;
    throw new StorageError(
      "FailedPrecondition",
      `using ${describeSource(source)}: its store overflowed, and its content is gone`,
    );
  }

  #find(groups: readonly VolumeGroup[], source: ContentSource): FoundSource | undefined {
    const { volumeFinder, snapshotFinder } = this.#options;
    if (source.kind === "volume") {
      const found = volumeFinder.locate(groups, source.id);
      if (found.state !== "present") return undefined;
      const { lv, group, tags: { format }, size } = found.volume;
      return { original: { lv, group }, properties: { size, content: contentOf(format) } };
    }
    const found = snapshotFinder.locate(groups, source.id);
    if (found === undefined || found.incomplete) return undefined;
    const { lv, group, snapshot } = found;
    const volume = volumeFinder.locate(groups, snapshot.source);
    const content = volume.state === "present" ? { content: contentOf(volume.volume.tags.format) } : {};
    return { original: { lv, group }, properties: { size: snapshot.size, ...content } };
  }
}

function contentOf(content: FormatState): SourceProperties["content"] & string {
  return content.state === "raw" ? "raw" : content.type;
}
