/**
 * The LUKS header on the device of a volume.
 *
 * @module
 */

import type { Exec } from "../exec.ts";
import { describeSignatures, foreignDataError, readSignatures } from "../host/device.ts";

/**
 * Requires that a device holds the recorded LUKS header. Of its two copies one may be damaged: cryptsetup repairs it by the other
 * one.
 *
 * @param uuid the recorded UUID
 * @throws {StorageError} `ForeignData` when it holds something else, or nothing
 */
export async function requireHeader(exec: Exec, device: string, uuid: string): Promise<void> {
  const signatures = await readSignatures(exec, device);
  const isOwn = signatures.every(({ type, uuid: found }) => type === "crypto_LUKS" && found === uuid);
  if (isOwn && signatures.length > 0) return;
  throw foreignDataError(
    device,
    `it should hold a LUKS header with the UUID ${uuid}, but holds ${describeSignatures(signatures)}`,
  );
}
