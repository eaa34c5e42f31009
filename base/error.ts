/**
 * Errors of the storage code, by kind and reason. Every failure that leaves `lvm/` is a {@linkcode StorageError}; `csi/`
 * maps its kind to a gRPC status in one table. The reason is a code for the cause: programs find remedies by it, and
 * messages are for people.
 *
 * @module
 */

import { withoutControls } from "./text_table.ts";

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

/**
 * The reasons of failures that somebody can act on. The runbooks and `kubectl denolith why` have the remedy of each. Of
 * several, the first one counts: what keeps a volume group from being used comes before its lack of space.
 */
export const REASONS = [
  // the cluster
  "DefinitionsOutdated",
  // volume groups
  "PhysicalVolumesMissing",
  "VolumeGroupUnresponsive",
  "VolumeGroupUnreadable",
  "VolumeGroupReadOnly",
  "MetadataAreaFull",
  "VolumeGroupRefusesChanges",
  "TooManyLogicalVolumes",
  "SizeUnsuitable",
  "VolumeGroupAmbiguous",
  "VolumeGroupOfHost",
  "NoSpace",
  "NoSuchVolumeGroup",
  // nodes and their agents
  "NodeWithoutAgent",
  "NodeGone",
  "AgentDoesNotAnswer",
  "AgentSilent",
  "DriverNotRegistered",
  "NodeExcludedByClass",
  "SourceOnOtherNode",
  "VolumesOnSeveralNodes",
  // claims, classes and sources
  "AccessModeUnsupported",
  "WrongParameter",
  "WrongAttributesClass",
  "NoSuchClass",
  "NoSuchAttributesClass",
  "NoSuchSnapshotClass",
  "NoSuchSnapshot",
  "SourceUnsuitable",
  "SourceNotReady",
  "SecretForbidden",
  "NoSuchSecret",
  // what a volume is used for
  "InUse",
  "OriginInUse",
  "SnapshotOpen",
  "HasSnapshots",
  "DeletedByOthers",
  "MustNotBeSuspended",
  "SuspendedTooLong",
  "NotShared",
  "UsedByAnotherPod",
  "OtherSELinuxContext",
  "SELinuxNotSeen",
  // the volume and its filesystem
  "Lost",
  "Replaced",
  "UnexpectedData",
  "VolumeUnreadable",
  "NotActive",
  "WrongFilesystemType",
  "WrongMkfsOptions",
  "CheckKilled",
  "FilesystemDamaged",
  // encryption
  "NoPassphrase",
  "WrongPassphrase",
  "WrongPassphrases",
  "PassphraseChangeInterrupted",
  "CannotEncryptAgain",
] as const;

/** A reason of a failure that somebody can act on. */
export type Cause = typeof REASONS[number];

/** The reason of a failure: its kind where nothing particular is known. */
export type Reason = Cause | ErrorKind;

/** Options of a {@linkcode StorageError}. */
export interface StorageErrorOptions {
  /** The reason; by default that of the error that led to this one, and otherwise the kind. */
  reason?: Reason | undefined;
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
  /** The cause, as programs tell it apart. */
  readonly reason: Reason;
  /** Settles when the command that passed its deadline has ended. */
  readonly completion?: Promise<unknown>;
  /** Whether the driver observes the end of what prevents the operation. */
  readonly retryOnChange: boolean;
  /** Whether LVM refused the change for a reason that another volume group may not have. */
  readonly ofGroup: boolean;

  /**
   * Creates an error of the kind.
   *
   * @param message text for users: "doing X: why; remedy". It may quote what a pod has written on its volume, and goes to
   * terminals: control characters are replaced
   */
  constructor(kind: ErrorKind, message: string, options: StorageErrorOptions = {}) {
    super(withoutControls(message), options.cause === undefined ? undefined : { cause: options.cause });
    this.kind = kind;
    this.reason = options.reason ?? causeOf(options.cause) ?? kind;
    this.retryOnChange = options.retryOnChange ?? false;
    this.ofGroup = options.ofGroup ?? false;
    if (options.completion !== undefined) this.completion = options.completion;
  }
}

/** Returns the reason of an error, if it is one that somebody can act on. */
export function causeOf(error: unknown): Cause | undefined {
  return error instanceof Error ? toCause((error as { reason?: unknown }).reason) : undefined;
}

/** Returns a code if it is a reason that somebody can act on. */
function toCause(code: unknown): Cause | undefined {
  return REASONS.find((known) => known === code);
}

/** Returns the reason of several: the first one of the table. */
export function firstReason(reasons: readonly (Reason | undefined)[]): Cause | undefined {
  return REASONS.find((known) => reasons.includes(known));
}

/** Returns a message with its reason at the end, in brackets, where programs find it: {@linkcode reasonIn}. */
export function withReason(message: string, reason: string | undefined): string {
  return toCause(reason) === undefined ? message : `${message} [${reason}]`;
}

/** Returns the reason in a message that may be quoted in one of others; of several the last one. */
export function reasonIn(message: string): Cause | undefined {
  return [...message.matchAll(/\[(\w+)\]/g)].map(([, code]) => toCause(code)).findLast((cause) => cause !== undefined);
}

/** Truncates a message, and keeps the reason at its end. @param maxLength the maximum length, in UTF-16 units */
export function truncateMessage(message: string, maxLength: number): string {
  const [suffix] = /(?: \[\w{1,63}\])?$/.exec(message)!;
  return truncate(message.slice(0, message.length - suffix.length), maxLength - suffix.length) + suffix;
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

/** Returns the message of an error, or a thrown value as a string. */
export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/** Reports whether an error is a {@linkcode StorageError} of one of some kinds. */
export function isOfKind(error: unknown, ...kinds: readonly ErrorKind[]): error is StorageError {
  return error instanceof StorageError && kinds.includes(error.kind);
}

/** Returns what handles the errors of a promise: those of some kinds are ignored, and all others thrown again. */
export function ignoring(...kinds: readonly ErrorKind[]): (error: unknown) => undefined {
  return (error) => {
    if (!isOfKind(error, ...kinds)) throw error;
    return undefined;
  };
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
