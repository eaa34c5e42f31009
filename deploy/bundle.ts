import { basename, join } from "@std/path";
import { PLUGIN_MODULE } from "./launch.ts";
import { run } from "./process.ts";
import { configFlags, type StandardLibrary } from "./standard_library.ts";

/** The modules of Node.js that the driver may load at its start. */
export const EAGER_BUILTINS: readonly string[] = ["async_hooks"];

/** The root of the checkout. */
const ROOT = new URL("..", import.meta.url).pathname;

/** Settings of {@linkcode bundle}. */
export interface BundleOptions {
  /** The name of the file; like that of the module by default. */
  readonly name?: string;
  /** Where the standard library comes from; npm by default. */
  readonly std?: StandardLibrary;
}

/**
 * Bundles a module of this checkout and all its imports into one JavaScript file. The module's `import.meta.url` is then the
 * URL of the file, which can also be started as a Worker.
 *
 * @param entry path of the module from the root of the checkout
 * @param folder folder for the file
 * @returns the path of the file
 * @throws {Error} when the module cannot be bundled
 */
export async function bundle(
  entry: string,
  folder: string,
  { name = basename(entry).replace(/\.ts$/, ".js"), std = "npm" }: BundleOptions = {},
): Promise<string> {
  const output = join(folder, name);
  // not --minify: it inlines variables that are used once, including those that `using` must dispose of
  const args = ["bundle", "--quiet", "--platform", "deno", ...configFlags(std), "-o", output, entry];
  const options = { cwd: ROOT };
  // the bundler does not say why a module of JSR cannot be had
  if (std === "jsr") {
    await run(`fetch ${entry}`, Deno.execPath(), ["cache", "--quiet", ...configFlags(std), entry], options);
  }
  await run(`bundle ${entry}`, Deno.execPath(), args, options);
  return output;
}

/** The paths of the driver's bundled modules. */
export interface DriverModules {
  /** The main thread: {@linkcode MODULE}. */
  readonly main: string;
  /** The worker, which main starts: {@linkcode WORKER_MODULE}. */
  readonly worker: string;
}

/**
 * Bundles the driver. A thread keeps the text of its bundle, so that it is smaller without comments and blanks.
 *
 * @param folder folder for the files
 * @throws {Error} when it cannot be bundled
 */
export async function bundleDriver(folder: string, std: StandardLibrary = "npm"): Promise<DriverModules> {
  const [main, worker] = [await bundle("main.ts", folder, { std }), await bundle("cli/worker.ts", folder, { std })];
  for (const path of [main, worker]) {
    await Deno.writeTextFile(path, withLazyBuiltins(await Deno.readTextFile(path)));
    await removeWhitespace(path);
  }
  return { main, worker };
}

/**
 * Lets packages in a bundle load modules of Node.js when they use them. A bundle imports them when it is loaded, also
 * those of parts that are loaded later: that took 40 ms of 180 until the socket answered, and 10 MB.
 *
 * @throws {Error} when a module of Node.js that is not among {@linkcode EAGER_BUILTINS} is still imported
 */
export function withLazyBuiltins(code: string): string {
  const lazy = code
    // what esbuild makes of require() in packages that are CommonJS
    .replace(
      /^import \{ createRequire as (\w+) \} from "node:module";\nvar (\w+) = \1\(import\.meta\.url\);$/m,
      "var $2 = (name) => process.getBuiltinModule(name);",
    )
    .replace(
      /^import (\w+) from "(node:\w+)";$/gm,
      'var $1 = new Proxy({}, { get: (_, key) => process.getBuiltinModule("$2")[key] });',
    );
  const eager = [...lazy.matchAll(/^import\b.*["'](?:node:)?([\w/]+)["'];?$/gm)].map(([, name]) => name!);
  const unexpected = eager.filter((name) => !EAGER_BUILTINS.includes(name));
  if (unexpected.length > 0) throw new Error(`bundle: ${unexpected.join(", ")} would be loaded at each start`);
  return lazy;
}

/**
 * Bundles the kubectl plugin.
 *
 * @param folder folder for the file
 * @returns the path of the module: {@linkcode PLUGIN_MODULE}
 * @throws {Error} when it cannot be bundled
 */
export async function bundlePlugin(folder: string, std: StandardLibrary = "npm"): Promise<string> {
  const path = await bundle("plugin/main.ts", folder, { name: PLUGIN_MODULE, std });
  await removeWhitespace(path);
  return path;
}

/** Removes comments and needless blanks from a module. */
export async function removeWhitespace(path: string): Promise<void> {
  // V8 keeps a text of one byte for each character if all of them are ASCII. Nothing else is minified: see bundle().
  // transform() would keep a process, and without the variable transformSync() a thread
  Deno.env.set("ESBUILD_WORKER_THREADS", "0");
  const { transformSync } = await import("esbuild");
  const { code } = transformSync(await Deno.readTextFile(path), {
    ...{ minifyWhitespace: true, legalComments: "none", charset: "ascii", format: "esm", target: "esnext" },
  });
  await Deno.writeTextFile(path, code);
}
