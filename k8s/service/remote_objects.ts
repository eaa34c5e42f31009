/**
 * LVMVolumes and LVMSnapshots, as the controller uses them: it writes their `spec`, the agent of a node reconciles
 * them, and the controller waits for the `status`.
 *
 * An object is created before its LV, and is deleted only after its LV. A controller that restarts in between finds
 * the object and continues. Changes of the status arrive by watch.
 *
 * @module
 */

import { defined } from "../../base/defined.ts";
import { type ErrorKind, StorageError } from "../../base/error.ts";
import {
  type ApiClient,
  ApiError,
  type DriverClient,
  isAlreadyExists,
  isNotFound,
  orAbsent,
  orAbsentOrChanged,
} from "../client/client.ts";
import { patchWithRetry } from "../client/patches.ts";
import type { SilentAgents } from "../scheduling/agent_liveness.ts";
import type { Informer } from "../runtime/informer.ts";
import {
  type AgentManaged,
  isForgotten,
  isRemovalRequested,
  type LvmNode,
  REMOVE_ANNOTATION,
  requestAnnotations,
} from "../api/lvm_objects.ts";
import { reportedError } from "../api/object_status.ts";
import type { Resource } from "../api/objects.ts";

/** Options of calls that wait for nodes. The caller starts and shares the informers. */
export interface NodeCallOptions extends DriverClient {
  /** All LVMNodes. */
  readonly nodes: Informer<LvmNode>;
  /** The agents that are silent; no call waits for them. */
  readonly agents?: SilentAgents | undefined;
  /** The time that a call waits for a node, in milliseconds. */
  readonly waitMs: number;
}

/** Options of {@linkcode RemoteObjects}. */
export interface RemoteObjectsOptions<T extends AgentManaged> extends NodeCallOptions {
  /** The noun for an object in messages. */
  readonly noun: "volume" | "snapshot";
  /** All objects of the kind. */
  readonly objects: Informer<T>;
  /** The finalizer that keeps an object until its node has removed the LV. */
  readonly finalizer: string;
}

/** What must hold until an object is deleted. */
interface DeletionCondition<T> {
  /** Reports whether it holds. */
  readonly holds: (now: T) => boolean;
  /** Why the object is not deleted, in words. */
  readonly otherwise: string;
}

/** The objects of one kind that the agents of nodes reconcile. */
export class RemoteObjects<T extends AgentManaged> {
  readonly #options: RemoteObjectsOptions<T>;
  readonly #client: ApiClient;
  readonly #objects: Informer<T>;
  readonly #resource: Resource<AgentManaged>;

  /** Creates the service; it keeps no state. */
  constructor(options: RemoteObjectsOptions<T>) {
    this.#options = options;
    this.#client = options.client;
    this.#objects = options.objects;
    this.#resource = options.objects.resource;
  }

  /** Returns the object from the cache, or else from the API server. @throws {StorageError} `Unavailable` */
  async find(id: string): Promise<T | undefined> {
    return this.#objects.get(id) ?? await this.read(id);
  }

  /** Returns the object from the API server. @throws {StorageError} `Unavailable` */
  async read(id: string): Promise<T | undefined> {
    try {
      return await orAbsent(this.#client.get(this.#objects.resource, { name: id }));
    } catch (error) {
      throw asUnavailable(`looking for ${this.#describe(id)}`, error);
    }
  }

  /**
   * Creates the object, or returns the existing one of its name.
   *
   * @throws {StorageError} `InvalidArgument` or `FailedPrecondition` when the API server refuses it; `Unavailable`
   */
  async createOrGet(object: T): Promise<T> {
    const { name, ...metadata } = object.metadata;
    const annotations = { ...metadata.annotations, ...requestAnnotations() };
    try {
      return await this.#client.create(this.#objects.resource, {
        ...object,
        metadata: { name, ...metadata, annotations },
      });
    } catch (error) {
      if (!isAlreadyExists(error)) throw asWriteError(`creating ${this.#describe(name)}`, error);
    }
    const existing = await this.read(name);
    if (existing !== undefined) return existing;
    throw new StorageError(
      "Unavailable",
      `creating ${this.#describe(name)}: its ${this.#resource.kind} was created and deleted at once; try again`,
    );
  }

  /**
   * Waits until the agent has reconciled the object's current generation (`status.observedGeneration`).
   *
   * @param operation beginning of the error message
   * @returns the object with that status; its state may be `Failed`
   * @throws {StorageError} `Unavailable` when the agent does not answer in time, or the object was deleted
   */
  async waitObserved(operation: string, object: T): Promise<T> {
    const { name, generation } = object.metadata;
    const now = await this.#waitFor(operation, object, (now) => {
      return isDeleted(now, object) || isObserved(now!, generation);
    });
    if (!isDeleted(now, object)) return now!;
    throw new StorageError("Unavailable", `${operation} ${this.#describe(name)}: it was deleted meanwhile; try again`);
  }

  /**
   * Deletes an object with its LV.
   *
   * @param options.onlyIf what must hold until the API server deletes the object; nothing by default
   * @throws {StorageError} the error that the agent reported, such as `InUse`; `Unavailable` while it does not answer
   */
  async delete(object: T, options: { readonly onlyIf?: (now: T) => boolean } = {}): Promise<void> {
    const { onlyIf } = options;
    const condition = onlyIf && { holds: onlyIf, otherwise: "it changed meanwhile" };
    // the refusal of a deletion by somebody else is no answer to this one
    const isRefused = isDeleting(object) && !isRemovalRequested(object);
    const staleMessage = isRefused ? object.status?.error?.message : undefined;
    const remaining = await this.#deleteAndWait("deleting", object, {
      refuses: (now) => refusesDeletion(now) && now.status!.error!.message !== staleMessage,
      ...defined({ condition }),
    });
    if (isDeleted(remaining, object)) return;
    throw reportedError(remaining!.status!.error!);
  }

  /**
   * Deletes an object whose creation failed, or which is already being deleted, and waits until it and its LV are
   * gone. If its LV was created meanwhile, another process may have given it to somebody: then it stays.
   *
   * @throws {StorageError} `FailedPrecondition` when it has an LV and somebody else deleted it, so that the LV stays;
   * `Unavailable`
   */
  async undo(object: T): Promise<void> {
    const { name } = object.metadata;
    if (hasLv(object) && !isRemovalRequested(object)) {
      const { kind } = this.#resource;
      throw new StorageError(
        "FailedPrecondition",
        `creating ${
          this.#describe(name)
        }: its ${kind} is being deleted, but not by the driver, so its logical volume ` +
          `stays. To be rid of both, set the annotation ${REMOVE_ANNOTATION}=true`,
      );
    }
    const isUndone = (now: AgentManaged) => isDeleting(now) || !hasLv(now);
    const condition = { holds: isUndone, otherwise: "its logical volume was created meanwhile" };
    await this.#deleteAndWait("undoing", object, { refuses: () => false, condition });
  }

  /** Requires that an object belongs to this driver. @throws {StorageError} `NotFound` when it does not */
  requireOurs(object: T): void {
    if (this.isOurs(object)) return;
    const { metadata: { name }, spec: { driverName } } = object;
    throw new StorageError("NotFound", `looking for ${this.#describe(name)}: it belongs to the driver ${driverName}`);
  }

  /** Reports whether an object belongs to this driver. */
  isOurs({ spec }: T): boolean {
    return spec.driverName === this.#options.driver;
  }

  /** Reports whether a node has an agent of the driver. */
  hasAgent(nodeName: string): boolean {
    return this.#options.nodes.get(nodeName) !== undefined;
  }

  /**
   * Reports whether an object that is not created yet can be created on another node: its own has no agent, or its agent
   * is silent and has not begun. An agent writes the group into the status before it creates an LV.
   */
  isStranded({ spec: { nodeName }, status }: T): boolean {
    if (!this.hasAgent(nodeName)) return true;
    return status?.volumeGroup === undefined && (this.#options.agents?.isSilent(nodeName) ?? false);
  }

  /** Returns the error for a node that does not answer. */
  unresponsiveError(
    operation: string,
    { metadata: { name }, spec: { nodeName } }: T,
    options?: { cause: unknown },
  ): StorageError {
    const did = this.#objects.get(name)?.status?.state === "Pending" ? "begun, and not ended" : "not answered";
    const [reason, why] = this.#options.agents?.isSilent(nodeName)
      ? ["AgentSilent", `the agent of node ${nodeName} has not reported for minutes; see its log`] as const
      : this.hasAgent(nodeName)
      ? [
        "AgentDoesNotAnswer",
        `the agent of node ${nodeName} has ${did} within ${this.#options.waitMs / 1000} s; see its log`,
      ] as const
      : ["NodeGone", `node ${nodeName} has no agent of the driver (no LVMNode ${nodeName})`] as const;
    return new StorageError(
      "Unavailable",
      `${operation} ${this.#describe(name)}: ${why}. The operation continues, at the latest when the agent is back`,
      { ...options, reason },
    );
  }

  /**
   * Requests the removal of the LV, and waits until the object is deleted or its node refuses. In place of a node that
   * is gone, it removes the finalizer of objects without an LV, and of those whose node an administrator removed.
   */
  async #deleteAndWait(
    operation: string,
    object: T,
    { refuses, condition }: { refuses: (now: T) => boolean; condition?: DeletionCondition<T> },
  ): Promise<T | undefined> {
    const cached = this.#isCached(object);
    await this.#requestDeletion(operation, object, condition);
    if (!this.#isAbandoned(object)) {
      return await this.#waitFor(operation, object, (now) => isDeleted(now, object) || refuses(now!), { cached });
    }
    await this.#removeFinalizer(object);
    return await this.#waitFor(operation, object, (now) => isDeleted(now, object), {
      cached,
      timeoutMs: this.#options.waitMs,
    });
  }

  /** Reports whether an object can be removed without its node. */
  #isAbandoned(object: T): boolean {
    if (this.hasAgent(object.spec.nodeName)) return this.isStranded(object);
    return !hasLv(object) || isForgotten(object);
  }

  /** Reports whether the cache has the object. If it has, its later absence means that it was deleted. */
  #isCached({ metadata: { name, uid } }: T): boolean {
    return this.#objects.get(name)?.metadata.uid === uid;
  }

  /**
   * Waits until the predicate holds, or the LVMNode of the object is deleted. Until the cache has shown the object, its
   * absence means nothing.
   */
  async #waitFor(
    operation: string,
    object: T,
    predicate: (now: T | undefined) => boolean,
    { cached = this.#isCached(object), timeoutMs = this.#waitMs(object) } = {},
  ): Promise<T | undefined> {
    const { metadata: { name, uid }, spec: { nodeName } } = object;
    const [ended, removed] = [new AbortController(), new AbortController()];
    if (this.hasAgent(nodeName)) {
      const isGone = (node?: LvmNode) => node === undefined;
      void this.#options.nodes.waitFor(nodeName, isGone, ended).then(() => removed.abort(), () => {});
    }
    try {
      return await this.#objects.waitFor(name, (now) => {
        cached ||= now?.metadata.uid === uid;
        return cached && predicate(now);
      }, { timeoutMs, signal: removed.signal });
    } catch (cause) {
      throw this.unresponsiveError(operation, object, { cause });
    } finally {
      ended.abort();
    }
  }

  /** Returns how long a call waits for the node of an object, in milliseconds. */
  #waitMs({ spec: { nodeName } }: T): number {
    const { agents, waitMs } = this.#options;
    return this.hasAgent(nodeName) && !agents?.isSilent(nodeName) ? waitMs : 0;
  }

  /**
   * Sets the annotation that asks for the removal of the LV, and deletes the object; the node removes the finalizer
   * when the LV is removed. An object that was written by hand may lack the finalizer: it would disappear at once and
   * leave the LV behind.
   *
   * @param condition what must hold until the API server deletes the object; nothing by default
   */
  async #requestDeletion(operation: string, object: T, condition?: DeletionCondition<T>): Promise<void> {
    const { name, uid } = object.metadata;
    const change = (now: AgentManaged) => {
      if (condition?.holds(now as T) ?? true) return this.#deletionMark(now);
      throw new StorageError("Unavailable", `${operation} ${this.#describe(name)}: ${condition!.otherwise}; try again`);
    };
    try {
      let latest: AgentManaged | undefined = object;
      while (latest?.metadata.uid === uid) {
        const marked = await orAbsentOrChanged(patchWithRetry(this.#client, this.#resource, latest!, change, {}));
        if (marked === undefined || isDeleting(marked)) return;
        const { resourceVersion } = marked.metadata;
        const deletion = this.#client.delete(this.#resource, { name }, {
          uid,
          ...(condition !== undefined && { resourceVersion }),
        }).then(() => true);
        if (await orAbsentOrChanged(deletion)) return;
        latest = await this.read(name); // it is gone, or has changed
      }
    } catch (error) {
      throw asUnavailable(`deleting ${this.#describe(name)}`, error);
    }
  }

  /** Returns what an object lacks for its deletion to remove its LV, as a patch; `undefined` when it lacks nothing. */
  #deletionMark(object: AgentManaged) {
    const { deletionTimestamp, finalizers = [] } = object.metadata;
    const { finalizer } = this.#options;
    const lacksFinalizer = deletionTimestamp === undefined && !finalizers.includes(finalizer);
    if (isRemovalRequested(object) && !lacksFinalizer) return undefined;
    const requested = { [REMOVE_ANNOTATION]: "true", ...requestAnnotations() };
    return { metadata: { annotations: requested, ...(lacksFinalizer && { finalizers: [...finalizers, finalizer] }) } };
  }

  /**
   * Removes the finalizer in place of a node that is gone, or whose silent agent has not begun. Those of others stay. An
   * agent that wakes up meanwhile writes the status first: then nothing is removed, or its write fails and it creates
   * nothing. If a node that was gone returns, its LV is an orphan, found by its tags.
   */
  async #removeFinalizer({ metadata: { name, uid } }: T): Promise<void> {
    const now = await this.read(name);
    if (now?.metadata.uid !== uid) return;
    const change = (now: AgentManaged) => {
      const { finalizers = [] } = now.metadata;
      if (!this.#isAbandoned(now as T)) return undefined;
      return { metadata: { finalizers: finalizers.filter((one) => one !== this.#options.finalizer) } };
    };
    try {
      await orAbsentOrChanged(patchWithRetry<AgentManaged>(this.#client, this.#resource, now!, change, {}));
    } catch (error) {
      throw asUnavailable(`undoing ${this.#describe(name)}`, error);
    }
  }

  #describe(id: string): string {
    return `${this.#options.noun} ${id}`;
  }
}

/** Reports whether the agent has reconciled a generation of an object, by default the current one. */
export function isObserved({ metadata, status }: AgentManaged, generation = metadata.generation ?? 0): boolean {
  if (status?.state === undefined || status.state === "Pending") return false;
  return (status.observedGeneration ?? 0) >= generation;
}

/** Reports whether an object is being deleted. */
export function isDeleting({ metadata }: AgentManaged): boolean {
  return metadata.deletionTimestamp !== undefined;
}

/** Returns a failure of the API server as an error of kind `Unavailable`: the operation may have succeeded or not. */
export function asUnavailable(operation: string, cause: unknown): unknown {
  return cause instanceof StorageError ? cause : storageError("Unavailable", operation, cause);
}

/**
 * Returns a failure of a write as a storage error. What the API server refuses was certainly not done: by its schema
 * (`InvalidArgument`), by an admission policy, a quota or its roles (`FailedPrecondition`), or because the object does
 * not exist (`NotFound`). After any other failure it may have been done: `Unavailable`.
 */
export function asWriteError(operation: string, cause: unknown): unknown {
  if (isNotFound(cause)) return storageError("NotFound", operation, cause);
  const kind = cause instanceof ApiError ? REFUSED_KINDS[cause.status] : undefined;
  return kind === undefined ? asUnavailable(operation, cause) : storageError(kind, operation, cause);
}

/** The kinds of refusals by their HTTP statuses. */
const REFUSED_KINDS: Readonly<Record<number, ErrorKind>> = {
  400: "InvalidArgument",
  403: "FailedPrecondition",
  413: "InvalidArgument",
  422: "InvalidArgument",
};

function storageError(kind: ErrorKind, operation: string, cause: unknown): StorageError {
  return new StorageError(kind, `${operation}: ${cause instanceof Error ? cause.message : String(cause)}`, { cause });
}

/**
 * Reports whether the agent has reported why it cannot delete the object. Deletion increments the generation. Until the
 * cache shows the deletion, an error is an older one.
 */
function refusesDeletion({ metadata: { generation = 0, deletionTimestamp }, status }: AgentManaged): boolean {
  return deletionTimestamp !== undefined && status?.error !== undefined &&
    (status.observedGeneration ?? 0) >= generation;
}

function hasLv({ status }: AgentManaged): boolean {
  return status?.lvUUID !== undefined;
}

function isDeleted(now: AgentManaged | undefined, object: AgentManaged): boolean {
  return now?.metadata.uid !== object.metadata.uid;
}
