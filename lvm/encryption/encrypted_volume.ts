/**
 * A volume that may be encrypted.
 *
 * @module
 */

import type { VolumeId } from "../../base/ids.ts";
import type { LocatedLv } from "../model/report.ts";
import type { VolumeTags } from "../model/tags.ts";

/** A volume that may be encrypted. */
export interface EncryptedVolume extends LocatedLv {
  /** Its id. */
  readonly id: VolumeId;
  /** The contents of its tags. */
  readonly tags: VolumeTags;
}
