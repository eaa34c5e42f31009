/**
 * The end of subcommands that serve.
 *
 * @module
 */

/** How long calls under way have to end after SIGTERM, in milliseconds: as long as the longest command may take. */
export const GRACE_MS = 110_000;
