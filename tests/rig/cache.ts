import { join } from "@std/path";
import { TempFolder } from "./temp_folder.ts";

/** A day in milliseconds. */
const DAY = 24 * 3600 * 1000;

/**
 * Returns the folder in which this user's built test pieces are kept: `denolith` in the XDG cache folder.
 *
 * @throws {Error} when neither XDG_CACHE_HOME nor HOME is set
 */
export function cacheFolder(): string {
  const xdg = Deno.env.get("XDG_CACHE_HOME");
  if (xdg) return join(xdg, "denolith");
  const home = Deno.env.get("HOME");
  if (home) return join(home, ".cache", "denolith");
  throw new Error("find the cache folder: neither XDG_CACHE_HOME nor HOME is set; set one of them");
}

/** Returns a short key of what a thing is made of, so that one of other ingredients is never taken for it. */
export async function cacheKey(ingredients: string): Promise<string> {
  const digest = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(ingredients));
  return new Uint8Array(digest).toHex().slice(0, 12);
}

/**
 * Returns the folder `name` of the cache, built on first use. `build` fills a temporary folder beside it, which is
 * renamed when it is complete, so that an interrupted build leaves nothing. A process waits while another one builds
 * the same folder.
 *
 * @throws {Error} the error of `build`, and when the cache folder cannot be written
 */
export async function ensureCached(
  name: string,
  log: (line: string) => void,
  build: (temp: TempFolder, into: string) => Promise<void>,
): Promise<string> {
  const folder = join(cacheFolder(), name);
  if (await markUsed(folder)) return folder;
  await Deno.mkdir(cacheFolder(), { recursive: true });
  // The lock is the kernel's: it goes with the process that holds it.
  using lock = await Deno.open(`${folder}.lock`, { create: true, write: true });
  if (!(await lock.tryLock(true))) {
    log(`${name}: another process is building it; waiting for that`);
    await lock.lock(true);
  }
  if (await markUsed(folder)) return folder;
  await using temp = await TempFolder.create(cacheFolder(), "building-");
  const into = temp.file("whole");
  await Deno.mkdir(into);
  await build(temp, into);
  await Deno.rename(into, folder);
  return folder;
}

/** Removes from the cache what has a name that starts with `prefix` and was not used for `days`; answers the names. */
export async function removeUnused(prefix: string, days: number): Promise<string[]> {
  const removed: string[] = [];
  for await (const entry of Deno.readDir(cacheFolder())) {
    if (!entry.name.startsWith(prefix)) continue;
    const path = join(cacheFolder(), entry.name);
    const used = (await Deno.stat(path)).mtime?.getTime() ?? Date.now();
    if (Date.now() - used < days * DAY) continue;
    await Deno.remove(path, { recursive: true });
    removed.push(entry.name);
  }
  return removed;
}

/** Reports whether the folder exists, and so is complete. Notes its use for {@linkcode removeUnused}. */
async function markUsed(folder: string): Promise<boolean> {
  const isPresent = await Deno.stat(folder).then(() => true, () => false);
  // A cache that cannot be written to can be read all the same.
  if (isPresent) await Deno.utime(folder, new Date(), new Date()).catch(() => {});
  return isPresent;
}
