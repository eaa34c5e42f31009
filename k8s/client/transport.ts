/**
 * The connection to the API server. Deno's `fetch` keeps one HTTP/2 connection for all requests; when the network swallows it,
 * nothing tells, and the same client goes on using it. So while watches are open and nothing comes, the server is asked for a
 * sign of life; when there is none, the watches are ended and the next request gets a connection of its own.
 *
 * @module
 */

import { type Clock, systemClock } from "../../lvm/clock.ts";
import { type ApiServer, readCredential } from "./config.ts";

/** Options of a {@linkcode Transport}. */
export interface TransportOptions {
  /** The User-Agent that the server logs. */
  userAgent: string;
  /** Milliseconds without a word while watches are open, after which the server is asked for a sign of life; 10,000. */
  readIdleTimeoutMs?: number | undefined;
  /** Milliseconds in which it must come; 5,000. */
  pingTimeoutMs?: number | undefined;
  /** Milliseconds after which a token is read again; 60,000. */
  tokenMaxAgeMs?: number | undefined;
  /** Called with the reason when a connection was closed. */
  onReconnect?: ((reason: string) => void) | undefined;
  /** Time. */
  clock?: Clock | undefined;
}

/** A watch's stay on the connection. */
export interface WatchRegistration extends Disposable {
  /** Aborted when the connection is given up. */
  readonly signal: AbortSignal;
}

/** The connection to one API server. */
export class Transport implements Disposable {
  readonly #server: ApiServer;
  readonly #options: TransportOptions;
  readonly #clock: Clock;
  readonly #watches = new Set<AbortController>();
  #client: Promise<Deno.HttpClient> | undefined;
  #token: { text: string; readAt: number } | undefined;
  #lastActivityAt = 0;
  #cancelPing: (() => void) | undefined;
  #isPinging = false;
  #isClosed = false;

  /** Creates it without opening a connection, which the first request does. */
  constructor(server: ApiServer, options: TransportOptions) {
    this.#server = server;
    this.#options = options;
    this.#clock = options.clock ?? systemClock;
  }

  /**
   * Sends a request to a path of the server, with credentials. A rejected token is read again for the next request.
   */
  async fetch(path: string, init: RequestInit & { signal: AbortSignal }): Promise<Response> {
    if (this.#isClosed) throw new Error("the client was closed");
    const headers = new Headers(init.headers);
    headers.set("user-agent", this.#options.userAgent);
    const token = await this.#bearerToken();
    if (token !== undefined) headers.set("authorization", `Bearer ${token}`);
    const client = await (this.#client ??= this.#createClient());
    const response = await fetch(`${this.#server.url.replace(/\/$/, "")}${path}`, { ...init, headers, client });
    this.recordActivity();
    if (response.status === 401) this.#token = undefined;
    return withAbortSignal(init.signal, response);
  }

  /** Records that data came from the server just now. */
  recordActivity(): void {
    this.#lastActivityAt = this.#clock.now();
  }

  /** Closes the connection if no data came on it since a moment of the clock, at which a request was sent. */
  reconnectIfIdleSince(since: number, reason: string): void {
    if (this.#lastActivityAt < since && !this.#isClosed) this.reconnect(reason);
  }

  /** Opens a watch's stay: as long as there is one, the connection is looked after. */
  registerWatch(): WatchRegistration {
    const controller = new AbortController();
    this.#watches.add(controller);
    if (this.#cancelPing === undefined && !this.#isPinging) this.#schedulePing();
    return {
      signal: controller.signal,
      [Symbol.dispose]: () => {
        this.#watches.delete(controller);
        if (this.#watches.size === 0) this.#stopPinging();
      },
    };
  }

  /** Closes the connection: all watches end, and the next request opens another one. */
  reconnect(reason: string): void {
    const client = this.#client;
    this.#client = undefined;
    for (const watch of this.#watches) watch.abort(new Error(reason));
    client?.then((open) => open.close(), () => {});
    this.#options.onReconnect?.(reason);
  }

  /** Closes the connection for good; watches end. */
  [Symbol.dispose](): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#stopPinging();
    for (const watch of this.#watches) watch.abort(new Error("the client was closed"));
    this.#client?.then((open) => open.close(), () => {});
  }

  async #createClient(): Promise<Deno.HttpClient> {
    const { ca, certificate, key } = this.#server;
    try {
      return Deno.createHttpClient({
        ...(ca === undefined ? {} : { caCerts: [await readCredential(ca)] }),
        ...(certificate === undefined || key === undefined
          ? {}
          : { cert: await readCredential(certificate), key: await readCredential(key) }),
      });
    } catch (error) {
      this.#client = undefined;
      throw error;
    }
  }

  async #bearerToken(): Promise<string | undefined> {
    if (this.#server.token === undefined) return undefined;
    const now = this.#clock.now();
    if (this.#token === undefined || now - this.#token.readAt >= (this.#options.tokenMaxAgeMs ?? 60_000)) {
      this.#token = { text: await readCredential(this.#server.token), readAt: now };
    }
    return this.#token.text;
  }

  #stopPinging(): void {
    this.#cancelPing?.();
    this.#cancelPing = undefined;
  }

  #schedulePing(): void {
    const idleMs = this.#clock.now() - this.#lastActivityAt;
    const timeoutMs = this.#options.readIdleTimeoutMs ?? 10_000;
    const waitMs = idleMs >= timeoutMs ? timeoutMs : timeoutMs - idleMs;
    this.#cancelPing = this.#clock.after(waitMs, () => void this.#pingIfIdle());
  }

  async #pingIfIdle(): Promise<void> {
    this.#cancelPing = undefined;
    this.#isPinging = true; // the last watch may end and another one start meanwhile, which must not ping as well
    if (this.#clock.now() - this.#lastActivityAt >= (this.#options.readIdleTimeoutMs ?? 10_000)) await this.#ping();
    this.#isPinging = false;
    if (this.#watches.size > 0 && !this.#isClosed) this.#schedulePing();
  }

  async #ping(): Promise<void> {
    const timeoutMs = this.#options.pingTimeoutMs ?? 5_000;
    const deadline = new AbortController();
    const cancel = this.#clock.after(timeoutMs, () => deadline.abort(new Error(`no answer within ${timeoutMs} ms`)));
    const pingedClient = this.#client;
    try {
      // Any response proves that the connection works, an error too.
      const response = await this.fetch("/livez", { signal: deadline.signal });
      await response.body?.cancel();
    } catch (error) {
      if (this.#client === pingedClient && this.#watches.size > 0 && !this.#isClosed) {
        this.reconnect(`no sign of life: ${error instanceof Error ? error.message : error}`);
      }
    } finally {
      cancel();
    }
  }
}

/**
 * Returns the response with a body that is cancelled with the signal. The body of Deno's fetch (2.9) is cancelled only
 * until garbage is collected: the request, which alone holds the signal, is garbage once the headers are there.
 */
function withAbortSignal(signal: AbortSignal, response: Response): Response {
  const body = response.body?.pipeThrough(new TransformStream(), { signal });
  return body === undefined ? response : new Response(body, response);
}
