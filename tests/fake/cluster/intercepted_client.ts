/**
 * A client with someone in between, who may do something before and after each request.
 *
 * @module
 */

import type { ApiClient } from "../../../k8s/client/client.ts";

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
    listPages: (resource, options) => client.listPages(resource, options),
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

/** Called before and after each request that is no list and no watch, and each call of a driver; it may wait, or fail. */
export type OnStep = (step: string) => Promise<void>;

/** Returns the calls of a driver with the names; `onStep` is called around each. */
export function interceptCalls<T, K extends keyof T & string>(
  driver: T,
  names: readonly K[],
  onStep: OnStep,
): Pick<T, K> {
  const intercepted = names.map((name) => {
    const body = driver[name] as (...args: unknown[]) => Promise<unknown>;
    const call = async (...args: unknown[]) => {
      await onStep(`before ${name}`);
      const answer = await body.apply(driver, args);
      await onStep(`after ${name}`);
      return answer;
    };
    return [name, call];
  });
  return Object.fromEntries(intercepted);
}

/** Calls something once, at a step such as "before second patch volumesnapshotcontents". */
export function atStep(at: string, call: () => Promise<void>): { onStep: OnStep; reached: Promise<void> } {
  const counts = new Map<string, number>();
  const reached = Promise.withResolvers<void>();
  const onStep = async (step: string) => {
    const count = (counts.get(step) ?? 0) + 1;
    counts.set(step, count);
    const ordinal = ["", "", "second ", "third "][count] ?? `${count}th `;
    if (step.replace(" ", ` ${ordinal}`) !== at) return;
    await call();
    reached.resolve();
  };
  return { onStep, reached: reached.promise };
}

/**
 * Wraps a client so that a kind of request, such as `patch persistentvolumes`, hangs until its signal is aborted.
 *
 * @returns the client; `asked`, which resolves when there is such a request; and `ended`, which resolves when it is
 * aborted, or at once when it cannot be
 */
export function hangingClient(client: ApiClient, request: string) {
  const [asked, ended] = [Promise.withResolvers<void>(), Promise.withResolvers<"aborted" | "without a signal">()];
  const hanging = new Proxy(client, {
    get: (target, verb) => (...args: Parameters<ApiClient["get"]>) => {
      const [resource] = args;
      if (`${String(verb)} ${resource.plural}` !== request) return Reflect.get(target, verb).apply(target, args);
      const { signal } = (args.at(-1) ?? {}) as { signal?: AbortSignal };
      asked.resolve();
      if (signal === undefined) ended.resolve("without a signal");
      return new Promise((_, reject) =>
        signal?.addEventListener("abort", () => {
          ended.resolve("aborted");
          reject(signal.reason);
        })
      );
    },
  });
  return { client: hanging, asked: asked.promise, ended: ended.promise };
}
