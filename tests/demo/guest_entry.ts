/**
 * The part of the demo that runs in the guest, bundled into one file.
 *
 * @module
 */

import { type LifecycleOptions, runLifecycle } from "./lifecycle.ts";
import { type Output, writeToStdout } from "./reporter.ts";

/** The settings that the demo passes to its part in the guest, as JSON in the variable DENOLITH_DEMO. */
export type GuestSettings = Pick<Output, "terminal" | "colors"> & Pick<LifecycleOptions, "driver" | "remark">;

if (import.meta.main) {
  const settings = JSON.parse(Deno.env.get("DENOLITH_DEMO") ?? "") as GuestSettings;
  const { terminal, colors, ...options } = settings;
  const output = { write: writeToStdout, terminal, colors };
  const { signal } = new AbortController(); // who ends the demo ends this whole machine
  const done = await runLifecycle({ output, signal, tempDir: "/work", ...options });
  Deno.exit(done ? 0 : 1);
}
