/**
 * Serves liveness, readiness and metrics of a process over HTTP.
 *
 * @module
 */

import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import type { HttpAddress } from "./api_access.ts";

/** Options of {@linkcode serveHttp}. */
export interface HttpOptions {
  /** Returns why the process is not ready; an empty list when it is. Called often, so it must be fast. */
  notReadyReasons(): readonly string[];
  /** Returns the metrics in the text format of Prometheus. */
  metrics(): Promise<string>;
}

/** A running HTTP server, which is stopped when it is disposed of. */
export interface HttpServer extends AsyncDisposable {
  /** Host of the address that it listens on. */
  readonly host: string;
  /** Port: that of the address, or a free one where that is 0. */
  readonly port: number;
}

/** Serves HTTP on an address. @throws {Error} when it cannot listen on that */
export async function serveHttp(address: HttpAddress, options: HttpOptions): Promise<HttpServer> {
  const server = createServer((request, response) => {
    const respond = (status: number, body: string, type = "text/plain; charset=utf-8") => {
      response.writeHead(status, { "content-type": type });
      response.end(body);
    };
    const path = request.url?.replace(/\?.*$/s, "");
    // liveness means that the event loop runs: an outage of the API server must not restart agents
    if (path === "/livez") return respond(200, "ok\n");
    if (path === "/readyz") {
      const reasons = options.notReadyReasons();
      return reasons.length === 0
        ? respond(200, "ok\n")
        : respond(503, reasons.map((reason) => `${reason}\n`).join(""));
    }
    if (path !== "/metrics") return respond(404, "not found; the paths are /livez, /readyz and /metrics\n");
    options.metrics().then(
      (text) => respond(200, text, "text/plain; version=0.0.4; charset=utf-8"),
      (error) => respond(500, `${error}\n`),
    );
  });
  const host = await listen(server, address);
  return {
    host,
    port: (server.address() as AddressInfo).port,
    [Symbol.asyncDispose]: async () => {
      server.closeAllConnections();
      await new Promise<void>((resolve) => server.close(() => resolve()));
    },
  };
}

/** Listens on the first host of an address that this machine has. @returns that host */
async function listen(server: Server, { hosts, port }: HttpAddress): Promise<string> {
  for (const [index, host] of hosts.entries()) {
    try {
      await new Promise<void>((resolve, reject) => {
        server.once("error", reject);
        server.listen(port, host, resolve);
      });
      return host;
    } catch (error) {
      const isTaken = error instanceof Error && "code" in error && error.code === "EADDRINUSE";
      if (isTaken || index === hosts.length - 1) throw error;
    }
  }
  throw new Error("listening: no host is given");
}
