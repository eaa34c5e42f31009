/**
 * The id of the request that the running code works for. It connects the log lines of an operation: those of the call,
 * of the agent that carries it out, and of the commands that this runs.
 *
 * @module
 */

import { AsyncLocalStorage } from "node:async_hooks";

const storage = new AsyncLocalStorage<string | undefined>();

/** Returns an id that no other request has, in any process. */
export function newRequestId(): string {
  return crypto.randomUUID().slice(0, 8);
}

/** Returns the id of the request that the running code works for; `undefined` when it works for none. */
export function currentRequestId(): string | undefined {
  return storage.getStore();
}

/** Runs a function for a request, with everything that it awaits. @param id `undefined` to leave the id as it is */
export function withRequestId<T>(id: string | undefined, body: () => T): T {
  return id === undefined ? body() : storage.run(id, body);
}

/** Runs a function for several requests at once: the id is theirs, joined by commas. @param ids `undefined` for work without */
export function withRequestIds<T>(ids: readonly (string | undefined)[], body: () => T): T {
  const known = [...new Set(ids)].filter((id) => id !== undefined).join(",");
  return storage.run(known === "" ? undefined : known, body);
}

/** Runs a function that works for no request, whatever request caused it. */
export function withoutRequestId<T>(body: () => T): T {
  return storage.run(undefined, body);
}
