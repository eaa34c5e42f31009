/**
 * A watch of the fake API server.
 *
 * @module
 */

import { apiVersionOf } from "../../../k8s/api/objects.ts";
import type { SelectorPredicate } from "./api_selectors.ts";
import { type Change, type Collection, StatusError, statusObject, type StoredObject } from "./api_store.ts";

/** Returns the metadata of an object, as a server sends it alone. */
export function partialMetadata({ metadata }: Pick<StoredObject, "metadata">) {
  return { kind: "PartialObjectMetadata", apiVersion: "meta.k8s.io/v1", metadata };
}

/** Options of a {@linkcode Watch}. */
interface WatchOptions {
  /** Whether only the metadata of objects is sent. */
  readonly metadataOnly: boolean;
  /** Called with the number of bytes of each message. */
  readonly onSent: (bytes: number) => void;
  /** Called when it ends. */
  readonly onEnd: () => void;
}

/** One open watch. */
export class Watch {
  /** The response body. */
  readonly body: ReadableStream<Uint8Array>;
  /** The collection that is watched. */
  readonly collection: Collection;
  readonly #matches: SelectorPredicate;
  readonly #options: WatchOptions;
  readonly #onChange = (change: Change) => this.#sendChange(change);
  /** The revision that the client has: what is not newer is not sent (kube-apiserver, cache_watcher.go, `process`). */
  #from = 0;
  #controller!: ReadableStreamDefaultController<Uint8Array>;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #ended = false;

  /** Says nothing before it begins. */
  constructor(collection: Collection, matches: SelectorPredicate, options: WatchOptions) {
    [this.collection, this.#matches, this.#options] = [collection, matches, options];
    this.body = new ReadableStream<Uint8Array>({
      start: (controller) => void (this.#controller = controller),
      cancel: () => this.#stop(),
    });
  }

  /** Tells what happened since a revision, and what happens from now on; from 0, first all that is there. */
  start(from: number): void {
    const { objects, history, oldest, listeners } = this.collection;
    this.#from = from;
    if (from !== 0 && from < oldest) {
      const expired = new StatusError(410, "Expired", `too old resource version: ${from} (${oldest})`);
      this.#send("ERROR", statusObject(expired));
      return this.end();
    }
    if (from === 0) { for (const object of objects.values()) if (this.#matches(object)) this.#send("ADDED", object); }
    else for (const change of history) this.#sendChange(change);
    listeners.add(this.#onChange);
  }

  /** Says that a revision was reached. */
  bookmark(revision: number): void {
    const { kind } = this.collection;
    if (revision <= this.#from) return;
    const metadata = { resourceVersion: `${revision}`, creationTimestamp: null };
    this.#send("BOOKMARK", { kind: kind.resource.kind, apiVersion: apiVersionOf(kind.resource), metadata });
  }

  /** Ends it after some milliseconds. */
  endAfter(ms: number): void {
    if (!this.#ended) this.#timer = setTimeout(() => this.end(), ms);
  }

  /** Ends it as a broken connection does. */
  abort(reason: unknown): void {
    if (this.#ended) return;
    this.#stop();
    this.#controller.error(reason);
  }

  /** Ends it. */
  end(): void {
    if (this.#ended) return;
    this.#stop();
    this.#controller.close();
  }

  /**
   * Sends a change to a watch. An object that enters the selection is sent as added, and one that leaves it as deleted.
   */
  #sendChange({ before, after, deleted, revision }: Change): void {
    if (revision <= this.#from) return;
    const wasSelected = before !== undefined && this.#matches(before);
    const isSelected = !deleted && this.#matches(after);
    if (isSelected) this.#send(wasSelected ? "MODIFIED" : "ADDED", after);
    else if (wasSelected) {
      this.#send("DELETED", { ...before, metadata: { ...before!.metadata, resourceVersion: `${revision}` } });
    }
  }

  #send(type: string, object: unknown): void {
    if (this.#ended) return;
    const isPartial = this.#options.metadataOnly && type !== "ERROR";
    const sent = isPartial ? partialMetadata(object as StoredObject) : object;
    const line = new TextEncoder().encode(JSON.stringify({ type, object: sent }) + "\n");
    this.#options.onSent(line.length);
    this.#controller.enqueue(line);
  }

  #stop(): void {
    this.#ended = true;
    clearTimeout(this.#timer);
    this.collection.listeners.delete(this.#onChange);
    this.#options.onEnd();
  }
}
