/**
 * The entry point of the kubectl plugin, which the executable starts when its name is `kubectl-denolith`.
 *
 * It runs kubectl and nothing else, and has no right to read files or to write them. Of the network it has the loopback
 * address, for `ui` to listen on, and gives that up before it shows anything. So it needs no worker with fewer rights.
 *
 * @module
 */

import { runPlugin } from "./subcommands/run.ts";

/** Returns a signal that is aborted by the first Ctrl-C; the second one ends the process. */
function abortOnInterrupt(): AbortSignal {
  const end = new AbortController();
  const onSignal = () => {
    Deno.removeSignalListener("SIGINT", onSignal);
    end.abort();
  };
  Deno.addSignalListener("SIGINT", onSignal); // the one signal that all systems have
  return end.signal;
}

/** Gives up the permission to listen and to connect. What listens goes on. */
export async function dropNetwork(): Promise<void> {
  await Deno.permissions.revoke({ name: "net" });
}

if (import.meta.main) Deno.exit(await runPlugin(Deno.args, { signal: abortOnInterrupt(), dropNetwork }));
