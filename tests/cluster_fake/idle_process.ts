/**
 * A process of the driver in this one: a test lets its time pass, and counts what it does meanwhile.
 *
 * @module
 */

import type { Flags } from "../../cli/command_line.ts";
import type { FakeApiServer } from "../fake/cluster/api_server.ts";
import { FakeClock, flushPromises } from "../fake/clock.ts";
import { waitUntil } from "../fake/cluster/control_plane.ts";
import { SubcommandFolder } from "../fake/subcommand.ts";

/** What a process did in some time. */
export interface Activity {
  /** The numbers of requests, by method and resource, such as `PUT leases`; `WATCH` for a watch. */
  readonly requests: Readonly<Record<string, number>>;
  /** The number of timers that called back. */
  readonly wakeUps: number;
}

/** Options of {@linkcode IdleProcess.start}. */
export interface IdleProcessOptions {
  /** The API server. */
  readonly api: FakeApiServer;
  /** The body of a subcommand. */
  readonly run: (flags: Flags, end: AbortSignal, clock: FakeClock) => Promise<number>;
  /** Returns its flags beside those of the API server. @param folder a folder of its own */
  readonly flags: (folder: string) => Flags;
  /** Reports whether it has begun its work. */
  readonly hasStarted: () => boolean;
}

/** The turns of the event loop in which the process reads an answer, and sends the next request. */
const QUIET_TURNS = 10;

/** A subcommand that runs over a fake API server, by a clock that the test advances. */
export class IdleProcess implements AsyncDisposable {
  readonly #api: FakeApiServer;
  readonly #folder: SubcommandFolder;
  readonly #end = new AbortController();
  readonly #clock = new CountingClock();
  readonly #running: Promise<number>;
  readonly #fetch = globalThis.fetch;
  /** The number of requests that are not answered yet. */
  #inFlight = 0;
  #isEnded = false;

  private constructor({ api, run, flags }: IdleProcessOptions, folder: SubcommandFolder) {
    [this.#api, this.#folder] = [api, folder];
    globalThis.fetch = (...args) => this.#observedFetch(...args);
    this.#running = run(
      { kubeconfig: folder.kubeconfig, "http-address": "off", ...flags(folder.path) },
      this.#end.signal,
      this.#clock,
    );
  }

  /** Starts a process, and waits until it has begun its work and sends no more requests. */
  static async start(options: IdleProcessOptions): Promise<IdleProcess> {
    const started = new IdleProcess(options, await SubcommandFolder.create(options.api.url));
    await waitUntil(options.hasStarted, "the start of the process");
    await started.#settle();
    return started;
  }

  /** Lets time pass, in which the API server sends a bookmark each minute. @param ms the time, in milliseconds */
  async activityOf(ms: number): Promise<Activity> {
    const { requests } = this.#api;
    const [before, wakeUpsBefore] = [requests.length, this.#clock.calls];
    const end = this.#clock.now() + ms;
    for (let bookmarkAt = this.#clock.now() + BOOKMARK_MS; this.#clock.now() < end;) {
      const next = this.#clock.now() + Math.max(0, this.#clock.msUntilNextTimer);
      await this.#clock.advance(Math.min(next, bookmarkAt, end) - this.#clock.now());
      if (this.#clock.now() >= bookmarkAt) {
        this.#api.sendBookmarks();
        bookmarkAt += BOOKMARK_MS;
      }
      await this.#settle();
    }
    const names = requests.slice(before).map(({ method, path, query }) =>
      `${query.has("watch") ? "WATCH" : method} ${resourceIn(path)}`
    );
    const counts = Map.groupBy(names.sort(), (name) => name);
    return {
      requests: Object.fromEntries([...counts].map(([name, all]) => [name, all.length])),
      wakeUps: this.#clock.calls - wakeUpsBefore,
    };
  }

  /** Sends a request, which is in flight until its answer has arrived. That of a watch never arrives whole. */
  async #observedFetch(...args: Parameters<typeof fetch>): Promise<Response> {
    this.#inFlight++;
    try {
      const response = await this.#fetch(...args);
      if (String(args[0]).includes("watch=true")) return response;
      return new Response(await response.text(), response);
    } finally {
      this.#inFlight--;
    }
  }

  /** Waits until neither a request comes nor a timer is set for some time. */
  async #settle(): Promise<void> {
    const state = () => `${this.#api.requests.length} ${this.#api.pings} ${this.#clock.timersSet}`;
    for (let last = "", quietTurns = 0; quietTurns < QUIET_TURNS; quietTurns++) {
      await flushPromises();
      if (state() !== last || this.#inFlight > 0) [last, quietTurns] = [state(), 0];
      await new Promise((resolve) => setTimeout(resolve, 0));
    }
  }

  /** Ends the process. */
  async [Symbol.asyncDispose](): Promise<void> {
    this.#end.abort();
    const running = this.#running.finally(() => this.#isEnded = true);
    while (!this.#isEnded) {
      await this.#clock.advance(100);
      await new Promise((resolve) => setTimeout(resolve, 1));
    }
    await running;
    globalThis.fetch = this.#fetch;
    await this.#folder[Symbol.asyncDispose]();
  }
}

/** The time between two bookmarks of an API server, in milliseconds. */
const BOOKMARK_MS = 60_000;

/** Returns the resource in a path of the API, such as `leases` or `lvmnodes/status`. */
function resourceIn(path: string): string {
  const [resource = "", , subresource] = path.replace(/^\/(api|apis\/[^/]+)\/[^/]+\//, "")
    .replace(/^namespaces\/[^/]+\/(?=.)/, "").split("/");
  return subresource === undefined ? resource : `${resource}/${subresource}`;
}

/** A clock that counts. */
class CountingClock extends FakeClock {
  /** The number of callbacks that were called. */
  calls = 0;
  /** The number of callbacks that were set. */
  timersSet = 0;

  override after(ms: number, callback: () => void): () => void {
    this.timersSet++;
    return super.after(ms, () => {
      this.calls++;
      callback();
    });
  }
}
