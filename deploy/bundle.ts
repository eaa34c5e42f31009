import { basename, join } from "@std/path";
import { run } from "./process.ts";

/** The root of the checkout. */
const ROOT = new URL("..", import.meta.url).pathname;

/**
 * Makes one JavaScript file of a module of this checkout and all that it imports, and answers its path. The module's
 * `import.meta.url` is then that of the file, which can be started as a Worker as well.
 *
 * @param entry the module's path from the root of the checkout
 * @param folder where the file goes, under the module's name
 * @throws {Error} when the module cannot be bundled
 */
export async function bundle(entry: string, folder: string): Promise<string> {
  const output = join(folder, basename(entry).replace(/\.ts$/, ".js"));
  // not --minify: it puts what is named once in the place of its name, also what `using` has to dispose of
  const args = ["bundle", "--quiet", "--platform", "deno", "-o", output, entry];
  await run(`bundle ${entry}`, Deno.execPath(), args, { cwd: ROOT });
  return output;
}
