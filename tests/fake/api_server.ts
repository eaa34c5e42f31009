/**
 * An API server in this process, on a loopback port: it keeps objects and tells watchers, by the rules of kube-apiserver as far as
 * loops can see them, and fails as it is told to.
 *
 * @module
 */

import * as known from "../../k8s/api/objects.ts";
import { apiVersionOf, type KubeObject, pathOf, type Resource } from "../../k8s/api/objects.ts";
import { type Selected, selectionOf } from "./api_selection.ts";
import { Collection, FIRST_REVISION, type Kind, Refusal, statusOf, type Stored } from "./api_store.ts";
import { Watch } from "./api_watch.ts";

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

/** How the server fails. */
export interface Faults {
  /** Answers the next so many requests, other than pings, with this status. */
  refuse: { status: number; times: number; retryAfter?: number };
  /** Refuses the next so many replacements and patches as if someone else had been faster. */
  conflicts: number;
  /** Accepts watches and says nothing on them. */
  silentWatches: boolean;
}

/** How a {@linkcode FakeApiServer} is made. */
export interface FakeOptions {
  /** Kinds beside the built-in ones: custom resources, with a status endpoint and generations unless said otherwise. */
  resources?: readonly (Resource | Kind)[];
  /** Only who has this bearer token is served. */
  token?: string;
  /** A certificate and its key, as PEM: the server then speaks TLS, and HTTP/2. */
  tls?: { cert: string; key: string };
}

const BUILT_IN: readonly Kind[] = [
  { resource: known.persistentVolumes, status: true, generation: false, unconditional: true },
  { resource: known.persistentVolumeClaims, status: true, generation: false, unconditional: true },
  { resource: known.nodes, status: true, generation: false, unconditional: true },
  { resource: known.pods, status: true, generation: true, unconditional: true },
  { resource: known.events, status: false, generation: false, unconditional: true, upsert: true },
  { resource: known.storageClasses, status: false, generation: false, unconditional: true },
  { resource: known.volumeAttributesClasses, status: false, generation: false, unconditional: true },
  { resource: known.csiNodes, status: false, generation: false, unconditional: true },
  { resource: known.csiDrivers, status: false, generation: false, unconditional: true },
  { resource: known.csiStorageCapacities, status: false, generation: false, unconditional: true },
  { resource: known.leases, status: false, generation: false, unconditional: false, upsert: true },
];

/** An API server in this process. It ends when it is disposed of. */
export class FakeApiServer implements AsyncDisposable {
  /** Where it is. */
  readonly url: string;
  /** How it fails. */
  readonly faults: Faults = { refuse: { status: 0, times: 0 }, conflicts: 0, silentWatches: false };
  /** All requests so far. */
  readonly requests: LoggedRequest[] = [];
  readonly #collections = new Map<string, Collection>();
  readonly #watches = new Set<Watch>();
  readonly #token: string | undefined;
  readonly #server: Deno.HttpServer<Deno.NetAddr>;
  readonly #abort = new AbortController();
  #revision = FIRST_REVISION;

  private constructor({ resources = [], token, tls }: FakeOptions) {
    this.#token = token;
    for (const one of [...BUILT_IN, ...resources]) this.define(one);
    const options = { hostname: "127.0.0.1", port: 0, signal: this.#abort.signal, onListen: () => {}, ...tls };
    this.#server = Deno.serve(options, (request) => this.#answer(request));
    this.url = `${tls === undefined ? "http" : "https"}://127.0.0.1:${this.#server.addr.port}`;
  }

  /** Starts one. */
  static start(options: FakeOptions = {}): FakeApiServer {
    return new FakeApiServer(options);
  }

  /** Ends it, and all connections to it. */
  async [Symbol.asyncDispose](): Promise<void> {
    this.endWatches();
    this.#abort.abort();
    await this.#server.finished;
  }

  /** The revision of the last change. */
  get revision(): number {
    return this.#revision;
  }

  /** How many watches are open. */
  get watchCount(): number {
    return this.#watches.size;
  }

  /** All objects of a resource, as they are kept: also a way to look without a request. */
  objects<T extends KubeObject>(resource: Resource<T>): T[] {
    return [...this.#collection(resource).objects.values()].map((object) => structuredClone(object) as unknown as T);
  }

  /** Brings a kind into the cluster. */
  define(one: Resource | Kind): void {
    const kind = "resource" in one ? one : { resource: one, status: true, generation: true, unconditional: false };
    this.#collections.set(pathOf(kind.resource), new Collection(kind, () => ++this.#revision));
  }

  /** Takes a kind out of the cluster, with all its objects. */
  undefine(resource: Resource): void {
    const collection = this.#collection(resource);
    this.#collections.delete(pathOf(resource));
    for (const watch of [...this.#watches]) if (watch.collection === collection) watch.end();
  }

  /** Creates an object without a request, status and all, and answers it as kept. */
  put<T extends KubeObject>(
    resource: Resource<T>,
    object: Omit<T, "metadata"> & { metadata: Partial<T["metadata"]> },
  ): T {
    const kind = { apiVersion: apiVersionOf(resource), kind: resource.kind };
    const sent = { ...kind, ...object } as unknown as Stored;
    const collection = this.#collection(resource);
    const { namespace } = sent.metadata;
    const made = collection.create(sent, namespace);
    if (sent["status"] === undefined || !collection.kind.status) return made as unknown as T;
    return collection.patch(
      { status: sent["status"] },
      { name: made.metadata.name, namespace },
      "status",
    ) as unknown as T;
  }

  /** Ends all watches, as a server does after their time. */
  endWatches(): void {
    for (const watch of [...this.#watches]) watch.end();
  }

  /** Sends a bookmark on all watches. */
  bookmark(): void {
    for (const watch of this.#watches) watch.bookmark(this.#revision);
  }

  /** Forgets history: watches from an older revision than the present one are refused as too old. */
  compact(): void {
    for (const collection of this.#collections.values()) collection.compact(this.#revision);
  }

  #collection(resource: Resource): Collection {
    const collection = this.#collections.get(pathOf(resource));
    if (collection === undefined) throw new Error(`the fake API server has no ${resource.plural}`);
    return collection;
  }

  async #answer(request: Request): Promise<Response> {
    const { pathname: path, searchParams: query } = new URL(request.url);
    if (path === "/livez") return new Response("ok");
    const text = await request.text();
    const body: unknown = text === "" ? undefined : JSON.parse(text);
    this.requests.push({ method: request.method, path, query, body, headers: request.headers });
    try {
      this.#refuse(request);
      return this.#serve(request.method, { path, query, body, type: request.headers.get("content-type") ?? "" });
    } catch (error) {
      if (!(error instanceof Refusal)) throw error;
      const { refuse } = this.faults;
      const headers = error.code === 429 && refuse.retryAfter !== undefined
        ? { "retry-after": `${refuse.retryAfter}` }
        : {};
      return Response.json(statusOf(error), { status: error.code, headers });
    }
  }

  #refuse({ method, headers }: Request): void {
    if (this.#token !== undefined && headers.get("authorization") !== `Bearer ${this.#token}`) {
      throw new Refusal(401, "Unauthorized", "Unauthorized");
    }
    const { refuse } = this.faults;
    if (refuse.times > 0) {
      refuse.times--;
      const reason = refuse.status === 429 ? "TooManyRequests" : "InternalError";
      throw new Refusal(refuse.status, reason, `refused as told to (${refuse.status})`);
    }
    if ((method === "PUT" || method === "PATCH") && this.faults.conflicts > 0) {
      this.faults.conflicts--;
      throw new Refusal(409, "Conflict", "Operation cannot be fulfilled: the object has been modified");
    }
  }

  #serve(method: string, sent: { path: string; query: URLSearchParams; body: unknown; type: string }): Response {
    const { path, query, body, type } = sent;
    const { collection, namespace, name, subresource } = this.#route(path);
    if (name === undefined) {
      if (method === "POST") return Response.json(collection.create(asObject(body), namespace), { status: 201 });
      if (method !== "GET") throw new Refusal(405, "MethodNotAllowed", `the server does not allow ${method} here`);
      const selected = selectionOf(query, namespace);
      return query.get("watch") ? this.#watch(collection, query, selected) : this.#list(collection, query, selected);
    }
    switch (method) {
      case "GET":
        return Response.json(collection.get(name, namespace));
      case "PUT":
        if (asObject(body).metadata.name !== name) {
          throw new Refusal(400, "BadRequest", "the name of the object does not match the name on the URL");
        }
        return Response.json(collection.replace(asObject(body), namespace, subresource));
      case "PATCH":
        if (type !== "application/merge-patch+json") throw new Refusal(415, "UnsupportedMediaType", type);
        return Response.json(collection.patch(body, { name, namespace }, subresource));
      case "DELETE": {
        const { preconditions } = (body ?? {}) as { preconditions?: Record<string, unknown> };
        return Response.json(collection.delete({ name, namespace }, preconditions));
      }
      default:
        throw new Refusal(405, "MethodNotAllowed", `the server does not allow ${method} here`);
    }
  }

  #route(path: string) {
    const parts = path.split("/").slice(1).map(decodeURIComponent);
    const head = parts.splice(0, parts[0] === "api" ? 2 : 3);
    const namespace = parts[0] === "namespaces" && parts.length > 2 ? parts.splice(0, 2)[1] : undefined;
    const [plural, name, subresource] = parts;
    const collection = this.#collections.get("/" + [...head, plural].join("/"));
    const statusless = subresource !== undefined && (subresource !== "status" || !collection?.kind.status);
    if (collection === undefined || statusless) {
      throw new Refusal(404, "NotFound", "the server could not find the requested resource");
    }
    return { collection, namespace, name, subresource };
  }

  #list({ objects, kind }: Collection, query: URLSearchParams, selected: Selected): Response {
    const all = [...objects].filter(([, object]) => selected(object)).sort(([a], [b]) => a < b ? -1 : 1);
    const [start, revision] = (query.get("continue") ?? `0:${this.#revision}`).split(":").map(Number) as [
      number,
      number,
    ];
    const end = start + (Number(query.get("limit")) || Infinity);
    const metadata = {
      resourceVersion: `${revision}`,
      ...(end < all.length ? { continue: `${end}:${revision}`, remainingItemCount: all.length - end } : {}),
    };
    const items = all.slice(start, end).map(([, { apiVersion: _, kind: __, ...rest }]) => rest);
    const { resource } = kind;
    return Response.json({ kind: `${resource.kind}List`, apiVersion: apiVersionOf(resource), metadata, items });
  }

  #watch(collection: Collection, query: URLSearchParams, selected: Selected): Response {
    const watch = new Watch(collection, selected, () => this.#watches.delete(watch));
    this.#watches.add(watch);
    const from = Number(query.get("resourceVersion") ?? 0);
    if (!this.faults.silentWatches) watch.begin(from);
    const seconds = Number(query.get("timeoutSeconds") ?? 0);
    if (seconds > 0) watch.endAfter(seconds * 1000);
    return new Response(watch.body, { headers: { "content-type": "application/json" } });
  }
}

function asObject(body: unknown): Stored {
  const object = body as Stored | undefined;
  if (typeof object?.metadata !== "object") throw new Refusal(400, "BadRequest", "the body is not an object");
  return object;
}
