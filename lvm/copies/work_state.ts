/**
 * What this process knows of a copy.
 *
 * @module
 */

/** The progress of a copy in this process; sizes in bytes. */
export interface CopyWork {
  /** The bytes that this process has copied; `undefined` before its first step. */
  offset?: bigint;
  /** The bytes to copy in all; `undefined` before that is known. */
  total?: bigint;
  /** Ends what is being fetched from another node. */
  cancel?: () => void;
}
