/**
 * The destruction of the key slots of a deleted volume: without them, nobody can read what is left of its data.
 *
 * @module
 */

import { type Exec, runOk } from "../exec.ts";
import { flushDisks } from "../client/disk_cache.ts";
import { LUKS_HEADER_BYTES } from "../spec/format.ts";

/**
 * Overwrites the LUKS header on the device of a deleted LV, with all its key slots, and waits until the disks have done so. A
 * header that is damaged is overwritten as well. The slots on snapshots are not its own.
 *
 * @param device the path of the device, which accepts writes
 * @throws {StorageError} `CommandFailed` when it cannot be written to, as in a full thin pool
 */
export async function destroyKeySlots(exec: Exec, device: string): Promise<void> {
  const range = ["--offset", "0", "--length", `${LUKS_HEADER_BYTES}`, device];
  await runOk(exec, { program: "blkdiscard", args: ["--zeroout", ...range], mutates: true });
  await flushDisks(exec, [device]);
}
