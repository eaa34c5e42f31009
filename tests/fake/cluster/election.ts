/**
 * Candidates of a leader election.
 *
 * @module
 */

import type { ApiClient, RequestOptions } from "../../../k8s/client/client.ts";
import { HttpClient } from "../../../k8s/client/http_client.ts";
import { leases } from "../../../k8s/api/objects.ts";
import { LeaderElection } from "../../../k8s/runtime/leader.ts";
import { waitForAbort } from "../../../base/clock.ts";
import { FakeApiServer } from "./api_server.ts";
import { FakeClock } from "../clock.ts";
import { waitUntil } from "./control_plane.ts";
import { trackedClient } from "./tracked_client.ts";

/** The Lease of the election. */
export const LEASE = { name: "lvm-denolith-dev", namespace: "storage" };

/** What is wrong with the network of a candidate. */
interface Cut {
  /** Whether no request is sent, and no event arrives. */
  off: boolean;
  /** The delay of answers, in milliseconds. */
  delayMs: number;
  /** Whether watches fail. */
  refusesWatches: boolean;
  /** Whether requests are not answered. */
  hangs: boolean;
  /** Called before an answer to a request arrives. */
  onAnswer?: (verb: string | symbol) => Promise<void> | void;
}

/** Starts an API server for candidates of an election, with one clock. */
export function harness() {
  const fake = FakeApiServer.start();
  const http = new HttpClient({ url: fake.url }, { userAgent: "denolith/test (leader)" });
  const { client, advance } = trackedClient(http);
  const clock = new FakeClock();
  const log: string[] = [];
  const running: { stop: AbortController; done: Promise<void> }[] = [];
  /** A candidate; its work ends with its signal, or never. */
  const candidate = (identity: string, ignoresSignal = false) => {
    const cut: Cut = { off: false, delayMs: 0, refusesWatches: false, hangs: false };
    const request = async (target: ApiClient, verb: string | symbol, args: unknown[]) => {
      const { signal } = args.at(-1) as RequestOptions;
      if (cut.off || (cut.hangs && signal === undefined)) throw new Error("cut off");
      if (cut.hangs) {
        return await new Promise((_, reject) => signal?.addEventListener("abort", () => reject(signal.reason)));
      }
      const answer = await Reflect.get(target, verb).apply(target, args);
      await cut.onAnswer?.(verb);
      const { delayMs } = cut;
      if (delayMs > 0) await new Promise<void>((resolve) => clock.after(delayMs, resolve));
      return answer;
    };
    const watch = async function* (target: ApiClient, args: Parameters<ApiClient["watch"]>) {
      if (cut.off || cut.refusesWatches) throw new Error("cut off");
      for await (const event of target.watch(...args)) if (!cut.off) yield event;
    };
    const network = new Proxy(client, {
      get: (target, verb) => (...args: unknown[]) =>
        verb === "watch" ? watch(target, args as Parameters<ApiClient["watch"]>) : request(target, verb, args),
    });
    const election = new LeaderElection(network, { lease: LEASE, identity, clock });
    const stop = new AbortController();
    const finish = Promise.withResolvers<void>();
    const done = election.run(stop.signal, async (signal) => {
      log.push(`${identity} leads`);
      signal.addEventListener("abort", () => log.push(`${identity} ends`));
      await (ignoresSignal ? finish.promise : waitForAbort(signal));
      log.push(`${identity} is done`);
    });
    running.push({ stop, done });
    return { election, stop, finish, cut };
  };
  return {
    fake,
    clock,
    log,
    candidate,
    pass: (ms: number) => advance(clock, ms),
    /** Waits until a candidate watches the Lease. */
    watched: async () => {
      await advance(clock, 100);
      await waitUntil(() => fake.watchCount > 0, "a watch");
    },
    /** Waits until an event that was sent has arrived. */
    seen: () => new Promise((resolve) => setTimeout(resolve, 2)),
    lease: () => fake.objects(leases)[0]?.spec,
    /** Returns the methods of the requests since the last call, and `WATCH`. */
    requests: () => fake.requests.splice(0).map(({ method, query }) => query.has("watch") ? "WATCH" : method).join(" "),
    [Symbol.asyncDispose]: async () => {
      for (const { stop } of running) stop.abort();
      await Promise.all(running.map(({ done }) => done));
      http[Symbol.dispose]();
      await fake[Symbol.asyncDispose]();
    },
  };
}
