/**
 * gRPC on a Unix socket, by grpc-js.
 *
 * Its connections are Deno's: the Unix sockets of `node:net` close each descriptor twice (docs/adr/0002-cold-start.md).
 *
 * @module
 */

import type { ServerWritableStream } from "@grpc/grpc-js";
import { getLogger } from "@logtape/logtape";
import type { ServerHttp2Session, ServerHttp2Stream } from "node:http2";
import type { Duplex } from "node:stream";
import { sleep, systemClock } from "../base/clock.ts";
import { type Status, statusOf, statusProto } from "./status.ts";

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

/** A call as grpc-js has it: bytes in, and messages of bytes out. */
type Call = ServerWritableStream<Uint8Array, Uint8Array>;

/** What grpc-js calls with a call that came. */
type StreamHandler = (interceptors: unknown, stream: ServerHttp2Stream, headers: unknown) => void;

const log = getLogger(["denolith", "csi"]);

/** Milliseconds until the driver takes connections again after it could not take one. */
const ACCEPT_RETRY_MS = 1_000;

/** Listens on a socket, and makes the calls that come. */
export async function listen(path: string, methods: ReadonlyMap<string, BoundMethod>): Promise<Listener> {
  // not all that a driver's process may do loads it
  const [{ Metadata, Server, ServerCredentials }, { Buffer }] = await Promise.all([
    import("@grpc/grpc-js"),
    import("node:buffer"),
  ]);
  const errorOf = ({ code, details, ...rest }: Status) => {
    const metadata = new Metadata();
    metadata.set("grpc-status-details-bin", Buffer.from(statusProto({ code, details, ...rest })));
    return { code, details, metadata };
  };
  const answer = async (call: Call, method: BoundMethod) => {
    try {
      const answer = await method(call.request);
      if ("failure" in answer) call.emit("error", errorOf(answer.failure));
      else if ("messages" in answer) await writeAll(call, answer.messages);
      else call.write(answer.message);
      call.end();
    } catch (error) {
      call.emit("error", errorOf(statusOf(error)));
    }
  };
  const server = new Server({ "grpc.enable_channelz": 0 });
  for (const [path, method] of methods) {
    // a stream of one message is the answer of a unary call
    const handle = (call: Call) => void answer(call, method);
    server.register(
      path,
      handle,
      ({ buffer, byteOffset, length }: Uint8Array) => Buffer.from(buffer, byteOffset, length),
      (bytes) => bytes,
      "serverStream",
    );
  }
  // Deno reports a call in a later tick than it came; grpc-js fails when its connection has been broken by then
  const onStream: StreamHandler = server["_streamHandler"];
  server["_streamHandler"] = (...[interceptors, stream, headers]: Parameters<StreamHandler>) => {
    stream.on("error", () => {}); // the client broke the connection
    if (!stream.destroyed) onStream.call(server, interceptors, stream, headers);
  };
  const injector = server.createConnectionInjector(ServerCredentials.createInsecure());
  for (const http2 of server["http2Servers"].keys()) http2.on("session", destroyLater);
  const listener = Deno.listen({ transport: "unix", path });
  const connections = new Set<Duplex>();
  const end = new AbortController();
  const accept = async () => {
    while (!end.signal.aborted) {
      try {
        const connection = await streamOf(await listener.accept());
        connections.add(connection);
        connection.on("close", () => connections.delete(connection));
        injector.injectConnection(connection);
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
    await stopListening(); // a connection may have been accepted just before
    for (const connection of connections) connection.destroy(); // forceShutdown() leaves those of an injector
  };
  const shutdown = async () => {
    await stopListening(); // a connection may have been accepted just before
    await new Promise<void>((resolve) => server.tryShutdown(() => resolve()));
  };
  return { shutdown, abort };
}

/** Writes the messages of a stream, each when there is room for it, until the client has gone. */
async function writeAll(call: Call, messages: AsyncIterator<Uint8Array<ArrayBuffer>, void>): Promise<void> {
  const gone = Promise.withResolvers<"gone">();
  const end = () => {
    gone.resolve("gone");
    // also while it makes the next one; nobody is there any more for how it ends
    messages.return?.().catch((error) => log.warn("error", { error }));
  };
  if (call.cancelled) return end();
  call.once("cancelled", end);
  for (let next = await messages.next(); !next.done && !call.cancelled; next = await messages.next()) {
    if (call.write(next.value)) continue;
    const drained = new Promise<void>((resolve) => call.once("drain", resolve));
    if (await Promise.race([drained, gone.promise]) === "gone") return;
  }
}

/**
 * Makes a session end itself when what it reads has been read. `node:http2` of Deno goes on with the memory of one that ends
 * itself meanwhile, as by a frame with which the client says goodbye: now and then the process would die.
 */
function destroyLater(session: ServerHttp2Session): void {
  const destroy = session.destroy.bind(session);
  session.destroy = (...args: Parameters<typeof destroy>) => queueMicrotask(() => destroy(...args));
}

/** Returns a connection as a stream of Node.js. */
async function streamOf(connection: Deno.Conn): Promise<Duplex> {
  const [{ Duplex }, { Buffer }] = await Promise.all([import("node:stream"), import("node:buffer")]);
  const buffer = new Uint8Array(4_096);
  const stream = new Duplex({
    allowHalfOpen: false,
    read: () =>
      connection.read(buffer).then(
        (count) => void stream.push(count === null ? null : Buffer.from(buffer.subarray(0, count))),
        (error) => void stream.destroy(error),
      ),
    write: (chunk: Uint8Array, _encoding, done) => void writeWhole(connection, chunk).then(() => done(), done),
    final: (done) => void connection.closeWrite().then(() => done(), done),
    destroy: (error, done) => {
      connection.close();
      done(error);
    },
  });
  stream.on("error", () => {}); // the client broke the connection
  return stream;
}

async function writeWhole(connection: Deno.Conn, bytes: Uint8Array): Promise<void> {
  for (let written = 0; written < bytes.length;) written += await connection.write(bytes.subarray(written));
}
