/**
 * A client with someone in between, who may do something before and after each request.
 *
 * @module
 */

import type { ApiClient } from "../../k8s/client/client.ts";

/** Called before and after each request that is no list and no watch, with its number; the request waits for it. */
export type RequestInterceptor = (request: string, when: "before" | "after", number: number) => Promise<void>;

/** Wraps a client so that the interrupt is called around requests. */
export function interceptClient(client: ApiClient, intercept: RequestInterceptor): ApiClient {
  let count = 0;
  const intercepted = async <T>(request: string, call: () => Promise<T>): Promise<T> => {
    const number = count++;
    await intercept(request, "before", number);
    const answer = await call();
    await intercept(request, "after", number);
    return answer;
  };
  return {
    list: (resource, options) => client.list(resource, options),
    watch: (resource, options) => client.watch(resource, options),
    get: (resource, at, options) => intercepted(`get ${resource.plural}`, () => client.get(resource, at, options)),
    create: (resource, object, options) =>
      intercepted(`create ${resource.plural}`, () => client.create(resource, object, options)),
    replace: (resource, object, options) =>
      intercepted(`replace ${resource.plural}`, () => client.replace(resource, object, options)),
    patch: (resource, at, options) =>
      intercepted(`patch ${resource.plural}`, () => client.patch(resource, at, options)),
    delete: (resource, at, options) =>
      intercepted(`delete ${resource.plural}`, () => client.delete(resource, at, options)),
  };
}
