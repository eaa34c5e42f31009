/**
 * The one table from kinds of failure to gRPC status codes, and how a status carries the reason.
 *
 * @module
 */

import { BinaryWriter, WireType } from "@bufbuild/protobuf/wire";
import { type ErrorKind, quote, type Reason, StorageError, truncateMessage, withReason } from "../base/error.ts";

/** The status codes of gRPC (its statuscodes.md). */
export const status = {
  OK: 0,
  CANCELLED: 1,
  UNKNOWN: 2,
  INVALID_ARGUMENT: 3,
  DEADLINE_EXCEEDED: 4,
  NOT_FOUND: 5,
  ALREADY_EXISTS: 6,
  PERMISSION_DENIED: 7,
  RESOURCE_EXHAUSTED: 8,
  FAILED_PRECONDITION: 9,
  ABORTED: 10,
  OUT_OF_RANGE: 11,
  UNIMPLEMENTED: 12,
  INTERNAL: 13,
  UNAVAILABLE: 14,
  DATA_LOSS: 15,
  UNAUTHENTICATED: 16,
} as const;

/** A status code of gRPC. */
export type StatusCode = typeof status[keyof typeof status];

/** The status code of each kind of failure (CSI spec, "Error Scheme", and the error tables of each call). */
export const STATUS_CODES = {
  InvalidArgument: status.INVALID_ARGUMENT,
  OutOfRange: status.OUT_OF_RANGE,
  NotFound: status.NOT_FOUND,
  AlreadyExists: status.ALREADY_EXISTS,
  InUse: status.FAILED_PRECONDITION,
  FailedPrecondition: status.FAILED_PRECONDITION,
  Unauthenticated: status.UNAUTHENTICATED,
  Lost: status.FAILED_PRECONDITION,
  ForeignData: status.FAILED_PRECONDITION,
  NoSpace: status.RESOURCE_EXHAUSTED,
  Busy: status.ABORTED,
  // the command may be in progress, so the caller repeats the same request
  StillRunning: status.ABORTED,
  Unavailable: status.UNAVAILABLE,
  CommandFailed: status.INTERNAL,
} as const satisfies Record<ErrorKind, StatusCode>;

/** A gRPC status. */
export interface Status {
  /** Code. */
  readonly code: StatusCode;
  /** Message: the operation, its object, and the reason of the failure, which ends it as a code in brackets. */
  readonly details: string;
  /** The reason as a code. */
  readonly reason?: Reason;
}

/**
 * The maximum length of a message, in UTF-16 code units. It is sent as an HTTP/2 header, percent-encoded, and a call whose
 * headers exceed 64 KiB ends as CANCELLED.
 */
const MAX_DETAILS_LENGTH = 4096;

/** Returns the status for an error of a handler. */
export function statusOf(error: unknown): Status {
  if (error instanceof StorageError) {
    const { kind, reason, message } = error;
    // official sidecars and kubelet show the message alone
    return { ...statusFor(STATUS_CODES[kind], withReason(message, reason)), reason };
  }
  if (error instanceof StatusError) return statusFor(error.code, error.details);
  return statusFor(status.INTERNAL, error instanceof Error ? `${error.name}: ${error.message}` : String(error));
}

/** Returns a status with a message that can be sent: half a surrogate pair, as truncated texts have, cannot be encoded. */
function statusFor(code: StatusCode, message: string): Status {
  return { code, details: truncateMessage(message.toWellFormed(), MAX_DETAILS_LENGTH) };
}

/**
 * The domain of the reasons (google.rpc.ErrorInfo). They mean the same in every installation, so it is the driver's
 * default name, whatever `--driver-name` is.
 */
const REASON_DOMAIN = "lvm.denolith.dev";

/**
 * Returns a status as google.rpc.Status, which has the reason in a google.rpc.ErrorInfo (status.proto, error_details.proto of
 * googleapis).
 */
export function statusProto({ code, details, reason }: Status): Uint8Array {
  const writer = () => new BinaryWriter();
  const text = (to: BinaryWriter, field: number, value: string) =>
    to.tag(field, WireType.LengthDelimited).string(value);
  const status = text(writer().tag(1, WireType.Varint).int32(code), 2, details);
  if (reason === undefined) return status.finish();
  const info = text(text(writer(), 1, reason), 2, REASON_DOMAIN).finish();
  const any = text(writer(), 1, "type.googleapis.com/google.rpc.ErrorInfo").tag(2, WireType.LengthDelimited).bytes(
    info,
  );
  return status.tag(3, WireType.LengthDelimited).bytes(any.finish()).finish();
}

/** An error with a status of its own, for failures of the protocol. */
export class StatusError extends Error implements Status {
  override readonly name = "StatusError";
  /** Creates an error with a code and a message. */
  constructor(readonly code: StatusCode, readonly details: string) {
    super(details);
  }
}

/** Creates the error for a call without a handler, or for one that is off. */
export function unimplemented(method: string, why = "not implemented"): StatusError {
  return new StatusError(status.UNIMPLEMENTED, `${method}: ${why}`);
}

/** Creates the error for a list token of another driver. */
export function unknownToken(token: string): StatusError {
  return new StatusError(
    status.ABORTED, // as the error tables of ListVolumes and ListSnapshots say
    `listing from token ${quote(token)}: it is not one of this driver's; start again without a token`,
  );
}
