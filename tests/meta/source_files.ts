/**
 * The sources of the product.
 *
 * @module
 */

import { join } from "@std/path";

const ROOT = new URL("../../", import.meta.url).pathname;

/** Returns the paths of the TypeScript files below a folder of the project, without tests and generated code. */
export function sourceFiles(folder: string): string[] {
  return [...Deno.readDirSync(join(ROOT, folder))].flatMap(({ name, isDirectory }) => {
    const path = join(folder, name);
    if (isDirectory) return sourceFiles(path);
    return name.endsWith(".ts") && !/_test\.ts$|_pb\.ts$/.test(name) ? [join(ROOT, path)] : [];
  });
}
