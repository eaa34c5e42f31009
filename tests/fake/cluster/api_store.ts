/**
 * The storage of a fake API server: objects, their history, and the rules for writes, as kube-apiserver has them.
 *
 * @module
 */

import { isSameContent, sortKeys } from "../../../k8s/api/object_status.ts";
import { keyOfName, type KubeObject, type Resource } from "../../../k8s/api/objects.ts";

/** A kind that the server has, and how it treats its objects. */
export interface ResourceKind {
  /** The kind. */
  readonly resource: Resource;
  /** True if the status is a subresource, and is changed only by it. */
  readonly hasStatusSubresource: boolean;
  /** True if `metadata.generation` counts the changes of the spec. */
  readonly countsGenerations: boolean;
  /** True if an object can be replaced without its resourceVersion. */
  readonly allowsUnconditionalUpdate: boolean;
  /** True if replacing an absent object creates it. */
  readonly allowsCreateOnUpdate?: boolean;
  /** True for a custom resource: a write of its status changes nothing else. */
  readonly isCustom?: boolean;
  /** The fields of the spec that cannot be changed once they are set; none by default. */
  readonly immutable?: readonly string[];
}

/** A refusal, as the server words it. */
export class StatusError extends Error {
  /** Makes one. */
  constructor(readonly code: number, readonly reason: string, message: string) {
    super(message);
  }
}

/** Returns the Status object of a refusal. */
export function statusObject({ code, reason, message }: StatusError): Record<string, unknown> {
  return { kind: "Status", apiVersion: "v1", metadata: {}, status: "Failure", message, reason, code };
}

/** An object, with all that it may have. */
export type StoredObject = KubeObject & { [field: string]: unknown };

/** A change of an object. */
export interface Change {
  /** The revision after the change. */
  readonly revision: number;
  /** The object before; undefined when it was created. */
  readonly before: StoredObject | undefined;
  /** The object after; when it was deleted, its last state with the revision of the deletion. */
  readonly after: StoredObject;
  /** True if the object was deleted. */
  readonly deleted: boolean;
}

/** Where an object is. */
interface ObjectAt {
  readonly name: string;
  readonly namespace: string | undefined;
}

/** The first revision of the server. */
export const FIRST_REVISION = 100;

/** The objects of one kind. */
export class Collection {
  readonly objects: Map<string, StoredObject> = new Map();
  readonly history: Change[] = [];
  readonly listeners: Set<(change: Change) => void> = new Set();
  /** The oldest revision that a watch may start at. */
  oldest = FIRST_REVISION;
  /** The objects in the order of their keys, until one changes. */
  #sorted: StoredObject[] | undefined;

  #immutable: readonly string[];

  constructor(readonly kind: ResourceKind, readonly nextRevision: () => number) {
    this.#immutable = kind.immutable ?? [];
  }

  /** Lets all fields of the spec be changed, as by a feature gate, or no longer. */
  makeMutable(isMutable = true): void {
    this.#immutable = isMutable ? [] : this.kind.immutable ?? [];
  }

  /** Returns all objects in the order of their keys. */
  sorted(): readonly StoredObject[] {
    return this.#sorted ??= [...this.objects].sort(([a], [b]) => a < b ? -1 : 1).map(([, object]) => object);
  }

  /** Creates an object, as POST does, or with its status at once, as no client can. */
  create(sent: StoredObject, namespace: string | undefined, { withStatus = false } = {}): StoredObject {
    const meta: StoredObject["metadata"] = { ...sent.metadata };
    if (!meta.name && meta.generateName) meta.name = meta.generateName + crypto.randomUUID().slice(0, 5);
    const { resource, countsGenerations, hasStatusSubresource } = this.kind;
    if (!meta.name) {
      throw new StatusError(422, "Invalid", `${resource.kind} "" is invalid: metadata.name: Required value`);
    }
    if (resource.namespaced && namespace === undefined) throw notFoundError(resource, meta.name);
    if (namespace !== undefined) meta.namespace = namespace;
    const key = keyOfName(meta);
    if (this.objects.has(key)) {
      throw new StatusError(409, "AlreadyExists", `${qualifiedName(resource, meta.name)} already exists`);
    }
    if (meta.resourceVersion) {
      throw new StatusError(400, "BadRequest", "resourceVersion should not be set on objects to be created");
    }
    delete meta.deletionTimestamp;
    meta.uid = crypto.randomUUID();
    meta.creationTimestamp = new Date().toISOString().replace(/\.\d+/, "");
    if (countsGenerations) meta.generation = 1;
    const object: StoredObject = { ...sent, metadata: meta };
    if (hasStatusSubresource && !withStatus) delete object["status"];
    return this.#save(undefined, object);
  }

  /** Keeps an object with its UID, its times and its status. */
  restore(object: StoredObject): void {
    this.#save(undefined, object);
  }

  /** Returns the object with this name. @throws {StatusError} NotFound when there is none */
  get(name: string, namespace: string | undefined): StoredObject {
    const object = this.objects.get(keyOfName({ name, namespace }));
    if (object === undefined) throw notFoundError(this.kind.resource, name);
    return object;
  }

  /** Replaces an object, as PUT does. */
  replace(sent: StoredObject, namespace: string | undefined, subresource?: string): StoredObject {
    const { resource, allowsUnconditionalUpdate, allowsCreateOnUpdate } = this.kind;
    const { resourceVersion: _, uid, ...meta } = sent.metadata;
    if (allowsCreateOnUpdate && !this.objects.has(keyOfName({ name: meta.name, namespace }))) {
      const why = `Precondition failed: UID in precondition: ${uid}, UID in object meta: `;
      if (uid) throw conflictError(resource, meta.name, why);
      return this.create({ ...sent, metadata: meta }, namespace);
    }
    const old = this.get(sent.metadata.name, namespace);
    if (!sent.metadata.resourceVersion && !allowsUnconditionalUpdate) {
      const why = "metadata.resourceVersion: Invalid value: 0: must be specified for an update";
      throw new StatusError(422, "Invalid", `${qualifiedName(resource, sent.metadata.name)} is invalid: ${why}`);
    }
    if (uid && uid !== old.metadata.uid) {
      const why = `Precondition failed: UID in precondition: ${uid}, UID in object meta: ${old.metadata.uid}`;
      throw conflictError(resource, meta.name, why);
    }
    return this.#update(old, sent, subresource);
  }

  /** Patches an object, as PATCH with `application/merge-patch+json` does. */
  patch(patch: unknown, at: ObjectAt, subresource?: string, dryRun = false): StoredObject {
    const old = this.get(at.name, at.namespace);
    if (dryRun) {
      const trial = new Collection({ ...this.kind, immutable: this.#immutable }, () => 0);
      trial.objects.set(keyOfName(old.metadata), old);
      return trial.patch(patch, at, subresource);
    }
    const merged = mergePatch(old, patch) as StoredObject;
    return this.#update(old, merged, subresource);
  }

  /** Deletes an object, as DELETE does. */
  delete(at: { name: string; namespace: string | undefined }, conditions: Record<string, unknown> = {}): StoredObject {
    const old = this.get(at.name, at.namespace);
    const { uid, resourceVersion, generation } = old.metadata;
    for (const [field, current] of Object.entries({ uid, resourceVersion })) {
      const nextContent = conditions[field];
      if (nextContent !== undefined && nextContent !== current) {
        const label = field === "uid" ? "UID" : "ResourceVersion";
        const why =
          `Precondition failed: ${label} in precondition: ${nextContent}, ${label} in object meta: ${current}`;
        throw conflictError(this.kind.resource, at.name, why);
      }
    }
    if (!old.metadata.finalizers?.length) return this.#remove(old);
    if (old.metadata.deletionTimestamp !== undefined) return old;
    const metadata = { ...old.metadata, deletionTimestamp: new Date().toISOString().replace(/\.\d+/, "") };
    Object.assign(metadata, { deletionGracePeriodSeconds: 0 });
    if (generation !== undefined) metadata.generation = generation + 1;
    return this.#save(old, { ...old, metadata });
  }

  /** Forgets what happened so far: older watches are refused. */
  compact(revision: number): void {
    this.oldest = revision;
    this.history.length = 0;
  }

  #update(old: StoredObject, sent: StoredObject, subresource: string | undefined): StoredObject {
    const { resource, hasStatusSubresource, countsGenerations, isCustom } = this.kind;
    const { name } = old.metadata;
    const { resourceVersion, uid } = sent.metadata;
    const writesStatusAlone = subresource === "status" && isCustom;
    if (resourceVersion && resourceVersion !== old.metadata.resourceVersion) {
      const why = "the object has been modified; please apply your changes to the latest version and try again";
      throw conflictError(resource, name, why);
    }
    if (uid && uid !== old.metadata.uid && !writesStatusAlone) {
      const why = `metadata.uid: Invalid value: "${uid}": field is immutable`;
      throw new StatusError(422, "Invalid", `${qualifiedName(resource, name)} is invalid: ${why}`);
    }
    const { metadata, status: newStatus, ...rest } = sent;
    const { metadata: _, status: oldStatus, ...oldRest } = old;
    const nextContent = subresource === "status" ? oldRest : rest;
    const nextStatus = subresource === "status" || !hasStatusSubresource ? newStatus : oldStatus;
    const systemFields = systemMetadata(old.metadata);
    // A write of a built-in status may change metadata as well, but not what holds an object.
    const object: StoredObject = {
      ...nextContent,
      metadata: { ...(writesStatusAlone ? old.metadata : metadata), ...systemFields },
      ...(nextStatus === undefined ? {} : { status: nextStatus }),
    };
    this.#requireImmutable(old, object);
    if (subresource === "status") restoreProtectedMetadata(object.metadata, old.metadata);
    if (object.metadata.deletionTimestamp !== undefined) rejectNewFinalizers(resource, old, object);
    if (countsGenerations && !isSameContent(nextContent, oldRest)) {
      object.metadata.generation = (old.metadata.generation ?? 0) + 1;
    }
    if (isEqual(old, object)) return old;
    if (object.metadata.deletionTimestamp !== undefined && !object.metadata.finalizers?.length) {
      return this.#remove(object);
    }
    return this.#save(old, object);
  }

  #requireImmutable(old: StoredObject, sent: StoredObject): void {
    const { resource } = this.kind;
    const specs = [old, sent].map(({ spec }) => spec as Record<string, unknown> | undefined);
    const field = this.#immutable.find((name) =>
      specs[0]?.[name] !== undefined && !isEqual(specs[0]?.[name], specs[1]?.[name])
    );
    if (field === undefined) return;
    const value = JSON.stringify(specs[1]?.[field]);
    const why = `${field}: Invalid value: ${value}: field is immutable, except for updating from beta label to GA`;
    throw new StatusError(422, "Invalid", `${qualifiedName(resource, old.metadata.name)} is invalid: ${why}`);
  }

  #save(before: StoredObject | undefined, object: StoredObject): StoredObject {
    const revision = this.nextRevision();
    const saved = { ...object, metadata: { ...object.metadata, resourceVersion: `${revision}` } };
    // a custom object has its fields in the order of their names, whatever the order in which they were written
    const after = structuredClone(this.kind.isCustom ? sortKeys(saved) as StoredObject : saved);
    this.objects.set(keyOfName(after.metadata), after);
    this.#notify({ revision, before, after, deleted: false });
    return after;
  }

  #remove(object: StoredObject): StoredObject {
    const revision = this.nextRevision();
    const key = keyOfName(object.metadata);
    const before = this.objects.get(key);
    const after = { ...object, metadata: { ...object.metadata, resourceVersion: `${revision}` } };
    this.objects.delete(key);
    this.#notify({ revision, before, after, deleted: true });
    return after;
  }

  #notify(change: Change): void {
    this.#sorted = undefined;
    this.history.push(change);
    for (const listener of [...this.listeners]) listener(change);
  }
}

/** Returns the metadata that no write changes. */
function systemMetadata(meta: StoredObject["metadata"]): Partial<StoredObject["metadata"]> {
  const { name, namespace, uid, creationTimestamp, deletionTimestamp, generation, resourceVersion } = meta;
  const kept = { name, namespace, uid, creationTimestamp, deletionTimestamp, generation, resourceVersion };
  return Object.fromEntries(Object.entries(kept).filter(([, value]) => value !== undefined));
}

/** Restores the metadata that a write of the status does not change. */
function restoreProtectedMetadata(meta: StoredObject["metadata"], old: StoredObject["metadata"]): void {
  for (const field of ["finalizers", "ownerReferences"] as const) {
    delete meta[field];
    if (old[field] !== undefined) Object.assign(meta, { [field]: old[field] });
  }
}

function rejectNewFinalizers(resource: Resource, old: StoredObject, object: StoredObject): void {
  const added = object.metadata.finalizers?.filter((one) => !old.metadata.finalizers?.includes(one)) ?? [];
  if (added.length === 0) return;
  const why = "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted";
  throw new StatusError(422, "Invalid", `${qualifiedName(resource, object.metadata.name)} is invalid: ${why}`);
}

/** Applies a JSON merge patch (RFC 7386). */
export function mergePatch(target: unknown, patch: unknown): unknown {
  if (typeof patch !== "object" || patch === null || Array.isArray(patch)) return patch;
  const isObject = typeof target === "object" && target !== null && !Array.isArray(target);
  const merged: Record<string, unknown> = isObject ? { ...target } : {};
  for (const [key, value] of Object.entries(patch)) {
    if (value === null) delete merged[key];
    else merged[key] = mergePatch(merged[key], value);
  }
  return merged;
}

/** Reports whether two values are the same, in any order of their fields. Empty lists and maps count as absent. */
function isEqual(one: unknown, other: unknown): boolean {
  return JSON.stringify(canonical(one)) === JSON.stringify(canonical(other));
}

function canonical(value: unknown): unknown {
  if (Array.isArray(value)) return value.length === 0 ? undefined : value.map(canonical);
  if (typeof value !== "object" || value === null) return value;
  const entries = Object.entries(value).map(([key, part]) => [key, canonical(part)] as const);
  const full = entries.filter(([, part]) => part !== undefined).sort(([a], [b]) => a < b ? -1 : 1);
  return full.length === 0 ? undefined : Object.fromEntries(full);
}

function qualifiedName({ plural, group }: Resource, name: string): string {
  return `${plural}${group === "" ? "" : `.${group}`} "${name}"`;
}

function notFoundError(resource: Resource, name: string): StatusError {
  return new StatusError(404, "NotFound", `${qualifiedName(resource, name)} not found`);
}

function conflictError(resource: Resource, name: string, why: string): StatusError {
  return new StatusError(409, "Conflict", `Operation cannot be fulfilled on ${qualifiedName(resource, name)}: ${why}`);
}
