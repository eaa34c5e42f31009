/**
 * The network of a world, between its processes and the API server: it takes time, and it can be cut.
 *
 * @module
 */

import { currentProcess, type Process, type World } from "./world.ts";

/** What a cut does: refuses connections, loses what is sent, or loses answers, whose requests have been carried out. */
export type Cut = "refuses" | "hangs" | "loses answers";

const PENDING_FOREVER = new Promise<never>(() => {});

/** The network. */
export class Network implements Disposable {
  readonly #world: World;
  readonly #fetch = globalThis.fetch;
  /** The cuts, by the process that they separate; that of all processes without one. */
  readonly #cuts = new Map<Process | undefined, Cut>();
  /** What ends the streams of processes. */
  readonly #streams = new Map<Process, Set<(error: Error) => void>>();
  #onMended: (() => void)[] = [];

  constructor(world: World) {
    this.#world = world;
    globalThis.fetch = (input, init) => this.#send(input, init);
  }

  /** Cuts it for a process, or for all of them. */
  cut(how: Cut, process?: Process): void {
    this.#cuts.set(process, how);
    if (how === "hangs") return;
    for (const [owner, streams] of this.#streams) {
      if (process === undefined || process === owner) { for (const end of [...streams]) end(connectionError()); }
    }
  }

  /** Mends it for a process, or for all of them. */
  mend(process?: Process): void {
    if (process === undefined) this.#cuts.clear();
    else this.#cuts.delete(process);
    for (const call of this.#onMended.splice(0)) call();
  }

  /** Reports how a process is cut off. */
  cutOf(process: Process | undefined): Cut | undefined {
    return this.#cuts.get(undefined) ?? this.#cuts.get(process);
  }

  async #send(input: RequestInfo | URL, init: RequestInit = {}): Promise<Response> {
    const process = currentProcess();
    if (process === undefined || process === this.#world.root) return await this.#fetch(input, init);
    process.onAction();
    if (process.isDead) return await PENDING_FOREVER;
    const { signal } = init;
    const { promise: aborted, reject } = Promise.withResolvers<never>();
    aborted.catch(() => {});
    const abort = () => reject(signal?.reason);
    if (signal?.aborted) abort();
    signal?.addEventListener("abort", abort);
    const answer = async () => {
      await this.#pass(process, ["refuses", "hangs"]);
      const response = await this.#fetch(input, init);
      const { method = "GET", body } = init;
      if (method !== "GET") {
        this.#world.log(`${method} ${new URL(String(input)).pathname} ${body} => ${response.status}`);
      }
      await this.#pass(process, ["refuses", "hangs", "loses answers"]);
      return response.body === null ? response : this.#delayed(response, process, signal);
    };
    try {
      return await Promise.race([aborted, answer()]);
    } finally {
      signal?.removeEventListener("abort", abort);
    }
  }

  /** Lets something pass one way. */
  async #pass(process: Process, losses: readonly Cut[]): Promise<void> {
    await this.#world.sleep(this.#latency());
    const cut = this.cutOf(process);
    if (cut === undefined || !losses.includes(cut)) return;
    if (cut === "refuses") throw connectionError();
    await PENDING_FOREVER;
  }

  /** Returns how long it takes one way, in milliseconds: mostly short, sometimes long. */
  #latency(): number {
    const chance = this.#world.random();
    return chance < 0.8 ? chance * 2 : chance < 0.98 ? chance * 30 : chance * 1_000;
  }

  /** Returns a watch whose events take their time, in their order. */
  #delayed(response: Response, process: Process, signal: AbortSignal | null | undefined): Response {
    const reader = response.body!.getReader();
    const streams = this.#streams.get(process) ?? new Set();
    this.#streams.set(process, streams);
    let isEnded = false;
    const body = new ReadableStream<Uint8Array>({
      start: async (controller) => {
        const end = (error?: unknown) => {
          if (isEnded) return;
          isEnded = true;
          streams.delete(end);
          reader.cancel().catch(() => {});
          if (error === undefined) controller.close();
          else controller.error(error);
        };
        streams.add(end);
        signal?.addEventListener("abort", () => end(signal.reason), { once: true });
        try {
          for (;;) {
            const { done, value } = await reader.read();
            if (isEnded) return;
            await this.#world.sleep(this.#latency());
            while (this.cutOf(process) !== undefined && !isEnded) {
              await new Promise<void>((resolve) => this.#onMended.push(resolve));
            }
            if (isEnded) return;
            if (done) return end();
            controller.enqueue(value);
          }
        } catch (error) {
          end(error);
        }
      },
      cancel: () => {
        isEnded = true;
        reader.cancel().catch(() => {});
      },
    });
    return new Response(body, { status: response.status, headers: response.headers });
  }

  [Symbol.dispose](): void {
    globalThis.fetch = this.#fetch;
  }
}

function connectionError(): Error {
  return new TypeError("error sending request: the server closed the connection");
}
