import { assertEquals, assertRejects } from "@std/assert";
import { waitForAbort } from "../base/clock.ts";
import { waitUntil } from "../tests/fake/cluster/control_plane.ts";
import { abortOnSignals, isSandboxed, serveWorker, supervise, type WorkerScope } from "./sandbox.ts";

const REQUEST = { name: "node", flags: { "node-name": "n1" } };
const KINDS = ["read", "write", "net", "run", "env", "sys", "ffi", "import"];

/** A worker in this thread. Messages are delivered in later turns, as between threads. */
function startWorker(load: (scope: WorkerScope) => void) {
  const deliver = (receiver: () => ((event: MessageEvent) => void) | null, data: unknown) =>
    queueMicrotask(() => receiver()?.(new MessageEvent("message", { data: structuredClone(data) })));
  const events = new EventTarget();
  const scope: WorkerScope = {
    onmessage: () => {},
    postMessage: (message) => deliver(() => worker.onmessage, message),
    addEventListener: events.addEventListener.bind(events) as WorkerScope["addEventListener"],
  };
  const worker = {
    onmessage: null as ((event: MessageEvent) => void) | null,
    onerror: null as ((event: ErrorEvent) => void) | null,
    postMessage: (message: unknown) => deliver(() => scope.onmessage, message),
  };
  queueMicrotask(() => load(scope));
  return { ...{ worker, events }, options: { end: new AbortController().signal, revoke: () => {} } };
}

Deno.test("supervise() gives up all permissions before the subcommand runs, and returns its exit status", async () => {
  const events: unknown[] = [];
  const { worker } = startWorker((scope) =>
    serveWorker((request) => {
      events.push(request);
      return Promise.resolve(3);
    }, scope)
  );
  const { signal } = new AbortController();
  assertEquals(await supervise(worker, REQUEST, { end: signal, revoke: (kind) => events.push(kind) }), 3);
  assertEquals(events, [...KINDS, REQUEST]);
});

Deno.test("supervise() asks the subcommand to end when the process is asked to, even before it has started", async () => {
  for (const isEarly of [true, false]) {
    const end = new AbortController();
    const started = Promise.withResolvers<void>();
    const { worker } = startWorker((scope) =>
      serveWorker(async (_, signal) => {
        started.resolve();
        await waitForAbort(signal);
        return 0;
      }, scope)
    );
    if (isEarly) end.abort();
    const status = supervise(worker, REQUEST, { end: end.signal, revoke: () => {} });
    await started.promise;
    end.abort();
    assertEquals(await status, 0);
  }
});

Deno.test("supervise() fails when the worker cannot be loaded, and prevents the end of the process", async () => {
  const event = new ErrorEvent("error", { message: "no such module", cancelable: true });
  const { worker, options } = startWorker(() => worker.onerror!(event));
  await assertRejects(() => supervise(worker, REQUEST, options), Error, "no such module");
  assertEquals(event.defaultPrevented, true);
});

Deno.test("supervise() fails with an uncaught error of the subcommand, which does not end the worker", async () => {
  const uncaught: [Event, string][] = [
    [new ErrorEvent("error", { message: "it broke", cancelable: true }), "it broke"],
    [
      Object.assign(new Event("unhandledrejection", { cancelable: true }), { reason: new Error("it broke") }),
      "Uncaught (in promise) Error: it broke",
    ],
  ];
  for (const [event, message] of uncaught) {
    const { worker, events, options } = startWorker((scope) =>
      serveWorker(() => {
        events.dispatchEvent(event);
        return new Promise(() => {});
      }, scope)
    );
    await assertRejects(() => supervise(worker, REQUEST, options), Error, message);
    assertEquals(event.defaultPrevented, true);
  }
});

Deno.test("isSandboxed() reports false in the main thread", () => {
  assertEquals(isSandboxed(), false);
});

/** A process that receives signals. One that nobody listens for ends it. */
class FakeProcess {
  readonly #listeners = new Map<string, () => void>();

  addSignalListener(signal: string, listener: () => void): void {
    this.#listeners.set(signal, listener);
  }

  removeSignalListener(signal: string, listener: () => void): void {
    if (this.#listeners.get(signal) === listener) this.#listeners.delete(signal);
  }

  /** Sends a signal. @returns whether the process survives it */
  send(signal: string): boolean {
    this.#listeners.get(signal)?.();
    return this.#listeners.has(signal);
  }
}

Deno.test("abortOnSignals(): a further SIGINT ends the process some time after the first signal, a SIGTERM never does", async () => {
  for (const first of ["SIGTERM", "SIGINT"]) {
    const host = new FakeProcess();
    const end = abortOnSignals(host, 20);
    assertEquals(end.aborted, false);
    assertEquals([host.send(first), end.aborted], [true, true]);
    assertEquals(host.send("SIGINT"), true, "a supervisor may send a signal twice");
    await waitUntil(() => !host.send("SIGINT"), "the end of the time in which SIGINT is ignored");
    assertEquals(host.send("SIGTERM"), true);
  }
});
