/**
 * How subcommands that serve come to their end.
 *
 * @module
 */

/** How long calls under way have to end after SIGTERM, in milliseconds: what the longest command is waited for. */
export const GRACE_MS = 110_000;

export { waitForAbort } from "../k8s/runtime/clock.ts";
