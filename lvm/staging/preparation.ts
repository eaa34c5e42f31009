/**
 * What is done to a volume before it is mounted: it is found, and its device verified; that it is in use is recorded, and
 * what is on its device is judged.
 *
 * A report takes longer than all other programs of a later stage together, and waits for whatever LVM changes. So a volume is
 * prepared by what the last report shows, where the kernel confirms it: the device with the number and size of the LV has the LV's
 * UUID, and what is on the device is what is recorded. Nothing is recorded but by a command that selects the LV as it is
 * known. Where one of them says otherwise, a new report decides.
 *
 * @module
 */

import { type BlockDevice, readBlockDevices, verifyDevice } from "../host/device.ts";
import { isDeviceOf, readMappedDevice } from "../host/device_mapper.ts";
import { deviceMounts, filesystemMounts, type Mount } from "../host/mounts.ts";
import { contentDevice } from "../encryption/mapping.ts";
import { setReadOnly } from "./read_only_device.ts";
import type { Encryption } from "../encryption/encryption.ts";
import { StorageError } from "../../base/error.ts";
import type { FilesystemType } from "../settings/filesystem.ts";
import type { VolumeId } from "../../base/ids.ts";
import type { Volume } from "../inventory/volume.ts";
import type { VolumeFinder } from "../inventory/volume_finder.ts";
import type { Lvm } from "../client/client.ts";
import { addUsedTag } from "../client/used_tags.ts";
import { prepareFilesystem, type RecordedFilesystem, type StagingWarning } from "./formatting.ts";
import {
  type Access,
  type EncryptedAccess,
  isStaged,
  refuseHeld,
  refuseWhileReached,
  requireEncrypted,
  resolveFilesystemType,
} from "./publication.ts";

/** How a volume is to be staged. */
export interface StageRequest extends EncryptedAccess {
  /** LVM on this machine. */
  readonly lvm: Lvm;
  /** The driver's name. */
  readonly driver: string;
  /** All mounts. */
  readonly mounts: readonly Mount[];
  /** The path at which it is to be mounted. */
  readonly path: string;
  /** How it is to be accessed. */
  readonly access: Access;
  /** Opens encrypted volumes. */
  readonly encryption: Encryption;
  /** Receives what is wrong, but does not prevent a mount. */
  readonly warn: (warning: StagingWarning) => void;
}

/** A volume that may be mounted. */
export interface PreparedVolume {
  /** The volume. */
  readonly volume: Volume;
  /** The type of its filesystem; absent for a block volume. */
  readonly type?: FilesystemType;
  /** Its filesystem as it is recorded, to be created if it is not there; absent while it is mounted anywhere. */
  readonly format?: RecordedFilesystem;
  /** True if it is staged at the path already. */
  readonly isStaged?: true;
}

/**
 * Prepares an active volume.
 *
 * @param known its device, if the volume is known from an earlier report that the kernel confirmed
 * @throws {StorageError} `FailedPrecondition` when it cannot be used as requested; `AlreadyExists` when it is staged there in
 * another way; `ForeignData` by what is on its device. For a known volume, any error may mean that it is so no longer
 */
export async function prepare(request: StageRequest, volume: Volume, known?: BlockDevice): Promise<PreparedVolume> {
  const { lvm, driver, mounts, path, access, encryption, passphrase, previous, volumeKey, warn } = request;
  const type = resolveFilesystemType(volume, access);
  requireEncrypted(volume, request);
  if (access.kind === "mount" && type !== undefined && isStaged(volume, mounts, path, access)) {
    return { volume, type, isStaged: true };
  }
  if (deviceMounts(mounts, contentDevice(volume.lv)).length === 0) refuseHeld("staging", volume);
  refuseWhileReached(volume, mounts);
  const device = known ?? await verifyDevice(lvm.exec, volume.lv);
  const isKnown = known !== undefined;
  let isUseRecorded = volume.used;
  const recordUse = async () => {
    if (!isUseRecorded) await addUsedTag(lvm, driver, volume, isKnown);
    isUseRecorded = true;
  };
  const opened = volume.tags.format.luks === undefined
    ? { volume, device }
    : await encryption.open(volume, { device, passphrase, previous, volumeKey, mounts, recordUse });
  if (type === undefined || filesystemMounts(mounts, contentDevice(volume.lv)).length > 0) {
    await recordUse();
    return { volume: opened.volume, ...(type !== undefined && { type }) };
  }
  if (opened.device.readOnly) await setReadOnly(lvm.exec, volume, false);
  const format = await prepareFilesystem(lvm, opened.volume, { device: opened.device, isKnown, recordUse, warn });
  return { volume: opened.volume, type, format };
}

/**
 * Prepares a volume by what is known of it.
 *
 * @returns `undefined` when a report must decide
 * @throws {StorageError} while a command that outlasted its deadline still runs
 */
export async function prepareKnown(
  request: StageRequest,
  finder: VolumeFinder,
  id: VolumeId,
): Promise<PreparedVolume | undefined> {
  try {
    const volume = knownVolume(request.lvm, finder, id);
    const device = volume && await confirmedDevice(request.lvm, volume);
    return device && await prepare(request, volume, device);
  } catch (error) {
    if (error instanceof StorageError && error.completion === undefined) return undefined;
    throw error;
  }
}

/** Returns an active volume, as it is known; `undefined` when too little is known, or a call that staged it was interrupted. */
function knownVolume(lvm: Lvm, finder: VolumeFinder, id: VolumeId): Volume | undefined {
  const known = lvm.knownToConfirm(id);
  if (known === undefined) return undefined;
  const volume = finder.require(known, id);
  const { lv, tags: { format }, used } = volume;
  if (!lv.active || format.state === "formatting" || format.luks !== undefined) return undefined;
  // LVM is to change something
  if ((!used || format.state === "unformatted") && lvm.known(id) === undefined) return undefined;
  return volume;
}

/** Returns the device of an LV, if the kernel shows that it is as it is known. */
async function confirmedDevice({ exec }: Lvm, { group, lv }: Volume): Promise<BlockDevice | undefined> {
  const mapped = await readMappedDevice(exec, lv.devicePath.replace(/^.*\//, ""));
  // whatever touches a suspended device waits for ever
  if (mapped === undefined || mapped.suspended || !isDeviceOf(mapped, group, lv)) return undefined;
  const [device] = await readBlockDevices(exec, [lv.devicePath]);
  const isAsKnown = device?.number === mapped.number && device.number === lv.deviceNumber && device.size === lv.size;
  return isAsKnown ? device : undefined;
}
