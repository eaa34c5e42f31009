/**
 * The mapping of an encrypted volume: the device on which its data is not encrypted, as dm-crypt makes it of the LV.
 *
 * Its name has the form of the name of an LV's device, in a group of its own, so that whatever knows a volume by the name of
 * its device knows it by its mapping as well. Who has a mapping open has the LV open.
 *
 * @module
 */

import { basename } from "@std/path";
import { StorageError } from "../../base/error.ts";
import type { Exec } from "../exec.ts";
import { type MappedDevice, readMappedDevice } from "../host/device_mapper.ts";
import { deviceMounts, type Mount, type MountedDevice } from "../host/mounts.ts";
import { inDeviceName, MAPPING_GROUP, parseVolumeId, type VolumeId, volumeLvName } from "../../base/ids.ts";
import type { LocatedLv, LogicalVolume } from "../model/report.ts";
import { FORMAT, tagValue, VOLUME, type VolumeTags } from "../model/tags.ts";
import { parseFormat } from "../settings/format.ts";
import { closeCommand, isNoMapping, mappingError } from "./cryptsetup.ts";

/** A volume that may be encrypted. */
export interface EncryptedVolume extends LocatedLv {
  /** Its id. */
  readonly id: VolumeId;
  /** The contents of its tags. */
  readonly tags: VolumeTags;
}

/** Returns the name of the mapping of a volume. */
export function mappingName(id: VolumeId): string {
  return `${MAPPING_GROUP}-${inDeviceName(volumeLvName(id))}`;
}

/** Reports whether a device's name is that of a mapping of the driver. */
export function isMappingName(name: string): boolean {
  return name.startsWith(`${MAPPING_GROUP}-vol--`);
}

/** Reports whether a mount is of the filesystem on a mapping of the driver. */
export function isMappingMount({ source }: Mount): boolean {
  return isMappingName(basename(source));
}

/** Returns the path of the node of a volume's mapping. */
export function mappingPath(id: VolumeId): string {
  return `/dev/mapper/${mappingName(id)}`;
}

/**
 * Returns the device that has the content of an LV: its own, or the mapping of an encrypted volume. The number of a mapping is
 * not known here, so that the mounts of its filesystem are found by its path alone.
 */
export function contentDevice(lv: Pick<LogicalVolume, "devicePath" | "deviceNumber" | "tags">): MountedDevice {
  const id = parseVolumeId(tagValue(lv.tags, VOLUME) ?? "");
  const isEncrypted = parseFormat(tagValue(lv.tags, FORMAT) ?? "")?.luks !== undefined;
  return isEncrypted && id !== undefined ? { devicePath: mappingPath(id) } : lv;
}

/** Reads the mapping of a volume; `undefined` while it is not open. */
export function readMapping(exec: Exec, id: VolumeId): Promise<MappedDevice | undefined> {
  return readMappedDevice(exec, mappingName(id));
}

/**
 * Closes the mapping of a volume, if it is open.
 *
 * @param mounts the mounts of this machine
 * @throws {StorageError} `InUse` while it is mounted or published, or a program has it open
 */
export async function closeMapping(exec: Exec, id: VolumeId, mounts: readonly Mount[]): Promise<void> {
  const mapping = await readMapping(exec, id);
  if (mapping === undefined) return;
  const device = { devicePath: mappingPath(id), deviceNumber: mapping.number };
  // a bind mount of its node does not keep it open, and would lead to another device later
  const [published] = deviceMounts(mounts, device);
  if (published !== undefined) {
    throw new StorageError("InUse", `closing ${mappingPath(id)}: it is published at ${published.target}`, {
      retryOnChange: true,
    });
  }
  await closeUnpublished(exec, id);
}

/**
 * Closes the mapping of a volume whose filesystem was just unmounted, if it is open: nobody has its node.
 *
 * @throws {StorageError} `InUse` while it is mounted elsewhere, or a program has it open
 */
export async function closeUnpublished(exec: Exec, id: VolumeId): Promise<void> {
  const command = closeCommand(mappingName(id));
  const output = await exec.run(command);
  if (output.code !== 0 && !isNoMapping(output)) throw mappingError(command, output);
}

/**
 * Returns the mapping of a volume, if the kernel shows that it is on the volume's LV.
 *
 * @param uuid the UUID of the LUKS header
 * @throws {StorageError} `FailedPrecondition` when it is on another device
 */
export function requireOwnMapping(
  mapping: MappedDevice,
  { id, lv }: { readonly id: VolumeId; readonly lv: MountedDevice },
  uuid: string,
): MappedDevice {
  const isOwn = mapping.uuid === `CRYPT-LUKS2-${uuid.replaceAll("-", "")}-${mapping.name}` &&
    mapping.dependencies.length === 1 && mapping.dependencies[0] === lv.deviceNumber;
  if (isOwn) return mapping;
  throw new StorageError(
    "FailedPrecondition",
    `using ${mappingPath(id)}: it is on the device ${
      mapping.dependencies.join(", ")
    } with the UUID ${mapping.uuid}, and not on ` +
      `${lv.devicePath}; close it (cryptsetup close ${mapping.name})`,
  );
}
