/**
 * Registration with kubelet: kubelet finds a socket in its `plugins_registry`, asks it for the driver, and reports the
 * result (k8s.io/kubelet, pluginregistration v1). It does so again after a restart of kubelet or of the driver.
 *
 * @module
 */

import { getLogger } from "@logtape/logtape";
import type { IncomingHttpHeaders, ServerHttp2Session, ServerHttp2Stream } from "node:http2";
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
 * Listens by the HTTP/2 server of Node.js, which accepts any `:authority`: kubelet sends the escaped path of the socket when
 * it registers a plugin, and the server of Deno refuses that. In this Deno, it keeps some memory of each connection, but
 * kubelet opens one only when it or the driver starts.
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
  await new Promise<void>((resolve, reject) => {
    server.once("error", reject);
    server.listen(path, resolve);
  });
  const abort = () => {
    for (const session of sessions) session.destroy();
    server.close();
  };
  const shutdown = async () => {
    const closed = new Promise<void>((resolve) => server.close(() => resolve()));
    for (const session of sessions) session.close();
    await closed;
  };
  return { shutdown, abort };
};
