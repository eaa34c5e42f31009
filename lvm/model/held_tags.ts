/**
 * The changes of tags of volumes that are moved to another node.
 *
 * @module
 */

import type { VolumeId } from "../../base/ids.ts";
import { HELD, SOURCE, VOLUME } from "./tag_text.ts";
import { describeSource, type VolumeTags } from "./tags.ts";

/** Returns arguments of lvchange that record whether nobody may begin to use a volume. */
export function markHeld(held: boolean): string[] {
  return [held ? "--addtag" : "--deltag", HELD];
}

/** Returns arguments of lvchange by which the LV of a volume becomes that of another one, which has no content source. */
export function markTakenOver({ id, source }: VolumeTags, by: VolumeId): string[] {
  return [
    ...["--deltag", VOLUME + id, "--addtag", VOLUME + by],
    ...(source === undefined ? [] : ["--deltag", `${SOURCE}${describeSource(source, ":")}`]),
  ];
}
