/**
 * The connection to the API server. Deno's `fetch` keeps one HTTP/2 connection for all requests; when the network swallows it,
 * nothing tells, and the same client goes on using it. So while watches are open and nothing comes, the server is asked for a
 * sign of life; when there is none, the watches are ended and the next request gets a connection of its own.
 *
 * @module
 */

import { type Clock, systemClock } from "../../base/clock.ts";
import { type ApiServer, readCredential } from "./config.ts";
import { messageWithCauses } from "./response.ts";

/** Options of a {@linkcode Transport}. */
export interface TransportOptions {
  /** The User-Agent that the server logs. */
  userAgent: string;
  /** Milliseconds without a word while watches are open, after which the server is asked for a sign of life; 30,000. */
  readIdleTimeoutMs?: number | undefined;
  /** Milliseconds in which it must come; 5,000. */
  pingTimeoutMs?: number | undefined;
  /** Called with the reason when a connection was closed. */
  onReconnect?: ((reason: string) => void) | undefined;
  /** Time. */
  clock?: Clock | undefined;
}

/** Milliseconds after which credentials are read again. Kubernetes replaces those of a pod long before they expire. */
const CREDENTIAL_MAX_AGE_MS = 60_000;

/**
 * Milliseconds without a word after which the server is asked for a sign of life, as client-go does (ReadIdleTimeout). Each
 * agent does so: a shorter time is more load on an idle cluster than a sooner detection is worth.
 */
const READ_IDLE_TIMEOUT_MS = 30_000;

/** Milliseconds without an accepted request after which the server counts as unavailable. */
const UNAVAILABLE_AFTER_MS = 60_000;

/** A watch's stay on the connection. */
export interface WatchRegistration extends Disposable {
  /** Aborted when the connection is given up. */
  readonly signal: AbortSignal;
}

/** The certificates of a connection, as PEM. */
type Certificates = { readonly [K in "ca" | "certificate" | "key"]: string | undefined };

/** A client of Deno's fetch. It has one connection to a server that speaks HTTP/2. */
interface Connection {
  readonly client: Deno.HttpClient;
  /** The certificates that it was created with. Deno does not read them again. */
  readonly certificates: Certificates;
}

/** The connection to one API server. */
export class Transport implements Disposable {
  readonly #server: ApiServer;
  readonly #options: TransportOptions;
  readonly #clock: Clock;
  readonly #watches = new Set<AbortController>();
  #connection: Connection | undefined;
  #connecting: Promise<Connection> | undefined;
  /** The time at which the certificates were read; `undefined` when they may have changed since. */
  #certificatesReadAt: number | undefined;
  #token: { text: string; readAt: number } | undefined;
  #lastActivityAt = 0;
  /** The time at which the server last accepted a request or sent an event; `undefined` before it did. */
  #acceptedAt: number | undefined;
  /** The reason why the last request since then failed, if it did. */
  #failure: string | undefined;
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
   * Sends a request to a path of the server, with credentials. After a failure, certificates are read again for the next
   * request, and a rejected token, too.
   */
  async fetch(path: string, init: RequestInit & { signal: AbortSignal }): Promise<Response> {
    if (this.#isClosed) throw new Error("the client was closed");
    const headers = new Headers(init.headers);
    headers.set("user-agent", this.#options.userAgent);
    const token = await this.#bearerToken();
    if (token !== undefined) headers.set("authorization", `Bearer ${token}`);
    const { client } = await this.#connect();
    try {
      const response = await fetch(`${this.#server.url.replace(/\/$/, "")}${path}`, { ...init, headers, client });
      this.#recordActivity();
      if (response.status === 401) this.#token = this.#certificatesReadAt = undefined;
      if (response.status === 401 || response.status >= 500) this.#failure = `HTTP ${response.status}`;
      else this.#recordAccepted();
      return withAbortSignal(init.signal, response);
    } catch (error) {
      this.#certificatesReadAt = undefined; // the authority or the server may have other certificates now
      this.#failure = messageWithCauses(error);
      throw error;
    }
  }

  /** Records that an event of a watch came from the server just now. */
  recordEvent(): void {
    this.#recordActivity();
    this.#recordAccepted();
  }

  /**
   * Returns why the server cannot be used: it has accepted no request for a minute, although one is sent when nothing has
   * come on a watch for half of it.
   *
   * @returns a reason for people; `undefined` while the server can be used
   */
  unavailableReason(): string | undefined {
    const cause = this.#failure === undefined ? "" : `: ${this.#failure}`;
    if (this.#acceptedAt === undefined) return `the API server has not answered yet${cause}`;
    const ms = this.#clock.now() - this.#acceptedAt;
    if (ms <= UNAVAILABLE_AFTER_MS) return undefined;
    return `the API server has accepted no request for ${Math.floor(ms / 1000)} s${cause}`;
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
    const connection = this.#connection;
    this.#connection = undefined;
    for (const watch of this.#watches) watch.abort(new Error(reason));
    connection?.client.close();
    this.#options.onReconnect?.(reason);
  }

  /** Closes the connection for good; watches end. */
  [Symbol.dispose](): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#stopPinging();
    for (const watch of this.#watches) watch.abort(new Error("the client was closed"));
    this.#connection?.client.close();
  }

  /** Returns the connection. Opens another one when the certificates were replaced. */
  #connect(): Promise<Connection> {
    const readAt = this.#certificatesReadAt;
    const areCurrent = readAt !== undefined && this.#clock.now() - readAt < CREDENTIAL_MAX_AGE_MS;
    if (this.#connection !== undefined && areCurrent) return Promise.resolve(this.#connection);
    return this.#connecting ??= this.#readCertificatesAndConnect().finally(() => this.#connecting = undefined);
  }

  async #readCertificatesAndConnect(): Promise<Connection> {
    try {
      const certificates = await readCertificates(this.#server);
      if (this.#connection === undefined || !isSame(this.#connection.certificates, certificates)) {
        const client = await createClient(certificates);
        if (this.#isClosed) {
          client.close();
          throw new Error("the client was closed");
        }
        if (this.#connection !== undefined) this.reconnect("its certificates were replaced");
        this.#connection = { client, certificates };
      }
      this.#certificatesReadAt = this.#clock.now();
      return this.#connection;
    } catch (error) {
      // files that are being replaced do not fit together, and the connection may still work
      if (this.#connection === undefined || this.#isClosed) throw error;
      return this.#connection;
    }
  }

  async #bearerToken(): Promise<string | undefined> {
    const { token: source } = this.#server;
    if (source === undefined) return undefined;
    const now = this.#clock.now();
    if (this.#token !== undefined && now - this.#token.readAt < CREDENTIAL_MAX_AGE_MS) return this.#token.text;
    try {
      const text = await readCredential(source);
      if (text === "") throw new Error(`reading the bearer token: ${"file" in source ? source.file : "it"} is empty`);
      this.#token = { text, readAt: now };
    } catch (error) {
      // a file that is being replaced; the token that was read before may still be valid
      if (this.#token === undefined) throw error;
    }
    return this.#token.text;
  }

  #recordActivity(): void {
    this.#lastActivityAt = this.#clock.now();
  }

  #recordAccepted(): void {
    this.#acceptedAt = this.#clock.now();
    this.#failure = undefined;
  }

  #stopPinging(): void {
    this.#cancelPing?.();
    this.#cancelPing = undefined;
  }

  #schedulePing(): void {
    const idleMs = this.#clock.now() - this.#lastActivityAt;
    const timeoutMs = this.#options.readIdleTimeoutMs ?? READ_IDLE_TIMEOUT_MS;
    const waitMs = idleMs >= timeoutMs ? timeoutMs : timeoutMs - idleMs;
    this.#cancelPing = this.#clock.after(waitMs, () => void this.#pingIfIdle());
  }

  async #pingIfIdle(): Promise<void> {
    this.#cancelPing = undefined;
    this.#isPinging = true; // the last watch may end and another one start meanwhile, which must not ping as well
    if (this.#clock.now() - this.#lastActivityAt >= (this.#options.readIdleTimeoutMs ?? READ_IDLE_TIMEOUT_MS)) {
      await this.#ping();
    }
    this.#isPinging = false;
    if (this.#watches.size > 0 && !this.#isClosed) this.#schedulePing();
  }

  async #ping(): Promise<void> {
    const timeoutMs = this.#options.pingTimeoutMs ?? 5_000;
    const deadline = new AbortController();
    const cancel = this.#clock.after(timeoutMs, () => deadline.abort(new Error(`no answer within ${timeoutMs} ms`)));
    const pinged = await this.#connect().catch(() => this.#connection);
    try {
      // Any response proves that the connection works, an error too.
      const response = await this.fetch("/livez", { signal: deadline.signal });
      await response.body?.cancel();
    } catch (error) {
      if (this.#connection === pinged && this.#watches.size > 0 && !this.#isClosed) {
        this.reconnect(`no sign of life: ${error instanceof Error ? error.message : error}`);
      }
    } finally {
      cancel();
    }
  }
}

/** Reads the certificates of a server's configuration. @throws {Error} when a file cannot be read */
async function readCertificates({ ca, certificate, key }: ApiServer): Promise<Certificates> {
  const [caText, certificateText, keyText] = await Promise.all(
    [ca, certificate, key].map((source) => source && readCredential(source)),
  );
  return { ca: caText, certificate: certificateText, key: keyText };
}

function isSame(a: Certificates, b: Certificates): boolean {
  return a.ca === b.ca && a.certificate === b.certificate && a.key === b.key;
}

/** Creates a client of fetch. @throws {Error} when a certificate cannot be used */
async function createClient({ ca, certificate: cert, key }: Certificates): Promise<Deno.HttpClient> {
  const authority = ca === undefined ? {} : { caCerts: [ca] };
  if (cert === undefined || key === undefined) return Deno.createHttpClient(authority);
  await requirePair(cert, key);
  return Deno.createHttpClient({ ...authority, cert, key });
}

/**
 * Checks that a client's certificate belongs to its key. Deno (2.9) ends the whole process for a pair that does not, as
 * there is while files are replaced.
 *
 * @throws {Error} when it does not, or when one of them is unreadable
 */
async function requirePair(certificate: string, key: string): Promise<void> {
  const { createPrivateKey, X509Certificate } = await import("node:crypto");
  try {
    if (new X509Certificate(certificate).checkPrivateKey(createPrivateKey(key))) return;
  } catch (cause) {
    throw new Error("using the client's certificate: it or its key cannot be parsed", { cause });
  }
  throw new Error("using the client's certificate: it does not belong to the client's key");
}

/**
 * Returns the response with a body that is cancelled with the signal. The body of Deno's fetch (2.9) is cancelled only
 * until garbage is collected: the request, which alone holds the signal, is garbage once the headers are there.
 */
function withAbortSignal(signal: AbortSignal, response: Response): Response {
  const body = response.body?.pipeThrough(new TransformStream(), { signal });
  return body === undefined ? response : new Response(body, response);
}
