/**
 * What can go wrong, by kind. Every failure that leaves this room is a
 * {@linkcode StorageError}; the protocol maps its kind to a status in one table.
 *
 * @module
 */

/** The kinds of failure that a caller can tell apart. */
export type ErrorKind =
  /** The request itself is wrong; repeating it cannot help. */
  | "InvalidArgument"
  /** A size that cannot be had: outside the limits, or the volume group is too full to grow a volume. */
  | "OutOfRange"
  /** No such volume, snapshot or path. */
  | "NotFound"
  /** The thing exists, but not as it was asked for. */
  | "AlreadyExists"
  /** Open, mounted, or the origin of snapshots: the state must change before the call can succeed. */
  | "InUse"
  /** The state of the machine or the volume does not allow the call. */
  | "FailedPrecondition"
  /** Recorded as existing, but absent or replaced. Never recreated, never formatted. */
  | "Lost"
  /** The device holds something that this driver did not put there, or not what was recorded. */
  | "ForeignData"
  /** No volume group can take a new volume or snapshot. */
  | "NoSpace"
  /** Another operation on the same thing is running. */
  | "Busy"
  /** A command that changes something passed its deadline and is still running. */
  | "StillRunning"
  /** A tool is missing, or did not answer within its deadline. */
  | "Unavailable"
  /** A tool failed or answered something that cannot be read. */
  | "CommandFailed";

/** Details of a {@linkcode StorageError}. */
export interface StorageErrorOptions {
  /** The error that led to this one. */
  cause?: unknown;
  /** Settles when the command that was not waited for has ended; only with `StillRunning`, and `Unavailable` at a deadline. */
  completion?: Promise<unknown>;
}

/** A failure with its kind and a message that says what was tried, on what, and what the answer was. */
export class StorageError extends Error {
  /** What kind of error this is, for those who only see its name. */
  override readonly name = "StorageError";
  /** What kind of failure this is. */
  readonly kind: ErrorKind;
  /** Settles when the command that was not waited for has ended. */
  readonly completion?: Promise<unknown>;

  /** Makes an error of the kind with a message for people. */
  constructor(kind: ErrorKind, message: string, options: StorageErrorOptions = {}) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.kind = kind;
    if (options.completion !== undefined) this.completion = options.completion;
  }
}
