/**
 * `deno task image`: the image as an archive.
 *
 * @module
 */

import { join } from "@std/path";
import { IMAGE, makeImageArchive } from "./archive.ts";
import { runTool } from "../tool.ts";

const HELP = `Usage: deno task image

Makes dist/denolith-image.tar, an archive of the image ${IMAGE} for this kind of machine. It takes a Debian. Debian's part
is kept in $XDG_CACHE_HOME/denolith, or ~/.cache/denolith.`;

/** Returns the path of the cache folder. */
export function cacheFolder(): string {
  const cache = Deno.env.get("XDG_CACHE_HOME") ?? join(Deno.env.get("HOME") ?? "/root", ".cache");
  return join(cache, "denolith");
}

if (import.meta.main) {
  if (Deno.args.length > 0) {
    console.log(HELP);
    Deno.exit(Deno.args[0] === "--help" || Deno.args[0] === "-h" ? 0 : 2);
  }
  const output = join(import.meta.dirname!, "../../dist/denolith-image.tar");
  await runTool("image", async () => {
    await makeImageArchive({ output, cache: cacheFolder(), log: console.error });
    console.log(`${output}: ${(await Deno.stat(output)).size >> 20} MiB, ${IMAGE}`);
  });
}
