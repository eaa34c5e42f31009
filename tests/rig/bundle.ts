import { join } from "@std/path";
import { run } from "./process.ts";

/**
 * What a minified bundle must begin with: minifying can rename the bundle's own `require`, so that Deno no longer recognises it.
 * Minified names are short ones, so a long one meets none of them.
 */
const REQUIRE =
  'import{createRequire as createRequireHere}from"node:module";const require=createRequireHere(import.meta.url);\n';

/**
 * Makes one JavaScript file of a module of this checkout and all that it imports, and answers its path.
 *
 * @param entry the module's path from the root of the checkout
 * @param folder where the file goes
 */
export async function bundle(entry: string, folder: string): Promise<string> {
  const name = entry.replaceAll("/", "_").replace(/\.ts$/, ".js");
  const output = join(folder, name);
  const root = new URL("../..", import.meta.url).pathname;
  await run(`bundle ${entry}`, Deno.execPath(), [
    "bundle",
    "--quiet",
    "--platform",
    "deno",
    "--minify",
    "-o",
    output,
    entry,
  ], {
    cwd: root,
  });
  await Deno.writeTextFile(output, REQUIRE + await Deno.readTextFile(output));
  return output;
}
