import { allowWrites, readBlockDevice, refuseWrites } from "../host/device.ts";
import { contentDevice } from "../encryption/mapping.ts";
import { StorageError } from "../../base/error.ts";
import type { Exec } from "../exec.ts";
import type { Volume } from "../inventory/volume.ts";

/**
 * Sets whether the kernel refuses writes to a volume's device.
 *
 * @throws {StorageError} `FailedPrecondition` when it refuses them still, because LVM does not permit them
 */
export async function setReadOnly(exec: Exec, volume: Volume, readOnly: boolean): Promise<void> {
  const { id, lv, group } = volume;
  const { devicePath } = contentDevice(volume.lv);
  await (readOnly ? refuseWrites : allowWrites)(exec, devicePath);
  if (readOnly || !(await readBlockDevice(exec, devicePath)).readOnly) return;
  const path = `${group.name}/${lv.name}`;
  throw new StorageError(
    "FailedPrecondition",
    `using volume ${id} for writing: LVM does not permit writes to ${path}; permit them (lvchange --permission rw ${path})`,
  );
}
