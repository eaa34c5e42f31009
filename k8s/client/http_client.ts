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
import type { GetOptions, ReplaceOptions, RequestOptions, Selection, WatchEvent } from "./client.ts";
import { isTransient } from "./client.ts";
import { backoffMs, type Clock, sleep, systemClock } from "../../base/clock.ts";
import type { ApiServer } from "./config.ts";
import { type ApiWrite, strictPath } from "./definitions.ts";
import {
  apiVersionOf,
  isPathSegment,
  type KubeObject,
  type ObjectName,
  pathOf,
  type Resource,
} from "../api/objects.ts";
import { collectPages, readPages, watchPath } from "./lists.ts";
import {
  describeRequest,
  errorFromResponse,
  parseEvent,
  parseObject,
  parsePage,
  readLines,
  unreachableError,
} from "./response.ts";
import { Transport, type TransportOptions } from "./transport.ts";

/** Options of an {@linkcode HttpClient}. */
export interface HttpClientOptions extends TransportOptions {
  /** Milliseconds for a request that is not a watch; 15,000. */
  timeoutMs?: number | undefined;
  /** The number of objects in a page of a list; 500. */
  pageSize?: number | undefined;
  /**
   * Milliseconds without even a bookmark, which come once a minute, after which a watch is taken for dead although the server
   * answers; 150,000.
   */
  watchIdleTimeoutMs?: number | undefined;
  /** Called after every response; status 0 stands for no response. */
  onRequest?: ((verb: string, resource: string, status: number, ms: number) => void) | undefined;
  /** Called before an object is created or patched. What it throws is the failure of the request. */
  beforeWrite?: ((write: ApiWrite) => Promise<void>) | undefined;
  /** Called when a watch has ended that the server had accepted. */
  onWatchEnd?: ((resource: Resource) => void) | undefined;
}

/** A request, with the words for its failures. */
interface ApiCall {
  readonly verb: string;
  readonly resource: Resource;
  readonly name: string;
  readonly method: string;
  readonly path: string;
  readonly body?: unknown;
  readonly contentType?: string;
  readonly accept?: string;
  readonly signal?: AbortSignal | undefined;
  readonly timeoutMs?: number | undefined;
}

/** The type of all bodies. */
const JSON_TYPE = "application/json";
/** The beginning of the type of answers that have only the metadata of objects. */
const METADATA_ONLY = `${JSON_TYPE};g=meta.k8s.io;v=v1`;
/**
 * The shortest time after which the server ends a watch, in seconds: that of kube-apiserver (`--min-request-timeout`). It is a
 * random number from this to its double.
 */
const WATCH_SECONDS = 1_800;
/**
 * The failure of a watch on which nothing came although the server answers. That is not status 0, after which a watch is
 * resumed: after a restore of etcd, the server sends nothing for a revision that it does not have yet, and no error
 * (kube-apiserver, cache_watcher.go), so only a list helps.
 */
const IDLE_WATCH = { status: 504, reason: "Timeout" } as const;
/** The maximum number of attempts of a request. */
const MAX_ATTEMPTS = 3;
/** The longest wait that a server may ask for, in milliseconds: the caller gets the error of a longer one. */
const MAX_RETRY_WAIT_MS = 5_000;

/** The API server over HTTP. It holds one connection until it is disposed of. */
export class HttpClient implements ApiClient, Disposable {
  readonly #transport: Transport;
  readonly #options: HttpClientOptions;
  readonly #clock: Clock;
  readonly #closed = new AbortController();

  /** Creates it without opening a connection, which the first request does. */
  constructor(server: ApiServer, options: HttpClientOptions) {
    this.#options = options;
    this.#clock = options.clock ?? systemClock;
    this.#transport = new Transport(server, options);
  }

  /** Closes the connection; watches end, and no request is sent again. */
  [Symbol.dispose](): void {
    this.#closed.abort();
    this.#transport[Symbol.dispose]();
  }

  /** Returns why the API server cannot be used; `undefined` while it can. */
  unavailableReason(): string | undefined {
    return this.#transport.unavailableReason();
  }

  /** Implements {@linkcode ApiClient}. */
  async get<T extends KubeObject>(
    resource: Resource<T>,
    at: ObjectName,
    { metadataOnly, ...options }: GetOptions = {},
  ): Promise<T> {
    const accept = metadataOnly ? `${METADATA_ONLY};as=PartialObjectMetadata` : JSON_TYPE;
    const call = {
      verb: "get",
      resource,
      name: at.name,
      method: "GET",
      path: pathOf(resource, at),
      accept,
      ...options,
    };
    if (isPathSegment(at.name)) return await this.#requestObject<T>(call);
    throw new ApiError(`${describeRequest(call)}: no object can have this name`, { status: 404, reason: "NotFound" });
  }

  /** Implements {@linkcode ApiClient}. */
  async list<T extends KubeObject>(
    resource: Resource<T>,
    options: Selection & RequestOptions = {},
  ): Promise<ObjectList<T>> {
    return await collectPages(this.listPages(resource, options));
  }

  /** Implements {@linkcode ApiClient}. */
  async *listPages<T extends KubeObject>(
    resource: Resource<T>,
    { signal, timeoutMs, metadataOnly, ...selection }: Selection & RequestOptions = {},
  ): AsyncGenerator<ObjectList<T>> {
    const accept = metadataOnly ? `${METADATA_ONLY};as=PartialObjectMetadataList` : JSON_TYPE;
    yield* readPages(resource, selection, this.#options.pageSize ?? 500, async (path) => {
      const call = { verb: "list", resource, name: "", method: "GET", path, accept, signal, timeoutMs };
      return await this.#request(call, (body) => parsePage<T>(call, body));
    });
  }

  /** Implements {@linkcode ApiClient}. */
  async *watch<T extends KubeObject>(
    resource: Resource<T>,
    { signal, resourceVersion, metadataOnly, ...selection }: Selection & RequestOptions & { resourceVersion: string },
  ): AsyncGenerator<WatchEvent<T>> {
    const seconds = Math.ceil(WATCH_SECONDS * (1 + this.#clock.random()));
    const path = watchPath(resource, selection, { resourceVersion, timeoutSeconds: `${seconds}` });
    const accept = metadataOnly ? `${METADATA_ONLY};as=PartialObjectMetadata` : JSON_TYPE;
    const call: ApiCall = { verb: "watch", resource, name: "", method: "GET", path, accept };
    using registration = this.#transport.registerWatch();
    using controller = linkedAbortController([registration.signal, signal]);
    // also while the answer does not begin
    using idleTimeout = new IdleTimeout(this.#clock, this.#options.watchIdleTimeoutMs ?? 150_000, (ms) => {
      controller.abort(new ApiError(`${describeRequest(call)}: nothing came for ${ms} ms`, IDLE_WATCH));
    });
    const response = await this.#send(call, controller);
    if (!response.ok) throw await errorFromResponse(call, response);
    if (response.body === null) return;
    idleTimeout.restart();
    try {
      for await (const line of readLines(response.body)) {
        this.#transport.recordEvent();
        idleTimeout.restart();
        yield parseEvent<T>(call, line);
      }
    } catch (error) {
      throw signal?.aborted ? signal.reason : error instanceof ApiError ? error : unreachableError(call, error);
    } finally {
      this.#options.onWatchEnd?.(resource);
    }
  }

  /** Implements {@linkcode ApiClient}. */
  create<T extends KubeObject>(resource: Resource<T>, object: NewObject<T>, options: RequestOptions = {}): Promise<T> {
    const { name = object.metadata.generateName ?? "", namespace } = object.metadata;
    const body = { apiVersion: apiVersionOf(resource), kind: resource.kind, ...object };
    const path = strictPath(resource, pathOf(resource, { namespace }));
    return this.#write<T>({ verb: "create", resource, name, method: "POST", path, body, ...options });
  }

  /** Implements {@linkcode ApiClient}. */
  replace<T extends KubeObject>(resource: Resource<T>, object: T, options: ReplaceOptions = {}): Promise<T> {
    const { subresource, ...rest } = options;
    const { name } = object.metadata;
    const path = withSubresource(pathOf(resource, object.metadata), subresource);
    const body = { apiVersion: apiVersionOf(resource), kind: resource.kind, ...object };
    return this.#requestObject<T>({ verb: "replace", resource, name, method: "PUT", path, body, ...rest });
  }

  /** Implements {@linkcode ApiClient}. */
  patch<T extends KubeObject>(resource: Resource<T>, at: ObjectName, options: PatchOptions<T>): Promise<T> {
    const { merge, resourceVersion, subresource, dryRun, ...rest } = options;
    const { metadata } = merge as { metadata?: Record<string, unknown> };
    const body = resourceVersion === undefined ? merge : { ...merge, metadata: { ...metadata, resourceVersion } };
    const path = strictPath(resource, withSubresource(pathOf(resource, at), subresource));
    return this.#write<T>({
      verb: "patch",
      resource,
      name: at.name,
      method: "PATCH",
      path: path + (dryRun ? "?dryRun=All" : ""),
      body,
      contentType: "application/merge-patch+json",
      ...rest,
    });
  }

  /** Implements {@linkcode ApiClient}. */
  async delete(resource: Resource, at: ObjectName, options: DeleteOptions = {}): Promise<void> {
    const { uid, resourceVersion, ...rest } = options;
    const body = { apiVersion: "v1", kind: "DeleteOptions", preconditions: { uid, resourceVersion } };
    const path = pathOf(resource, at);
    await this.#requestObject({ verb: "delete", resource, name: at.name, method: "DELETE", path, body, ...rest });
  }

  async #write<T extends KubeObject>(call: ApiCall): Promise<T> {
    await this.#options.beforeWrite?.(call);
    return await this.#requestObject<T>(call);
  }

  #requestObject<T extends KubeObject>(call: ApiCall): Promise<T> {
    return this.#request(call, (body) => parseObject<T>(call, body));
  }

  /** Sends a call, and once more where that is harmless and the server may have recovered. @returns the parsed body */
  async #request<R>(call: ApiCall, parse: (body: string) => R): Promise<R> {
    for (let failures = 1;; failures++) {
      try {
        return await this.#requestOnce(call, parse);
      } catch (error) {
        if (call.signal?.aborted) throw call.signal.reason;
        if (failures >= MAX_ATTEMPTS || !canRetry(call, error)) throw error;
        const waitMs = error.retryAfter ?? backoffMs({ startMs: 200, capMs: MAX_RETRY_WAIT_MS }, failures, this.#clock);
        if (waitMs > MAX_RETRY_WAIT_MS) throw error;
        await sleep(this.#clock, waitMs, call.signal, this.#closed.signal);
        if (this.#closed.signal.aborted) throw error;
      }
    }
  }

  async #requestOnce<R>(call: ApiCall, parse: (body: string) => R): Promise<R> {
    const timeoutMs = call.timeoutMs ?? this.#options.timeoutMs ?? 15_000;
    using controller = linkedAbortController([call.signal]);
    const started = this.#clock.now();
    const cancel = this.#clock.after(timeoutMs, () => {
      const reason = `no answer within ${timeoutMs} ms`;
      controller.abort(new Error(reason));
      this.#transport.reconnectIfIdleSince(started, reason);
    });
    try {
      const response = await this.#send(call, controller);
      if (!response.ok) throw await errorFromResponse(call, response);
      return parse(await response.text());
    } catch (error) {
      throw error instanceof ApiError ? error : unreachableError(call, error);
    } finally {
      cancel();
    }
  }

  async #send(call: ApiCall, controller: AbortController): Promise<Response> {
    const started = this.#clock.now();
    const notifyRequest = (status: number) =>
      this.#options.onRequest?.(call.verb, call.resource.plural, status, this.#clock.now() - started);
    const { method, path, body, contentType = JSON_TYPE, accept = JSON_TYPE } = call;
    try {
      const response = await this.#transport.fetch(path, {
        method,
        headers: { accept, ...(body === undefined ? {} : { "content-type": contentType }) },
        ...(body === undefined ? {} : { body: JSON.stringify(body) }),
        signal: controller.signal,
      });
      notifyRequest(response.status);
      return response;
    } catch (error) {
      notifyRequest(0);
      if (call.signal?.aborted) throw call.signal.reason;
      throw unreachableError(call, error);
    }
  }
}

/**
 * Reports whether a request may be sent again. After a rejection for overload any request may, since it had no effect.
 * After other failures only reads may, since a write may have been carried out.
 */
function canRetry({ method }: ApiCall, error: unknown): error is ApiError {
  return error instanceof ApiError && isTransient(error) &&
    (error.status === 429 || (method === "GET" && error.status !== 500));
}

function withSubresource(path: string, subresource: string | undefined): string {
  return subresource === undefined ? path : `${path}/${subresource}`;
}

/**
 * Creates an AbortController that is aborted with the first of some signals, and stops listening to them when it is
 * disposed of.
 */
function linkedAbortController(signals: readonly (AbortSignal | undefined)[]): AbortController & Disposable {
  const controller = new AbortController();
  const removeListeners = signals.flatMap((signal) => {
    if (signal === undefined) return [];
    const abort = () => controller.abort(signal.reason);
    if (signal.aborted) abort();
    signal.addEventListener("abort", abort);
    return [() => signal.removeEventListener("abort", abort)];
  });
  return Object.assign(controller, { [Symbol.dispose]: () => removeListeners.forEach((call) => call()) });
}

/** Calls a function when nothing was heard for too long. */
class IdleTimeout implements Disposable {
  readonly #clock: Clock;
  readonly #timeoutMs: number;
  readonly #onIdle: (timeoutMs: number) => void;
  #cancel: () => void = () => {};

  constructor(clock: Clock, timeoutMs: number, onIdle: (timeoutMs: number) => void) {
    [this.#clock, this.#timeoutMs, this.#onIdle] = [clock, timeoutMs, onIdle];
    this.restart();
  }

  restart(): void {
    this.#cancel();
    this.#cancel = this.#clock.after(this.#timeoutMs, () => this.#onIdle(this.#timeoutMs));
  }

  [Symbol.dispose](): void {
    this.#cancel();
  }
}
