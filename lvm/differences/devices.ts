/**
 * The hidden devices of LVs.
 *
 * @module
 */

import { StorageError } from "../../base/error.ts";
import type { Exec } from "../exec.ts";
import { readBlockDevices, restoreDeviceNode } from "../host/device.ts";
import { readMappedDevice } from "../host/device_mapper.ts";
import type { LocatedLv } from "../model/report.ts";

/**
 * Makes sure that a hidden device of an LV is what its node leads to: the kernel knows it under its name, in the LV's group,
 * and the node has its number. A missing node is made first.
 *
 * @param suffix the layer, such as `-cow`
 * @returns the path of its node
 * @throws {StorageError} `FailedPrecondition`
 */
export async function requireHiddenDevice(
  exec: Exec,
  { group, lv }: LocatedLv,
  suffix: "-cow" | "_tmeta",
): Promise<string> {
  const devicePath = `${lv.devicePath}${suffix}`;
  const fail = (reason: string) => new StorageError("FailedPrecondition", `verifying ${devicePath}: ${reason}`);
  const mapped = await readMappedDevice(exec, devicePath.replace("/dev/mapper/", ""));
  if (mapped === undefined) throw fail("the kernel has no such device");
  // the hidden LV of a pool's metadata has a UUID of its own, which no report has
  const owner = suffix === "-cow" ? `${group.uuid}${lv.uuid}` : group.uuid;
  if (!mapped.uuid.startsWith(`LVM-${owner.replaceAll("-", "")}`)) throw fail(`it is ${mapped.uuid}`);
  await restoreDeviceNode(exec, { devicePath });
  const [node] = await readBlockDevices(exec, [devicePath]);
  if (node?.number !== mapped.number) throw fail(`its node is ${node?.number ?? "missing"}, not ${mapped.number}`);
  return devicePath;
}
