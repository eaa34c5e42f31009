/**
 * The one table from kinds of failure to gRPC status codes.
 *
 * @module
 */

import { status } from "@grpc/grpc-js";
import { type ErrorKind, quote, StorageError, truncate } from "../lvm/error.ts";

/** The status code of each kind of failure (CSI spec, "Error Scheme", and the error tables of each call). */
export const STATUS_CODES = {
  InvalidArgument: status.INVALID_ARGUMENT,
  OutOfRange: status.OUT_OF_RANGE,
  NotFound: status.NOT_FOUND,
  AlreadyExists: status.ALREADY_EXISTS,
  InUse: status.FAILED_PRECONDITION,
  FailedPrecondition: status.FAILED_PRECONDITION,
  Lost: status.FAILED_PRECONDITION,
  ForeignData: status.FAILED_PRECONDITION,
  NoSpace: status.RESOURCE_EXHAUSTED,
  Busy: status.ABORTED,
  // the command may be in progress, so the caller repeats the same request
  StillRunning: status.ABORTED,
  Unavailable: status.UNAVAILABLE,
  CommandFailed: status.INTERNAL,
} as const satisfies Record<ErrorKind, status>;

/** A gRPC status. */
export interface Status {
  /** Code. */
  readonly code: status;
  /** Message: the operation, its object, and the reason of the failure. */
  readonly details: string;
}

/**
 * The maximum length of a message, in UTF-16 code units. It is sent as an HTTP/2 header, percent-encoded, and a call whose
 * headers exceed 64 KiB ends as CANCELLED.
 */
const MAX_DETAILS_LENGTH = 4096;

/** Returns the status for an error of a handler. */
export function statusOf(error: unknown): Status {
  if (error instanceof StorageError) return statusFor(STATUS_CODES[error.kind], error.message);
  if (error instanceof StatusError) return statusFor(error.code, error.details);
  return statusFor(status.INTERNAL, error instanceof Error ? `${error.name}: ${error.message}` : String(error));
}

/** Returns a status with a message that grpc-js can send: it fails for half a surrogate pair, as truncated texts have. */
function statusFor(code: status, message: string): Status {
  return { code, details: truncate(message.toWellFormed(), MAX_DETAILS_LENGTH) };
}

/** An error with a status of its own, for failures of the protocol. */
export class StatusError extends Error implements Status {
  override readonly name = "StatusError";
  /** Creates an error with a code and a message. */
  constructor(readonly code: status, readonly details: string) {
    super(details);
  }
}

/** Creates the error for a call without a handler. */
export function unimplemented(method: string): StatusError {
  return new StatusError(status.UNIMPLEMENTED, `${method}: not implemented`);
}

/** Creates the error for a list token of another driver. */
export function unknownToken(token: string): StatusError {
  return new StatusError(
    status.ABORTED, // as the error tables of ListVolumes and ListSnapshots say
    `listing from token ${quote(token)}: it is not one of this driver's; start again without a token`,
  );
}
