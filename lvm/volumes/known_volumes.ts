/**
 * Creating and deleting volumes by what is known of the groups, without a new report; the removal of volumes that have no
 * data: nothing is erased, so LVM removes them at once.
 *
 * What is known may not be true any more. So each function decides only where LVM refuses a wrong command, or selects nothing
 * for it, under the lock under which it would change something. Everywhere else it leaves the decision to a report.
 *
 * @module
 */

import { ignoreStorageError, ignoring, StorageError, type StorageErrorOptions } from "../../base/error.ts";
import type { Lvm } from "../client/client.ts";
import { isEmpty, type Volume, type VolumeRequest, type VolumeState } from "../inventory/volume.ts";
import type { VolumeFinder } from "../inventory/volume_finder.ts";
import { lvchangeTags, type Selection } from "../model/command_lines.ts";
import { type LogicalVolume, lvPath, type VolumeGroup } from "../model/report.ts";
import { inDeviceName, type VolumeId, volumeLvName } from "../../base/ids.ts";
import { formatStateTag, markVolumeDeleted, OWNER, unmountedTag, usedTag, VOLUME, volumeTags } from "../model/tags.ts";
import { lvUuidOf, type MappedDeviceReader } from "../host/device_mapper.ts";
import { newVolumeLvName } from "./volume_command.ts";
import { copiesInProgress } from "../inventory/copying.ts";
import { type Candidate, isSelected, selectCandidates } from "../model/groups.ts";
import type { KnownReport } from "../client/known_report.ts";
import { cowSnapshotsOn, isThin } from "../pools/pool.ts";
import { thinLvsOnOrigin } from "../deletion/cow_origin.ts";

/** What the functions need. */
export interface KnownVolumesContext {
  /** LVM on this machine. */
  readonly lvm: Lvm;
  /** Finds the driver's volumes. */
  readonly finder: VolumeFinder;
}

/**
 * Returns where to create a volume that is known not to exist: the only group that matches, in which LVM refuses a second LV
 * of that name. A group is not chosen among several, since their free space is not known.
 *
 * @returns `undefined` when a report must decide
 */
export function knownGroupFor(
  { lvm, finder }: KnownVolumesContext,
  { id, groups, range, preference, layout, thin, source }: VolumeRequest,
): Candidate<VolumeGroup> | undefined {
  const known = lvm.known(id);
  if (known === undefined || layout.type !== "linear" || thin !== undefined || source !== undefined) return undefined;
  if (locate(finder, known, id)?.state !== "absent" || finder.incompleteLvs(known, id).length > 0) return undefined;
  const [group, ...others] = finder.managedGroups(known).filter((group) => isSelected(group, groups));
  // a deleted volume may still have the name
  if (
    group === undefined || others.length > 0 || (group.lvsLeft ?? 1) < 1 ||
    known.some(({ lvs }) => lvs.some(({ name }) => name.startsWith(volumeLvName(id))))
  ) {
    return undefined;
  }
  return ignoreStorageError(() => selectCandidates([group], groups, range, preference, layout))?.[0];
}

/**
 * Returns a linear volume that lvcreate has just made, by the kernel's device of it.
 *
 * @param group the group, as it was before
 * @returns `undefined` when a report must show it
 */
export async function readCreated(
  { devices, driver }: { readonly devices: MappedDeviceReader; readonly driver: string },
  group: VolumeGroup,
  request: VolumeRequest,
  size: bigint,
): Promise<Volume | undefined> {
  if (request.layout.type !== "linear" || request.thin !== undefined || request.source !== undefined) return undefined;
  const name = newVolumeLvName(driver, group, request.id);
  const deviceName = `${inDeviceName(group.name)}-${inDeviceName(name)}`;
  const mapped = await devices.read(deviceName).catch(ignoring("CommandFailed", "Unavailable"));
  const uuid = mapped && lvUuidOf(group, mapped.uuid);
  if (uuid === undefined || mapped!.suspended || mapped!.tables !== "Live") return undefined;
  const lv: LogicalVolume = {
    name,
    uuid,
    size,
    tags: volumeTags(driver, request),
    devicePath: `/dev/mapper/${deviceName}`,
    deviceNumber: mapped!.number,
    active: true,
    suspended: false,
    open: false,
    layout: ["linear"],
    segment: { type: "linear", stripes: 1, stripeSize: 0n },
    pvSegments: [],
    health: "",
    incomplete: false,
    invalidSnapshot: false,
    createdAt: 0,
  };
  return { id: request.id, size, tags: request, lv, group, used: false };
}

/**
 * Removes a volume that is known to have no data, or marks a volume as deleted, if it is still as it is known, and nothing
 * uses it or depends on it.
 *
 * @returns `undefined` when a report must decide
 */
export async function deleteKnown(
  { lvm, finder }: KnownVolumesContext,
  id: VolumeId,
): Promise<"removed" | "marked" | undefined> {
  const known = lvm.known(id);
  const found = known && locate(finder, known, id);
  if (known === undefined || found?.state !== "present" || !isSimple(finder.driver, known, found.volume)) {
    return undefined;
  }
  const { volume } = found;
  const { group, tags } = volume;
  const path = lvPath(volume);
  if (!isEmpty(volume)) {
    const select = { ...selectionOf(finder.driver, volume), closed: true } as const;
    const changes = markVolumeDeleted(id, tags.format, volume.lv.tags);
    const isMarked = await lvm.changeSelected(group, lvchangeTags(changes, path, select));
    return isMarked ? "marked" : undefined;
  }
  const options = { yes: true, ...emptySelectionOf(finder.driver, volume), closed: true } as const;
  return await lvm.remove(group, options, path) ? "removed" : undefined;
}

/** Reports whether LVM can decide about the deletion of a volume: what a selection cannot say does not concern it. */
function isSimple(driver: string, known: KnownReport, volume: Volume): boolean {
  const { id, lv, tags } = volume;
  const isCopied = copiesInProgress(driver, known).some(({ source }) => source.kind === "volume" && source.id === id);
  const dependents = [...cowSnapshotsOn(volume), ...thinLvsOnOrigin(volume)];
  // the bind mount of a device does not open it
  return tags.format.state !== "raw" && tags.copied === undefined && !isThin(lv) && !isCopied &&
    dependents.length === 0;
}

function locate(finder: VolumeFinder, known: KnownReport, id: VolumeId): VolumeState | undefined {
  return ignoreStorageError(() => finder.locate(known, id));
}

/** Reports whether an error of LVM may mean that what was known is not true any more, so that a report must decide. */
export function isOutdated({ kind }: StorageError): boolean {
  return ["NoSpace", "AlreadyExists", "NotFound", "FailedPrecondition"].includes(kind);
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
function emptySelectionOf(driver: string, volume: Volume): Selection {
  const { id, lv } = volume;
  const { tags = [], ...selection } = selectionOf(driver, volume);
  const mark = unmountedTag(volume);
  return {
    ...selection,
    tags: lv.tags.includes(mark) ? [...tags, mark] : tags,
    withoutGroupTag: usedTag(driver, id, lv.uuid),
  };
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
