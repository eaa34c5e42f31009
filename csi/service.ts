/**
 * Makes gRPC services from protocol definitions. Every call is logged with an id and without secrets, and the status of
 * every failure is from the table in status.ts.
 *
 * @module
 */

import {
  clone,
  create,
  type DescMessage,
  type DescMethod,
  type DescMethodServerStreaming,
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
import { getLogger } from "@logtape/logtape";
import { defined } from "../base/defined.ts";
import { currentRequestId, newRequestId, withRequestId } from "../base/request_id.ts";
import { csi_secret } from "./proto/csi_pb.ts";
import type { BoundMethod } from "./grpc.ts";
import { statusOf, unimplemented } from "./status.ts";

/**
 * The calls of a service, each as an async function; one with a stream of responses as a generator of them, with a signal
 * that is aborted when the client has gone.
 */
export type Handlers<S extends DescService> = {
  [M in keyof S["method"]]?: S["method"][M] extends DescMethodUnary<infer I, infer O>
    ? (request: MessageShape<I>) => Promise<MessageInitShape<O>>
    : S["method"][M] extends DescMethodServerStreaming<infer I, infer O>
      ? (request: MessageShape<I>, signal: AbortSignal) => AsyncGenerator<MessageInitShape<O>, void>
    : never;
};

/** The calls of a service by path, such as `/csi.v1.Identity/Probe`. */
export type BoundService = ReadonlyMap<string, BoundMethod>;

const log = getLogger(["denolith", "csi"]);

/** Calls that only read, and come often: they are logged at level debug. */
const QUIET_METHODS = /^(?:Probe|Get|Controller(?:Get|List)|List|Validate|Node(?:Get))/;

/** Returns the unary calls of a service. Their `localName` is the key of {@linkcode Handlers}. */
export function unaryMethods(service: DescService): DescMethodUnary[] {
  return service.methods.filter((method): method is DescMethodUnary => method.methodKind === "unary");
}

/** Returns the calls of a service with a stream of responses. */
export function streamingMethods(service: DescService): DescMethodServerStreaming[] {
  return service.methods.filter((method): method is DescMethodServerStreaming =>
    method.methodKind === "server_streaming"
  );
}

/** Returns the path of a call. */
export function pathOf({ parent, name }: DescMethod): string {
  return `/${parent.typeName}/${name}`;
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
  const byName = handlers as Record<string, unknown>;
  const handlerOf = <T>({ localName }: DescMethod) => byName[localName] as T | undefined;
  return new Map([
    ...unaryMethods(service).map((method) =>
      [pathOf(method), bindMethod(method, handlerOf<Handler>(method), onCallCompleted)] as const
    ),
    ...streamingMethods(service).map((method) =>
      [pathOf(method), bindStream(method, handlerOf<StreamHandler>(method), onCallCompleted)] as const
    ),
  ]);
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

/** Begins a call. @returns what reports its end, with a gRPC code */
function beginCall({ name }: { readonly name: string }, onCallCompleted: (call: CompletedCall) => void) {
  const start = performance.now();
  return (code: number) => onCallCompleted({ method: name, code, durationMs: performance.now() - start });
}

type Handler = (request: Message) => Promise<MessageInitShape<DescMessage>>;

function bindMethod(
  method: DescMethodUnary,
  handler: Handler | undefined,
  onCallCompleted: (call: CompletedCall) => void,
): BoundMethod {
  return async (bytes) => {
    const reportCompleted = beginCall(method, onCallCompleted);
    try {
      const response = await handleCall(method, handler, fromBinary(method.input, bytes));
      const message = toBinary(method.output, response);
      reportCompleted(0);
      return { message };
    } catch (error) {
      const failure = statusOf(error);
      reportCompleted(failure.code);
      return { failure };
    }
  };
}

type StreamHandler = (request: Message, signal: AbortSignal) => AsyncGenerator<MessageInitShape<DescMessage>, void>;

/**
 * Binds a call with a stream of responses. When the client has gone, the handler's signal is aborted, also while it makes a
 * response: a generator alone would be ended after that.
 */
function bindStream(
  method: DescMethodServerStreaming,
  handler: StreamHandler | undefined,
  onCallCompleted: (call: CompletedCall) => void,
): BoundMethod {
  return (bytes) => {
    const reportCompleted = beginCall(method, onCallCompleted);
    try {
      if (handler === undefined) throw unimplemented(method.name);
      const gone = new AbortController();
      const call = (request: Message) => handler(request, gone.signal);
      const messages = responses(method, call, fromBinary(method.input, bytes), reportCompleted);
      const end = () => {
        gone.abort();
        return messages.return();
      };
      return Promise.resolve({ messages: { next: () => messages.next(), return: end } });
    } catch (error) {
      const failure = statusOf(error);
      reportCompleted(failure.code);
      return Promise.resolve({ failure });
    }
  };
}

/** Yields the responses of a call, and logs it as one call when it has ended, also when the client has gone before. */
async function* responses(
  method: DescMethodServerStreaming,
  handler: (request: Message) => ReturnType<StreamHandler>,
  request: Message,
  reportCompleted: (code: number) => void,
): AsyncGenerator<Uint8Array<ArrayBuffer>, void> {
  const ended = Promise.withResolvers<void>();
  let requestId = "";
  const logged = loggedCall(method, request, () => {
    requestId = currentRequestId()!;
    return ended.promise;
  });
  logged.catch(() => {}); // thrown below
  const handled = handler(request);
  try {
    // each in the context of the call: what it runs is logged with the id of the request
    for (;;) {
      const next = await withRequestId(requestId, () => handled.next());
      if (next.done) break;
      yield toBinary(method.output, create(method.output, next.value));
    }
    reportCompleted(0);
  } catch (error) {
    reportCompleted(statusOf(error).code);
    ended.reject(error);
    throw error;
  } finally {
    await handled.return();
    ended.resolve();
  }
}

async function handleCall(method: DescMethodUnary, handler: Handler | undefined, request: Message): Promise<Message> {
  if (handler === undefined) throw unimplemented(method.name);
  return create(method.output, await loggedCall(method, request, () => handler(request)));
}

/**
 * Runs the body of a call with a request id of its own ({@linkcode withRequestId}). Logs the call when it ends, in one
 * line with its request, but without secrets, and at level debug also when it begins.
 */
export function loggedCall<T>(method: DescMethod, request: Message, body: () => Promise<T>): Promise<T> {
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
      const { code, details, reason } = statusOf(error);
      // INTERNAL may be a bug of the driver
      const stack = code === 13 && error instanceof Error ? { stack: error.stack } : {};
      const durationMs = Math.round(performance.now() - start);
      log.warn("error", { ...fields(), durationMs, code, ...defined({ reason }), details, ...stack });
      throw error;
    }
  });
}
