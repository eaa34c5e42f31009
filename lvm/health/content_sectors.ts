/**
 * The largest logical sectors of disks on which what is on a volume can be used.
 *
 * They are read while a volume is in use: only then can an encrypted one be read. They do not change.
 *
 * @module
 */

import { contentDevice } from "../encryption/mapping.ts";
import type { Exec } from "../exec.ts";
import { readSectorBytes } from "../host/device.ts";
import { readMaximumSectorBytes } from "../host/device_bytes.ts";
import { ReadOnce, type ReadOnceOptions } from "../inventory/read_once.ts";
import type { Volume } from "../inventory/volume.ts";

/** The sizes of such sectors in bytes, by volume. */
export type ContentSectors = ReadOnce<Volume, bigint>;

/** Creates what reads the sectors of volumes in use. */
export function contentSectors(
  exec: Exec,
  options: Pick<ReadOnceOptions<Volume, bigint>, "onRead" | "onError">,
): ContentSectors {
  return new ReadOnce({
    ...options,
    isReadable: ({ lv }) => lv.open && !lv.suspended,
    read: (volume) => readContentSectors(exec, volume),
  });
}

/** Reads the size of the sectors: a filesystem says it, and who uses a block volume knows those that it has. */
async function readContentSectors(exec: Exec, { lv, tags: { format } }: Volume): Promise<bigint | undefined> {
  const { devicePath } = contentDevice(lv);
  if (format.state === "raw") return await readSectorBytes(exec, [devicePath]);
  if (format.state !== "formatted") return undefined;
  const bytes = await readMaximumSectorBytes(exec, devicePath, format.type);
  return bytes === undefined ? undefined : BigInt(bytes);
}
