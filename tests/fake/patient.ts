/**
 * Time that waits for answers.
 *
 * @module
 */

import type { ApiClient } from "../../k8s/client/client.ts";
import { type FakeClock, settled } from "./clock.ts";

/** A client that knows whether a request is under way, so that time on a {@linkcode FakeClock} can wait for answers. */
export function patientClient(
  client: ApiClient,
): { client: ApiClient; pass: (clock: FakeClock, ms: number) => Promise<void> } {
  const underWay = new Set<Promise<unknown>>();
  const patient = new Proxy(client, {
    get: (target, verb) => (...args: unknown[]) => {
      const answer = Reflect.get(target, verb).apply(target, args);
      if (!(answer instanceof Promise)) return answer;
      const settling = answer.then(() => {}, () => {}).then(() => void underWay.delete(settling));
      underWay.add(settling);
      return answer;
    },
  });
  const quiet = async () => {
    await settled();
    while (underWay.size > 0) {
      await Promise.all(underWay);
      await settled();
    }
  };
  const pass = async (clock: FakeClock, ms: number) => {
    await quiet();
    const end = clock.now() + ms;
    while (clock.now() < end) {
      await clock.advance(Math.max(0, Math.min(end - clock.now(), clock.untilNext)));
      await quiet();
    }
  };
  return { client: patient, pass };
}
