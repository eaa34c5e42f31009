/**
 * The one table from kinds of failure to gRPC status codes.
 *
 * @module
 */

import { status } from "@grpc/grpc-js";
import { type ErrorKind, StorageError } from "../lvm/error.ts";

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

/** Returns the status for an error of a handler. */
export function statusOf(error: unknown): Status {
  if (error instanceof StorageError) return { code: STATUS_CODES[error.kind], details: error.message };
  if (error instanceof StatusError) return error;
  return { code: status.INTERNAL, details: error instanceof Error ? `${error.name}: ${error.message}` : String(error) };
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
    `listing from token ${JSON.stringify(token)}: it is not one of this driver's; start again without a token`,
  );
}
