/**
 * The part of the copies that deleting a volume needs.
 *
 * @module
 */

import type { LocatedLv } from "../model/report.ts";

/** A control of the copies that run in the background. */
export interface CopyControl {
  /**
   * Stops filling an LV for good, and unmounts what was mounted of it.
   *
   * @throws {StorageError} `Busy` while a step of the copy does not end.
   */
  abandon(located: LocatedLv): Promise<void>;
  /** Starts the work that is left to do. */
  wake(): void;
}
