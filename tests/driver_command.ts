/**
 * How tests start the driver: as a process of its own, under the written permission set.
 *
 * @module
 */

import manifest from "../deno.json" with { type: "json" };

/** The flags of `deno run` that stand before the driver's module. They need a configuration file with the written set. */
export const DRIVER_FLAGS = ["--quiet", "--no-prompt", "-P=denolith", "--v8-flags=--optimize-for-size"] as const;

/** The configuration that the driver needs where the checkout's is not: the written set, and that it can have workers. */
export const DRIVER_CONFIG: string = JSON.stringify({
  unstable: manifest.unstable,
  permissions: manifest.permissions,
});
