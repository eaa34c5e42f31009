/**
 * The process over HTTP: whether it lives, whether it can work, and its figures.
 *
 * @module
 */

import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import type { HttpAddress } from "./api_access.ts";

/** What is answered. */
export interface HttpOptions {
  /** Why the process cannot do its work now; an empty list when it can. From a cache or quick, for it is asked often. */
  notReadyReasons(): readonly string[];
  /** The figures. */
  metrics(): Promise<string>;
}

/** What answers, until it is disposed of. */
export interface HttpServer extends AsyncDisposable {
  /** Its port: that of the address, or a free one where that is 0. */
  readonly port: number;
}

/** Answers on the address. @throws {Error} when that cannot be listened on */
export async function serveHttp({ host, port }: HttpAddress, options: HttpOptions): Promise<HttpServer> {
  const server = createServer((request, response) => {
    const respond = (status: number, body: string, type = "text/plain; charset=utf-8") => {
      response.writeHead(status, { "content-type": type });
      response.end(body);
    };
    const path = request.url?.replace(/\?.*$/s, "");
    // the event loop that answers is what liveness is about: an API server that is away must not kill agents
    if (path === "/livez") return respond(200, "ok\n");
    if (path === "/readyz") {
      const reasons = options.notReadyReasons();
      return reasons.length === 0
        ? respond(200, "ok\n")
        : respond(503, reasons.map((reason) => `${reason}\n`).join(""));
    }
    if (path !== "/metrics") return respond(404, "there are /livez, /readyz and /metrics\n");
    options.metrics().then(
      (text) => respond(200, text, "text/plain; version=0.0.4; charset=utf-8"),
      (error) => respond(500, `${error}\n`),
    );
  });
  await new Promise<void>((resolve, reject) => {
    server.once("error", reject);
    server.listen(port, host, resolve);
  });
  return {
    port: (server.address() as AddressInfo).port,
    [Symbol.asyncDispose]: async () => {
      server.closeAllConnections();
      await new Promise<void>((resolve) => server.close(() => resolve()));
    },
  };
}
