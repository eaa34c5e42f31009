/**
 * How tests start the driver: as a process of its own, under the written permission set.
 *
 * @module
 */

/** The flags of `deno run` that stand before the driver's module. They need a configuration file with the written set. */
export const DRIVER_FLAGS = ["--quiet", "--no-prompt", "-P=denolith", "--v8-flags=--optimize-for-size"] as const;
