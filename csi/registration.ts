/**
 * Registration with kubelet: kubelet finds a socket in its `plugins_registry`, asks it for the driver, and reports the
 * result (k8s.io/kubelet, pluginregistration v1). It does so again after a restart of kubelet or of the driver.
 *
 * @module
 */

import { getLogger } from "@logtape/logtape";
import type { IncomingHttpHeaders, ServerHttp2Session, ServerHttp2Stream } from "node:http2";
import type { Duplex } from "node:stream";
import { sleep, systemClock } from "../lvm/clock.ts";
import { call, failureHeaders, HEADERS, type Listen, prefixOf } from "./grpc.ts";
import { type RunningServer, serve } from "./server.ts";
import { Registration } from "./proto/registration_pb.ts";
import { bindService, pathOf } from "./service.ts";

/** Options of {@linkcode serveRegistration}. */
export interface RegistrationOptions {
  /** The driver's name. */
  readonly driver: string;
  /** The path of the driver's socket, as kubelet sees it. */
  readonly endpoint: string;
  /** Called with the error of kubelet, or with `undefined` after kubelet registered the driver. */
  onStatus?(error: string | undefined): void;
}

/** The supported versions of CSI, in the notation of kubelet. */
const SUPPORTED_VERSIONS = ["1.0.0"];

/** Milliseconds until the driver takes connections again after it could not take one. */
const ACCEPT_RETRY_MS = 1_000;

const log = getLogger(["denolith", "registration"]);

/**
 * Serves the registration of the driver on a socket.
 *
 * @param path the path of the socket
 * @throws {StorageError} `FailedPrecondition` when another process listens on it
 */
export async function serveRegistration(path: string, options: RegistrationOptions): Promise<RunningServer> {
  const { driver, endpoint, onStatus } = options;
  const info = { type: "CSIPlugin", name: driver, endpoint, supportedVersions: SUPPORTED_VERSIONS };
  const service = bindService(Registration, {
    getInfo: () => Promise.resolve(info),
    notifyRegistrationStatus: ({ pluginRegistered, error }) => {
      if (pluginRegistered) log.info("plugin registered with kubelet", { driver });
      else log.error("kubelet rejected the plugin", { driver, reason: error });
      onStatus?.(pluginRegistered ? undefined : error);
      return Promise.resolve({});
    },
  });
  return await serve(path, [service], { firstCalls: [pathOf(Registration.method.getInfo)], listenOn: listenByNode });
}

/**
 * Serves by the HTTP/2 server of Node.js, which accepts any `:authority`: kubelet sends the escaped path of the socket when
 * it registers a plugin, and the server of Deno refuses that. In this Deno, it keeps some memory of each connection, but
 * kubelet opens one only when it or the driver starts.
 *
 * The socket is Deno's: that of `node:net` closes each descriptor twice in this Deno, and by then the number may belong to a
 * file that another thread has just opened.
 */
const listenByNode: Listen = async (path, methods) => {
  const { createServer } = await import("node:http2"); // other drivers do not load it
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
    if (stream.destroyed) return;
    if ("failure" in answer) {
      return stream.respond({ ":status": 200, ...failureHeaders(answer.failure) }, { endStream: true });
    }
    stream.respond({ ":status": 200, ...HEADERS }, { waitForTrailers: true });
    stream.on("wantTrailers", () => stream.sendTrailers({ "grpc-status": "0" }));
    stream.write(prefixOf(answer.message));
    stream.end(answer.message);
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
  void accept();
  const stopListening = () => {
    end.abort();
    listener.close();
  };
  const abort = () => {
    stopListening();
    for (const session of sessions) session.destroy();
  };
  const shutdown = async () => {
    stopListening();
    await Promise.all([...sessions].map((session) => new Promise<void>((resolve) => session.close(resolve))));
  };
  return { shutdown, abort };
};

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
