/** Resolves to false on a signal to end. Until then, these signals do not end the process. */
export function terminationSignals(): Disposable & { signal: Promise<false> } {
  const names = ["SIGINT", "SIGTERM", "SIGHUP"] as const;
  const { promise, resolve } = Promise.withResolvers<false>();
  const stop = () => resolve(false);
  for (const name of names) Deno.addSignalListener(name, stop);
  return {
    signal: promise,
    [Symbol.dispose]() {
      for (const name of names) Deno.removeSignalListener(name, stop);
    },
  };
}
