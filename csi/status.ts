/**
 * From kinds of failure to gRPC status codes: the one place where it is decided.
 *
 * @module
 */

import { status } from "@grpc/grpc-js";
import { type ErrorKind, StorageError } from "../lvm/error.ts";

/** The status code that each kind is answered with (CSI spec, "Error Scheme", and the error tables of each call). */
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
  // the command goes on: "maybe in progress", so the caller repeats the same request
  StillRunning: status.ABORTED,
  Unavailable: status.UNAVAILABLE,
  CommandFailed: status.INTERNAL,
} as const satisfies Record<ErrorKind, status>;

/** A gRPC status: its code, and a message for people. */
export interface Status {
  /** The code. */
  readonly code: status;
  /** What was tried, on what, and what the answer was. */
  readonly details: string;
}

/** The status for whatever a call threw. */
export function statusOf(error: unknown): Status {
  if (error instanceof StorageError) return { code: STATUS_CODES[error.kind], details: error.message };
  if (error instanceof StatusError) return error;
  return { code: status.INTERNAL, details: error instanceof Error ? `${error.name}: ${error.message}` : String(error) };
}

/** A failure of the protocol itself, which has a status and no counterpart on the machine. */
export class StatusError extends Error implements Status {
  override readonly name = "StatusError";
  /** Makes an error with the code. */
  constructor(readonly code: status, readonly details: string) {
    super(details);
  }
}

/** The error for a call that the driver does not have. */
export function unimplemented(method: string): StatusError {
  return new StatusError(status.UNIMPLEMENTED, `${method}: not implemented`);
}

/** The error for a list token that this driver did not give out. */
export function unknownToken(token: string): StatusError {
  return new StatusError(
    status.ABORTED, // as the error tables of ListVolumes and ListSnapshots say
    `listing from token ${JSON.stringify(token)}: it is not one of this driver's; start again without a token`,
  );
}
