/**
 * Serves liveness, readiness and metrics of a process over HTTP.
 *
 * The server is Deno's: `node:http` of this Deno keeps 2 KB of each connection, and kubelet opens one for each probe.
 *
 * @module
 */

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
export function serveHttp(address: HttpAddress, options: HttpOptions): HttpServer {
  const end = new AbortController();
  const server = listen(address, end.signal, (request) => respond(new URL(request.url).pathname, options));
  const { hostname: host, port } = server.addr;
  return {
    host,
    port,
    [Symbol.asyncDispose]: async () => {
      end.abort();
      await server.finished;
    },
  };
}

async function respond(path: string, { notReadyReasons, metrics }: HttpOptions): Promise<Response> {
  const answer = (status: number, body: string, type = "text/plain; charset=utf-8") =>
    new Response(body, { status, headers: { "content-type": type } });
  // liveness means that the event loop runs: an outage of the API server must not restart agents
  if (path === "/livez") return answer(200, "ok\n");
  if (path === "/readyz") {
    const reasons = notReadyReasons();
    return reasons.length === 0 ? answer(200, "ok\n") : answer(503, reasons.map((reason) => `${reason}\n`).join(""));
  }
  if (path !== "/metrics") return answer(404, "not found; the paths are /livez, /readyz and /metrics\n");
  return await metrics().then(
    (text) => answer(200, text, "text/plain; version=0.0.4; charset=utf-8"),
    (error) => answer(500, `${error}\n`),
  );
}

/** Listens on the first host of an address that this machine has. */
function listen(
  { hosts, port }: HttpAddress,
  signal: AbortSignal,
  handler: (request: Request) => Promise<Response>,
): Deno.HttpServer<Deno.NetAddr> {
  for (const [index, hostname] of hosts.entries()) {
    try {
      return Deno.serve({ hostname, port, signal, onListen: () => {} }, handler);
    } catch (error) {
      if (error instanceof Deno.errors.AddrInUse || index === hosts.length - 1) throw error;
    }
  }
  throw new Error("listening: no host is given");
}
