/**
 * Installs Debian's Chromium where it is missing.
 *
 * @module
 */

import { findChromium } from "./chromium.ts";

/** The packages: the browser, and a font, without which a page has no letters. */
const PACKAGES = ["chromium", "fonts-dejavu-core"];

/** Installs Chromium unless it is there. @throws {Error} when apt-get fails; it takes Debian, root and a mirror */
export async function ensureChromium(): Promise<void> {
  if (await findChromium().catch(() => undefined) !== undefined) return;
  console.error(`installing Debian packages: ${PACKAGES.join(" ")}`);
  const quiet = ["--quiet=2", "--yes"];
  await aptGet(...quiet, "update");
  await aptGet(...quiet, "install", "--no-install-recommends", ...PACKAGES);
}

async function aptGet(...args: string[]): Promise<void> {
  const env = { DEBIAN_FRONTEND: "noninteractive" };
  const { success, stdout, stderr } = await new Deno.Command("apt-get", { args, env, stdin: "null" }).output();
  if (success) return;
  throw new Error(`apt-get ${args.join(" ")}: ${new TextDecoder().decode(stdout)}${new TextDecoder().decode(stderr)}`);
}
