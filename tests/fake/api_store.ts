/**
 * What a fake API server keeps: objects, their history, and the rules of its writes, as those of kube-apiserver.
 *
 * @module
 */

import { keyFor, type KubeObject, type Resource } from "../../k8s/api/objects.ts";

/** A kind that the server has, and how it treats its objects. */
export interface Kind {
  /** The kind. */
  readonly resource: Resource;
  /** Whether the status has an endpoint of its own, which alone changes it. */
  readonly status: boolean;
  /** Whether changes of what is wanted are counted in `metadata.generation`. */
  readonly generation: boolean;
  /** Whether an object can be replaced without saying which revision. */
  readonly unconditional: boolean;
  /** Whether replacing what is not there creates it. */
  readonly upsert?: boolean;
}

/** A refusal, as the server words it. */
export class Refusal extends Error {
  /** Makes one. */
  constructor(readonly code: number, readonly reason: string, message: string) {
    super(message);
  }
}

/** The Status that tells of a refusal. */
export function statusOf({ code, reason, message }: Refusal): Record<string, unknown> {
  return { kind: "Status", apiVersion: "v1", metadata: {}, status: "Failure", message, reason, code };
}

/** An object, with all that it may have. */
export type Stored = KubeObject & { [field: string]: unknown };

/** A change of an object. */
export interface Change {
  /** The revision that it made. */
  readonly revision: number;
  /** The object before; undefined when it was created. */
  readonly before: Stored | undefined;
  /** The object after; when it was deleted, as it was last, at the revision of its deletion. */
  readonly after: Stored;
  /** Whether it is gone. */
  readonly deleted: boolean;
}

/** Where the server's revisions begin. */
export const FIRST_REVISION = 100;

/** The objects of one kind. */
export class Collection {
  readonly objects: Map<string, Stored> = new Map();
  readonly history: Change[] = [];
  readonly listeners: Set<(change: Change) => void> = new Set();
  /** The oldest revision that a watch may begin at. */
  oldest = FIRST_REVISION;

  constructor(readonly kind: Kind, readonly nextRevision: () => number) {}

  /** See POST. */
  create(sent: Stored, namespace: string | undefined): Stored {
    const meta: Stored["metadata"] = { ...sent.metadata };
    if (!meta.name && meta.generateName) meta.name = meta.generateName + crypto.randomUUID().slice(0, 5);
    const { resource, generation, status } = this.kind;
    if (!meta.name) throw new Refusal(422, "Invalid", `${resource.kind} "" is invalid: metadata.name: Required value`);
    if (resource.namespaced && namespace === undefined) throw notFound(resource, meta.name);
    if (namespace !== undefined) meta.namespace = namespace;
    const key = keyFor(meta);
    if (this.objects.has(key)) {
      throw new Refusal(409, "AlreadyExists", `${named(resource, meta.name)} already exists`);
    }
    if (meta.resourceVersion) {
      throw new Refusal(400, "BadRequest", "resourceVersion should not be set on objects to be created");
    }
    delete meta.deletionTimestamp;
    meta.uid = crypto.randomUUID();
    meta.creationTimestamp = new Date().toISOString().replace(/\.\d+/, "");
    if (generation) meta.generation = 1;
    const object: Stored = { ...sent, metadata: meta };
    if (status) delete object["status"];
    return this.#save(undefined, object);
  }

  /** The object of that name. */
  get(name: string, namespace: string | undefined): Stored {
    const object = this.objects.get(keyFor({ name, namespace }));
    if (object === undefined) throw notFound(this.kind.resource, name);
    return object;
  }

  /** See PUT. */
  replace(sent: Stored, namespace: string | undefined, subresource?: string): Stored {
    const { resource, unconditional, upsert } = this.kind;
    const { resourceVersion: _, uid, ...meta } = sent.metadata;
    if (upsert && !this.objects.has(keyFor({ name: meta.name, namespace }))) {
      const why = `Precondition failed: UID in precondition: ${uid}, UID in object meta: `;
      if (uid) throw conflict(resource, meta.name, why);
      return this.create({ ...sent, metadata: meta }, namespace);
    }
    const old = this.get(sent.metadata.name, namespace);
    if (!sent.metadata.resourceVersion && !unconditional) {
      const why = "metadata.resourceVersion: Invalid value: 0: must be specified for an update";
      throw new Refusal(422, "Invalid", `${named(resource, sent.metadata.name)} is invalid: ${why}`);
    }
    return this.#update(old, sent, subresource);
  }

  /** See PATCH with `application/merge-patch+json`. */
  patch(patch: unknown, at: { name: string; namespace: string | undefined }, subresource?: string): Stored {
    const old = this.get(at.name, at.namespace);
    const merged = mergePatch(old, patch) as Stored;
    return this.#update(old, merged, subresource);
  }

  /** See DELETE. */
  delete(at: { name: string; namespace: string | undefined }, conditions: Record<string, unknown> = {}): Stored {
    const old = this.get(at.name, at.namespace);
    const { uid, resourceVersion, generation } = old.metadata;
    for (const [field, is] of Object.entries({ uid, resourceVersion })) {
      const wanted = conditions[field];
      if (wanted !== undefined && wanted !== is) {
        const label = field === "uid" ? "UID" : "ResourceVersion";
        const why = `Precondition failed: ${label} in precondition: ${wanted}, ${label} in object meta: ${is}`;
        throw conflict(this.kind.resource, at.name, why);
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

  #update(old: Stored, sent: Stored, subresource: string | undefined): Stored {
    const { resource, status, generation } = this.kind;
    const { name } = old.metadata;
    const { resourceVersion, uid } = sent.metadata;
    if (resourceVersion && resourceVersion !== old.metadata.resourceVersion) {
      const why = "the object has been modified; please apply your changes to the latest version and try again";
      throw conflict(resource, name, why);
    }
    if (uid && uid !== old.metadata.uid) {
      const why = `Precondition failed: UID in precondition: ${uid}, UID in object meta: ${old.metadata.uid}`;
      throw conflict(resource, name, why);
    }
    const { metadata, status: newStatus, ...rest } = sent;
    const { metadata: _, status: oldStatus, ...oldRest } = old;
    const wanted = subresource === "status" ? oldRest : rest;
    const seen = subresource === "status" || !status ? newStatus : oldStatus;
    const keep = keptMeta(old.metadata);
    // A status write may change metadata as well, but not what holds an object.
    const object: Stored = {
      ...wanted,
      metadata: { ...metadata, ...keep },
      ...(seen === undefined ? {} : { status: seen }),
    };
    if (subresource === "status") restoreMeta(object.metadata, old.metadata);
    if (object.metadata.deletionTimestamp !== undefined) refuseNewFinalizers(resource, old, object);
    if (generation && JSON.stringify(wanted) !== JSON.stringify(oldRest)) {
      object.metadata.generation = (old.metadata.generation ?? 0) + 1;
    }
    if (same(old, object)) return old;
    if (object.metadata.deletionTimestamp !== undefined && !object.metadata.finalizers?.length) {
      return this.#remove(object);
    }
    return this.#save(old, object);
  }

  #save(before: Stored | undefined, object: Stored): Stored {
    const revision = this.nextRevision();
    const after = structuredClone({ ...object, metadata: { ...object.metadata, resourceVersion: `${revision}` } });
    this.objects.set(keyFor(after.metadata), after);
    this.#tell({ revision, before, after, deleted: false });
    return after;
  }

  #remove(object: Stored): Stored {
    const revision = this.nextRevision();
    const key = keyFor(object.metadata);
    const before = this.objects.get(key);
    const after = { ...object, metadata: { ...object.metadata, resourceVersion: `${revision}` } };
    this.objects.delete(key);
    this.#tell({ revision, before, after, deleted: true });
    return after;
  }

  #tell(change: Change): void {
    this.history.push(change);
    for (const listener of [...this.listeners]) listener(change);
  }
}

/** What no write changes. */
function keptMeta(meta: Stored["metadata"]): Partial<Stored["metadata"]> {
  const { name, namespace, uid, creationTimestamp, deletionTimestamp, generation, resourceVersion } = meta;
  const kept = { name, namespace, uid, creationTimestamp, deletionTimestamp, generation, resourceVersion };
  return Object.fromEntries(Object.entries(kept).filter(([, value]) => value !== undefined));
}

/** What a write of the status leaves alone. */
function restoreMeta(meta: Stored["metadata"], old: Stored["metadata"]): void {
  for (const field of ["finalizers", "ownerReferences"] as const) {
    delete meta[field];
    if (old[field] !== undefined) Object.assign(meta, { [field]: old[field] });
  }
}

function refuseNewFinalizers(resource: Resource, old: Stored, object: Stored): void {
  const added = object.metadata.finalizers?.filter((one) => !old.metadata.finalizers?.includes(one)) ?? [];
  if (added.length === 0) return;
  const why = "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted";
  throw new Refusal(422, "Invalid", `${named(resource, object.metadata.name)} is invalid: ${why}`);
}

/** RFC 7386. */
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

/** Whether two values are the same, whatever the order of their fields; empty lists and maps count as absent. */
function same(one: unknown, other: unknown): boolean {
  return JSON.stringify(sorted(one)) === JSON.stringify(sorted(other));
}

function sorted(value: unknown): unknown {
  if (Array.isArray(value)) return value.length === 0 ? undefined : value.map(sorted);
  if (typeof value !== "object" || value === null) return value;
  const entries = Object.entries(value).map(([key, part]) => [key, sorted(part)] as const);
  const full = entries.filter(([, part]) => part !== undefined).sort(([a], [b]) => a < b ? -1 : 1);
  return full.length === 0 ? undefined : Object.fromEntries(full);
}

function named({ plural, group }: Resource, name: string): string {
  return `${plural}${group === "" ? "" : `.${group}`} "${name}"`;
}

function notFound(resource: Resource, name: string): Refusal {
  return new Refusal(404, "NotFound", `${named(resource, name)} not found`);
}

function conflict(resource: Resource, name: string, why: string): Refusal {
  return new Refusal(409, "Conflict", `Operation cannot be fulfilled on ${named(resource, name)}: ${why}`);
}
