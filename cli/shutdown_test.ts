import { assertEquals } from "@std/assert";
import { waitUntil } from "../tests/fake/control_plane.ts";
import { abortOnSignals } from "./shutdown.ts";

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
