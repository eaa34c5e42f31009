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

import {
  allowWrites,
  findBlockDevice,
  type LocatedDevice,
  readBlockDevice,
  readSignatures,
  refuseWrites,
  requireBlank,
  type Signature,
  verifyDevice,
  wipeSignatures,
} from "../host/device.ts";
import { deviceUuidOf, readMappedDevice } from "../host/device_mapper.ts";
import { activationArguments, isMissingInPool, missingInPoolError } from "../pools/activation.ts";
import { contentDevice } from "../encryption/mapping.ts";
import type { Encryption, OpenOptions, OpenVolume } from "../encryption/encryption.ts";
import { StorageError } from "../../base/error.ts";
import { allDone, type Exec } from "../exec.ts";
import { resumeSuspended } from "../deletion/resumption.ts";
import type { VolumeId } from "../../base/ids.ts";
import type { Volume } from "../inventory/volume.ts";
import type { VolumeFinder } from "../inventory/volume_finder.ts";
import type { Lvm } from "../client/client.ts";
import { lvPath } from "../model/report.ts";
import { addUsedTag } from "../client/used_tags.ts";
import { type FilesystemFormat, type FormatStep, nextFormatStep, recordFormatState } from "./formatting.ts";
import { requireStageable, type StageTarget } from "./publication.ts";

/** How a volume is to be staged, and by what. */
export interface StageRequest extends StageTarget {
  /** LVM on this machine. */
  readonly lvm: Lvm;
  /** Finds the volumes. */
  readonly volumes: VolumeFinder;
  /** Opens encrypted volumes. */
  readonly encryption: Encryption;
  /** False if it is not mounted yet, so that its use is not recorded; true by default. */
  readonly isUse?: boolean;
}

/** A volume that may be mounted. */
export interface PreparedVolume {
  /** The volume. */
  readonly volume: Volume;
  /** The path of the device that has its content. */
  readonly devicePath: string;
  /** What makes its filesystem ready to be mounted; absent while it is mounted anywhere. */
  readonly step?: FormatStep;
  /** True if it is staged at the path already. */
  readonly isStaged?: true;
}

/**
 * Prepares a volume: by what is known of it, or else by a new report.
 *
 * @throws {StorageError} `NotFound`, `Lost` and `Busy` by the state of the volume; `FailedPrecondition` when it cannot be used as
 * requested; `AlreadyExists` when it is staged there in another way; `ForeignData` by what is on its device
 */
export async function prepareVolume(request: StageRequest, id: VolumeId): Promise<PreparedVolume> {
  const { lvm, volumes } = request;
  try {
    const known = await findKnown(request, id);
    if (known !== undefined) return await prepare(request, known.volume, known.device);
  } catch (error) {
    // it may be so no longer, unless a command that outlasted its deadline still changes it
    if (!(error instanceof StorageError) || error.completion !== undefined) throw error;
  }
  return await prepare(request, await activate(lvm, volumes, volumes.require(await lvm.report(), id)));
}

/**
 * Finds an active volume as it is known.
 *
 * @returns `undefined` when too little is known, the kernel does not confirm it, or a call that staged it was interrupted
 */
async function findKnown(
  { lvm, volumes }: StageRequest,
  id: VolumeId,
): Promise<{ readonly volume: Volume; readonly device: LocatedDevice } | undefined> {
  const known = lvm.knownToConfirm(id);
  if (known === undefined) return undefined;
  const volume = volumes.require(known, id);
  const { group, lv, tags: { format }, used } = volume;
  if (!lv.active || format.state === "formatting" || format.luks !== undefined) return undefined;
  // LVM is to change something
  if ((!used || format.state === "unformatted") && lvm.known(id) === undefined) return undefined;
  const mapped = await readMappedDevice(lvm.exec, lv.devicePath.replace(/^.*\//, ""));
  // whatever touches a suspended device waits for ever
  if (mapped === undefined || mapped.suspended || mapped.uuid !== deviceUuidOf(group, lv)) return undefined;
  const device = await findBlockDevice(lvm.exec, lv.devicePath);
  const isAsKnown = device?.number === mapped.number && device.number === lv.deviceNumber && device.size === lv.size;
  return isAsKnown ? { volume, device } : undefined;
}

/**
 * Prepares an active volume.
 *
 * @param known its device, if the volume is known from an earlier report that the kernel confirmed
 */
async function prepare(request: StageRequest, volume: Volume, known?: LocatedDevice): Promise<PreparedVolume> {
  const { lvm, volumes: { driver }, mounts, encryption, passphrase, previous, volumeKey, isUse = true } = request;
  const content = contentDevice(volume.lv);
  const { devicePath } = content;
  const mounted = requireStageable(volume, content, request);
  if (mounted === "staged") return { volume, devicePath, isStaged: true };
  const device = known ?? await verifyDevice(lvm.exec, volume.lv);
  const isKnown = known !== undefined;
  let isUseRecorded = volume.used || !isUse;
  const recordUse = async () => {
    if (!isUseRecorded) await addUsedTag(lvm, driver, volume, isKnown);
    isUseRecorded = true;
  };
  const opened = volume.tags.format.luks === undefined
    ? { volume, device }
    : await encryption.open(volume, { device, passphrase, previous, volumeKey, mounts, recordUse });
  const { format } = opened.volume.tags;
  if (format.state === "raw" || mounted === "elsewhere") {
    await recordUse();
    return { volume: opened.volume, devicePath };
  }
  const step = await beginStep(lvm, format, { ...opened, isKnown, recordUse });
  return { volume: opened.volume, devicePath, step };
}

/** Decides what makes the filesystem of a volume ready to be mounted, and records that this begins. */
async function beginStep(
  lvm: Lvm,
  format: FilesystemFormat,
  { volume, device, isKnown, recordUse }: OpenVolume<Volume> & Pick<OpenOptions, "recordUse"> & { isKnown: boolean },
): Promise<FormatStep> {
  const { exec } = lvm;
  if (device.readOnly) await setReadOnly(exec, volume, { path: device.path, readOnly: false });
  const signatures: Signature[] = [];
  const read = async () => void signatures.push(...await readSignatures(exec, device.path));
  // what is to be formatted is read with more care, and a renewal goes on whatever it has changed
  if (format.state === "renewing") await recordUse();
  else if (format.state !== "unformatted") await allDone([recordUse(), read()]);
  const step = nextFormatStep(format, { ...device, signatures }, crypto.randomUUID());
  if (step.do === "refuse") throw step.error;
  if (step.first === "wipe") await wipeSignatures(exec, device.path);
  if (step.first === "require blank") await allDone([recordUse(), requireBlank(exec, device)]);
  if (step.filesystem !== format) await recordFormatState(lvm, volume, { from: format, to: step.filesystem, isKnown });
  return step;
}

/**
 * Sets whether the kernel refuses writes to the device of a volume.
 *
 * @throws {StorageError} `FailedPrecondition` when it refuses them still, because LVM does not permit them
 */
export async function setReadOnly(
  exec: Exec,
  volume: Volume,
  { path, readOnly }: Pick<LocatedDevice, "path" | "readOnly">,
): Promise<void> {
  await (readOnly ? refuseWrites : allowWrites)(exec, path);
  if (readOnly || !(await readBlockDevice(exec, path)).readOnly) return;
  const lv = lvPath(volume);
  throw new StorageError(
    "FailedPrecondition",
    `using volume ${volume.id} for writing: LVM does not permit writes to ${lv}; permit them (lvchange --permission rw ${lv})`,
  );
}

/**
 * Activates a volume, and resumes its device if a killed command left it suspended.
 *
 * @throws {StorageError} `FailedPrecondition` when its thin pool lacks it, or LVM may not activate it here
 */
export async function activate(lvm: Lvm, volumes: VolumeFinder, volume: Volume): Promise<Volume> {
  await resumeSuspended(lvm, volumes.driver, [volume]);
  if (volume.lv.active) return volume;
  const command = activationArguments(volumes.driver, volume.group, volume.lv);
  await lvm.change(volume.group, command).catch((cause) => {
    throw isMissingInPool(cause) ? missingInPoolError(`activating volume ${volume.id}`, volume, cause) : cause;
  });
  const active = volumes.require(await lvm.report(), volume.id);
  if (active.lv.active) return active;
  throw new StorageError(
    "FailedPrecondition",
    `activating volume ${volume.id}: LVM reported success, but ${volume.lv.devicePath} is not active (see volume_list in lvm.conf)`,
    { reason: "NotActive" },
  );
}
