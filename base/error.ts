/**
 * Errors of the storage code, by kind. Every failure that leaves `lvm/` is a {@linkcode StorageError}; `csi/` maps its
 * kind to a gRPC status in one table.
 *
 * @module
 */

/** The kinds of failure that a caller can tell apart. */
export const ERROR_KINDS = [
  /** The request is wrong; to repeat it cannot help. */
  "InvalidArgument",
  /** A size that is not possible: outside the limits, or more than the volume group has free to extend a volume. */
  "OutOfRange",
  /** There is no such volume, snapshot or path. */
  "NotFound",
  /** The object exists, but differs from the request. */
  "AlreadyExists",
  /** The object is open, mounted, or the origin of snapshots: its state must change before the call can succeed. */
  "InUse",
  /** The state of the machine or the volume does not allow the call. */
  "FailedPrecondition",
  /** The secret of the request is not that of the object: the passphrase of an encrypted volume is wrong. */
  "Unauthenticated",
  /** The LV is recorded, but missing or replaced. It is never created again and never formatted. */
  "Lost",
  /** The device holds data that the driver did not write, or not the data that is recorded. */
  "ForeignData",
  /** No volume group has space for a new volume or snapshot. */
  "NoSpace",
  /** Another operation on the same object is running. */
  "Busy",
  /** A command that changes something passed its deadline and is still running. */
  "StillRunning",
  /** A program is missing, or did not respond within its deadline. */
  "Unavailable",
  /** A program failed, or its output cannot be parsed. */
  "CommandFailed",
] as const;

/** A kind of failure. */
export type ErrorKind = typeof ERROR_KINDS[number];

/** Options of a {@linkcode StorageError}. */
export interface StorageErrorOptions {
  /** The error that led to this one. */
  cause?: unknown;
  /**
   * Settles when the command that passed its deadline has ended; only with `StillRunning`, and with `Unavailable` after
   * a deadline.
   */
  completion?: Promise<unknown>;
  /**
   * Whether the driver observes the end of what prevents the operation, such as a mount or a copy. The operation is then
   * repeated at that time, not at intervals.
   */
  retryOnChange?: boolean;
  /** Whether LVM refused the change for a reason that another volume group may not have. */
  ofGroup?: boolean;
}

/** An error with a kind, and a message that says what was tried, on which object, and what the result was. */
export class StorageError extends Error {
  /** The name of the error class, for code that sees only names. */
  override readonly name = "StorageError";
  /** The kind of failure. */
  readonly kind: ErrorKind;
  /** Settles when the command that passed its deadline has ended. */
  readonly completion?: Promise<unknown>;
  /** Whether the driver observes the end of what prevents the operation. */
  readonly retryOnChange: boolean;
  /** Whether LVM refused the change for a reason that another volume group may not have. */
  readonly ofGroup: boolean;

  /**
   * Creates an error of the kind.
   *
   * @param message text for users: "doing X: why; remedy"
   */
  constructor(kind: ErrorKind, message: string, options: StorageErrorOptions = {}) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.kind = kind;
    this.retryOnChange = options.retryOnChange ?? false;
    this.ofGroup = options.ofGroup ?? false;
    if (options.completion !== undefined) this.completion = options.completion;
  }
}

/**
 * Returns what settles when the command has ended that outlasted its deadline, by the error of a call. Until then the command
 * still changes something.
 *
 * @returns `undefined` when no command is running any more
 */
export function lateCompletion(error: unknown): Promise<unknown> | undefined {
  return error instanceof StorageError && error.kind === "StillRunning" ? error.completion : undefined;
}

/** Returns what a call returns, or `undefined` when it fails with a {@linkcode StorageError}. */
export function ignoreStorageError<T>(call: () => T): T | undefined {
  try {
    return call();
  } catch (error) {
    if (error instanceof StorageError) return undefined;
    throw error;
  }
}

/** The maximum length of a quoted text, in UTF-16 units, with the `…`. */
const MAX_QUOTED_LENGTH = 80;

/**
 * Returns the start of a text, with `…` where it was cut. It never cuts a surrogate pair: gRPC and other encoders fail for half
 * of one.
 *
 * @param maxLength the maximum length of the result, in UTF-16 units
 */
export function truncate(text: string, maxLength: number): string {
  if (text.length <= maxLength) return text;
  return text.slice(0, maxLength - 1).replace(/[\ud800-\udbff]$/, "") + "…";
}

/** Quotes a text from outside for a message, and truncates it to 80 characters, with the `…`. */
export function quote(text: string): string {
  return JSON.stringify(truncate(text, MAX_QUOTED_LENGTH));
}
