/**
 * Merge patches (RFC 7386), and changes that are right whatever else changes at the same time.
 *
 * @module
 */

import { type ApiClient, isConflict, type MergePatch, type PatchOptions } from "./client.ts";
import type { KubeObject, ObjectName, Resource } from "../api/objects.ts";

/** The maximum number of attempts of a patch that conflicts. */
const MAX_ATTEMPTS = 4;

/** Options of {@linkcode patchWithRetry}. */
export interface PatchWithRetryOptions<T> extends Pick<PatchOptions<T>, "subresource" | "signal"> {
  /** The maximum number of attempts; 4. */
  readonly maxAttempts?: number;
}

/**
 * Changes an object at the revision that the change was decided on. When somebody was faster, it is decided again, on the object
 * as it is then; an object of the same name that was made later is left alone.
 *
 * @param change what to change of the object as it is; `undefined` for nothing
 * @returns the object as it is then
 * @throws {ApiError} `NotFound`; `Conflict` when others are faster again and again, or it is another object
 */
export async function patchWithRetry<T extends KubeObject>(
  client: ApiClient,
  resource: Resource<T>,
  object: T,
  change: (now: T) => MergePatch<T> | undefined,
  { maxAttempts = MAX_ATTEMPTS, ...options }: PatchWithRetryOptions<T>,
): Promise<T> {
  const at: ObjectName = object.metadata;
  for (let current = object, attempt = 1;; attempt++) {
    const merge = change(current);
    if (merge === undefined) return current;
    const { resourceVersion } = current.metadata;
    try {
      return await client.patch(resource, at, { merge, resourceVersion, ...options });
    } catch (error) {
      if (!isConflict(error) || attempt === maxAttempts) throw error;
      current = await client.get(resource, at, { signal: options.signal });
      if (current.metadata.uid !== object.metadata.uid) throw error;
    }
  }
}

/**
 * Returns the merge patch that turns a value into another one. A field that only the first one has, at any depth, is
 * removed by it; a patch of the second value alone would keep such a field.
 */
export function mergePatchTo(before: unknown, after: unknown): unknown {
  if (!isObject(before) || !isObject(after)) return after;
  const removed = Object.keys(before).filter((key) => after[key] === undefined).map((key) => [key, null]);
  const set = Object.entries(after).filter(([, value]) => value !== undefined)
    .map(([key, value]) => [key, mergePatchTo(before[key], value)]);
  return Object.fromEntries([...removed, ...set]);
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
