/**
 * Time that waits for answers.
 *
 * @module
 */

import type { ApiClient } from "../../../k8s/client/client.ts";
import { type FakeClock, flushPromises } from "../clock.ts";

/**
 * Wraps a client so that it knows whether a request is in progress: time on a {@linkcode FakeClock} can wait for
 * responses.
 */
export function trackedClient(
  client: ApiClient,
): { client: ApiClient; advance: (clock: FakeClock, ms: number) => Promise<void> } {
  const inFlight = new Set<Promise<unknown>>();
  const proxy = new Proxy(client, {
    get: (target, verb) => (...args: unknown[]) => {
      const answer = Reflect.get(target, verb).apply(target, args);
      if (!(answer instanceof Promise)) return answer;
      const settled = answer.then(() => {}, () => {}).then(() => void inFlight.delete(settled));
      inFlight.add(settled);
      return answer;
    },
  });
  const waitUntilIdle = async () => {
    await flushPromises();
    while (inFlight.size > 0) {
      await Promise.all(inFlight);
      await flushPromises();
    }
  };
  const advance = async (clock: FakeClock, ms: number) => {
    await waitUntilIdle();
    const end = clock.now() + ms;
    while (clock.now() < end) {
      await clock.advance(Math.max(0, Math.min(end - clock.now(), clock.msUntilNextTimer)));
      await waitUntilIdle();
    }
  };
  return { client: proxy, advance };
}
