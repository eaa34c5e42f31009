/**
 * What runs inside the guest, bundled into one file.
 *
 * @module
 */

import { type LifeOptions, playLife } from "./life.ts";
import { type Output, writeToStdout } from "./output.ts";

/** What the demo outside tells the one inside, as JSON in this variable. */
export interface GuestSettings {
  /** As of {@linkcode Output}. */
  readonly terminal: boolean;
  /** As of {@linkcode Output}. */
  readonly colors: boolean;
  /** As of {@linkcode LifeOptions}. */
  readonly driver: readonly string[];
  /** As of {@linkcode LifeOptions}. */
  readonly remark: string;
}

if (import.meta.main) {
  const { terminal, colors, driver, remark } = JSON.parse(Deno.env.get("DENOLITH_DEMO") ?? "{}") as GuestSettings;
  const done = await playLife({
    output: { write: writeToStdout, terminal, colors },
    signal: new AbortController().signal,
    driver,
    tempDir: "/work",
    remark,
  });
  Deno.exit(done ? 0 : 1);
}
