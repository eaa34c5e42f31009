import { type Mount, mountsOf, readMounts } from "../host/mounts.ts";
import { ignoring } from "../../base/error.ts";
import { closeMapping, contentDevice } from "../encryption/mapping.ts";
import { sleep, systemClock } from "../../base/clock.ts";
import type { VolumeId } from "../../base/ids.ts";
import type { Volume } from "../inventory/volume.ts";
import type { VolumeFinder } from "../inventory/volume_finder.ts";
import type { FreshReport, Lvm } from "../client/client.ts";

/** The waits for a device to be closed, in milliseconds. */
const WAITS_MS = [100, 300, 600] as const;

/**
 * Closes what an interrupted call left open of a volume: its mapping, if it is encrypted. One that is in use stays open.
 */
async function closeLeftover({ exec }: Lvm, { id, tags }: Volume, mounts: readonly Mount[]): Promise<void> {
  if (tags.format.luks === undefined) return;
  await closeMapping(exec, id, mounts).catch(ignoring("InUse"));
}

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
    if (mountsOf(mounts, contentDevice(found.volume.lv)).length > 0) break;
    await closeLeftover(lvm, found.volume, mounts);
    await sleep(systemClock, ms);
    groups = await lvm.report();
  }
  return groups;
}
