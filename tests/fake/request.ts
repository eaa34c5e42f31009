/**
 * A request for a volume, as tests make it.
 *
 * @module
 */

import { LINEAR } from "../../lvm/model/layout.ts";
import type { NamedVolumeRequest } from "../../k8s/api/volume_mapping.ts";
import { ANY_GROUP } from "../../lvm/model/groups.ts";
import { volumeIdOf } from "../../base/ids.ts";

/**
 * Returns a request with this name for an ext4 volume of at least so many bytes, on any node, with the given changes.
 */
export function namedRequest(name: string, bytes: bigint, more: Partial<NamedVolumeRequest> = {}): NamedVolumeRequest {
  return {
    id: volumeIdOf(name),
    name,
    range: { required: bytes },
    groups: ANY_GROUP,
    preference: "leastFree",
    format: { state: "unformatted", type: "ext4" },
    mkfsOptions: [],
    shared: true,
    erase: "zero",
    layout: LINEAR,
    ...more,
  };
}
