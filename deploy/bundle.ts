import { stop, transform } from "esbuild";
import { basename, join } from "@std/path";
import { run } from "./process.ts";

/** The root of the checkout. */
const ROOT = new URL("..", import.meta.url).pathname;

/**
 * Bundles a module of this checkout and all its imports into one JavaScript file. The module's `import.meta.url` is then the
 * URL of the file, which can also be started as a Worker.
 *
 * @param entry path of the module from the root of the checkout
 * @param folder folder for the file, which is named like the module
 * @returns the path of the file
 * @throws {Error} when the module cannot be bundled
 */
export async function bundle(entry: string, folder: string): Promise<string> {
  const output = join(folder, basename(entry).replace(/\.ts$/, ".js"));
  // not --minify: it inlines variables that are used once, including those that `using` must dispose of
  const args = ["bundle", "--quiet", "--platform", "deno", "-o", output, entry];
  await run(`bundle ${entry}`, Deno.execPath(), args, { cwd: ROOT });
  return output;
}

/**
 * Bundles the driver. Each of its threads keeps the text of the bundle, so that it is smaller without comments and blanks.
 *
 * @param folder folder for the file
 * @returns the path of the file
 * @throws {Error} when it cannot be bundled
 */
export async function bundleDriver(folder: string): Promise<string> {
  return await withoutWhitespace(await bundle("main.ts", folder));
}

/** Removes comments and needless blanks from a module. @returns its path */
export async function withoutWhitespace(path: string): Promise<string> {
  try {
    // V8 keeps a text of one byte for each character if all of them are ASCII. Nothing else is minified: see bundle().
    const { code } = await transform(await Deno.readTextFile(path), {
      ...{ minifyWhitespace: true, legalComments: "none", charset: "ascii", format: "esm", target: "esnext" },
    });
    await Deno.writeTextFile(path, code);
    return path;
  } finally {
    await stop();
  }
}
