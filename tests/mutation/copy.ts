/**
 * The instrumented copy of the project, which is kept in the cache.
 *
 * @module
 */

import { dirname, join } from "@std/path";
import { cacheFolder, cacheKey } from "../rig/cache.ts";
import { instrument, type InstrumentedFile, INSTRUMENTER_VERSION, type Mutant, placed } from "./instrument.ts";

const PRODUCT = /^(?:(?:base|cli|csi|k8s|lvm|plugin)\/.*|main|mod)\.ts$/;
const NOT_PRODUCT = /_test\.ts$|_pb\.ts$|\.d\.ts$/;

/** The folder of the cache that has the results, and what speeds up the next run. */
export function mutationFolder(): string {
  return join(cacheFolder(), "mutation");
}

/** An instrumented copy, locked for this process. */
export interface Copy extends Disposable {
  readonly folder: string;
  /** All mutants. Their numbers are their places here. */
  readonly mutants: readonly Mutant[];
  /** The number of the first mutant of each file. */
  readonly first: ReadonlyMap<string, number>;
  /** The original texts of the TypeScript files. */
  readonly texts: ReadonlyMap<string, string>;
}

/** Reads a file of JSON, or makes it if it is not there. */
export async function cachedJson<T>(path: string, make: () => Promise<T>): Promise<T> {
  try {
    return JSON.parse(await Deno.readTextFile(path));
  } catch (error) {
    if (!(error instanceof Deno.errors.NotFound)) throw error;
  }
  const value = await make();
  await Deno.mkdir(dirname(path), { recursive: true });
  await Deno.writeTextFile(`${path}.${Deno.pid}`, JSON.stringify(value));
  await Deno.rename(`${path}.${Deno.pid}`, path);
  return value;
}

/**
 * Makes the copy of a checkout, or brings it up to date.
 *
 * @param root the checkout
 * @throws {Error} when another process uses the copy
 */
export async function makeCopy(root: string): Promise<Copy> {
  const folder = join(cacheFolder(), `mutation-copy-${await cacheKey(root)}`);
  await Deno.mkdir(folder, { recursive: true });
  const lock = await Deno.open(`${folder}.lock`, { create: true, write: true });
  if (!(await lock.tryLock(true))) {
    throw new Error(`use the instrumented copy in ${folder}: another run of this checkout uses it; wait for that`);
  }
  const files = await filesOf(root);
  const [mutants, first, texts] = [[] as Mutant[], new Map<string, number>(), new Map<string, string>()];
  for (const file of files) {
    let content = await Deno.readFile(join(root, file));
    if (file.endsWith(".ts")) {
      const text = new TextDecoder().decode(content);
      texts.set(file, text);
      if (PRODUCT.test(file) && !NOT_PRODUCT.test(file)) {
        const instrumented = await instrumentedFile(file, text);
        first.set(file, mutants.length);
        content = new TextEncoder().encode(placed(file, instrumented, mutants.length));
        mutants.push(...instrumented.mutants);
      }
    }
    await writeIfChanged(join(folder, file), content);
  }
  await removeOthers(folder, "", new Set(files));
  return { folder, mutants, first, texts, [Symbol.dispose]: () => lock.close() };
}

async function instrumentedFile(file: string, text: string): Promise<InstrumentedFile> {
  const key = await cacheKey([INSTRUMENTER_VERSION, file, text].join("\0"));
  return await cachedJson(join(mutationFolder(), "instrumented", `${key}.json`), () => instrument(file, text));
}

/** Returns the files of a checkout, without those that git ignores. */
async function filesOf(root: string): Promise<string[]> {
  const args = ["ls-files", "--cached", "--others", "--exclude-standard", "-z"];
  const { stdout, success } = await new Deno.Command("git", { args, cwd: root }).output();
  if (!success) throw new Error(`list the files of ${root}: git failed`);
  const names = new TextDecoder().decode(stdout).split("\0").filter((name) => name !== "");
  const exists = await Promise.all(names.map((name) => Deno.stat(join(root, name)).then((s) => s.isFile, () => false)));
  return names.filter((_, index) => exists[index]);
}

async function writeIfChanged(path: string, content: Uint8Array<ArrayBuffer>): Promise<void> {
  const old = await Deno.readFile(path).catch(() => undefined);
  if (old !== undefined && old.length === content.length && old.every((byte, index) => byte === content[index])) return;
  await Deno.mkdir(dirname(path), { recursive: true });
  await Deno.writeFile(path, content);
}

/** Removes what the checkout no longer has. */
async function removeOthers(folder: string, below: string, files: ReadonlySet<string>): Promise<void> {
  for await (const { name, isDirectory } of Deno.readDir(join(folder, below))) {
    const path = join(below, name);
    if (isDirectory) await removeOthers(folder, path, files);
    else if (!files.has(path)) await Deno.remove(join(folder, path));
  }
}
