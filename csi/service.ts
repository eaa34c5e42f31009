/**
 * Makes gRPC services from protocol definitions. Every call is logged with an id and without secrets, and the status of
 * every failure is from the table in status.ts.
 *
 * @module
 */

import { Buffer } from "node:buffer";
import {
  clone,
  create,
  type DescMessage,
  type DescMethodUnary,
  type DescService,
  fromBinary,
  getOption,
  type JsonValue,
  type Message,
  type MessageInitShape,
  type MessageShape,
  toBinary,
  toJson,
} from "@bufbuild/protobuf";
import type {
  MethodDefinition,
  sendUnaryData,
  ServerUnaryCall,
  ServiceDefinition,
  UntypedHandleCall,
} from "@grpc/grpc-js";
import { getLogger } from "@logtape/logtape";
import { newRequestId, withRequestId } from "../lvm/request_id.ts";
import { csi_secret } from "./proto/csi_pb.ts";
import { statusOf, unimplemented } from "./status.ts";

/** The unary calls of a service, each as an async function. */
export type Handlers<S extends DescService> = {
  [M in keyof S["method"]]?: S["method"][M] extends DescMethodUnary<infer I, infer O>
    ? (request: MessageShape<I>) => Promise<MessageInitShape<O>>
    : never;
};

/** A service in the form of grpc-js. */
export interface BoundService {
  /** Paths and codecs. */
  readonly definition: ServiceDefinition;
  /** One function per call. */
  readonly implementation: Record<string, UntypedHandleCall>;
}

const log = getLogger(["denolith", "csi"]);

/** Calls that only read, and come often: they are logged at level debug. */
const QUIET_METHODS = /^(?:Probe|Get|Controller(?:Get|List)|List|Validate|Node(?:Get))/;

/** Returns the unary calls of a service. Their `localName` is the key of {@linkcode Handlers}. */
export function unaryMethods(service: DescService): DescMethodUnary[] {
  return service.methods.filter((method): method is DescMethodUnary => method.methodKind === "unary");
}

/** Returns the path of a call and the functions that serialize its messages, in the form of grpc-js. */
export function methodDefinition(method: DescMethodUnary): MethodDefinition<Message, Message> {
  const { input, output } = method;
  return {
    path: `/${method.parent.typeName}/${method.name}`,
    requestStream: false,
    responseStream: false,
    requestSerialize: (request) => Buffer.from(toBinary(input, request)),
    requestDeserialize: (bytes) => fromBinary(input, bytes),
    responseSerialize: (response) => Buffer.from(toBinary(output, response)),
    responseDeserialize: (bytes) => fromBinary(output, bytes),
  };
}

/** The outcome of a call. */
export interface CompletedCall {
  /** The name of the call, such as `CreateVolume`. */
  readonly method: string;
  /** Its gRPC status code; 0 when it succeeded. */
  readonly code: number;
  /** Its duration in milliseconds. */
  readonly durationMs: number;
}

/**
 * Creates a service from handlers. A call without a handler is answered with UNIMPLEMENTED. A handler gets the request
 * message, and neither the metadata nor the deadline of the call.
 *
 * @param onCallCompleted called after each call
 */
export function bindService<S extends DescService>(
  service: S,
  handlers: Handlers<S>,
  onCallCompleted: (call: CompletedCall) => void = () => {},
): BoundService {
  const byName = handlers as Record<string, Handler | undefined>;
  const methods = unaryMethods(service);
  return {
    definition: Object.fromEntries(methods.map((method) => [method.localName, methodDefinition(method)])),
    implementation: Object.fromEntries(
      methods.map((method) => [method.localName, bindMethod(method, byName[method.localName], onCallCompleted)]),
    ),
  };
}

/** Returns a message as JSON for the log, without the values of fields that the protocol marks as secret. */
export function withoutSecrets(schema: DescMessage, message: Message): JsonValue {
  const secrets = schema.fields.filter((field) => getOption(field, csi_secret));
  if (secrets.length === 0) return toJson(schema, message);
  const copy = clone(schema, message) as unknown as Record<string, unknown>;
  for (const { localName } of secrets) {
    copy[localName] = Object.fromEntries(Object.keys(copy[localName] as object).map((key) => [key, "(not logged)"]));
  }
  return toJson(schema, copy as unknown as Message);
}

type Handler = (request: Message) => Promise<MessageInitShape<DescMessage>>;

function bindMethod(
  method: DescMethodUnary,
  handler: Handler | undefined,
  onCallCompleted: (call: CompletedCall) => void,
): UntypedHandleCall {
  return (call: ServerUnaryCall<Message, Message>, respond: sendUnaryData<Message>) => {
    const start = performance.now();
    const reportCompleted = (code: number) =>
      onCallCompleted({ method: method.name, code, durationMs: performance.now() - start });
    handleCall(method, handler, call.request).then(
      (response) => {
        respond(null, response);
        reportCompleted(0);
      },
      (error) => {
        const status = statusOf(error);
        respond(status);
        reportCompleted(status.code);
      },
    );
  };
}

async function handleCall(method: DescMethodUnary, handler: Handler | undefined, request: Message): Promise<Message> {
  if (handler === undefined) throw unimplemented(method.name);
  return create(method.output, await loggedCall(method, request, () => handler(request)));
}

/**
 * Runs the body of a call with a request id of its own ({@linkcode withRequestId}). Logs the call when it ends, in one
 * line with its request, but without secrets, and at level debug also when it begins.
 */
export function loggedCall<T>(method: DescMethodUnary, request: Message, body: () => Promise<T>): Promise<T> {
  const requestId = newRequestId();
  return withRequestId(requestId, async () => {
    const level = QUIET_METHODS.test(method.name) ? "debug" : "info";
    // as JSON only when it is logged: the capacity of thousands of nodes is read after each change of a class
    const fields = () => ({ requestId, method: method.name, request: withoutSecrets(method.input, request) });
    if (log.isEnabledFor("debug")) log.debug("request", fields());
    const start = performance.now();
    try {
      const response = await body();
      if (log.isEnabledFor(level)) {
        log[level]("response", { ...fields(), durationMs: Math.round(performance.now() - start) });
      }
      return response;
    } catch (error) {
      const { code, details } = statusOf(error);
      // INTERNAL may be a bug of the driver
      const stack = code === 13 && error instanceof Error ? { stack: error.stack } : {};
      log.warn("error", { ...fields(), durationMs: Math.round(performance.now() - start), code, details, ...stack });
      throw error;
    }
  });
}
