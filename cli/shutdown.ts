/**
 * The end of subcommands that serve.
 *
 * @module
 */

/** The time that calls in progress may take after SIGTERM, in milliseconds: the deadline of the longest command. */
export const GRACE_MS = 110_000;

/** The time after the first signal in which a further SIGINT is ignored, in milliseconds. */
const REPEATED_SIGINT_MS = 1_000;

/**
 * Returns a signal that is aborted by SIGTERM or SIGINT. A supervisor may send the same signal twice (timeout(1) does),
 * so further SIGTERMs change nothing. A second Ctrl-C ends the process at once, unless it follows the first signal too
 * soon.
 *
 * @param host listens for signals
 * @param repeatedSigintMs the time after the first signal in which a further SIGINT is ignored, in milliseconds
 */
export function abortOnSignals(
  host: Pick<typeof Deno, "addSignalListener" | "removeSignalListener"> = Deno,
  repeatedSigintMs = REPEATED_SIGINT_MS,
): AbortSignal {
  const end = new AbortController();
  const onSignal = () => {
    if (!end.signal.aborted) {
      Deno.unrefTimer(setTimeout(() => host.removeSignalListener("SIGINT", onSignal), repeatedSigintMs));
    }
    end.abort();
  };
  for (const signal of ["SIGTERM", "SIGINT"] as const) host.addSignalListener(signal, onSignal);
  return end.signal;
}
