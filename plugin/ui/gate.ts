/**
 * Who may see the page: the browser in which somebody opened the address that was printed, and nobody else.
 *
 * Any program of this machine, and any page in its browser, can send requests to a loopback address. So each request
 * needs a cookie, which only the address with the token gives, once; and a page of another host that has its name lead to
 * this address is refused by the Host header (DNS rebinding).
 *
 * @module
 */

import { Buffer } from "node:buffer";
import { timingSafeEqual } from "node:crypto";

/** The loopback address that the page is served on. */
export const LOOPBACK = "127.0.0.1";

/** The names under which a browser may ask for the page. */
const HOSTS = [LOOPBACK, "localhost"];

/** The parameter of the address that has the token. */
const TOKEN = "token";

/** Decides which requests are answered. */
export class Gate {
  readonly #port: number;
  readonly #session = randomToken();
  #token: string | undefined = randomToken();

  /** Creates a gate for a server on a port of the loopback address. */
  constructor(port: number) {
    this.#port = port;
  }

  /** The address that opens the page, once. */
  get address(): string {
    return `http://${LOOPBACK}:${this.#port}/?${TOKEN}=${this.#token}`;
  }

  /** Returns the answer to a request that is not let in; `undefined` for one that is. */
  answer(request: Request): Response | undefined {
    if (request.method !== "GET" && request.method !== "HEAD") {
      return refusal(405, "This page is only for reading.", { allow: "GET, HEAD" });
    }
    const host = request.headers.get("host");
    if (!HOSTS.some((name) => host === `${name}:${this.#port}`)) {
      return refusal(421, `This is not the host ${host ?? "without a name"}.`);
    }
    const isKnown = isSame(cookieOf(request, this.#cookieName), this.#session);
    const token = new URL(request.url).searchParams.get(TOKEN);
    if (token === null) return isKnown ? undefined : refusal(403, "Open the address that `denolith ui` printed.");
    if (isKnown) return redirect();
    if (request.method !== "GET" || this.#token === undefined || !isSame(token, this.#token)) {
      return refusal(403, "This address was used already, or is wrong. Start `denolith ui` again for a new one.");
    }
    this.#token = undefined;
    return redirect({ "set-cookie": `${this.#cookieName}=${this.#session}; Path=/; HttpOnly; SameSite=Strict` });
  }

  /** The name of the cookie. Browsers give the cookies of all ports of a host to each of them. */
  get #cookieName(): string {
    return `denolith-ui-${this.#port}`;
  }
}

/** Returns 128 random bits, as text. */
function randomToken(): string {
  return crypto.getRandomValues(new Uint8Array(16)).toHex();
}

/** Compares two texts in a time that does not depend on where they differ. */
function isSame(given: string | undefined, expected: string): boolean {
  const [a, b] = [Buffer.from(given ?? ""), Buffer.from(expected)];
  return a.length === b.length && timingSafeEqual(a, b);
}

function cookieOf(request: Request, name: string): string | undefined {
  const cookies = (request.headers.get("cookie") ?? "").split(/;\s*/);
  return cookies.find((cookie) => cookie.startsWith(`${name}=`))?.slice(name.length + 1);
}

/** Leads to the page without the token, which so is not left in the address bar and the history. */
function redirect(headers: Record<string, string> = {}): Response {
  return new Response(null, { status: 303, headers: { location: "/", ...headers } });
}

function refusal(status: number, text: string, headers: Record<string, string> = {}): Response {
  return new Response(`${text}\n`, { status, headers: { "content-type": "text/plain; charset=utf-8", ...headers } });
}
