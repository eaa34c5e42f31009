/**
 * Volumes of the Controller service, from their objects.
 *
 * @module
 */

import { defined } from "../../base/defined.ts";
import { ignoreStorageError } from "../../base/error.ts";
import type { VolumeId } from "../../base/ids.ts";
import type { FilesystemType } from "../../lvm/settings/filesystem.ts";
import type { StoredVolume } from "../../lvm/volume_service.ts";
import type { LvmVolume } from "../api/lvm_objects.ts";
import { actualSize, contentSourceOf } from "../api/volume_mapping.ts";

/** Reports whether the LV of a volume was created. */
export function isCreated({ status }: LvmVolume): boolean {
  return status?.lvUUID !== undefined && status.size !== undefined;
}

/**
 * Returns a created volume as the Controller service describes it. A source that only a newer version knows is left out,
 * so that the volume can be listed with the others.
 */
export function clusterVolumeOf(object: LvmVolume): StoredVolume {
  const { metadata: { name }, spec } = object;
  const source = ignoreStorageError(() => contentSourceOf(object));
  return {
    id: name as VolumeId, // the API server accepts no other name
    size: actualSize(object) ?? 0n,
    content: contentOf(object),
    ...(spec.encryption === "luks2" && { encrypted: true }),
    nodeId: spec.nodeName,
    ...defined({ source }),
  };
}

/** Returns the filesystem of a volume, or `raw` for a block device. */
export function contentOf({ spec: { volumeMode, fsType } }: LvmVolume): FilesystemType | "raw" {
  return volumeMode === "Block" || fsType === undefined ? "raw" : fsType;
}
