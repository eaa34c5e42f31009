/**
 * The removal of volumes that have no data: nothing is erased, so LVM removes them at once.
 *
 * @module
 */

import { StorageError, type StorageErrorOptions } from "../../base/error.ts";
import type { Lvm } from "../client/client.ts";
import type { Volume } from "../inventory/volume.ts";
import type { VolumeFinder } from "../inventory/volume_finder.ts";
import type { Selection } from "../model/commands.ts";
import { lvPath } from "../model/report.ts";
import { type VolumeId, volumeLvName } from "../../base/ids.ts";
import { OWNER, VOLUME } from "../model/tag_text.ts";
import { formatStateTag, usedTag } from "../model/tags.ts";

/**
 * Reports whether nothing was ever written to a volume. An LV with a name that the driver did not give to it may have data: it is
 * being imported, or an administrator gave it to the driver.
 */
export function isEmpty({ id, lv, used, tags: { format, source } }: Volume): boolean {
  return !used && format.state === "unformatted" && source === undefined && lv.name.startsWith(volumeLvName(id));
}

/** Returns what a volume is as long as nobody changes it, or makes something that depends on it. */
export function selectionOf(driver: string, { id, lv, tags }: Volume): Selection {
  return {
    uuid: lv.uuid,
    tags: [OWNER + driver, VOLUME + id, formatStateTag(tags.format)],
    withoutDependents: true,
  };
}

/** Returns what an empty volume is as long as it is empty: {@linkcode selectionOf}, and nobody has used it. */
export function emptySelectionOf(driver: string, volume: Volume): Selection {
  const { id, lv: { uuid } } = volume;
  return { ...selectionOf(driver, volume), withoutGroupTag: usedTag(driver, id, uuid) };
}

/**
 * Removes the LV of an empty volume, if it is still as a report showed it.
 *
 * @throws {StorageError} `InUse` while a program has it open; `Busy` when it is there, but something changed since the report
 */
export async function removeEmpty(lvm: Lvm, finder: VolumeFinder, volume: Volume): Promise<void> {
  const { id, lv, group } = volume;
  const options = { yes: true, ...emptySelectionOf(finder.driver, volume) } as const;
  const isRemoved = await lvm.remove(group, options, lvPath(volume)).catch((cause) => {
    throw cause instanceof StorageError && cause.kind === "InUse" ? inUseError(id, lv.devicePath, { cause }) : cause;
  });
  if (isRemoved) return;
  const found = finder.locate(await lvm.report(), id);
  if (found.state !== "present" || found.volume.lv.uuid !== lv.uuid) return;
  throw new StorageError(
    "Busy",
    `deleting volume ${id}: ${lvPath(volume)} was renamed or changed meanwhile; try again`,
  );
}

/** Returns the error of the deletion of a volume that is in use. @param what its device, or a mount */
export function inUseError(id: VolumeId, what: string, options: StorageErrorOptions = {}): StorageError {
  const message = `deleting volume ${id}: ${what} is in use; unpublish and unstage it first`;
  return new StorageError("InUse", message, options);
}
