/**
 * A client with someone in between, who may do something before and after each request.
 *
 * @module
 */

import type { ApiClient } from "../../k8s/client/client.ts";

/** Told before and after each request that is no list and no watch, with its number; the request waits for it. */
export type Interrupt = (request: string, when: "before" | "after", number: number) => Promise<void>;

/** The client with the interrupt in between. */
export function interrupted(client: ApiClient, interrupt: Interrupt): ApiClient {
  let count = 0;
  const around = async <T>(request: string, call: () => Promise<T>): Promise<T> => {
    const number = count++;
    await interrupt(request, "before", number);
    const answer = await call();
    await interrupt(request, "after", number);
    return answer;
  };
  return {
    list: (resource, options) => client.list(resource, options),
    watch: (resource, options) => client.watch(resource, options),
    get: (resource, at, options) => around(`get ${resource.plural}`, () => client.get(resource, at, options)),
    create: (resource, object, options) =>
      around(`create ${resource.plural}`, () => client.create(resource, object, options)),
    replace: (resource, object, options) =>
      around(`replace ${resource.plural}`, () => client.replace(resource, object, options)),
    patch: (resource, at, options) => around(`patch ${resource.plural}`, () => client.patch(resource, at, options)),
    delete: (resource, at, options) => around(`delete ${resource.plural}`, () => client.delete(resource, at, options)),
  };
}
