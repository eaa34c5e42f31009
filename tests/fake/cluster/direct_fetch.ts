/**
 * The short way to a fake server in this process: `fetch` calls it, without a network, while other processes reach it by its
 * port. A request takes a half of the processor time that way.
 *
 * @module
 */

import { nextTurn } from "../../../base/clock.ts";

/** A request, with its whole body. */
export interface DirectRequest {
  readonly method: string;
  readonly url: string;
  readonly headers: Headers;
  readonly body: string;
}

/** An answer: whole, or one that goes on until it is aborted. */
export interface DirectAnswer {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string | { readonly body: ReadableStream<Uint8Array>; abort(reason: unknown): void };
}

/** A server in this process. */
interface DirectServer {
  readonly handle: (request: DirectRequest) => Promise<DirectAnswer>;
  /** Aborted when it ends, with all connections to it. */
  readonly end: AbortSignal;
}

/** The servers, by their origins. */
const servers = new Map<string, DirectServer>();

const fetchByNetwork = globalThis.fetch;

globalThis.fetch = (input, init) => {
  const server = typeof input === "string" ? servers.get(new URL(input).origin) : undefined;
  return server === undefined ? fetchByNetwork(input, init) : fetchDirectly(server, input as string, init);
};

/** Has requests to an origin sent to a server in this process until it ends. */
export function serveDirectly(origin: string, server: DirectServer): void {
  servers.set(origin, server);
  server.end.addEventListener("abort", () => servers.delete(origin));
}

async function fetchDirectly({ handle, end }: DirectServer, url: string, init: RequestInit = {}): Promise<Response> {
  const { method = "GET", headers, body, signal } = init;
  const { promise: aborted, reject } = Promise.withResolvers<never>();
  aborted.catch(() => {});
  const abort = () => reject(signal?.reason);
  const endConnection = () => reject(new TypeError("error sending request: the server closed the connection"));
  if (signal?.aborted) abort();
  signal?.addEventListener("abort", abort);
  end.addEventListener("abort", endConnection);
  // as over a network, others take their turn before the server has the request, and before the client has the answer
  const answer = async () => {
    await nextTurn();
    if (signal?.aborted) throw signal.reason;
    const answered = await handle({ method, url, headers: new Headers(headers), body: body?.toString() ?? "" });
    await nextTurn();
    return responseOf(answered, signal);
  };
  try {
    return await Promise.race([aborted, answer()]);
  } finally {
    signal?.removeEventListener("abort", abort);
    end.removeEventListener("abort", endConnection);
  }
}

/** Returns an answer as a response. One that is whole has no stream, which costs more than all else of a request. */
function responseOf({ status, headers, body }: DirectAnswer, signal: AbortSignal | null | undefined): Response {
  if (typeof body !== "string") {
    signal?.addEventListener("abort", () => body.abort(signal.reason), { once: true });
    return new Response(body.body, { status, headers });
  }
  const whole = {
    status,
    ok: status >= 200 && status < 300,
    headers: new Headers(headers),
    body: null,
    text: () => Promise.resolve(body),
    json: () => Promise.resolve(JSON.parse(body)),
  };
  return whole as Partial<Response> as Response;
}
