/**
 * Kubernetes' access modes in the terms of CSI.
 *
 * @module
 */

import { ClaimError } from "./class_parameters.ts";
import type { AccessMode } from "./csi_client.ts";

/**
 * Returns the CSI access mode that stands for a list of Kubernetes' access modes.
 *
 * @throws {ClaimError} when the list has no known mode, or ReadWriteOncePod beside another one
 */
export function accessModeOf(modes: readonly string[]): AccessMode {
  const includesMode = (mode: string) => modes.includes(mode);
  if (includesMode("ReadWriteOncePod")) {
    if (modes.length === 1) return "SINGLE_NODE_SINGLE_WRITER";
    throw new ClaimError("accessModes: ReadWriteOncePod goes with no other");
  }
  if (includesMode("ReadWriteMany")) return "MULTI_NODE_MULTI_WRITER";
  if (includesMode("ReadOnlyMany")) {
    return includesMode("ReadWriteOnce") ? "MULTI_NODE_SINGLE_WRITER" : "MULTI_NODE_READER_ONLY";
  }
  if (includesMode("ReadWriteOnce")) return "SINGLE_NODE_MULTI_WRITER";
  throw new ClaimError(`accessModes ${modes.join(", ")}: none that is known`);
}
