/**
 * A client of the API server whose requests are sent by kubectl. What works with the driver's own client works with
 * this one, too: lists, watches, and the removal of a node.
 *
 * @module
 */

import { systemClock } from "../base/clock.ts";
import {
  type ApiClient,
  ApiError,
  type DeleteOptions,
  type NewObject,
  type ObjectList,
  type PatchOptions,
  type ReplaceOptions,
  type RequestOptions,
  type Selection,
  type WatchEvent,
} from "../k8s/client/client.ts";
import { Definitions, strictPath } from "../k8s/client/definitions.ts";
import { collectPages, readPages, watchPath } from "../k8s/client/lists.ts";
import { parseEvent, parseObject, parsePage } from "../k8s/client/response.ts";
import { apiVersionOf, type KubeObject, type ObjectName, pathOf, pods, type Resource } from "../k8s/api/objects.ts";
import type { Kubectl, KubectlCommand, KubectlOutput } from "./kubectl.ts";
import { withoutControls } from "./output.ts";

/** The number of objects of a page. */
const PAGE_SIZE = 500;

/** The number of commands that run at once: a login of the user may run a program for each of them. */
const MAX_CONCURRENT = 6;

/** The HTTP status of the reasons that the callers tell apart. */
const STATUS_OF_REASON: Readonly<Record<string, number>> = {
  NotFound: 404,
  AlreadyExists: 409,
  Conflict: 409,
  Expired: 410,
  Gone: 410,
  Forbidden: 403,
  Unauthorized: 401,
  Invalid: 422,
  BadRequest: 400,
  TooManyRequests: 429,
  ServiceUnavailable: 503,
  InternalError: 500,
};

/** What a request is for, for messages. */
interface Described {
  readonly verb: string;
  readonly resource: Pick<Resource, "plural">;
  readonly name: string;
}

/** The API server by kubectl. */
export class KubectlClient implements ApiClient {
  /** The definitions of the driver's kinds: nothing is requested while they are older than this plugin. */
  readonly definitions: Definitions = new Definitions(this, systemClock);
  readonly #kubectl: Kubectl;
  readonly #waiting: (() => void)[] = [];
  #running = 0;

  /** Creates it; nothing runs before it is used. */
  constructor(kubectl: Kubectl) {
    this.#kubectl = kubectl;
  }

  /** Implements {@linkcode ApiClient}. */
  async get<T extends KubeObject>(resource: Resource<T>, at: ObjectName, options: RequestOptions = {}): Promise<T> {
    const request = { verb: "get", resource, name: at.name };
    return parseObject<T>(request, await this.#run(request, { verb: "get", path: pathOf(resource, at) }, options));
  }

  /** Reads a path that has no object, as text. @throws {ApiError} */
  readPath(path: string, options: RequestOptions = {}): Promise<string> {
    return this.#run({ verb: "get", resource: { plural: path }, name: "" }, { verb: "get", path }, options);
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
    options: Selection & RequestOptions = {},
  ): AsyncGenerator<ObjectList<T>> {
    const request = { verb: "list", resource, name: "" };
    yield* readPages(
      resource,
      options,
      PAGE_SIZE,
      async (path) => parsePage<T>(request, await this.#run(request, { verb: "get", path }, options)),
    );
  }

  /** Implements {@linkcode ApiClient}. */
  async *watch<T extends KubeObject>(
    resource: Resource<T>,
    options: Selection & RequestOptions & { resourceVersion: string },
  ): AsyncGenerator<WatchEvent<T>> {
    const { resourceVersion, signal } = options;
    signal?.throwIfAborted(); // nobody reads it any more
    const path = watchPath(resource, options, { resourceVersion });
    const request = { verb: "watch", resource, name: "" };
    const stop = new AbortController(); // kubectl ends with the watch, also when its reader has seen enough
    const onAbort = () => stop.abort();
    signal?.addEventListener("abort", onAbort);
    try {
      const { lines, output } = this.#kubectl.readLines(path, stop.signal);
      for await (const line of lines) yield parseEvent<T>(request, line);
      const ended = await output;
      signal?.throwIfAborted();
      if (ended.code !== 0) throw kubectlError(request, ended);
    } finally {
      signal?.removeEventListener("abort", onAbort);
      stop.abort();
    }
  }

  /** Implements {@linkcode ApiClient}. */
  async create<T extends KubeObject>(
    resource: Resource<T>,
    object: NewObject<T>,
    options: RequestOptions = {},
  ): Promise<T> {
    const { name = object.metadata.generateName ?? "", namespace } = object.metadata;
    const body = { apiVersion: apiVersionOf(resource), kind: resource.kind, ...object };
    const request = { verb: "create", resource, name };
    await this.definitions.requireFor({ ...request, body });
    const command = { verb: "create", path: strictPath(resource, pathOf(resource, { namespace })), body } as const;
    return parseObject<T>(request, await this.#run(request, command, options));
  }

  /** Implements {@linkcode ApiClient}. */
  async replace<T extends KubeObject>(resource: Resource<T>, object: T, options: ReplaceOptions = {}): Promise<T> {
    const { name } = object.metadata;
    const path = pathOf(resource, object.metadata) + (options.subresource === undefined ? "" : "/status");
    const body = { apiVersion: apiVersionOf(resource), kind: resource.kind, ...object };
    const request = { verb: "replace", resource, name };
    return parseObject<T>(request, await this.#run(request, { verb: "replace", path, body }, options));
  }

  /** Implements {@linkcode ApiClient}. */
  async patch<T extends KubeObject>(resource: Resource<T>, at: ObjectName, options: PatchOptions<T>): Promise<T> {
    const { merge, resourceVersion, subresource, dryRun } = options;
    const { metadata } = merge as { metadata?: Record<string, unknown> };
    const conditional = resourceVersion === undefined
      ? merge
      : { ...merge, metadata: { ...metadata, resourceVersion } };
    const request = { verb: "patch", resource, name: at.name };
    await this.definitions.requireFor({ ...request, body: merge });
    const command = { verb: "patch", resource, at, subresource, merge: conditional, dryRun } as const;
    return parseObject<T>(request, await this.#run(request, command, options));
  }

  /** Implements {@linkcode ApiClient}. */
  async delete(resource: Resource, at: ObjectName, options: DeleteOptions = {}): Promise<void> {
    const { uid, resourceVersion } = options;
    const body = { apiVersion: "v1", kind: "DeleteOptions", preconditions: { uid, resourceVersion } };
    const request = { verb: "delete", resource, name: at.name };
    await this.#run(request, { verb: "delete", path: pathOf(resource, at), body }, options);
  }

  /** Evicts a pod, if its budgets allow it. @param uid the uid of the pod @throws {ApiError} 429 while they do not */
  async evict(at: ObjectName, uid: string | undefined, options: RequestOptions = {}): Promise<void> {
    const body = { apiVersion: "policy/v1", kind: "Eviction", metadata: at, deleteOptions: { preconditions: { uid } } };
    const request = { verb: "evict", resource: pods, name: at.name };
    await this.#run(request, { verb: "create", path: `${pathOf(pods, at)}/eviction`, body }, options);
  }

  async #run(request: Described, command: KubectlCommand, { signal }: RequestOptions): Promise<string> {
    if (this.#running >= MAX_CONCURRENT) await new Promise<void>((resolve) => this.#waiting.push(resolve));
    else this.#running++;
    try {
      const output = await this.#kubectl.run(command, signal);
      if (output.code !== 0) throw kubectlError(request, output);
      return output.stdout;
    } finally {
      const next = this.#waiting.shift();
      if (next === undefined) this.#running--;
      else next();
    }
  }
}

/** Returns the error of a command that failed. kubectl prints the reason of the API server in parentheses. */
export function kubectlError({ verb, resource, name }: Described, { stderr }: KubectlOutput): ApiError {
  const text = withoutControls(stderr.replace(/\r\n/g, "\n").replaceAll("\t", " ")).trim();
  const [, reason = "", rest = ""] = /^Error from server(?: \((\w+)\))?: ([\s\S]*)$/m.exec(text) ?? [];
  const status = STATUS_OF_REASON[reason];
  const what = [verb, resource.plural, name].filter((part) => part !== "").join(" ");
  if (status === undefined) {
    const said = text === "" ? "kubectl failed" : text;
    return new ApiError(`${what}: ${said}`, { status: rest === "" ? 0 : 500, reason: reason || "Unreachable" });
  }
  const remedy = reason === "Forbidden" ? `${rest.endsWith(".") ? "" : "."} ${remedyOf(verb)}` : "";
  return new ApiError(`${what}: ${reason}: ${rest}${remedy}`, { status, reason });
}

/** Returns which role of the chart allows a verb (deploy/chart/templates/plugin-rbac.yaml). */
function remedyOf(verb: string): string {
  return ["get", "list", "watch"].includes(verb)
    ? "The ClusterRole denolith-view allows it"
    : "The ClusterRole denolith-operate allows it, beside denolith-view";
}
