/**
 * The seam to the API server: what loops may ask it, and how it fails.
 *
 * @module
 */

import type { Clock } from "../../base/clock.ts";
import type { KubeObject, ObjectMeta, ObjectName, Resource } from "../api/objects.ts";

/** Options of any request. */
export interface RequestOptions {
  /** Cancels the request. */
  signal?: AbortSignal | undefined;
  /** Milliseconds for each try of a request that is not a watch; those of the client, when absent. */
  timeoutMs?: number | undefined;
}

/** Options of {@linkcode ApiClient.get}. */
export interface GetOptions extends RequestOptions {
  /** Whether only the metadata of the object is wanted. */
  metadataOnly?: boolean | undefined;
}

/** A selection of the objects of a resource. */
export interface Selection {
  /** Only those of this namespace; of all, when absent. */
  namespace?: string | undefined;
  /** Only those with such labels. */
  labelSelector?: string | undefined;
  /** Only those with such fields. */
  fieldSelector?: string | undefined;
  /** Whether only the metadata of each object is wanted (Kubernetes, API concepts, PartialObjectMetadata). */
  metadataOnly?: boolean | undefined;
}

/** All objects of a selection, as they were at one revision. */
export interface ObjectList<T> {
  /** The objects. */
  items: T[];
  /** The revision, to watch from. */
  resourceVersion: string;
}

/** Something that happened to an object of a selection, or, as `BOOKMARK`, only a revision that was reached. */
export interface WatchEvent<T> {
  /** The kind of the event. */
  type: "ADDED" | "MODIFIED" | "DELETED" | "BOOKMARK";
  /** The object after it; of a `BOOKMARK`, only `metadata.resourceVersion` means anything. */
  object: T;
}

/** Part of an object: what is given replaces, `null` removes (RFC 7386). */
export type MergePatch<T> = T extends readonly unknown[] ? T
  : T extends object ? { [K in keyof T]?: MergePatch<T[K]> | null | undefined }
  : T;

/** Options of a patch. */
export interface PatchOptions<T> extends RequestOptions {
  /** The patch. */
  merge: MergePatch<T>;
  /** Only if the object is still at this revision. */
  resourceVersion?: string | undefined;
  /** Patch the status; everything else in the patch is then ignored. */
  subresource?: "status" | undefined;
  /** Whether the API server only checks the patch, and keeps nothing of it. */
  dryRun?: boolean | undefined;
}

/** Options of a replacement. */
export interface ReplaceOptions extends RequestOptions {
  /** Replace the status; everything else is then ignored. */
  subresource?: "status" | undefined;
}

/** Under which conditions an object is deleted. */
export interface DeleteOptions extends RequestOptions {
  /** Only if it has this uid. */
  uid?: string | undefined;
  /** Only if it is still at this revision. */
  resourceVersion?: string | undefined;
}

/** An object to be created: its name may be left to the server. */
export type NewObject<T extends KubeObject> = Omit<T, "metadata"> & {
  metadata: Omit<ObjectMeta, "name"> & { name?: string };
};

/** The API server. All calls fail with {@linkcode ApiError}, or with the reason of the signal that ended them. */
export interface ApiClient {
  /** Gets an object. @throws {ApiError} `NotFound` where it is not. */
  get<T extends KubeObject>(resource: Resource<T>, at: ObjectName, options?: GetOptions): Promise<T>;
  /** Lists all objects of a selection. Long lists are fetched in pages. @throws {ApiError} */
  list<T extends KubeObject>(resource: Resource<T>, options?: Selection & RequestOptions): Promise<ObjectList<T>>;
  /**
   * Lists all objects of a selection in pages. Together they are the objects as they were at one revision.
   *
   * @throws {ApiError} with {@linkcode isGone} when the revision became too old in between
   */
  listPages<T extends KubeObject>(
    resource: Resource<T>,
    options?: Selection & RequestOptions,
  ): AsyncIterable<ObjectList<T>>;
  /**
   * Watches the events after a revision. The API server ends a watch after some time: watch again from the last
   * revision.
   *
   * @throws {ApiError} with {@linkcode isGone} when the revision is too old: list again
   */
  watch<T extends KubeObject>(
    resource: Resource<T>,
    options: Selection & RequestOptions & { resourceVersion: string },
  ): AsyncIterable<WatchEvent<T>>;
  /** Creates an object in the namespace of its metadata. @throws {ApiError} `AlreadyExists` */
  create<T extends KubeObject>(resource: Resource<T>, object: NewObject<T>, options?: RequestOptions): Promise<T>;
  /** Replaces an object; with a revision in its metadata only that one. @throws {ApiError} `Conflict`, `NotFound` */
  replace<T extends KubeObject>(resource: Resource<T>, object: T, options?: ReplaceOptions): Promise<T>;
  /** Changes part of an object. @throws {ApiError} `Conflict`, `NotFound` */
  patch<T extends KubeObject>(resource: Resource<T>, at: ObjectName, options: PatchOptions<T>): Promise<T>;
  /** Deletes an object; finalizers may keep it. @throws {ApiError} `NotFound`, `Conflict` */
  delete(resource: Resource, at: ObjectName, options?: DeleteOptions): Promise<void>;
}

/** What reads and changes the objects of a driver. */
export interface DriverClient {
  /** The API server. */
  readonly client: ApiClient;
  /** The driver's name. */
  readonly driver: string;
}

/** What reads and changes the objects of a driver on one node. */
export interface NodeClient extends DriverClient {
  /** The node's name. */
  readonly nodeName: string;
  /** Time. */
  readonly clock?: Clock | undefined;
}

/** Details of an {@linkcode ApiError}. */
export interface ApiErrorOptions {
  /** The HTTP status; 0 when there was no answer. */
  status: number;
  /** The reason as the API names it, as in `AlreadyExists`. */
  reason: string;
  /** Milliseconds after which the server wants to be asked again. */
  retryAfter?: number | undefined;
  /** The error that led to this one. */
  cause?: unknown;
}

/** The API server refused, or did not answer. The message reads "verb resource name: reason". */
export class ApiError extends Error {
  /** The name of the error class, for code that cannot use `instanceof`. */
  override readonly name = "ApiError";
  /** The HTTP status; 0 when there was no answer. */
  readonly status: number;
  /** The reason as the API names it; `Unreachable` when there was no answer. */
  readonly reason: string;
  /** Milliseconds after which the server wants to be asked again. */
  readonly retryAfter?: number;

  /** Makes an error with a message for people. */
  constructor(message: string, { status, reason, retryAfter, cause }: ApiErrorOptions) {
    super(message, cause === undefined ? undefined : { cause });
    this.status = status;
    this.reason = reason;
    if (retryAfter !== undefined) this.retryAfter = retryAfter;
  }
}

/** Reports whether an object does not exist. */
export function isNotFound(error: unknown): boolean {
  return error instanceof ApiError && error.status === 404;
}

/** Reports whether an object changed since it was read, or is another one of the same name. */
export function isConflict(error: unknown): boolean {
  return error instanceof ApiError && error.status === 409 && error.reason !== "AlreadyExists";
}

/** Reports whether an object of that name exists already. */
export function isAlreadyExists(error: unknown): boolean {
  return error instanceof ApiError && error.status === 409 && error.reason === "AlreadyExists";
}

/** Reports whether a revision is too old to watch from or to continue a list from. */
export function isGone(error: unknown): boolean {
  return error instanceof ApiError && error.status === 410;
}

/**
 * Reports whether the same request may succeed later without anyone doing something: no answer, overload, a failing
 * server.
 */
export function isTransient(error: unknown): boolean {
  return error instanceof ApiError && (error.status === 0 || error.status === 429 || error.status >= 500);
}

/**
 * Waits for a request about an object that may be absent.
 *
 * @returns the answer, or `undefined` when there is no such object
 * @throws {ApiError} for any other failure
 */
export async function orAbsent<T>(request: Promise<T>): Promise<T | undefined> {
  return await unless(isNotFound, request);
}

/**
 * Waits for a request with a precondition, a uid or a revision, about an object that may be absent.
 *
 * @returns the answer, or `undefined` when there is no such object, or it changed, or it is another one of the name
 * @throws {ApiError} for any other failure
 */
export async function orAbsentOrChanged<T>(request: Promise<T>): Promise<T | undefined> {
  return await unless((error) => isNotFound(error) || isConflict(error), request);
}

async function unless<T>(isExpected: (error: unknown) => boolean, request: Promise<T>): Promise<T | undefined> {
  try {
    return await request;
  } catch (error) {
    if (isExpected(error)) return undefined;
    throw error;
  }
}
