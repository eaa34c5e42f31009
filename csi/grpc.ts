/**
 * gRPC over HTTP/2 for calls with one request, by the HTTP server of Deno (gRPC's PROTOCOL-HTTP2.md).
 *
 * `node:http2` of Deno 2.9.3, on which grpc-js is built, never frees a connection, and kubelet opens one for every call
 * (docs/adr/0002-cold-start.md). Later versions of Deno have no other server that can send trailers.
 *
 * @module
 */

import { getLogger } from "@logtape/logtape";
import type { IncomingHttpHeaders, ServerHttp2Session, ServerHttp2Stream } from "node:http2";
import type { Duplex } from "node:stream";
import { sleep, systemClock } from "../base/clock.ts";
import { type Status, status, StatusError, statusOf, statusProto } from "./status.ts";

/** Listens on a socket, and makes the calls that come. */
export type Listen = (path: string, methods: ReadonlyMap<string, BoundMethod>) => Promise<Listener>;

/** A socket on which calls are taken. */
export interface Listener {
  /**
   * Takes no further connections, and ends those that are idle, after the answers that are under way. The path is free when it
   * resolves.
   */
  shutdown(): Promise<void>;
  /** Ends everything at once. It may not follow {@linkcode shutdown}. The path is free when it resolves. */
  abort(): Promise<void>;
}

/** A call that can be made: takes the bytes of the request, and returns those of the response. */
export type BoundMethod = (request: Uint8Array) => Promise<BoundAnswer>;

/**
 * The answer to a call: a message, a stream of messages, or the status of its failure. The next message of a stream is
 * asked for when there is room for it. A stream may fail after some messages; it is ended when the client has gone.
 */
export type BoundAnswer =
  | { readonly message: Uint8Array<ArrayBuffer> }
  | { readonly messages: AsyncIterator<Uint8Array<ArrayBuffer>, void> }
  | { readonly failure: Status };

const log = getLogger(["denolith", "csi"]);

/** The maximum size of a request, in bytes: the default of gRPC's implementations. */
const MAX_REQUEST_BYTES = 4 << 20;

/** The length of what precedes a message, in bytes: whether it is compressed, and its length. */
const PREFIX_BYTES = 5;

/** The headers of every answer. */
const HEADERS = { "content-type": "application/grpc", "grpc-accept-encoding": "identity" } as const;

/**
 * The version of Deno whose HTTP server can send trailers: {@linkcode setTrailers}. A later one must go by Node.js, whose
 * server keeps nothing of closed connections there (tests/process/memory_test.ts).
 */
const TRAILERS_VERSION = "2.9.3";

/** Milliseconds until the driver takes connections again after it could not take one. */
const ACCEPT_RETRY_MS = 1_000;

/** Listens by the HTTP server of Deno where that can send trailers, and by that of Node.js otherwise. */
export const listen: Listen = (path, methods) =>
  Deno.version.deno === TRAILERS_VERSION ? listenByDeno(path, methods) : listenByNode(path, methods);

/** Listens by the HTTP server of Deno. */
export const listenByDeno: Listen = (path, methods) => {
  const end = new AbortController();
  const onError = (error: unknown) => {
    log.error("error", { error });
    return new Response(null, { status: 500 });
  };
  const server = Deno.serve({ path, signal: end.signal, onListen: () => {}, onError }, grpcHandler(methods));
  const abort = async () => {
    end.abort();
    await server.finished;
  };
  return Promise.resolve({ shutdown: () => server.shutdown(), abort });
};

/**
 * Returns a handler of HTTP requests that makes calls. A request that is not of gRPC gets an HTTP status.
 *
 * @param methods the calls by path, such as `/csi.v1.Identity/Probe`
 */
function grpcHandler(methods: ReadonlyMap<string, BoundMethod>): (request: Request) => Promise<Response> {
  return async (request) => {
    if (request.method !== "POST") return new Response(null, { status: 405, headers: { allow: "POST" } });
    if (!/^application\/grpc(?:$|[+;])/.test(request.headers.get("content-type") ?? "")) {
      return new Response(null, { status: 415 });
    }
    const answer = await call(methods, new URL(request.url).pathname, request.body ?? []);
    if ("failure" in answer) return failed(answer.failure);
    return "messages" in answer ? streamed(request, answer.messages) : succeeded(request, answer.message);
  };
}

/**
 * Listens by the HTTP/2 server of Node.js. It accepts any `:authority`, which the server of Deno does not. In Deno 2.9.3, it
 * keeps some memory of each connection.
 *
 * The socket is Deno's: that of `node:net` closes each descriptor twice in this Deno, and by then the number may belong to a
 * file that another thread has just opened.
 */
export const listenByNode: Listen = async (path, methods) => {
  const { createServer } = await import("node:http2"); // not all drivers load it
  const server = createServer();
  const sessions = new Set<ServerHttp2Session>();
  server.on("session", (session) => {
    sessions.add(session);
    session.on("close", () => sessions.delete(session));
  });
  server.on("sessionError", () => {}); // a client that broke the connection
  server.on("stream", async (stream: ServerHttp2Stream, headers: IncomingHttpHeaders) => {
    stream.on("error", () => {});
    const answer = await call(methods, String(headers[":path"]), stream);
    if (stream.destroyed) return "messages" in answer ? void await answer.messages.return?.() : undefined;
    if ("failure" in answer) {
      return stream.respond({ ":status": 200, ...failureHeaders(answer.failure) }, { endStream: true });
    }
    stream.respond({ ":status": 200, ...HEADERS }, { waitForTrailers: true });
    let trailers: Record<string, string> = STATUS_OK;
    stream.on("wantTrailers", () => stream.sendTrailers(trailers));
    if ("messages" in answer) trailers = await writeAll(stream, answer.messages);
    else stream.write(framed(answer.message));
    stream.end();
  });
  const listener = Deno.listen({ transport: "unix", path });
  const end = new AbortController();
  const accept = async () => {
    while (!end.signal.aborted) {
      try {
        server.emit("connection", await streamOf(await listener.accept()));
      } catch (error) {
        if (end.signal.aborted) return;
        log.error("error", { error }); // as while the process has as many files open as it may have
        await sleep(systemClock, ACCEPT_RETRY_MS, end.signal);
      }
    }
  };
  const accepting = accept();
  const stopListening = () => {
    end.abort();
    listener.close();
    return accepting; // Deno removes the path when the last accept() has ended
  };
  const abort = async () => {
    const stopped = stopListening();
    for (const session of sessions) session.destroy();
    await stopped;
  };
  const shutdown = async () => {
    const stopped = stopListening();
    await Promise.all([...sessions].map((session) => new Promise<void>((resolve) => session.close(resolve))));
    await stopped;
  };
  return { shutdown, abort };
};

/** Writes the messages of a stream, each when the client takes it. @returns the trailers */
async function writeAll(
  stream: ServerHttp2Stream,
  messages: AsyncIterator<Uint8Array<ArrayBuffer>, void>,
): Promise<Record<string, string>> {
  const gone = new Promise<"gone">((resolve) => stream.once("close", () => resolve("gone")));
  try {
    for await (const message of { [Symbol.asyncIterator]: () => messages }) {
      if (stream.destroyed) break;
      if (stream.write(framed(message))) continue;
      const drained = new Promise<void>((resolve) => stream.once("drain", resolve));
      if (await Promise.race([drained, gone]) === "gone") break;
    }
    return STATUS_OK;
  } catch (error) {
    return statusTrailers(statusOf(error));
  }
}

/** Returns a connection as a stream of Node.js. (`Duplex.fromWeb()` of this Deno throws when a connection breaks.) */
async function streamOf(connection: Deno.Conn): Promise<Duplex> {
  const { Duplex } = await import("node:stream");
  const reader = connection.readable.getReader();
  const writer = connection.writable.getWriter();
  const stream = new Duplex({
    read: () => reader.read().then(({ value }) => stream.push(value ?? null)).catch((error) => stream.destroy(error)),
    write: (chunk, _encoding, done) => writer.write(chunk).then(() => done(), done),
    final: (done) => writer.close().then(() => done(), done),
    destroy: (error, done) => {
      try {
        connection.close();
      } catch {
        // the streams closed it
      }
      done(error);
    },
  });
  return stream;
}

/** Makes a call. @param body the bytes of the request, in pieces */
export async function call(
  methods: ReadonlyMap<string, BoundMethod>,
  path: string,
  body: AsyncIterable<Uint8Array> | Iterable<Uint8Array>,
): Promise<BoundAnswer> {
  try {
    const method = methods.get(path);
    if (method === undefined) throw new StatusError(status.UNIMPLEMENTED, `${path}: there is no such call`);
    return await method(await readMessage(body));
  } catch (error) {
    return { failure: statusOf(error) };
  }
}

/**
 * Reads the message of a request.
 *
 * @throws {StatusError} `RESOURCE_EXHAUSTED` when it is too large, `UNIMPLEMENTED` when it is compressed, `INTERNAL` when
 * there is not exactly one
 */
async function readMessage(body: AsyncIterable<Uint8Array> | Iterable<Uint8Array>): Promise<Uint8Array> {
  const chunks: Uint8Array[] = [];
  let length = 0;
  for await (const chunk of body) {
    length += chunk.length;
    if (length > MAX_REQUEST_BYTES + PREFIX_BYTES) {
      throw new StatusError(status.RESOURCE_EXHAUSTED, `the request has more than ${MAX_REQUEST_BYTES} bytes`);
    }
    chunks.push(chunk);
  }
  const bytes = joined(chunks, length);
  if (length < PREFIX_BYTES) throw new StatusError(status.INTERNAL, "the request has no message");
  if (bytes[0] !== 0) throw new StatusError(status.UNIMPLEMENTED, "the request is compressed, which is not supported");
  const messageLength = new DataView(bytes.buffer, bytes.byteOffset).getUint32(1);
  if (messageLength !== length - PREFIX_BYTES) {
    throw new StatusError(status.INTERNAL, "the request is not one whole message, as a unary call needs");
  }
  return bytes.subarray(PREFIX_BYTES);
}

/** Returns one array of chunks that have so many bytes together. */
function joined(chunks: readonly Uint8Array[], length: number): Uint8Array {
  const bytes = new Uint8Array(length);
  let end = 0;
  for (const chunk of chunks) {
    bytes.set(chunk, end);
    end += chunk.length;
  }
  return bytes;
}

/** The trailers of a call that succeeded. */
const STATUS_OK = { "grpc-status": "0" } as const;

/** Returns the trailers of a call that failed. */
function statusTrailers(failure: Status): Record<string, string> {
  return {
    "grpc-status": String(failure.code),
    "grpc-message": encodeURI(failure.details),
    // unpadded, as gRPC's PROTOCOL-HTTP2.md asks of senders
    "grpc-status-details-bin": statusProto(failure).toBase64({ omitPadding: true }),
  };
}

/** Returns the headers of the answer of a call that failed, with nothing after them ("Trailers-Only"). */
function failureHeaders(failure: Status): Record<string, string> {
  return { ...HEADERS, ...statusTrailers(failure) };
}

/** Returns a message as it is sent, after what precedes it. */
function framed(message: Uint8Array): Uint8Array<ArrayBuffer> {
  const bytes = new Uint8Array(PREFIX_BYTES + message.length);
  new DataView(bytes.buffer).setUint32(1, message.length);
  bytes.set(message, PREFIX_BYTES);
  return bytes;
}

function failed(failure: Status): Response {
  return new Response(null, { headers: failureHeaders(failure) });
}

/** Returns the answer of a call that succeeded. */
function succeeded(request: Request, message: Uint8Array<ArrayBuffer>): Response {
  // a stream: Deno sends no trailers after a body that it has whole
  const body = new ReadableStream({
    start: (controller) => {
      controller.enqueue(framed(message));
      controller.close();
    },
  });
  const response = new Response(body, { headers: HEADERS });
  setTrailers(request, response, STATUS_OK);
  return response;
}

/** Returns the answer of a call with a stream of messages, of which each is made when the client takes it. */
function streamed(request: Request, messages: AsyncIterator<Uint8Array<ArrayBuffer>, void>): Response {
  const body = new ReadableStream({
    pull: async (controller) => {
      try {
        const next = await messages.next();
        if (!next.done) return controller.enqueue(framed(next.value));
        setTrailers(request, response, STATUS_OK);
      } catch (error) {
        setTrailers(request, response, statusTrailers(statusOf(error)));
      }
      controller.close();
    },
    cancel: async () => void await messages.return?.(),
  }, { highWaterMark: 1 });
  const response = new Response(body, { headers: HEADERS });
  return response;
}

/** The part of Deno's internals that is used here. */
interface Internals {
  addTrailers(response: Response, trailers: readonly (readonly [string, string])[]): void;
}

/**
 * Sets the trailers of a response. Deno's public API has none. Its internal function expects the handle of the exchange
 * in the response, which Deno keeps in the request until the response is sent or the client has gone. Without one, that
 * function would end the process.
 *
 * @throws {Error} in other versions than {@linkcode TRAILERS_VERSION}
 */
function setTrailers(request: Request, response: Response, trailers: Readonly<Record<string, string>>): void {
  const runtime = Deno as unknown as Record<symbol, unknown> & { readonly internal: symbol };
  const { addTrailers } = runtime[runtime.internal] as Internals;
  const { external } = internalOf(request, "Symbol(request)");
  if (external === null) return;
  Object.assign(internalOf(response, "Symbol(response)"), { external });
  addTrailers(response, Object.entries(trailers));
}

/** Returns the object of Deno behind a request or response. @throws {Error} when there is none */
function internalOf(object: Request | Response, name: string): { external?: unknown } {
  const key = Object.getOwnPropertySymbols(object).find((symbol) => String(symbol) === name);
  const internal = key && (object as unknown as Record<symbol, { external?: unknown }>)[key];
  if (internal === undefined) throw new Error(`sending gRPC's trailers: Deno ${Deno.version.deno} has no ${name}`);
  return internal;
}
