/**
 * The versions of the documents on a web server: a folder for each, and beside them a list, and a page that leads to the newest.
 * The list is outside of the versions, so that those of an older version lead to newer ones, too.
 *
 * @module
 */

import { join } from "@std/path";
import { plainPage } from "./copies.ts";
import { VERSIONS_PAGE } from "./links.ts";
import { ignoreNotFound } from "../tool.ts";

/** A version that was released; others are those of a branch, and previews. */
const RELEASED = /^\d+\.\d+\.\d+$/;

/** Returns versions in the order in which they are listed: releases first, each kind with the newest one first. */
export function inOrder(versions: readonly string[]): string[] {
  const isReleased = (version: string) => RELEASED.test(version) ? 1 : 0;
  return versions.toSorted((a, b) => isReleased(b) - isReleased(a) || b.localeCompare(a, "en", { numeric: true }));
}

/** Returns the list of versions, as HTML. */
export function listOf(versions: readonly string[]): string {
  const items = inOrder(versions).map((version) => `<li><a href="${version}/">${version}</a></li>`);
  return plainPage("denolith", `<h1>Documentation of denolith, by version</h1>\n<ul>${items.join("")}</ul>`);
}

/** Returns a page that leads elsewhere, as HTML. @param text what is there */
export function redirectTo(link: string, text: string): string {
  const refresh = `<meta http-equiv="refresh" content="0; url=${link}">\n`;
  return plainPage("denolith", `<p><a href="${link}">${text}</a></p>`).replace("<title>", `${refresh}<title>`);
}

/**
 * Puts the built site of a version into the folder with all versions, in the place of an older one, and lists what is there.
 *
 * @param site folder of the site
 * @param folder folder with all versions; it is created if missing
 */
export async function addVersion(site: string, folder: string, version: string): Promise<void> {
  const place = join(folder, version);
  await Deno.remove(place, { recursive: true }).catch(ignoreNotFound);
  await copyFolder(site, place);
  const names = [...Deno.readDirSync(folder)].filter(({ name, isDirectory }) => isDirectory && !name.startsWith("."));
  const versions = names.map(({ name }) => name);
  await Deno.writeTextFile(join(folder, VERSIONS_PAGE), listOf(versions));
  const [newest] = inOrder(versions);
  await Deno.writeTextFile(join(folder, "index.html"), redirectTo(`${newest}/`, `Documentation of denolith ${newest}`));
  // GitHub's pages leave out folders whose names begin with a dot, unless they are told not to
  await Deno.writeTextFile(join(folder, ".nojekyll"), "");
}

async function copyFolder(from: string, to: string): Promise<void> {
  await Deno.mkdir(to, { recursive: true });
  for (const { name, isDirectory } of Deno.readDirSync(from)) {
    if (isDirectory) await copyFolder(join(from, name), join(to, name));
    else await Deno.copyFile(join(from, name), join(to, name));
  }
}
