/**
 * VitePress, as it is run here: by Deno, with packages of its own, which nothing else of the project uses.
 *
 * @module
 */

import { dirname, join } from "@std/path";
import { run } from "../process.ts";
import type { SiteOptions } from "./config.ts";
import { isDocument } from "./links.ts";
import { PAGES, ROOT, WORK } from "./repository.ts";
import { ignoreNotFound } from "../tool.ts";

/** The list of VitePress's packages, and their lock file. */
const PACKAGES = join(ROOT, "deploy/site/vitepress");

/** Installs VitePress by its lock file, to make a site. @throws {Error} when a package cannot be fetched, or the lock file differs */
export async function installVitePress(options: SiteOptions): Promise<void> {
  await Deno.mkdir(join(WORK, ".vitepress"), { recursive: true });
  for (const { name } of Deno.readDirSync(PACKAGES)) await Deno.copyFile(join(PACKAGES, name), join(WORK, name));
  const config = `import { configOf } from "../../../deploy/site/config.ts";
export default configOf(${JSON.stringify(options)});
`;
  await Deno.writeTextFile(join(WORK, ".vitepress/config.ts"), config);
  await run("install VitePress", Deno.execPath(), ["install", "--quiet", "--frozen"], { cwd: WORK });
}

/** Returns the arguments of Deno for a subcommand of VitePress, to be run in {@linkcode WORK}. */
export function vitePressArgs(subcommand: "build" | "dev", ...flags: readonly string[]): string[] {
  return ["run", "-A", "--quiet", "--frozen", "npm:vitepress", subcommand, ".", ...flags];
}

/** Removes what {@linkcode copyDocuments} has copied. */
export async function removeDocuments(): Promise<void> {
  await Deno.remove(PAGES, { recursive: true }).catch(ignoreNotFound);
}

/** Copies the documents, and the pictures that they show, to where VitePress reads them. */
export async function copyDocuments(): Promise<void> {
  const files = [...["docs", "deploy/examples", "deploy/chart", "tests/record"].flatMap(filesIn), ...rootFiles()];
  for (const path of files.filter(isDocument)) {
    await Deno.mkdir(dirname(join(PAGES, path)), { recursive: true });
    await Deno.copyFile(join(ROOT, path), join(PAGES, path));
  }
}

/** Returns the names of the files in the root of the checkout. */
function rootFiles(): string[] {
  return [...Deno.readDirSync(ROOT)].filter(({ isFile }) => isFile).map(({ name }) => name);
}

/** Returns the paths of the files in a folder of the checkout and in those below it. */
function filesIn(folder: string): string[] {
  return [...Deno.readDirSync(join(ROOT, folder))].flatMap(({ name, isDirectory }) =>
    isDirectory ? filesIn(`${folder}/${name}`) : [`${folder}/${name}`]
  );
}
