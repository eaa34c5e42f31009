/**
 * The controller, as a process that measures itself.
 *
 * @module
 */

import { cpuUsage } from "node:process";
import { runController } from "../../../cli/controller.ts";
import { flagsOf } from "../../fake/subcommand.ts";
import { NAMESPACE } from "./objects.ts";
import { serveCommands } from "./child.ts";
import { round } from "../statistics.ts";

/** The interval at which the event loop is looked at, in milliseconds. */
const TICK_MS = 5;

/** Returns the CPU time of the process so far, in milliseconds. */
function cpuMs(): number {
  const { user, system } = cpuUsage();
  return (user + system) / 1000;
}

/**
 * Measures the times for which the event loop served nothing. A time in which the process had no CPU is not one of them:
 * the machine has other work.
 */
class StallMeter {
  #stalls: number[] = [];
  #last = performance.now();
  #lastCpu = cpuMs();

  constructor() {
    setInterval(() => this.#tick(), TICK_MS);
  }

  #tick(): void {
    const [now, cpu] = [performance.now(), cpuMs()];
    this.#stalls.push(Math.min(now - this.#last - TICK_MS, cpu - this.#lastCpu));
    [this.#last, this.#lastCpu] = [now, cpu];
  }

  /** Returns the longest stall and that of the 99th percentile, since the last call, in milliseconds. */
  take(): { longestMs: number; p99Ms: number } {
    const sorted = this.#stalls.splice(0).map((ms) => Math.max(0, ms)).sort((a, b) => a - b);
    return { longestMs: round(sorted.at(-1) ?? 0), p99Ms: round(sorted[Math.floor(sorted.length * 0.99)] ?? 0) };
  }
}

/** The requests of this process that are not about Leases, and when the last one was sent. */
const sent = { count: 0, atMs: performance.now() };
const send = globalThis.fetch;
globalThis.fetch = (input, init) => {
  if (!String(input).includes("/leases")) {
    sent.count++;
    sent.atMs = performance.now();
  }
  return send(input, init);
};

const [kubeconfig, socket, identity] = Deno.args as [string, string, string];
const end = new AbortController();
const stalls = new StallMeter();
const running = runController(
  flagsOf(
    ...["controller", `--kubeconfig=${kubeconfig}`, `--endpoint=unix://${socket}`, `--namespace=${NAMESPACE}`],
    ...[`--identity=${identity}`, "--http-address=off"],
  ),
  end.signal,
);

/** The commands of this process. */
const commands = {
  /** Returns the CPU time so far, in milliseconds. */
  cpuMs: () => round(cpuMs()),
  /** Returns how many requests were sent that are not about Leases, and how long ago the last one was, in milliseconds. */
  requests: () => ({ count: sent.count, idleMs: performance.now() - sent.atMs }),
  /** Returns the stalls of the event loop since the last call. */
  stalls: () => stalls.take(),
  /** Collects garbage. @returns what is left on V8's heap, in bytes */
  heapBytes: () => {
    (globalThis as unknown as { gc: () => void }).gc();
    return Deno.memoryUsage().heapUsed;
  },
  /** Returns the heap as it is, with its garbage, in bytes. */
  heapTotalBytes: () => Deno.memoryUsage().heapTotal,
  /** Ends the controller, as a signal does. */
  stop: async () => {
    end.abort();
    await running;
    return true;
  },
};

/** The commands of this process. */
export type ControllerCommands = typeof commands;

if (import.meta.main) {
  await serveCommands(commands);
  Deno.exit(0);
}
