/**
 * Copies of encrypted volumes: what is copied is what is on the disk.
 *
 * A copy has the volume key and the key slots of its original. Its LUKS header gets a UUID of its own when it is complete; the
 * UUID of what is below the header is changed when it is first staged, since only then there is a passphrase.
 *
 * @module
 */

import { headerUuidCommand } from "../encryption/cryptsetup.ts";
import { readHeaderKeys } from "../encryption/header.ts";
import { VOLUME_KEY_KEY } from "../encryption/volume_key.ts";
import { StorageError } from "../../base/error.ts";
import { type Exec, runOk } from "../exec.ts";
import { describeSignatures, foreignDataError, readSignatures, requireBlank, verifyDevice } from "../host/device.ts";
import type { LogicalVolume } from "../model/report.ts";
import type { FormatState } from "../settings/format.ts";

/**
 * Gives the LUKS header of a complete copy another UUID.
 *
 * @returns the format of the copy; `undefined` when it has no header, since its original was never in use
 * @throws {StorageError} `ForeignData` when it is something else; `FailedPrecondition` when its data is encrypted by two volume
 * keys: cryptsetup changes nothing else of such a header before all of the data has one
 */
export async function renewHeader(
  exec: Exec,
  lv: LogicalVolume,
  format: FormatState,
): Promise<FormatState | undefined> {
  const device = await verifyDevice(exec, lv);
  const signatures = await readSignatures(exec, lv.devicePath);
  if (signatures.length === 0) return void await requireBlank(exec, device);
  if (!signatures.some(({ type }) => type === "crypto_LUKS")) {
    throw foreignDataError(
      lv.devicePath,
      `the copy of an encrypted volume should hold crypto_LUKS, but holds ${describeSignatures(signatures)}`,
    );
  }
  if ((await readHeaderKeys(exec, lv.devicePath)).isReencrypting) {
    throw new StorageError(
      "FailedPrecondition",
      `copying to ${lv.devicePath}: the data of the source is being encrypted by another volume key, which was interrupted; ` +
        `start a pod with the source, with the ${VOLUME_KEY_KEY} and its passphrases in its secret, and take the copy again`,
    );
  }
  const uuid = crypto.randomUUID();
  await runOk(exec, headerUuidCommand(lv.devicePath, uuid));
  const luks = { state: "formatted", uuid } as const;
  return format.state === "raw" ? { ...format, luks } : { state: "copied", type: format.type, luks };
}
