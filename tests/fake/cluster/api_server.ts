/**
 * An API server in this process, on a loopback port. It keeps objects and notifies watchers, by those rules of
 * kube-apiserver that controllers can see, and fails on request.
 *
 * @module
 */

import { apiVersionOf, type KubeObject, pathOf, type Resource } from "../../../k8s/api/objects.ts";
import { waitForAbort } from "../../../base/clock.ts";
import { BUILT_IN_KINDS } from "./api_kinds.ts";
import { parseSelectors, type SelectorPredicate } from "./api_selectors.ts";
import {
  Collection,
  FIRST_REVISION,
  type ResourceKind,
  StatusError,
  statusObject,
  type StoredObject,
} from "./api_store.ts";
import { partialMetadata, Watch } from "./api_watch.ts";
import { type DirectAnswer, type DirectRequest, serveDirectly } from "./direct_fetch.ts";
import { missingPermission, parsePath, type ProcessRole, roleInUserAgent } from "./rbac.ts";

/** A request that came. */
export interface LoggedRequest {
  /** The method. */
  readonly method: string;
  /** The path, without the query. */
  readonly path: string;
  /** The query. */
  readonly query: URLSearchParams;
  /** The body, where it is JSON. */
  readonly body: unknown;
  /** The headers. */
  readonly headers: Headers;
}

/** The failures that a test can switch on. */
export interface Faults {
  /** Answers the next so many requests, other than pings, with this status. */
  refuse: { status: number; times: number; retryAfter?: number };
  /** The plurals of kinds that nobody may read. */
  readonly forbidden: Set<string>;
  /** Refuses the next so many replacements and patches as if someone else had been faster. */
  conflicts: number;
  /** Accepts watches and sends no events on them. */
  stalledWatches: boolean;
  /** Does not answer watches at all. */
  unansweredWatches: boolean;
  /** The names of pods whose budgets do not allow an eviction. */
  readonly undisrupted: Set<string>;
  /** The statuses with which evictions fail otherwise, by the names of the pods. */
  readonly evictions: Map<string, number>;
}

/** Options of {@linkcode FakeApiServer.start}. */
export interface FakeApiServerOptions {
  /** Kinds beside the built-in ones: custom resources, with a status endpoint and generations unless said otherwise. */
  resources?: readonly (Resource | ResourceKind)[];
  /** Only who has this bearer token is served. */
  token?: string;
  /** A certificate and its key, as PEM: the server then speaks TLS, and HTTP/2. */
  tls?: { cert: string; key: string };
  /** The loopback address that it listens on, as in its URL; `127.0.0.1`. */
  host?: string;
}

/** An API server in this process. It ends when it is disposed of. */
export class FakeApiServer implements AsyncDisposable {
  /** The URL of the server. */
  readonly url: string;
  /** The failures that are switched on. */
  readonly faults: Faults = {
    ...{ refuse: { status: 0, times: 0 }, forbidden: new Set<string>(), conflicts: 0 },
    ...{ stalledWatches: false, unansweredWatches: false, undisrupted: new Set<string>() },
    evictions: new Map<string, number>(),
  };
  /** All requests so far. */
  readonly requests: LoggedRequest[] = [];
  /** The number of pings so far. */
  pings = 0;
  /** The number of characters of objects that were sent, in answers and on watches. */
  sentBytes = 0;
  /** The clients that act as a process of the driver, by user agent; besides those whose user agent says so. */
  readonly processes = new Map<string, ProcessRole>();
  readonly #missingPermissions = new Set<string>();
  readonly #collections = new Map<string, Collection>();
  /** The copies of stored objects that tests got: they ask again and again while they wait. */
  readonly #copies = new WeakMap<StoredObject, StoredObject>();
  readonly #watches = new Set<Watch>();
  readonly #token: string | undefined;
  readonly #server: Deno.HttpServer<Deno.NetAddr>;
  readonly #abort = new AbortController();
  #revision = FIRST_REVISION;

  private constructor({ resources = [], token, tls, host = "127.0.0.1" }: FakeApiServerOptions) {
    this.#token = token;
    for (const one of [...BUILT_IN_KINDS, ...resources]) this.addResource(one);
    const hostname = host.replace(/^\[(.*)\]$/, "$1");
    const options = { hostname, port: 0, signal: this.#abort.signal, onListen: () => {}, ...tls };
    const handle = (request: DirectRequest) => this.#handle(request);
    this.#server = Deno.serve(options, async (request) => {
      const { status, headers, body } = await handle({
        method: request.method,
        url: request.url,
        headers: request.headers,
        body: await request.text(),
      });
      return new Response(typeof body === "string" ? body : body.body, { status, headers });
    });
    this.url = `${tls === undefined ? "http" : "https"}://${host}:${this.#server.addr.port}`;
    if (tls === undefined) serveDirectly(this.url, { handle, end: this.#abort.signal });
  }

  /** Starts one. */
  static start(options: FakeApiServerOptions = {}): FakeApiServer {
    return new FakeApiServer(options);
  }

  /**
   * Ends it, and all connections to it.
   *
   * @throws {Error} when a process of the driver sent requests that its role does not allow
   */
  async [Symbol.asyncDispose](): Promise<void> {
    this.endWatches();
    this.#abort.abort();
    await this.#server.finished;
    if (this.#missingPermissions.size === 0) return;
    throw new Error(`no role in deploy/manifests grants ${[...this.#missingPermissions].sort().join(", ")}`);
  }

  /** The revision of the last change. */
  get revision(): number {
    return this.#revision;
  }

  /** The number of open watches. */
  get watchCount(): number {
    return this.#watches.size;
  }

  /** Returns all stored objects of a resource, without a request. As long as one is stored, its copy is the same. */
  objects<T extends KubeObject>(resource: Resource<T>): T[] {
    return [...this.collection(resource).objects.values()].map((object) => {
      let copy = this.#copies.get(object);
      if (copy === undefined) this.#copies.set(object, copy = structuredClone(object));
      return copy as unknown as T;
    });
  }

  /** Reports whether the cluster has a kind. */
  hasResource(resource: Resource): boolean {
    return this.#collections.has(pathOf(resource));
  }

  /** Brings a kind into the cluster. */
  addResource(one: Resource | ResourceKind): void {
    const kind = "resource" in one ? one : {
      ...{ resource: one, hasStatusSubresource: true, countsGenerations: true },
      ...{ allowsUnconditionalUpdate: false, isCustom: true },
    };
    this.#collections.set(pathOf(kind.resource), new Collection(kind, () => ++this.#revision));
  }

  /** Takes a kind out of the cluster, with all its objects. */
  removeResource(resource: Resource): void {
    const collection = this.collection(resource);
    this.#collections.delete(pathOf(resource));
    for (const watch of [...this.#watches]) if (watch.collection === collection) watch.end();
  }

  /** Creates an object without a request, status and all, and answers it as kept. */
  put<T extends KubeObject>(
    resource: Resource<T>,
    object: Omit<T, "metadata"> & { metadata: Partial<T["metadata"]> },
  ): T {
    const kind = { apiVersion: apiVersionOf(resource), kind: resource.kind };
    const sent = { ...kind, ...object } as unknown as StoredObject;
    return this.collection(resource).create(sent, sent.metadata.namespace, { withStatus: true }) as unknown as T;
  }

  /** Keeps an object of another server as it is, except for its revision: a restored backup. */
  restore<T extends KubeObject>(resource: Resource<T>, object: T): void {
    this.collection(resource).restore(object as unknown as StoredObject);
  }

  /** Ends all watches, as a server does after their time. */
  endWatches(): void {
    for (const watch of [...this.#watches]) watch.end();
  }

  /** Sends a bookmark on all watches. */
  sendBookmarks(): void {
    for (const watch of this.#watches) watch.bookmark(this.#revision);
  }

  /** Forgets history: watches from an older revision than the present one are refused as too old. */
  compact(): void {
    for (const collection of this.#collections.values()) collection.compact(this.#revision);
  }

  /** Goes back to a lower revision and ends all watches, as when etcd is restored from a backup. */
  rewind(revision: number): void {
    this.#revision = revision;
    for (const collection of this.#collections.values()) collection.history.length = 0;
    this.endWatches();
  }

  /** Returns the objects of a resource, for a test that takes the part of other clients without requests. */
  collection(resource: Resource): Collection {
    const collection = this.#collections.get(pathOf(resource));
    if (collection === undefined) throw new Error(`the fake API server has no ${resource.plural}`);
    return collection;
  }

  async #handle(request: DirectRequest): Promise<DirectAnswer> {
    const { pathname: path, searchParams: query } = new URL(request.url);
    if (path === "/livez") {
      this.pings++;
      return { status: 200, headers: {}, body: "ok" };
    }
    const body: unknown = request.body === "" ? undefined : JSON.parse(request.body);
    this.requests.push({ method: request.method, path, query, body, headers: request.headers });
    this.#checkPermission(request, path, query);
    try {
      this.#refuse(request);
      const { resource } = parsePath(path);
      if (request.method === "GET" && this.faults.forbidden.has(resource)) {
        throw new StatusError(403, "Forbidden", `${resource} is forbidden: the user cannot read it`);
      }
      if (this.faults.unansweredWatches && query.has("watch")) await waitForAbort(this.#abort.signal);
      const type = request.headers.get("content-type") ?? "";
      const metadataOnly = /;as=PartialObjectMetadata/.test(request.headers.get("accept") ?? "");
      return this.#serve(request.method, { path, query, body, type, metadataOnly });
    } catch (error) {
      if (!(error instanceof StatusError)) throw error;
      const { refuse } = this.faults;
      const isLater = error.code === 429 && refuse.retryAfter !== undefined;
      return {
        status: error.code,
        headers: { ...JSON_TYPE, ...(isLater && { "retry-after": `${refuse.retryAfter}` }) },
        body: JSON.stringify(statusObject(error)),
      };
    }
  }

  /** Checks whether the role of a process allows its request. The test fails when the server ends. */
  #checkPermission({ method, headers }: DirectRequest, path: string, query: URLSearchParams): void {
    const userAgent = headers.get("user-agent") ?? "";
    const role = this.processes.get(userAgent) ?? roleInUserAgent(userAgent);
    if (role === undefined) return;
    const { group, namespace, resource, name } = parsePath(path);
    const request = { method, isWatch: query.has("watch"), group, namespace, resource, name };
    const permission = missingPermission(role, request);
    if (permission !== undefined) this.#missingPermissions.add(permission);
  }

  #refuse({ method, headers }: DirectRequest): void {
    if (this.#token !== undefined && headers.get("authorization") !== `Bearer ${this.#token}`) {
      throw new StatusError(401, "Unauthorized", "Unauthorized");
    }
    const { refuse } = this.faults;
    if (refuse.times > 0) {
      refuse.times--;
      const reason = refuse.status === 429 ? "TooManyRequests" : "InternalError";
      throw new StatusError(refuse.status, reason, `refused by the test (${refuse.status})`);
    }
    if ((method === "PUT" || method === "PATCH") && this.faults.conflicts > 0) {
      this.faults.conflicts--;
      throw new StatusError(409, "Conflict", "Operation cannot be fulfilled: the object has been modified");
    }
  }

  #serve(method: string, sent: ParsedRequest): DirectAnswer {
    const { path, query, body, type, metadataOnly } = sent;
    const { collection, namespace, name, subresource } = this.#route(path);
    if (name !== undefined && subresource === "eviction" && method === "POST") {
      if (this.faults.undisrupted.has(name)) {
        throw new StatusError(
          429,
          "TooManyRequests",
          "Cannot evict pod as it would violate the pod's disruption budget.",
        );
      }
      const status = this.faults.evictions.get(name);
      if (status !== undefined) {
        throw new StatusError(status, status === 403 ? "Forbidden" : "InternalError", `the eviction of ${name} failed`);
      }
      return this.#json(collection.delete({ name, namespace }), 201);
    }
    if (name === undefined) {
      if (method === "POST") return this.#json(collection.create(requireObject(body), namespace), 201);
      if (method !== "GET") throw new StatusError(405, "MethodNotAllowed", `the server does not allow ${method} here`);
      const matches = parseSelectors(query, namespace);
      const selection = { query, matches, metadataOnly };
      return query.get("watch") ? this.#watch(collection, selection) : this.#list(collection, selection);
    }
    switch (method) {
      case "GET": {
        const object = collection.get(name, namespace);
        return this.#json(metadataOnly ? partialMetadata(object) : object);
      }
      case "PUT":
        if (requireObject(body).metadata.name !== name) {
          throw new StatusError(400, "BadRequest", "the name of the object does not match the name on the URL");
        }
        return this.#json(collection.replace(requireObject(body), namespace, subresource));
      case "PATCH":
        if (type !== "application/merge-patch+json") throw new StatusError(415, "UnsupportedMediaType", type);
        return this.#json(collection.patch(body, { name, namespace }, subresource, query.get("dryRun") === "All"));
      case "DELETE": {
        const { preconditions } = (body ?? {}) as { preconditions?: Record<string, unknown> };
        return this.#json(collection.delete({ name, namespace }, preconditions));
      }
      default:
        throw new StatusError(405, "MethodNotAllowed", `the server does not allow ${method} here`);
    }
  }

  #route(path: string) {
    const parts = path.split("/").slice(1).map(decodeURIComponent);
    const head = parts.splice(0, parts[0] === "api" ? 2 : 3);
    const namespace = parts[0] === "namespaces" && parts.length > 2 ? parts.splice(0, 2)[1] : undefined;
    const [plural, name, subresource] = parts;
    const collection = this.#collections.get("/" + [...head, plural].join("/"));
    const isUnknownSubresource = subresource !== undefined &&
      !(subresource === "eviction" && plural === "pods") &&
      (subresource !== "status" || !collection?.kind.hasStatusSubresource);
    if (collection === undefined || isUnknownSubresource) {
      throw new StatusError(404, "NotFound", "the server could not find the requested resource");
    }
    return { collection, namespace, name, subresource };
  }

  #list(collection: Collection, { query, matches, metadataOnly }: SelectedObjects): DirectAnswer {
    const all = collection.sorted().filter(matches);
    const [start, revision] = (query.get("continue") ?? `0:${this.#revision}`).split(":").map(Number) as [
      number,
      number,
    ];
    const end = start + (Number(query.get("limit")) || Infinity);
    const metadata = {
      resourceVersion: `${revision}`,
      ...(end < all.length ? { continue: `${end}:${revision}`, remainingItemCount: all.length - end } : {}),
    };
    const { resource } = collection.kind;
    if (metadataOnly) {
      const items = all.slice(start, end).map(partialMetadata);
      return this.#json({ kind: "PartialObjectMetadataList", apiVersion: "meta.k8s.io/v1", metadata, items });
    }
    const items = all.slice(start, end).map(({ apiVersion: _, kind: __, ...rest }) => rest);
    return this.#json({ kind: `${resource.kind}List`, apiVersion: apiVersionOf(resource), metadata, items });
  }

  #json(value: unknown, status = 200): DirectAnswer {
    const body = JSON.stringify(value);
    this.sentBytes += body.length;
    return { status, headers: JSON_TYPE, body };
  }

  #watch(collection: Collection, { query, matches, metadataOnly }: SelectedObjects): DirectAnswer {
    const watch = new Watch(collection, matches, {
      metadataOnly,
      onSent: (bytes) => this.sentBytes += bytes,
      onEnd: () => this.#watches.delete(watch),
    });
    this.#watches.add(watch);
    const from = Number(query.get("resourceVersion") ?? 0);
    if (!this.faults.stalledWatches) watch.start(from);
    const seconds = Number(query.get("timeoutSeconds") ?? 0);
    if (seconds > 0) watch.endAfter(seconds * 1000);
    return { status: 200, headers: JSON_TYPE, body: watch };
  }
}

/** The headers of an answer in JSON. */
const JSON_TYPE = { "content-type": "application/json" } as const;

/** A request, as far as it is for objects. */
interface ParsedRequest {
  readonly path: string;
  readonly query: URLSearchParams;
  readonly body: unknown;
  readonly type: string;
  readonly metadataOnly: boolean;
}

/** The objects of a list or a watch. */
interface SelectedObjects {
  readonly query: URLSearchParams;
  readonly matches: SelectorPredicate;
  readonly metadataOnly: boolean;
}

function requireObject(body: unknown): StoredObject {
  const object = body as StoredObject | undefined;
  if (typeof object?.metadata !== "object") throw new StatusError(400, "BadRequest", "the body is not an object");
  return object;
}
