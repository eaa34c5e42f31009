/**
 * The API server over HTTP.
 *
 * @module
 */

import {
  type ApiClient,
  ApiError,
  type DeleteOptions,
  type NewObject,
  type ObjectList,
  type PatchOptions,
} from "./client.ts";
import type { ReplaceOptions, RequestOptions, Selection, WatchEvent } from "./client.ts";
import { isTransient } from "./client.ts";
import { backoffMs, type Clock, sleep, systemClock } from "../runtime/clock.ts";
import type { ApiServer } from "./config.ts";
import { apiVersionOf, type KubeObject, type ObjectName, pathOf, type Resource } from "../api/objects.ts";
import { errorOf, parseEvent, parseObject, unreachable } from "./response.ts";
import { Transport, type TransportOptions } from "./transport.ts";
import { linesOf } from "./watch_lines.ts";

/** How an {@linkcode HttpClient} behaves. */
export interface HttpClientOptions extends TransportOptions {
  /** Milliseconds for a request that is not a watch; 15,000. */
  timeoutMs?: number | undefined;
  /** How many objects a page of a list has; 500. */
  pageSize?: number | undefined;
  /** Seconds after which the server ends a watch: a random number from this to its double; 300. */
  watchSeconds?: number | undefined;
  /**
   * Milliseconds without even a bookmark, which come once a minute, after which a watch is taken for dead although the server
   * answers; 150,000.
   */
  watchSilenceMs?: number | undefined;
  /** Told of every answer; status 0 is none. */
  onRequest?: ((verb: string, resource: string, status: number, ms: number) => void) | undefined;
}

/** What is asked, on what, and for whom the failure is worded. */
interface Call {
  readonly verb: string;
  readonly resource: Resource;
  readonly name: string;
  readonly method: string;
  readonly path: string;
  readonly body?: unknown;
  readonly contentType?: string;
  readonly signal?: AbortSignal | undefined;
  readonly timeoutMs?: number | undefined;
}

/** How often a request is sent at most. */
const TRIES = 3;
/** The longest that a server may ask to wait before it is told to the caller instead. */
const LONGEST_WAIT_MS = 5_000;

/** The API server over HTTP. It holds one connection until it is disposed of. */
export class HttpClient implements ApiClient, Disposable {
  readonly #transport: Transport;
  readonly #options: HttpClientOptions;
  readonly #clock: Clock;

  /** Nothing is opened before the first request. */
  constructor(server: ApiServer, options: HttpClientOptions) {
    this.#options = options;
    this.#clock = options.clock ?? systemClock;
    this.#transport = new Transport(server, options);
  }

  /** Closes the connection; watches end. */
  [Symbol.dispose](): void {
    this.#transport[Symbol.dispose]();
  }

  /** See {@linkcode ApiClient}. */
  get<T extends KubeObject>(resource: Resource<T>, at: ObjectName, options: RequestOptions = {}): Promise<T> {
    const call = { verb: "get", resource, name: at.name, method: "GET", path: pathOf(resource, at), ...options };
    return this.#object<T>(call);
  }

  /** See {@linkcode ApiClient}. */
  async list<T extends KubeObject>(
    resource: Resource<T>,
    { signal, timeoutMs, ...selection }: Selection & RequestOptions = {},
  ): Promise<ObjectList<T>> {
    const items: T[] = [];
    const query = selectionQuery(selection);
    query.set("limit", `${this.#options.pageSize ?? 500}`);
    const kind = { apiVersion: apiVersionOf(resource), kind: resource.kind };
    while (true) {
      const path = `${pathOf(resource, { namespace: selection.namespace })}?${query}`;
      const page = await this.#object<KubeObject & { items?: T[] }>(
        { verb: "list", resource, name: "", method: "GET", path, signal, timeoutMs },
      );
      // The server leaves out of items what all have in common.
      for (const item of page.items ?? []) items.push({ ...kind, ...item });
      const { continue: next, resourceVersion } = page.metadata as { continue?: string; resourceVersion?: string };
      if (!next) return { items, resourceVersion: resourceVersion ?? "" };
      query.set("continue", next);
    }
  }

  /** See {@linkcode ApiClient}. */
  async *watch<T extends KubeObject>(
    resource: Resource<T>,
    { signal, resourceVersion, ...selection }: Selection & RequestOptions & { resourceVersion: string },
  ): AsyncGenerator<WatchEvent<T>> {
    const seconds = Math.ceil((this.#options.watchSeconds ?? 300) * (1 + this.#clock.random()));
    const query = selectionQuery(selection);
    for (
      const [key, value] of Object.entries({
        watch: "true",
        allowWatchBookmarks: "true",
        resourceVersion,
        timeoutSeconds: `${seconds}`,
      })
    ) query.set(key, value);
    const path = `${pathOf(resource, { namespace: selection.namespace })}?${query}`;
    const call: Call = { verb: "watch", resource, name: "", method: "GET", path };
    using stay = this.#transport.stay();
    using ends = endsWith([stay.signal, signal]);
    const open = await this.#send(call, ends);
    if (!open.ok) throw await errorOf(call, open);
    if (open.body === null) return;
    using silence = new Silence(this.#clock, this.#options.watchSilenceMs ?? 150_000, ends);
    try {
      for await (const line of linesOf(open.body)) {
        this.#transport.heard();
        silence.heard();
        yield parseEvent<T>(call, line);
      }
    } catch (error) {
      throw signal?.aborted ? signal.reason : error instanceof ApiError ? error : unreachable(call, error);
    }
  }

  /** See {@linkcode ApiClient}. */
  create<T extends KubeObject>(resource: Resource<T>, object: NewObject<T>, options: RequestOptions = {}): Promise<T> {
    const { name = object.metadata.generateName ?? "", namespace } = object.metadata;
    const body = { apiVersion: apiVersionOf(resource), kind: resource.kind, ...object };
    return this.#object<T>(
      { verb: "create", resource, name, method: "POST", path: pathOf(resource, { namespace }), body, ...options },
    );
  }

  /** See {@linkcode ApiClient}. */
  replace<T extends KubeObject>(resource: Resource<T>, object: T, options: ReplaceOptions = {}): Promise<T> {
    const { subresource, ...rest } = options;
    const { name } = object.metadata;
    const path = withSubresource(pathOf(resource, object.metadata), subresource);
    const body = { apiVersion: apiVersionOf(resource), kind: resource.kind, ...object };
    return this.#object<T>({ verb: "replace", resource, name, method: "PUT", path, body, ...rest });
  }

  /** See {@linkcode ApiClient}. */
  patch<T extends KubeObject>(resource: Resource<T>, at: ObjectName, options: PatchOptions<T>): Promise<T> {
    const { merge, resourceVersion, subresource, ...rest } = options;
    const { metadata } = merge as { metadata?: Record<string, unknown> };
    const body = resourceVersion === undefined ? merge : { ...merge, metadata: { ...metadata, resourceVersion } };
    return this.#object<T>({
      verb: "patch",
      resource,
      name: at.name,
      method: "PATCH",
      path: withSubresource(pathOf(resource, at), subresource),
      body,
      contentType: "application/merge-patch+json",
      ...rest,
    });
  }

  /** See {@linkcode ApiClient}. */
  async delete(resource: Resource, at: ObjectName, options: DeleteOptions = {}): Promise<void> {
    const { uid, resourceVersion, ...rest } = options;
    const body = { apiVersion: "v1", kind: "DeleteOptions", preconditions: { uid, resourceVersion } };
    const path = pathOf(resource, at);
    await this.#object({ verb: "delete", resource, name: at.name, method: "DELETE", path, body, ...rest });
  }

  /** Sends a call, and once more where that is harmless and the server may have recovered; answers the object. */
  async #object<T extends KubeObject>(call: Call): Promise<T> {
    for (let failures = 1;; failures++) {
      try {
        return await this.#once<T>(call);
      } catch (error) {
        if (call.signal?.aborted) throw call.signal.reason;
        if (failures >= TRIES || !mayRepeat(call, error)) throw error;
        const wait = error.retryAfter ?? backoffMs({ startMs: 200, capMs: LONGEST_WAIT_MS }, failures, this.#clock);
        if (wait > LONGEST_WAIT_MS) throw error;
        await sleep(this.#clock, wait, call.signal);
      }
    }
  }

  async #once<T extends KubeObject>(call: Call): Promise<T> {
    const within = call.timeoutMs ?? this.#options.timeoutMs ?? 15_000;
    using ends = endsWith([call.signal]);
    const started = this.#clock.now();
    const cancel = this.#clock.after(within, () => {
      const reason = `no answer within ${within} ms`;
      ends.abort(new Error(reason));
      this.#transport.suspect(started, reason);
    });
    try {
      const response = await this.#send(call, ends);
      if (!response.ok) throw await errorOf(call, response);
      return parseObject<T>(call, await response.text());
    } catch (error) {
      throw error instanceof ApiError ? error : unreachable(call, error);
    } finally {
      cancel();
    }
  }

  async #send(call: Call, ends: AbortController): Promise<Response> {
    const started = this.#clock.now();
    const answered = (status: number) =>
      this.#options.onRequest?.(call.verb, call.resource.plural, status, this.#clock.now() - started);
    const { method, path, body, contentType = "application/json" } = call;
    try {
      const response = await this.#transport.fetch(path, {
        method,
        headers: { accept: "application/json", ...(body === undefined ? {} : { "content-type": contentType }) },
        ...(body === undefined ? {} : { body: JSON.stringify(body) }),
        signal: ends.signal,
      });
      answered(response.status);
      return response;
    } catch (error) {
      answered(0);
      if (call.signal?.aborted) throw call.signal.reason;
      throw unreachable(call, error);
    }
  }
}

/**
 * A refusal for overload did nothing, so anything may be repeated after it. After other failures only what reads: a write may
 * have been done.
 */
function mayRepeat({ method }: Call, error: unknown): error is ApiError {
  return error instanceof ApiError && isTransient(error) &&
    (error.status === 429 || (method === "GET" && error.status !== 500));
}

function selectionQuery({ labelSelector, fieldSelector }: Selection): URLSearchParams {
  const query = new URLSearchParams();
  if (labelSelector !== undefined) query.set("labelSelector", labelSelector);
  if (fieldSelector !== undefined) query.set("fieldSelector", fieldSelector);
  return query;
}

function withSubresource(path: string, subresource: string | undefined): string {
  return subresource === undefined ? path : `${path}/${subresource}`;
}

/** A controller that is aborted with the first of some signals, and lets go of them when it is disposed of. */
function endsWith(signals: readonly (AbortSignal | undefined)[]): AbortController & Disposable {
  const controller = new AbortController();
  const undo = signals.flatMap((signal) => {
    if (signal === undefined) return [];
    const abort = () => controller.abort(signal.reason);
    if (signal.aborted) abort();
    signal.addEventListener("abort", abort);
    return [() => signal.removeEventListener("abort", abort)];
  });
  return Object.assign(controller, { [Symbol.dispose]: () => undo.forEach((call) => call()) });
}

/** Aborts when nothing was heard for too long. */
class Silence implements Disposable {
  readonly #clock: Clock;
  readonly #ms: number;
  readonly #ends: AbortController;
  #cancel: () => void = () => {};

  constructor(clock: Clock, ms: number, ends: AbortController) {
    [this.#clock, this.#ms, this.#ends] = [clock, ms, ends];
    this.heard();
  }

  heard(): void {
    this.#cancel();
    this.#cancel = this.#clock.after(this.#ms, () => this.#ends.abort(new Error(`nothing came for ${this.#ms} ms`)));
  }

  [Symbol.dispose](): void {
    this.#cancel();
  }
}
