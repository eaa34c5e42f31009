/**
 * The driver as it is in the image, beside Debian's programs and Deno: a module that starts itself, its worker, and its permissions.
 *
 * `deno run -A deploy/image/driver.ts FOLDER` writes it; the Dockerfile does that.
 *
 * @module
 */

import { join } from "@std/path";
import { bundleDriver } from "../bundle.ts";
import { LAUNCH_ENV, LAUNCH_FLAGS, launchConfig, MODULE } from "../launch.ts";
import type { StandardLibrary } from "../standard_library.ts";

/** The driver's folder in the image. */
export const DRIVER_FOLDER = "/usr/lib/denolith";

/** The entry point and the environment of the image. The Dockerfile has the same. */
export const IMAGE_START = {
  Entrypoint: ["/usr/bin/tini", "--", "/usr/bin/denolith"],
  Env: ["PATH=/usr/sbin:/usr/bin", "DENO_DIR=/var/cache/denolith", ...LAUNCH_ENV],
} as const;

/**
 * The first line of the module. There is no shell in the image: the kernel starts Deno by this line, which may be 255 bytes
 * long (BINPRM_BUF_SIZE).
 */
export const SHEBANG = `#!/usr/bin/env -S /usr/bin/deno ${
  LAUNCH_FLAGS.join(" ")
} --config=${DRIVER_FOLDER}/deno.json\n`;

/**
 * Writes the driver into a folder that becomes the root of the image. The same sources make the same files.
 *
 * @throws {Error} when the driver cannot be bundled
 */
export async function writeDriver(root: string, std: StandardLibrary = "npm"): Promise<void> {
  const folder = join(root, DRIVER_FOLDER);
  await Deno.mkdir(folder, { recursive: true });
  const { main } = await bundleDriver(folder, std);
  await Deno.writeTextFile(main, SHEBANG + await Deno.readTextFile(main));
  await Deno.chmod(main, 0o755);
  await Deno.writeTextFile(join(folder, "deno.json"), launchConfig({ moduleIsFile: true }));
  await Deno.mkdir(join(root, "usr/bin"), { recursive: true });
  await Deno.symlink(`../lib/denolith/${MODULE}`, join(root, "usr/bin/denolith"));
}

if (import.meta.main) {
  const [folder] = Deno.args;
  if (folder === undefined) throw new Error("write the driver: the folder is missing");
  await writeDriver(folder);
}
