import { sleep, systemClock } from "../clock.ts";
import { deviceMounts, filesystemMounts, readMounts } from "../host/mounts.ts";
import type { VolumeId } from "../ids.ts";
import type { VolumeFinder } from "../inventory/volume_finder.ts";
import type { FreshReport, Lvm } from "../client/client.ts";

/** The waits for a device to be closed, in milliseconds. */
const WAITS_MS = [100, 300, 600] as const;

/**
 * Returns a report in which the device of a volume is not open, if that comes within a second. When a program closes a device
 * that it could write to, udev opens the device for a moment to look what is on it (udev(7), `OPTIONS+="watch"`). A device
 * that is mounted stays open, so nothing is waited for.
 *
 * @throws {StorageError} those of {@linkcode Lvm.report} and {@linkcode readMounts}
 */
export async function reportOnceClosed(lvm: Lvm, finder: VolumeFinder, id: VolumeId): Promise<FreshReport> {
  let groups = await lvm.report();
  for (const ms of WAITS_MS) {
    const found = finder.locate(groups, id);
    if (found.state !== "present" || !found.volume.lv.open) break;
    const mounts = await readMounts(lvm.exec);
    if ([filesystemMounts, deviceMounts].some((find) => find(mounts, found.volume.lv).length > 0)) break;
    await sleep(systemClock, ms);
    groups = await lvm.report();
  }
  return groups;
}
