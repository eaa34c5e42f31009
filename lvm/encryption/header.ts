/**
 * The LUKS header on the device of a volume: what it must be, and its destruction, after which nobody can read what is left of
 * the data.
 *
 * @module
 */

import { flushDisks } from "../client/client.ts";
import { commandError, type Exec, runOk } from "../exec.ts";
import { describeSignatures, foreignDataError, readSignatures } from "../host/device.ts";
import { LUKS_HEADER_BYTES } from "../settings/format.ts";
import { dumpCommand, isNoHeader } from "./cryptsetup.ts";
import { type HeaderKeys, parseHeaderKeys } from "./volume_key.ts";

/**
 * Requires that a device holds the recorded LUKS header. Of its two copies one may be damaged: cryptsetup repairs it by the other
 * one.
 *
 * @param uuid the recorded UUID
 * @throws {StorageError} `ForeignData` when it holds something else, or nothing
 */
export async function requireHeader(exec: Exec, device: string, uuid: string): Promise<void> {
  const signatures = await readSignatures(exec, device);
  // where an LV was extended, or beyond the end of a copy, there may be another one that is nobody's
  if (signatures.some(({ type, uuid: found }) => type === "crypto_LUKS" && found === uuid)) return;
  throw foreignDataError(
    device,
    `it should hold a LUKS header with the UUID ${uuid}, but holds ${describeSignatures(signatures)}`,
  );
}

/** Reads what the LUKS header on a device says of its volume keys. @throws {StorageError} `CommandFailed` for a damaged header */
export async function readHeaderKeys(exec: Exec, device: string): Promise<HeaderKeys> {
  return parseHeaderKeys(await runOk(exec, dumpCommand(device)));
}

/**
 * Reads what the LUKS header on a device says of its volume keys; `undefined` when there is none, or it is damaged.
 *
 * @throws {StorageError} `CommandFailed` when that cannot be found out
 */
export async function findHeaderKeys(exec: Exec, device: string): Promise<HeaderKeys | undefined> {
  const command = dumpCommand(device);
  const output = await exec.run(command);
  if (output.code === 0) return parseHeaderKeys(output.stdout);
  if (isNoHeader(output)) return undefined;
  throw commandError(command, output);
}

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
