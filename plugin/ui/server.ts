/**
 * Serves the page on a loopback address: its files, and streams of what they show.
 *
 * @module
 */

import { withinDeadline } from "../../base/clock.ts";
import { StorageError } from "../../base/error.ts";
import { chapterText } from "../runbooks.ts";
import { FILES, type PageFile } from "./files.ts";
import { toJson } from "./cluster_page.ts";
import { Gate, LOOPBACK } from "./gate.ts";

/** Sends messages until the signal is aborted. */
export type Follow = (send: (message: object) => void, signal: AbortSignal) => Promise<void>;

/** Where the page has its data from. */
export interface PageSource {
  /** Sends the cluster, now and when it changes. */
  readonly cluster: Follow;
  /** Returns what sends a volume, now and when it changes. */
  readonly volume: (id: string) => Follow;
  /** Returns what sends a claim, now and when it changes. */
  readonly claim: (namespace: string, name: string) => Follow;
}

/** Options of {@linkcode servePage}. */
export interface PageServerOptions {
  readonly source: PageSource;
  /** The port of the loopback address; a free one for 0. */
  readonly port: number;
  /** Aborted to end it. */
  readonly signal: AbortSignal;
}

/** A running server. */
export interface PageServer {
  /** The address that opens the page, once. */
  readonly address: string;
  /** Settles when it has ended, after its signal was aborted: with what it was reading, unless that takes long. */
  readonly finished: Promise<void>;
}

/**
 * What a browser may do with the answers: run and load nothing but the page's own files, and show them in no other page.
 * With trusted types it refuses to make HTML of text (Content Security Policy Level 3, Trusted Types).
 */
export const SECURITY_HEADERS: Readonly<Record<string, string>> = {
  "content-security-policy":
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; " +
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
  "cross-origin-embedder-policy": "require-corp",
  "cross-origin-opener-policy": "same-origin",
  "cross-origin-resource-policy": "same-origin",
  "referrer-policy": "no-referrer",
  "x-content-type-options": "nosniff",
  "cache-control": "no-store",
};

/** How long what is being read may take after the end, in milliseconds. */
const END_MS = 2_000;

/** Serves the page. @throws {StorageError} `FailedPrecondition` when the port is not free */
export function servePage({ source, port, signal }: PageServerOptions): PageServer {
  const streams = new Set<Promise<void>>();
  const handler = (request: Request): Response =>
    secured(gate.answer(request) ?? respond(request, source, { end: signal, streams }));
  const server = listen({ port, signal }, handler);
  const gate: Gate = new Gate(server.addr.port);
  // kubectl may wait for a server, or for somebody to log in
  const finished = server.finished.then(async () => void await withinDeadline(Promise.all(streams), END_MS));
  return { address: gate.address, finished };
}

function listen(
  { port, signal }: Pick<PageServerOptions, "port" | "signal">,
  handler: (request: Request) => Response,
): Deno.HttpServer<Deno.NetAddr> {
  try {
    return Deno.serve({ hostname: LOOPBACK, port, signal, onListen: () => {} }, handler);
  } catch (cause) {
    if (!(cause instanceof Deno.errors.AddrInUse)) throw cause;
    throw new StorageError("FailedPrecondition", `ui: port ${port} of ${LOOPBACK} is in use: choose another one`, {
      cause,
    });
  }
}

function secured(response: Response): Response {
  for (const [name, value] of Object.entries(SECURITY_HEADERS)) response.headers.set(name, value);
  return response;
}

/** What streams are part of. */
interface StreamOptions {
  /** Aborted to end them. */
  readonly end: AbortSignal;
  /** Those that read. One whose reader has left may still do. */
  readonly streams: Set<Promise<void>>;
}

function respond(request: Request, source: PageSource, options: StreamOptions): Response {
  const { pathname } = new URL(request.url);
  const file = FILES[pathname] ?? chapterFile(pathname);
  const follow = followOf(pathname, source);
  if (file === undefined && follow === undefined) return new Response("not found\n", { status: 404 });
  const [type, body] = file === undefined ? ["text/event-stream", follow!] : [file.type, file.text];
  const headers = { "content-type": `${type}; charset=utf-8` };
  if (request.method === "HEAD") return new Response(null, { headers });
  return new Response(typeof body === "string" ? body : eventStream(body, options), { headers });
}

/** Returns what sends the data of a path. */
function followOf(pathname: string, source: PageSource): Follow | undefined {
  if (pathname === "/live/cluster") return source.cluster;
  const [, kind, first = "", second] = /^\/live\/(volumes|claims)\/([\w.-]+)(?:\/([\w.-]+))?$/.exec(pathname) ?? [];
  if (kind === "volumes" && second === undefined) return source.volume(first);
  return kind === "claims" && second !== undefined ? source.claim(first, second) : undefined;
}

/** Returns the chapter of the runbooks that is meant by a path. */
function chapterFile(pathname: string): PageFile | undefined {
  const [, name] = /^\/runbooks\/([\w/-]+)$/.exec(pathname) ?? [];
  const text = name === undefined ? undefined : chapterText(name);
  return text === undefined ? undefined : { type: "text/plain", text: `${text}\n` };
}

/** Returns the messages as server-sent events (HTML Living Standard, 9.2), until the reader or the server ends. */
function eventStream(follow: Follow, { end, streams }: StreamOptions): ReadableStream<Uint8Array> {
  const left = new AbortController();
  const signal = AbortSignal.any([end, left.signal]);
  const encoder = new TextEncoder();
  return new ReadableStream({
    start(stream) {
      const send = (message: object) => {
        if (!signal.aborted) stream.enqueue(encoder.encode(`data: ${toJson(message)}\n\n`));
      };
      const reading = follow(send, signal).catch((error) => {
        if (!signal.aborted) console.error(`denolith ui: ${error}`);
      }).finally(() => {
        streams.delete(reading);
        if (!left.signal.aborted) stream.close();
      });
      streams.add(reading);
    },
    cancel: () => left.abort(),
  });
}
