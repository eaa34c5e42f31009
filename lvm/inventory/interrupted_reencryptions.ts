/**
 * The volumes whose data is encrypted by two volume keys, because the process that encrypted them again died.
 *
 * Their headers say it. They are read while a volume is not in use, once after each use: it is completed before the next one.
 *
 * @module
 */

import type { EncryptedVolume } from "../encryption/mapping.ts";
import { findHeaderKeys } from "../encryption/header.ts";
import type { Exec } from "../exec.ts";
import { ReadOnce, type ReadOnceOptions } from "./read_once.ts";

/** Whether the headers say so, by volume. */
export type InterruptedReencryptions = ReadOnce<EncryptedVolume, boolean>;

/** Creates what reads the headers of encrypted volumes that are not in use. */
export function interruptedReencryptions(
  exec: Exec,
  options: Pick<ReadOnceOptions<EncryptedVolume, boolean>, "onRead" | "onError">,
): InterruptedReencryptions {
  return new ReadOnce<EncryptedVolume, boolean>({
    ...options,
    isReadable: ({ lv, tags: { format } }) =>
      lv.active && !lv.open && !lv.suspended && format.luks?.state === "formatted",
    read: async ({ lv }) => (await findHeaderKeys(exec, lv.devicePath))?.isReencrypting ?? false,
  });
}
