/**
 * The end of subcommands that serve.
 *
 * @module
 */

/** The time that calls in progress may take after SIGTERM, in milliseconds: the deadline of the longest command. */
export const GRACE_MS = 110_000;
