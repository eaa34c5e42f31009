/**
 * What this process knows of a copy.
 *
 * @module
 */

import type { CopyGoal } from "../model/remote_source.ts";

/** The progress of a copy in this process; sizes in bytes. */
export interface CopyWork {
  /** The bytes that this process has copied; `undefined` before its first step. */
  offset?: bigint;
  /** The bytes to copy in all; `undefined` before that is known. */
  total?: bigint;
  /** The UUID of the LV of the snapshot that it is fetched from: another one of the same id has other data. */
  uuid?: string;
  /** Ends what is being fetched from another node. */
  cancel?: () => void;
  /** What a volume that is filled from several snapshots should have next. */
  goal?: CopyGoal;
  /** The offset up to which the difference to that is applied. */
  differenceOffset?: bigint;
  /** The number of answers in a row that the difference cannot be had. */
  differenceRefusals?: number;
  /** The bytes of data that were received for that. */
  received?: number;
}
